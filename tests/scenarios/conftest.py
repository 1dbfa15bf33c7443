"""Fixtures of whole runs."""

import pytest

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
