"""MLflow is written from the ledger: whatever is lost there, `sync` writes it again, and a run that finds it too."""

import logging
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType

from search.store.home import Home
from tests import by_tier
from tests.commands import call, done, fails_with_one
from tests.homes import drive, empty_home, forget_places, quickly, records_of, study_of, two_studies
from tests.leases import dead_owner
from tests.scenarios.test_cut_off import facts
from tracking.store import KEY_TAG, SEED_TAG, STUDY_TAG, connect

pytestmark = pytest.mark.usefixtures("here", "quick")
STUDY, GROKKED = study_of(), (2, 3)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A study that was run to its end."""
    home = empty_home(tmp_path_factory.mktemp("recorded") / "home")
    with quickly():
        drive(home, STUDY, GROKKED)
    return home


@pytest.fixture(scope="module")
def was(recorded):
    """All that MLflow has of it."""
    return facts(recorded)


@pytest.fixture
def home(recorded, here):
    forget_places()
    return Home(shutil.copytree(recorded.path, here / "home"))


def runs_with(client, tag):
    return [run.info.run_id for run in client.search_runs(["1"], f"tags.`{tag}` LIKE '%'")]


def lose_runs(tag, delete=MlflowClient.delete_run):
    def lose(home):
        client = connect(home)
        for run in runs_with(client, tag):
            delete(client, run)

    return lose


def lose_store(home):
    home.mlflow_db.unlink()
    shutil.rmtree(home.artifacts)


LOSSES = {
    "the configuration's run": lose_runs(KEY_TAG),
    "the study's run": lose_runs(STUDY_TAG),
    "the seeds' runs, a count and a status": lambda home: (
        lose_runs(SEED_TAG)(home),
        lose_runs(KEY_TAG, lambda client, run: client.log_metric(run, "final.grokked", 7))(home),
        lose_runs(KEY_TAG, lambda client, run: client.set_terminated(run, "FAILED"))(home),
    ),
    "the experiment": lambda home: connect(home).delete_experiment("1"),
    "the store": lose_store,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_lost_in_mlflow_is_written_again(loss, home, was):
    LOSSES[loss](home)
    forget_places()
    for _ in range(2):
        assert done("sync", "sweep", "--home", "home") == "sweep: 4 seeds are in MLflow\n"
        assert facts(home) == was


NOTICED = ["the configuration's run", "the study's run", "the experiment", "the store"]


@pytest.mark.parametrize("loss", by_tier(NOTICED, ["the experiment", "the store"]))
def test_a_run_with_nothing_to_train_writes_it_too(loss, home, was, caplog):
    LOSSES[loss](home)
    forget_places()
    with caplog.at_level(logging.WARNING):
        drive(home, STUDY)
    assert facts(home) == was
    restored = "study sweep: its experiment was deleted in MLflow, and is restored"
    assert caplog.messages == ([restored] if loss == "the experiment" else [])


def test_what_is_there_is_not_written_again(home, monkeypatch):
    """Not by a run with nothing to train, which looks once; by `sync` the same values."""
    written = Mock()
    with monkeypatch.context() as patch:
        for name in ("log_batch", "set_terminated", "log_artifacts", "create_run", "log_metric"):
            patch.setattr(MlflowClient, name, written)
        drive(home, STUDY)
    assert not written.called
    client = connect(home)
    (run,) = runs_with(client, KEY_TAG)

    def points():
        return [len(client.get_metric_history(run, m)) for m in client.get_run(run).data.metrics]

    before = points()
    done("sync", "sweep", "--home", "home")
    assert points() == before


def test_another_store_is_filled_and_the_first_is_left(home, here, monkeypatch):
    was = facts(home)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here}/other.db")
    done("sync", "sweep", "--home", "home")
    assert facts(home) == was
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert facts(home) == was


def test_all_studies_are_written_if_none_is_named(here):
    folder = two_studies("runs").rename("moved")
    lose_store(Home(folder))
    assert done("sync", "--home", "moved") == "sweep: 4 seeds are in MLflow\nsweep-2: 1 seeds are in MLflow\n"
    experiments = connect(Home(folder)).search_experiments(ViewType.ALL)
    assert {e.name for e in experiments} == {"Default", "sweep", "sweep-2"}
    runs = connect(Home(folder)).search_runs([e.experiment_id for e in experiments], f"tags.`{KEY_TAG}` LIKE '%'")
    assert sorted(run.info.status for run in runs) == ["FINISHED", "KILLED"]


def test_the_others_are_written_where_one_runs_and_one_was_never_begun(here):
    folder = two_studies()
    running, begun = (records_of(folder, name).lease for name in ("sweep", "a-beginning"))
    running.acquire()
    begun.acquire()
    begun.release()
    said = call("sync", "--home", folder, code=2)
    assert said.stdout == "sweep-2: 1 seeds are in MLflow\n"
    (line,) = said.stderr.splitlines()
    assert line.startswith("error: study sweep is already being run by ")
    assert "a-beginning has no record of its file" in fails_with_one(1, "sync", "a-beginning", "--home", folder)


def test_a_study_that_runs_is_left_to_its_driver(home):
    connect(home)  # which is where it is now
    lease = records_of(home).lease
    lease.acquire()
    assert "study sweep is already being run by" in fails_with_one(2, "sync", "sweep", "--home", "home")
    lease.release()
    lease.owner = dead_owner()
    lease.acquire()
    done("sync", "sweep", "--home", "home")


def test_what_cannot_be_written_is_a_line(home, monkeypatch):
    assert "no records" in fails_with_one(2, "sync", "swep", "--home", "home")
    assert "nothing has run yet" in fails_with_one(2, "sync", "--home", "elsewhere")
    assert not Path("elsewhere").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    line = fails_with_one(1, "sync", "sweep", "--home", "home")
    assert line == "MLflow store http://127.0.0.1:1: is away (Connection refused)"
