"""Fixtures of whole runs."""

import pytest

from search.run.driver import Driver
from trainer import Seed
from trainer.bank.tracker import SeedTracker


@pytest.fixture
def nobody_spared(monkeypatch):
    monkeypatch.setattr("search.run.spared.Draw.is_spared", lambda *pair: False)


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
    """What the driver was told of by workers that train: the worker, and the steps of its pairs."""
    told, whole = [], Driver._on_report

    def on_report(self, report, executor):
        bank = self.planner.banks.get(report.worker)
        steps = report.steps | {n: seed.measured["steps"] for n, seed in report.ended.items()}
        if steps:
            pairs = {n: bank.pairs[n] for n in steps}
            told.append((report.worker, {(p.configuration.key, p.seed.init_seed): steps[n] for n, p in pairs.items()}))
        whole(self, report, executor)

    monkeypatch.setattr(Driver, "_on_report", on_report)
    return told
