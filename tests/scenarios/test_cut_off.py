"""A driver that dies after any of its calls to MLflow, or between ledger and MLflow, or whose ledger was restored
from an older copy: the next one leaves what one that lived leaves.
"""

import shutil
import threading

import pytest

from search.stats.metrics import MAY_BE_ZERO
from search.store.home import Home
from search.store.study_records import StudyRecords
from tests.homes import drive, empty_home, forget_places, records_of, study_of, thetas
from tests.leases import leave_dead
from tests.reference import runs_of
from tracking.projection import summary_of
from tracking.store import KEY_TAG, OUTCOME_TAG, SEED_TAG, SHOWN_TAG, STUDY_TAG, connect
from tracking.tracker import Tracker

WRITING = ("create_experiment", "create_run", "log_batch", "log_artifacts", "log_artifact", "log_dict",
           "log_metric", "log_text", "set_tag", "set_experiment_tag", "set_terminated",
           "update_run")  # fmt: skip
GROKKED = (2, 3)
STUDY = study_of(resources={"slots": 2})


class Copying:
    """A client that copies the home after each call that writes: what a driver killed there would leave."""

    def __init__(self, home, folder):
        self.client, self.home, self.folder, self.copies = connect(home, creates=True), home, folder, 0
        self.is_back, self.lock = threading.Event(), threading.Lock()

    def __getattr__(self, name):
        found = getattr(self.client, name)
        if name not in WRITING:
            return found

        def call(*given, **more):
            if threading.current_thread().name == "outbox":
                self.is_back.wait()
            with self.lock:
                done = found(*given, **more)
                self.copy()
            return done

        return call

    def copy(self):
        self.copies += 1
        shutil.copytree(self.home.path, self.folder / str(self.copies))

    def recording(self, record):
        """The ledger's `record`, after which the home is copied too: MLflow has nothing of it yet."""

        def recorded(*given, **more):
            with self.lock:  # so that MLflow is told nothing of it before the copy
                record(*given, **more)
                self.copy()

        return recorded


def is_ahead(home):
    """Whether the ledger has what became of a seed, and MLflow does not show it."""
    rows = records_of(home).list_seeds() if home.ledger_db.exists() else []
    if not any(row.is_final for row in rows):
        return False
    runs = connect(home).search_runs(["1"], f"tags.`{KEY_TAG}` LIKE '%'")
    return {run.data.tags.get(SHOWN_TAG) for run in runs} != {summary_of(rows)}


def facts(home, study="sweep"):
    """All that MLflow has of a study, without its ids and times; and the ledger's rows.

    A count of 0 is none: it is there if MLflow was told of seeds that a dead driver had left open.
    """
    client, found = connect(home), {}
    for run in runs_of(client, study):
        name, ident = run.info.run_name, run.info.run_id
        assert name not in found, f"{name} is there twice"
        ours = (SEED_TAG, STUDY_TAG, SHOWN_TAG, OUTCOME_TAG)
        tags = {k: v for k, v in run.data.tags.items() if k in ours or "." not in k}
        metrics = {m: v for m, v in run.data.metrics.items() if v or m.removeprefix("final.") not in MAY_BE_ZERO}
        over_steps = [m for m in run.data.metrics if not m.startswith("final.")]
        steps = {m: sorted((h.step, h.value) for h in client.get_metric_history(ident, m)) for m in over_steps}
        artifacts = sorted(a.path for a in client.list_artifacts(ident))
        found[name] = (run.info.status, tags, run.data.params, metrics, steps, artifacts)
    experiment = client.get_experiment_by_name(study)
    return found, records_of(home, study).list_seeds(), sorted(experiment.tags)


def killed(folder, late):
    """A study that ran to its end, and the homes that a driver killed on its way there would have left.

    late: MLflow is away while the study's seeds are trained, so that the ledger is ahead of it.
    """
    home = empty_home(folder / "whole")
    client = Copying(home, folder)

    def wait(driver):
        if not late or driver.is_done:
            client.is_back.set()
            driver.shown[0].drain(60, 60)  # nothing else writes while the home is copied

    with pytest.MonkeyPatch.context() as patch:
        leave_dead(patch)
        patch.setattr(StudyRecords, "record", client.recording(StudyRecords.record))
        drive(home, STUDY, GROKKED, client, wait)
    return home, [Home(folder / str(n)) for n in range(1, client.copies + 1)]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("late", "every"), [(False, 11), *(pytest.param(late, 1, marks=pytest.mark.full) for late in (False, True))]
)
def test_whatever_call_was_its_last(late, every, tmp_path):
    whole, cut_off = killed(tmp_path, late)
    was, wanted = facts(whole), thetas(whole.path)
    assert sorted(was[0]) == ["57p", "seed 1", "seed 2", "seed 3", "study sweep"] and len(wanted) == 4
    assert len(cut_off) > 25
    between = [home for home in cut_off if is_ahead(home)]
    assert len(between) >= 3, "the ledger has a seed, before and after MLflow was told"
    restored = Home(shutil.copytree(whole.path, tmp_path / "restored"))
    shutil.copy(between[0].ledger_db, restored.ledger_db)  # an older copy, beside an MLflow store that has all
    for home in dict.fromkeys([restored, *between[:3], *cut_off[every // 2 :: every]]):
        forget_places()
        drive(home, STUDY, GROKKED)
        assert facts(home) == was, home.path.name
        assert thetas(home.path) == wanted


@pytest.mark.usefixtures("quick")
def test_a_configuration_whose_description_fails_once_is_described(tmp_path, monkeypatch):
    describe, failures = Tracker.describe, iter([OSError("no space")])

    def fail_once(*given):
        for failure in failures:
            raise failure
        describe(*given)

    monkeypatch.setattr(Tracker, "describe", fail_once)
    home = empty_home(tmp_path / "home")
    drive(home, STUDY, GROKKED)
    assert facts(home)[0]["57p"][2]["preset"] == "57p"
