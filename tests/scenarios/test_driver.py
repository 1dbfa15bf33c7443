"""Whole runs of a study, by the command, with everything but Ray (tests/in_process.py): searches, files that
are edited, trials that fail, runs that are stopped.
"""

import os
from unittest.mock import Mock

import pytest

from search.run import worker
from search.tracking.tracking import KEY_TAG
from tests.commands import fails_with_one
from tests.reference import check_whole, client_of, expected, rows_of, runs_of, write_study
from tests.scenarios.studies import SHORT as QUICK
from tests.scenarios.studies import run, run_whole
from trainer.bank import bank
from trainer.engine.build import GivenUp
from trainer.engine.cuda.driver import gpus

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here")

SEARCH = QUICK | {
    "name": "searched",
    "seeds": {"first": 1, "count": 2},
    "stop": {"hopeless": True},
    "space": {"recipe.lr": {"float": [0.005, 0.05], "log": True}, "model.qk_dim": {"choice": [4, 5]}},
    "sampler": {"name": "tpe", "configurations": 3, "seed": 1},
}


def test_a_search_records_a_run_a_configuration(here):
    assert run(SEARCH, here).exit_code == 0
    client, rows = client_of(here / "home"), rows_of(here / "home", "searched")
    runs = [r for r in runs_of(client, "searched") if KEY_TAG in r.data.tags]
    assert len(runs) == 3 and {r.info.status for r in runs} == {"FINISHED"}
    rates = {float(r.data.params["recipe.lr"]) for r in runs}
    assert len(rates) == 3 and all(0.005 <= rate <= 0.05 for rate in rates)
    assert {r.data.params["model.qk_dim"] for r in runs} <= {"4", "0"}  # 0: as wide as the head
    assert len(rows) == 6
    for run_ in runs:
        final = {k.removeprefix("final."): v for k, v in run_.data.metrics.items() if k.startswith("final.")}
        failed, given_up, spared = (final.get(name, 0) for name in ("failed", "given_up", "spared"))
        assert failed + given_up == final["seeds"] == 2
        assert 0 <= spared <= failed and "spared_grokked" not in final, "what is always 0 is left out"
        mine = [r for r in rows if r["configuration"] == run_.data.tags[KEY_TAG]]
        hopeless = [r["hopeless_step"] for r in mine if r["hopeless_step"] is not None]
        assert len(hopeless) == given_up + spared


def test_a_finished_study_is_extended_by_editing_its_file(here):
    home = here / "home"
    assert run(QUICK | {"seeds": {"first": 5, "count": 2}}, here).exit_code == 0
    before = rows_of(home, "quick")
    run_whole(QUICK, here)
    assert rows_of(home, "quick")[:2] == before, "what was recorded stays as it is"


def test_a_store_that_has_none_of_a_studys_records_is_refused(here, monkeypatch):
    """Else its records would go to two places, and be whole in neither."""
    assert run(QUICK | {"seeds": {"first": 5, "count": 2}}, here).exit_code == 0
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here / 'other.db'}")
    before = rows_of(here / "home", "quick")
    said = run(QUICK, here)
    assert said.exit_code == 2 and "this MLflow store has none of its records" in said.stderr
    assert len(said.stderr.splitlines()) == 1 and rows_of(here / "home", "quick") == before


# ---- trials that fail


@pytest.fixture
def unlucky(monkeypatch):
    """The first trial raises when it is started for the first time."""
    whole, lucky = worker.run_trial, []

    def run_trial(folder, *rest):
        lucky.append(folder)
        if len(lucky) == 1:
            raise RuntimeError("no luck\nat all")
        yield from whole(folder, *rest)

    monkeypatch.setattr(worker, "run_trial", run_trial)


def test_a_trial_that_fails_is_started_again(unlucky, here, monkeypatch, caplog):
    """Here without the engine, whose compiler hangs: each worker says so, the driver once."""

    monkeypatch.setattr(bank, "EngineBackend", Mock(side_effect=GivenUp("g++ has not ended in 600 s")))
    study = QUICK | {"faults": {"max_failures": 1}}
    assert run(study, here).exit_code == 0
    said = [r.name for r in caplog.records if "g++ has not ended in 600 s: training without" in r.getMessage()]
    assert said.count("search.run.driver") == 1 < said.count("trainer.bank.bank")
    check_whole(here / "home", study, here, expected(study))


# ---- refused


@pytest.mark.parametrize("resource", ["cpu", "gpu"])
def test_a_trial_that_fits_nowhere_is_refused(resource, here):
    much = {"gpu": len(gpus()[0]) + 4, "cpu": os.cpu_count() + 62}[resource]
    file = write_study(here, QUICK | {"resources": QUICK["resources"] | {resource: much}})
    line = fails_with_one(2, "run", file, "--home", "home")
    assert f"resources.{resource}: a bank asks for {much}, there are" in line
