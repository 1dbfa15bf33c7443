"""Fixtures of whole runs."""

import pytest

from search.run.driver import Driver
from search.run.tally import TrialReport
from trainer import Seed
from trainer.bank.tracker import SeedTracker


@pytest.fixture
def nobody_spared(monkeypatch):
    monkeypatch.setattr("search.run.planner.spared_of", lambda *trial: frozenset())


@pytest.fixture
def groks(monkeypatch):
    """Seed 7 is perfect from step 8 on."""
    whole = SeedTracker.record_evaluation

    def record_evaluation(self, pair_L, step_L, measures_LM, *rest):
        lucky = [self.pairs[n].seed == Seed.of(7) for n in pair_L.tolist()]
        for i in (i for i, is_seven in enumerate(lucky) if is_seven and int(step_L[i]) >= 8):
            measures_LM[i, 0] = 1.0
        return whole(self, pair_L, step_L, measures_LM, *rest)

    monkeypatch.setattr(SeedTracker, "record_evaluation", record_evaluation)


@pytest.fixture
def reports(monkeypatch):
    """What the driver was told: the worker's first trial, phase, its trials, and their seeds' steps."""
    told, whole = [], Driver.on_report

    def on_report(self, worker, report):
        tallies, open_ = report.get("tallies", {}), worker.open
        steps = {
            (c.key, seed.init_seed): step
            for key, tally in tallies.items()
            for (c, seed), step in zip(open_[key].work, TrialReport(**tally).each_step(), strict=True)
        }
        told.append((worker.first.key, report["phase"], set(tallies), steps))
        whole(self, worker, report)

    monkeypatch.setattr(Driver, "on_report", on_report)
    return told
