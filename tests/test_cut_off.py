"""A driver that dies after any of its calls to MLflow: the next one leaves what one that lived leaves."""

from collections import Counter
from itertools import count

import pytest

from search.run.driver import Driver
from search.store.tracking import SEED_TAG, STUDY_TAG, connect, tracking_uri
from search.study.trial import Trial
from tests.homes import Recorder, empty_home, quick, study_of, thetas  # noqa: F401

pytestmark = pytest.mark.usefixtures("quick")
WRITING = ("create_run", "log_batch", "log_artifacts", "log_artifact", "log_dict", "log_metric", "log_param",
           "set_tag", "set_terminated", "update_run")  # fmt: skip
SEEDS, GROKKED = (1, 2, 3, 4), (2, 3)


class Dead(BaseException):
    """SIGKILL, as far as a test in one process can have it."""


class Dying:
    """A client for so many writing calls. The last one takes effect, and its caller never knows."""

    def __init__(self, client, calls):
        self.client, self.left = client, calls

    def __getattr__(self, name):
        found = getattr(self.client, name)
        if name not in WRITING:
            return found

        def call(*given, **more):
            done = found(*given, **more)
            self.left -= 1
            if self.left == 0:
                raise Dead
            return done

        return call


def record(home, calls):
    """Record a trial of which two seeds grokked. Returns whether the driver lived."""
    study = Recorder(home, study_of())
    study.tracker.client = Dying(study.tracker.client, calls)
    try:
        study.trial(SEEDS, grokked=GROKKED)
    except Dead:
        return False
    finally:
        study.done()
    return True


def go_on(home):
    """As the next run's start does: publish what is recorded and not published, and conclude."""
    study = Recorder(home, study_of())
    rows = study.ledger.rows("sweep")
    if not all(r["published"] for r in rows):
        (key,) = {r["trial"] for r in rows}
        Driver.publish(study, Trial.read(home.trial("sweep", key)))
    Driver.conclude(study, study.configuration)
    study.done()


def facts(home):
    """All that MLflow has of the study, without its ids and times."""
    client = connect(home, tracking_uri(home))
    experiment = client.get_experiment_by_name("sweep")
    found = {}
    for run in client.search_runs([experiment.experiment_id]):
        tags = {k: v for k, v in run.data.tags.items() if k in (SEED_TAG, STUDY_TAG) or "." not in k}
        name, ident = run.info.run_name, run.info.run_id
        steps = {m: Counter(h.step for h in client.get_metric_history(ident, m))
                 for m in run.data.metrics if not m.startswith("final.")}  # fmt: skip
        assert name not in found, f"{name} is there twice"
        artifacts = sorted(a.path for a in client.list_artifacts(ident))
        found[name] = (run.info.status, tags, run.data.params, run.data.metrics, steps, artifacts)
    return found


def test_whatever_call_was_its_last(tmp_path):
    whole = empty_home(tmp_path / "whole")
    assert record(whole, calls=10**6)
    was, wanted = facts(whole), thetas(whole.path)
    assert sorted(was) == ["57p c7bf37", "seed 2", "seed 3", "study sweep"]
    for calls in count(1):
        home = empty_home(tmp_path / str(calls))
        if record(home, calls):
            break
        go_on(home)
        assert facts(home) == was, calls
        assert thetas(home.path) == wanted
    assert calls > 20, "a trial's records are more calls than that"
