"""Results that a shared folder shows late: others are recorded meanwhile, and what is lost is trained again."""

import logging
import time

import pytest

from search.run import late
from search.run.driver import Driver
from search.store.results import PARTS
from search.study.trial import Configuration
from search.tracking.tracking import connect
from tests.homes import MadeUpExecutor, Silent, empty_home, quickly, records_of, study_of, trial_of
from trainer import Outcome

SLOTS = {"slots": 1, "seeds_per_trial": 1}


class Hiding(MadeUpExecutor):
    """Workers whose results are there at once, but for the first one's, which are seen `after` so many looks."""

    def __init__(self, home, after):
        super().__init__(home, (), lambda: None)
        self.after, self.hidden, self.looks = after, None, 0

    def _finish(self, failure=None):
        event = super()._finish(failure)
        if self.hidden is None:
            self.hidden = self.home.trial("sweep", event.worker)
            (self.hidden / PARTS).rename(self.hidden / "unseen")
        return event

    def poll(self, timeout_s):
        self.looks += 1
        if self.looks == self.after:
            (self.hidden / "unseen").rename(self.hidden / PARTS)
        time.sleep(0.001)
        return super().poll(timeout_s)


def run(home, executor):
    study, records = study_of(seeds=[1, 2, 3], resources=study_of().resources.model_dump() | SLOTS), records_of(home)
    with records.lease, quickly(), Driver.open(study, records, connect(home, creates=True), Silent()) as driver:
        records.update_study(study.model_dump(mode="json", by_alias=True))
        ended = driver.run(executor)
    return ended, {row["init_seed"]: row["outcome"] for row in records.list_seeds()}


@pytest.fixture
def home(here, monkeypatch):
    for name, seconds in {"FIRST_S": 0.001, "LONGEST_S": 0.01, "NOTICE_S": 0.02}.items():
        monkeypatch.setattr(late, name, seconds)
    return empty_home(here / "adder-runs")


def test_late_results_are_recorded_when_they_are_seen(home, caplog):
    executor = Hiding(home, after=60)
    with caplog.at_level(logging.WARNING):
        ended, outcomes = run(home, executor)
    assert outcomes == dict.fromkeys((1, 2, 3), Outcome.FAILED)
    assert not (ended.interrupted or ended.failed_trials) and executor.looks >= 60
    (line,) = [message for message in caplog.messages if "cannot be seen yet" in message]
    assert line.startswith("study sweep: ") and line.endswith("The run goes on, and looks again")


def test_lost_results_are_trained_again_by_the_next_run(home, monkeypatch):
    monkeypatch.setattr(late, "LOST_S", 0.05)
    ended, outcomes = run(home, Hiding(home, after=1_000_000))
    assert list(ended.failed_trials.values()) == [late.LOST]
    assert outcomes == {1: Outcome.CENSORED, 2: Outcome.FAILED, 3: Outcome.FAILED}
    ended, outcomes = run(home, MadeUpExecutor(home, (), lambda: None))
    assert not ended.failed_trials and outcomes == dict.fromkeys((1, 2, 3), Outcome.FAILED)


def test_looks_become_rarer_and_one_line_is_said(monkeypatch, caplog):
    now, looks = [0.0], []
    monkeypatch.setattr(late.time, "monotonic", lambda: now[0])
    study = study_of()
    waits = late.LateResults(lambda trial: looks.append(now[0]) or False)
    for number in (1, 2):
        waits.add(trial_of(study, (Configuration(*study.listed[0]), number)))
    ended = []
    while waits:
        ended += waits.look()
        now[0] += 0.1
    assert [there for _, there in ended] == [False, False] and late.LOST_S < now[0] < late.LOST_S + 20
    assert len(looks) < 2 * 80 and len(caplog.messages) == 1
