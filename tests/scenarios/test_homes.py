"""A home's records: MLflow says what the ledger says; a home can be moved, packed, and pooled with others."""

import json
import shutil
import tarfile
from ast import literal_eval
from contextlib import suppress
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import load_dict

from reports.ratios import ratio_interval
from reports.records import rates_of
from reports.table import constraint_table
from search.analysis.frames import RecordSet, configuration_rows
from search.errors import Failure
from search.stats.metrics import MAY_BE_ZERO
from search.store.home import Home
from tests import by_tier
from tests.commands import done, fails_with_one, refusal
from tests.homes import STUDY, Recorder, empty_home, forget_places, quickly, recorded, records_of, snapshot, study_of
from tests.reference import client_of, runs_of
from tracking.shown import CONFIGURATION_JSON
from tracking.store import KEY_TAG, STUDY_TAG, connect
from trainer import Outcome, Recipe

pytestmark = pytest.mark.usefixtures("here", "quick")
TOGGLED = {"toggle": ["tie_vo", "shared_norm"], "confirm": {"seeds": [91, 92]}}
GIVEN_UP = {"outcome": Outcome.GIVEN_UP, "steps": 2_000, "hopeless_step": 2_000}
SPARED, DIVERGED = {"hopeless_step": 1_000}, {"outcome": Outcome.DIVERGED, "steps": 1_000}


@pytest.fixture(scope="module")
def toggled(tmp_path_factory):
    """A home with constraints taken off, and seeds of every outcome, of which some confirm."""
    home = empty_home(tmp_path_factory.mktemp("toggled") / "runs")
    with quickly():
        study = Recorder(home, study_of(**TOGGLED))
        _, *others = study.configurations
        study.seeds((1, 2, 3, 4), grokked=(2,), changes={2: {"held": True}, 3: GIVEN_UP, 4: SPARED})
        for other in others:
            study.seeds((1, 2), other, changes={1: SPARED, 2: DIVERGED})
        study.censored((3,), others[1])
        study.censored((5,))
        study.seeds((91, 92), grokked=(92,), confirmation=True)
        study.write_pages()  # spared seeds of others bound rates too
        study.done()
    return home


def of_mlflow(home, study):
    """What MLflow's metrics, parameters and files say of a study's configurations by themselves, by key."""
    client, found = client_of(home.path), {}
    for run in runs_of(client, study):
        if key := run.data.tags.get(KEY_TAG):
            final = {k.removeprefix("final."): v for k, v in run.data.metrics.items() if k.startswith("final.")}
            params = {name: typed(text) for name, text in run.data.params.items()}
            fields = load_dict(f"{run.info.artifact_uri}/{CONFIGURATION_JSON}")
            found[key] = dict.fromkeys(MAY_BE_ZERO, 0) | final | fields | params
    return found


def typed(text):
    """A parameter's value out of its text."""
    with suppress(ValueError, SyntaxError):
        return literal_eval(text)
    return text


def test_mlflows_metrics_say_what_the_ledger_says(toggled):
    ours = {row["configuration"]: row for row in configuration_rows(records_of(toggled))}
    (base, *_) = ours.values()
    counts = ("seeds", "grokked", "given_up", "censored", "held", "confirmation_seeds", "verified")
    assert [base[name] for name in counts] == [4, 1, 1, 1, 1, 2, 2]
    lists = {f"recipe.{name}" for name, value in Recipe().as_dict().items() if isinstance(value, list)}
    theirs = of_mlflow(toggled, "sweep")
    assert theirs.keys() == ours.keys()
    for key, row in theirs.items():
        both = row.keys() & ours[key].keys() - lists  # MLflow has them as text
        assert len(both) > 60 and not {n for n in both if row[n] != ours[key][n] and row[n] == row[n]}
        search, fresh = rates_of(ours[key])
        assert [row["grok_rate"], row["grok_rate_low"], row["grok_rate_high"]] == [search.rate, *search.interval]
        assert not fresh.n or (row["confirmation_low"], row["confirmation_high"]) == fresh.interval


def test_the_studys_run_counts_the_searchs_seeds_alone(toggled):
    (metrics,) = (run.data.metrics for run in runs_of(client_of(toggled.path), "sweep") if STUDY_TAG in run.data.tags)
    assert metrics == {"configurations": 3, "seeds": 4, "runs": 8, "grokked": 1}


def test_an_arm_that_mlflow_lacks_leaves_the_table_to_the_others():
    study = Recorder(empty_home("table"), study_of(toggle=["tie_vo", "no_ffn_bias"]))
    base, *others = study.configurations
    for configuration in (base, *others):
        study.seeds(range(1, 5), configuration, grokked=(1, 2), shown=configuration != others[1])
    study.write_pages()
    study.done()
    runs = [study.tracker.client.get_run(study.tracker.run_of(c).id) for c in (base, others[0])]
    assert [run.data.params["constraint"] for run in runs] == ["none", "tie_vo"]


def test_the_table_of_a_study_is_in_mlflow():
    """As files of its run, and as parameters, metrics and tags of its arms, that the UI groups and draws."""
    study = Recorder(empty_home("table"), study_of(toggle=["tie_vo"]))
    base, without = study.configurations
    study.seeds(range(1, 5), grokked=(1, 2, 3))
    study.seeds(range(1, 5), without, grokked=(1,))
    for number in (5, 6):  # what is there is not written again
        study.write_pages()
        study.seeds((number,))
    study.tracker.write(study.tracker.run_of(base), params={"scale": "67p"})  # MLflow would refuse
    study.done()
    client, runs = study.tracker.client, {c.key: study.tracker.run_of(c).id for c in study.configurations}
    names = {file.path for file in client.list_artifacts(study.tracker.study_run().id)}
    assert {"table.md", "table.csv", "table.json"} <= names
    data = {key: client.get_run(run).data for key, run in runs.items()}
    roles = {k: [d.params.get(n) for n in ("scale", "constraint", "toggled")] for k, d in data.items()}
    assert roles == {base.key: ["57p", "none", "base"], without.key: ["57p", "tie_vo", "off"]}
    numbers = {k: v for k, v in data[without.key].metrics.items() if k.startswith("table.")}
    low, high = ratio_interval(1, 2, 0)
    assert numbers == pytest.approx({
        "table.ratio": 3, "table.ratio_low": low, "table.ratio_high": high, "table.pairs": 4,
        "table.rate_with": 3 / 5, "table.rate_without": 1 / 4,
    })  # fmt: skip
    assert data[without.key].tags["table.trains"] == "yes" and data[without.key].tags["table.agrees"] == "agrees"
    assert not any(name.startswith("table.") for name in data[base.key].metrics)


# ---- at another place

ASKED = (("status",), ("status", "sweep"), ("table", "sweep"), ("best",))


def said_of(folder):
    """What commands say and write of a home, wherever it is."""
    said = []
    for words in ASKED:
        said.append(done(*words, "--home", folder).replace(str(folder), "HOME"))
    shutil.rmtree("out", ignore_errors=True)
    Path("out").mkdir()
    done("records", "sweep", "--of", "curves", "-o", "out/c.csv", "--home", folder)
    done("pull", "sweep", "--best", "-o", "out/best", "--home", folder)
    return said, snapshot("out")


def packed(old, new):
    with tarfile.open("runs.tar.gz", "w:gz") as tar:
        tar.add(old, arcname=".")
    with tarfile.open("runs.tar.gz") as tar:
        tar.extractall(new, filter="data")


@pytest.mark.parametrize("bring", by_tier([shutil.move, packed], [shutil.move]))
def test_a_home_at_another_place_is_as_it_was_and_goes_on_there(bring, toggled, here):
    old, new = Path("an old_place/runs"), Path("new place/of/runs")
    shutil.copytree(toggled.path, old)
    new.parent.mkdir(parents=True)
    was = said_of(old)
    before = snapshot("an old_place")
    bring(old, new)
    forget_places()
    assert said_of(new) == was
    study = Recorder(Home(new), study_of(**TOGGLED))
    study.seeds((6, 7), grokked=(6,))
    study.done()
    assert snapshot("an old_place") == (before if bring is packed else {})
    assert (new / "artifacts/sweep").is_dir()
    client = MlflowClient(tracking_uri=f"sqlite:///{Home(new).mlflow_db}")
    for run in runs_of(client, "sweep"):
        if run.info.run_name.startswith("seed "):
            continue  # a live curve, which has no files
        place = Path(client.download_artifacts(run.info.run_id, ""))
        assert place.is_relative_to(here / new) and any(place.iterdir())


def test_a_home_that_is_run_from_another_place_is_left_as_it_is(toggled):
    shutil.copytree(toggled.path, "mounted")
    home = Home("mounted")
    records_of(home).lease.acquire()
    before = home.mlflow_db.read_bytes()
    said = refusal(Failure, connect, home)
    assert said == f"{home.path}: sweep is being run, with this home as {toggled.path}"
    assert home.mlflow_db.read_bytes() == before


# ---- several homes


def test_the_evidence_of_two_homes_is_pooled_by_their_files():
    without = STUDY + "configurations: [{model: {tie_vo: false}}]"
    recorded("a", (1, 2, 3), grokked=(2,))
    recorded("b", (1, 2), text=without.replace("sweep", "other"))
    for name, study in (("a", "sweep"), ("b", "other")):
        done("records", study, "-o", f"{name}.parquet", "--home", name)
        done("records", study, "--of", "seeds", "-o", f"{name}.csv", "--home", name)
    said = done("table", "a.parquet", "b.parquet", "--format", "json")
    pooled = RecordSet(["sweep"], "a").configurations() + RecordSet(["other"], "b").configurations()
    assert json.loads(said) == constraint_table(pooled).tidy()
    (cell,) = json.loads(said)
    assert [cell[n] for n in ("cost", "pairs", "n_with", "n_without")] == ["open", 0, 3, 2]
    files = ["a.parquet", "b.parquet", "a.csv", "b.csv"]
    (paired,) = json.loads(done("table", *files, "--format", "json"))
    assert [paired[n] for n in ("pairs", "only_with", "only_without")] == [2, 1, 0]
    assert done("table", "a.parquet", "other", "--format", "json", "--home", "b") == said
    assert "did you mean other?" in fails_with_one(2, "table", "a.parquet", "othr", "--home", "b")
