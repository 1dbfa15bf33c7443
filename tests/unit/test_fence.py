"""What a driver that was paused does to MLflow when it comes back, and that each run is there once."""

from unittest.mock import Mock

import pytest
from mlflow import MlflowClient

from search.store.lease import Superseded
from search.study.trial import Configuration
from tests.homes import records_of, study_of
from tracking.store import FencedClient, connect
from tracking.tracker import Tracker

superseded = Mock(side_effect=Superseded("another driver has the study"))


@pytest.fixture
def client(home):
    return connect(home, creates=True)


def test_a_driver_that_is_superseded_reads_and_changes_nothing(client):
    fenced = FencedClient(client, superseded)
    assert [e.name for e in fenced.search_experiments()] == ["Default"]
    for change in (fenced.create_run, fenced.log_batch, fenced.set_tag, fenced.update_run, fenced.delete_run,
                   fenced.set_terminated, fenced.log_artifacts, fenced.create_experiment):  # fmt: skip
        with pytest.raises(Superseded):
            change("0")
    assert client.search_runs(["0"]) == []


def test_a_job_that_goes_on_when_the_study_was_given_back_changes_nothing_more(client, home):
    lease = records_of(home).lease
    fenced = FencedClient(client, lease.verify)
    with lease:
        fenced.set_experiment_tag("0", "told", "before")
    with pytest.raises(Superseded, match="this driver has given it back"):
        fenced.set_experiment_tag("0", "told", "after")
    assert client.get_experiment("0").tags["told"] == "before"


def test_a_job_that_goes_on_when_the_study_was_given_back_writes_no_row(home):
    records = records_of(home)
    with records.lease:
        records.update_run("57p", "0", "before")
    with pytest.raises(Superseded, match="this driver has given it back"):
        records.update_run("57p", "0", "after")


@pytest.mark.parametrize("last", ["superseded", "holder"])
@pytest.mark.parametrize("kind", ["configuration", "study"])
def test_of_two_drivers_that_create_a_run_at_once_the_one_that_has_the_study_keeps_its_own(
    kind, last, client, home, monkeypatch
):
    """Both have looked before either creates; the last one's run arrives when the other's is there."""
    study, is_lost, created = study_of(), [], []
    configuration, create = Configuration(*study.listed[0]), MlflowClient.create_run
    trackers = {
        "superseded": Tracker(client, home, study, verify=lambda: is_lost and superseded()),
        "holder": Tracker(client, home, study),
    }
    (first,) = trackers.keys() - {last}

    def write(name):
        tracker = trackers[name]
        return (tracker.run_of(configuration) if kind == "configuration" else tracker.study_run()).id

    def late(self, *args, **options):
        monkeypatch.setattr(MlflowClient, "create_run", create)
        created.append(write(first))
        is_lost.append(last == "superseded")
        return create(self, *args, **options)

    for tracker in trackers.values():
        assert not tracker.runs
    monkeypatch.setattr(MlflowClient, "create_run", late)
    if last == "superseded":
        with pytest.raises(Superseded):
            write(last)
    else:
        created[:] = [write(last)]
    assert [r.info.run_id for r in client.search_runs([trackers["holder"].experiment])] == created
