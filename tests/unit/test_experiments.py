"""A study's experiment is its own whatever a user does with it in MLflow's page: it is renamed, or deleted."""

import logging
import shutil

import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

from search.errors import Failure
from search.run import removal as whole
from search.store.home import Home
from tests import by_tier
from tests.commands import done
from tests.homes import drive, empty_home, forget_places, quickly, records_of, study_of, thetas, two_studies
from tracking import removal
from tracking.store import LEDGER_TAG, connect, find_experiment


@pytest.fixture
def home(here):
    """Two of the first study's four seeds have ended."""
    return Home(two_studies("adder-runs").resolve())


def experiments(home):
    """Names of experiments but MLflow's own and that of the second study."""
    return [e.name for e in connect(home).search_experiments(ViewType.ALL) if e.name not in ("Default", "sweep-2")]


def renamed(client, experiment):
    client.rename_experiment(experiment, "what I call it")


def deleted(client, experiment):
    client.delete_experiment(experiment)


def both(client, experiment):
    renamed(client, experiment)
    deleted(client, experiment)


@pytest.mark.parametrize("change", by_tier([both, renamed, deleted], [both]))
def test_a_study_goes_on_in_its_own_experiment(change, home, caplog):
    before, client = thetas(home.path), connect(home)
    change(client, client.get_experiment_by_name("sweep").experiment_id)
    names = experiments(home)
    with quickly(), caplog.at_level(logging.WARNING):
        drive(home, study_of())
    (found,) = [e for e in connect(home).search_experiments() if e.name in names]
    assert experiments(home) == names == [found.name]
    restored = "study sweep: its experiment was deleted in MLflow, and is restored"
    assert caplog.messages.count(restored) == (change in (deleted, both))
    if found.name != "sweep":
        client.rename_experiment(found.experiment_id, "sweep")
    after = thetas(home.path)
    assert len(after) == 4 and after.items() >= before.items()


def test_a_renamed_experiment_is_pulled_moved_shown_and_deleted(home, here):
    client = connect(home)
    renamed(client, client.get_experiment_by_name("sweep").experiment_id)
    forget_places()
    shutil.move(home.path, here / "moved")
    assert "step" in done("pull", "sweep", "--seed", "2", "-o", "best", "--home", "moved")
    records = records_of("moved")
    connect(Home("moved"))  # before a driver has it
    with records.lease:
        held = removal.contents(records)
        assert held.experiment and held.experiment.name == "what I call it" and held.runs
        whole.delete(records)
    assert experiments(Home("moved")) == [] and thetas("moved", "sweep-2")


def test_a_name_that_another_study_has_got_is_not_taken_over(home):
    client = connect(home)
    client.rename_experiment(client.get_experiment_by_name("sweep").experiment_id, "other")
    with pytest.raises(Failure, match=r"experiment other is that of study sweep, renamed: .* with --fresh$"):
        drive(home, study_of(name="other", seeds={"first": 1, "count": 1}))
    assert find_experiment(client, "sweep").name == "other" and find_experiment(client, "third") is None


def test_homes_that_share_a_store_have_an_experiment_each(here, monkeypatch, caplog):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{here}/shared.db")
    one, other = (empty_home(here / name) for name in ("one", "other"))
    study = study_of(seeds={"first": 1, "count": 1})
    with quickly(), caplog.at_level(logging.WARNING):
        for home in (one, other, one, other):
            drive(home, study)
    first, second = sorted(experiments(one))
    ledger = records_of(other).database.identity
    assert first == "sweep" and second.startswith("sweep (") and second.endswith(f" {ledger[:6]})")
    told = "study sweep: MLflow shows another ledger's study by this name, and this one as"
    assert caplog.messages == [f"{told} {second}"]
    records = records_of(other)
    with records.lease:
        whole.delete(records)
    assert {e.name for e in connect(one).search_experiments()} == {"Default", "sweep"}
    assert find_experiment(connect(one), "sweep", records_of(other)) is None


def test_a_home_leaves_anothers_artifacts_in_its_store_where_they_are(here, monkeypatch):
    one, other = (empty_home(here / name) for name in ("one", "other"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{one.mlflow_db}")
    with quickly():
        for home in (one, other, one):
            drive(home, study_of(seeds={"first": 1, "count": 1}))
    for home in (one, other):
        found = find_experiment(connect(one), "sweep", records_of(home))
        assert found.artifact_location == (home.artifacts / "sweep").as_uri()


def test_an_experiment_of_an_earlier_version_is_that_of_the_ledger_that_it_shows(home):
    """Earlier versions did not say whose it is, but the ledger where it is shown."""
    client, records, others = connect(home), records_of(home), records_of(empty_home("others"))
    for _ in range(2):
        assert find_experiment(client, "sweep", records).name == "sweep"
        assert find_experiment(client, "sweep", others) is None
        with quickly():
            drive(home, study_of())
    assert experiments(home) == ["sweep"] and LEDGER_TAG in client.get_experiment_by_name("sweep").tags


def test_one_that_may_only_be_read_is_anothers(home, monkeypatch):
    """Of an earlier version, on a server with accounts: the study goes on in an experiment of its own."""
    earlier, change = connect(home).get_experiment_by_name("sweep").experiment_id, MlflowClient.set_experiment_tag

    def refuse(client, experiment, *tag):
        if experiment == earlier:
            raise MlflowException("Permission denied", PERMISSION_DENIED)
        change(client, experiment, *tag)

    monkeypatch.setattr(MlflowClient, "set_experiment_tag", refuse)
    with quickly():
        for _ in range(2):
            drive(home, study_of())
    assert len(experiments(home)) == 2 and len(thetas(home.path)) == 4
    assert find_experiment(connect(home), "sweep", records_of(home)).experiment_id != earlier


def test_a_study_that_was_deleted_begins_anew_where_nothing_can_be_removed(home, monkeypatch):
    """As on a server, where an experiment is renamed and deleted, and keeps its tags."""
    monkeypatch.setattr(removal.Contents, "is_in_home", False)
    monkeypatch.setattr(removal.Contents, "is_in_another_home", False)
    records = records_of(home)
    with records.lease:
        whole.delete(records)
    assert find_experiment(connect(home), "sweep") is None
