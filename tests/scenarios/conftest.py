"""Fixtures of whole runs."""

import pytest

from search.run.driver import Driver
from tests.scenarios.studies import let_seed_7_grok


@pytest.fixture
def nobody_spared(monkeypatch):
    monkeypatch.setattr("search.run.spared.Draw.is_spared", lambda *pair: False)


@pytest.fixture
def groks(monkeypatch):
    """Seed 7 is perfect from step 8 on."""
    let_seed_7_grok(monkeypatch)


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
