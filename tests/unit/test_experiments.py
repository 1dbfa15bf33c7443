"""A study's experiment is its own whatever a user does with it in MLflow's page: it is renamed, or deleted."""

import logging
import shutil

import pytest
from mlflow.entities import ViewType

from search.errors import Failure
from search.run import removal as whole
from search.store.home import Home
from tests import by_tier
from tests.commands import done
from tests.homes import drive, empty_home, forget_places, quickly, records_of, study_of, thetas, two_studies
from tracking import removal
from tracking.store import connect, find_experiment


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


def ledger_of(home):
    return records_of(home).database.identity


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


def test_a_renamed_experiment_is_pulled_moved_shown_and_deleted(home, here, monkeypatch):
    client = connect(home)
    renamed(client, client.get_experiment_by_name("sweep").experiment_id)
    forget_places()
    shutil.move(home.path, here / "moved")
    assert "step" in done("pull", "sweep", "--seed", "2", "-o", "best", "--home", "moved")
    records = records_of("moved")
    connect(Home("moved"))  # before a driver has it
    with records.lease:
        found = whole.contents(records)
        (held,) = found.shown
        assert held.experiment and held.experiment.name == "what I call it" and held.runs
        whole.delete(found)
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
    assert first == "sweep" and second.startswith("sweep (") and second[-8:-1] == f" {ledger_of(other)[:6]}"
    assert caplog.messages == [f"study sweep: MLflow shows another home's study by this name, and this one as {second}"]
    records = records_of(other)
    with records.lease:
        whole.delete(whole.contents(records))
    assert {e.name for e in connect(one).search_experiments()} == {"Default", "sweep"}
    assert find_experiment(connect(one), "sweep", ledger_of(other)) is None


def test_an_experiment_of_an_earlier_version_goes_to_the_ledger_that_goes_on_with_it_first(home):
    """Earlier versions did not say whose it is."""
    client = connect(home)
    assert find_experiment(client, "sweep", "another").name == "sweep"
    with quickly():
        drive(home, study_of())
    assert find_experiment(client, "sweep", ledger_of(home)).name == "sweep"
    assert find_experiment(client, "sweep", "another") is None


def test_a_study_that_was_deleted_begins_anew_where_nothing_can_be_removed(home, monkeypatch):
    """As on a server, where an experiment is renamed and deleted, and keeps its tags."""
    monkeypatch.setattr(removal.Contents, "is_in_home", False)
    monkeypatch.setattr(removal.Contents, "is_in_another_home", False)
    records = records_of(home)
    with records.lease:
        whole.delete(whole.contents(records))
    assert find_experiment(connect(home), "sweep") is None
