"""Screened studies from file to records: the same whatever interrupts them, and what a search makes of it."""

import pytest

from tests.commands import call
from tests.reference import check_whole, client_of, expected, rows_of
from tests.scenarios.studies import SCREENED, run
from tests.scenarios.test_interrupted import interrupt
from trainer import Outcome

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here", "nobody_spared")

SEARCH = SCREENED | {
    "name": "searched",
    "seeds": {"first": 1, "count": 4},
    "space": {"recipe.lr": {"choice": [0.01, 0.02]}},
    "sampler": {"name": "grid", "objectives": ["per_million"]},
    "stop": {"hopeless": False, "screen": {"at": 8, "keep": {}}},
    "confirm": {"configurations": 1, "seeds": {"first": 90, "count": 2}},
}


def test_a_screened_study_records_each_seed_once_with_its_outcome(here):
    study = SCREENED
    said = run(study, here)
    assert said.exit_code == 0, said.output
    check_whole(here / "home", study, here, wanted := expected(study))
    screened = [key for key, (*_, outcome) in wanted.items() if outcome == Outcome.SCREENED]
    assert f"screened: {len(screened)} of 8" in said.stdout and 1 < len(screened) < 8
    (run_,) = [r for r in client_of(here / "home").search_runs(["1"]) if "final.screened" in r.data.metrics]
    assert run_.data.metrics["final.screened_wrongly"] == len(screened), "nobody was spared"
    probes = {f"first_seeds.probe.{name}" for name in ("odd", "basin", "stride", "lead")}
    assert probes <= run_.data.metrics.keys()
    assert f"{len(screened)} screened" in call("status", study["name"], "--home", "home").stdout


def test_grokked_seeds_per_million_seed_steps_are_an_objective(here, monkeypatch):
    interrupt(monkeypatch, 5, KeyboardInterrupt)
    assert run(SEARCH, here).exit_code == 130
    assert run(SEARCH, here).exit_code == 0
    rows = rows_of(here / "home", "searched")
    assert {(r["outcome"], r["steps"]) for r in rows} == {(Outcome.SCREENED, 8)}
    assert len(rows) == 8, "none grokked, so none is confirmed"
