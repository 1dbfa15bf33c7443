"""Verdicts on all pairs of a study's seeds: in the records, in MLflow, beside a checkpoint, in tables."""

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from adders.proof.program import source
from adders.proof.second import program_digest
from model.verdict import COUNTEREXAMPLE, PROVED, UNDECIDED, claim_beside
from search.store.database import RESULTS
from search.store.home import Home
from tests import CERTIFICATES
from tests.commands import call, done
from tests.homes import Recorder, empty_home, quickly, records_of, study_of
from tests.verdicts import verdict_on
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("here")
RIGHT = Checkpoint.load(CERTIFICATES / "earlier/57p")


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """Three grokked seeds: θ of 1 and 4 is no adder's, as decoding has found of 4; that of 2 is a certificate's."""
    folder = tmp_path_factory.mktemp("proved") / "runs"
    with quickly():
        study = Recorder(empty_home(folder), study_of())
        study.seeds((1, 2, 3, 4), grokked=(1, 2, 4), changes={2: {"theta_P": RIGHT.theta_P}})
        key = study.configuration.key
        study.records.record_verification((key, 4, 4), 9_000)
        study.censored((5,))
        study.done()
        before = call("best", "sweep", "--home", folder).stdout
        done = call("prove", "--study", "sweep", "--home", folder)
        again = call("prove", "--study", "sweep", "--home", folder, "--json")
    return folder, study, before, done, again


def test_grokked_seeds_are_decided_once_and_recorded(proved):
    folder, study, _, done, again = proved
    key = study.configuration.key[:6]
    first, second, third, last = done.stdout.splitlines()
    assert done.exit_code == again.exit_code == 1, "not all are proved"
    assert first.startswith(f"seed 1 of {key}: wrong on ")
    level = "at level any (every machine that keeps docs/proof.md's rules)"
    assert second == f"seed 2 of {key}: proved right on all 10^20 pairs, {level}"
    assert third.startswith(f"seed 4 of {key}: wrong on "), "decoding's verdict has no counterexample"
    assert last == "sweep: of 3 grokked seeds 1 are proved, 2 are wrong, 0 are undecided"
    said = json.loads(again.stdout)
    assert [said[n] for n in ("grokked", "proved", "prove_tried", "wrong")] == [3, 1, 3, 2]
    assert [seed["verdict"] for seed in said["seeds"]] == ["COUNTEREXAMPLE", "PROVED", "COUNTEREXAMPLE"]
    rows = {r["init_seed"]: r["proof"] for r in records_of(Home(folder)).list_seeds()}
    assert rows[3] is None, "it did not grok"


def test_tables_say_so(proved):
    folder, _, before, *_ = proved
    assert before.splitlines()[0].split()[-1] == "verified", "nobody had asked"
    (row,) = json.loads(done("best", "sweep", "--home", folder, "--json"))["front"]
    assert (row["proved"], row["prove_tried"], row["best_seed"]) == (1, 3, "2")
    head, line, *_ = done("best", "sweep", "--home", folder).splitlines()
    assert head.split()[-1] == "proved" and line.endswith("  1 of 3")
    done("report", "sweep", "--home", folder)
    page = Path("sweep.html").read_text()
    assert '">1 of 3</td><td class="number">2</td>' in page, "the proved, then the best seed"


def test_the_best_seed_is_one_that_is_not_refuted_and_its_checkpoint_has_the_verdict(proved):
    folder, *_ = proved
    for _ in range(2):
        said = done("pull", "sweep", "--best", "-o", "best", "--home", folder)
        assert "proved right on all 10^20 pairs" in said
    checkpoint = Checkpoint.load(Path("best"))
    assert checkpoint.seed["init_seed"] == 2
    assert claim_beside(Path("best"), checkpoint.spec, checkpoint.theta_P)["verdict"] == "PROVED"
    assert "wrong on" in done("pull", "sweep", "--seed", "1", "-o", "wrong", "--home", folder)


def test_for_another_user_it_is_a_claim_until_he_has_decided_it(proved, tmp_path, monkeypatch):
    """Or a stranger's ledger would say what is proved."""
    folder, *_ = proved
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    (row,) = json.loads(done("best", "sweep", "--home", folder, "--json"))["front"]
    assert (row["proved"], row["prove_tried"], row["proofs_claimed"], row["best_seed"]) == (0, 0, 3, "1")
    line = done("best", "sweep", "--home", folder).splitlines()[1]
    assert line.endswith("  3 claimed, not checked here (prove --study sweep)")
    assert "wrong on" in done("pull", "sweep", "--best", "-o", "theirs", "--home", folder)
    monkeypatch.setattr("adders.proof.file.decide_soon", lambda spec, theta_P, limit_s: None)
    said = done("pull", "sweep", "--seed", "2", "-o", "two", "--home", folder)
    assert "claimed, not checked here: proved right on all 10^20 pairs" in said


def test_mlflow_can_be_asked_for_what_is_proved(proved):
    _, study, *_ = proved
    client, experiment = study.tracker.client, study.tracker.experiment
    for condition in ("metrics.proved = 1", "tags.`adder.proved` = 'yes'"):
        (run,) = client.search_runs([experiment], condition)
        assert run.data.tags["adder.seed"] == "2"
        assert "checkpoint/proof.json" in {f.path for f in client.list_artifacts(run.info.run_id, "checkpoint")}
    (run,) = client.search_runs([experiment], "metrics.`final.proved` = 1")
    assert run.data.metrics["final.prove_tried"] == 3
    version = client.get_model_version_by_alias("sweep", "smallest-proved")
    assert version.tags["adder.proved"] == "yes"


def test_the_run_of_an_interrupted_study_stays_killed(proved):
    _, study, *_ = proved
    run = study.tracker.run_of(study.configuration).id
    assert study.tracker.client.get_run(run).info.status == "KILLED"


def test_a_verdict_that_takes_anothers_place_is_the_one_that_mlflow_has(tmp_path):
    """Of an earlier program it is none on the version that is registered."""
    study = Recorder(empty_home(tmp_path / "runs"), study_of())
    client, key = study.tracker.client, study.configuration.key
    today, before = program_digest(source(study.configuration.spec, RIGHT.theta_P)), "0" * 64

    def record(word):
        study.records.record_proof((key, 2, 2), verdict_on(RIGHT, word) | {"program_sha256": before})

    def shown(*command):
        done(*command, "sweep", "--home", tmp_path / "runs")
        (run,) = client.search_runs([study.tracker.experiment], "tags.`adder.seed` = '2'")
        proof = Path(client.download_artifacts(run.info.run_id, "checkpoint/proof.json")).read_text()
        return run.data.tags["adder.proved"], run.data.metrics["proved"], json.loads(proof)["program_sha256"]

    with quickly():
        study.seeds((2,), grokked=(2,), changes={2: {"theta_P": RIGHT.theta_P}})
        record(COUNTEREXAMPLE)
        study.done()
        assert shown("sync") == ("no", 0, before)
        assert client.get_registered_model("sweep").aliases.keys() == {"best", "smallest"}
        assert "adder.proved" not in client.get_model_version_by_alias("sweep", "best").tags
        assert shown("prove", "--study") == ("yes", 1, today)
        assert "smallest-proved" in client.get_registered_model("sweep").aliases
        for word, tag, proved in ((PROVED, "yes", 1), (UNDECIDED, "undecided", 0)):
            record(word)
            assert shown("sync") == (tag, proved, before)


def test_a_decided_seed_whose_theta_is_lost_stays_decided(tmp_path):
    with quickly():
        study = Recorder(empty_home(tmp_path / "runs"), study_of())
        study.seeds((1, 2), grokked=(1, 2), shown=False)
        study.records.record_proof((study.configuration.key, 2, 2), verdict_on(RIGHT, PROVED))
        with study.records.database.begin() as db:
            db.execute(sa.update(RESULTS).where(RESULTS.c.init_seed == 2).values(theta=b""))
        study.done()
        result = call("prove", "--study", "sweep", "--home", tmp_path / "runs", code=1)
    first, last = result.stdout.splitlines()
    assert first.startswith("seed 1 of ") and ": wrong on " in first
    assert last == "sweep: of 2 grokked seeds 1 are proved, 1 are wrong, 0 are undecided"
    assert "damaged, θ of seed 2" in result.stderr and "the verdicts are recorded" in result.stderr
