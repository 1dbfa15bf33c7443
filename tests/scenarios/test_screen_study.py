"""Screened studies from file to records: the same whatever interrupts them, and what a search makes of it."""

from types import SimpleNamespace

import pytest
import torch

from model import preset
from search.store.record import is_final
from search.store.results import ConfigurationResults
from search.study.sampler import Share
from tests.commands import call
from tests.homes import quick  # noqa: F401
from tests.reference import check_whole, client_of, expected, rows_of
from tests.scenarios.studies import RANKED, run
from tests.scenarios.test_interrupted import interrupt
from trainer import MEASURES, Outcome, Recipe

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here", "nobody_spared")

BY_A_PROBE = RANKED | {
    "name": "probed",
    "stop": {"hopeless": False, "screen": {"at": 8, "keep": {"odd": 0.9}}},
}
SEARCH = RANKED | {
    "name": "searched",
    "seeds": {"first": 1, "count": 4},
    "space": {"recipe.lr": {"choice": [0.01, 0.02]}},
    "sampler": {"name": "grid", "objectives": [{"share": {"stride": 0.0}, "when": 8}]},
    "stop": {"hopeless": False, "screen": {"at": 8, "keep": {}}},
    "confirm": {"configurations": 1, "seeds": {"first": 90, "count": 2}},
}


@pytest.mark.parametrize("study", [RANKED, BY_A_PROBE], ids=["ranked", "by-a-probe"])
def test_a_screened_study_records_each_seed_once_with_its_outcome(study, here):
    said = run(study, here)
    assert said.exit_code == 0, said.output
    check_whole(here / "home", study, here, wanted := expected(study))
    screened = [key for key, (*_, outcome) in wanted.items() if outcome == Outcome.SCREENED]
    assert f"screened: {len(screened)} of 8" in said.stdout and 1 < len(screened) < 8
    (run_,) = [r for r in client_of(here / "home").search_runs(["1"]) if "final.screened" in r.data.metrics]
    assert run_.data.metrics["final.screened_wrongly"] == len(screened), "nobody was spared"
    assert {"probe.odd", "probe.basin", "probe.stride", "probe.lead"} <= run_.data.metrics.keys()
    assert f"{len(screened)} screened" in call("status", study["name"], "--home", "home").stdout


def test_a_share_at_a_step_is_an_objective_and_the_confirmation_is_not_screened(here, monkeypatch):
    interrupt(monkeypatch, 5, KeyboardInterrupt)
    assert run(SEARCH, here).exit_code == 130
    assert run(SEARCH, here).exit_code == 0
    home = here / "home"
    rows = rows_of(home, "searched")
    first = [r for r in rows if not r["confirmation"]]
    assert {(r["outcome"], r["steps"]) for r in first} == {(Outcome.SCREENED, 8)}
    assert all(r["reached"] == {"stride 0 at 8": True} for r in first)
    fresh = [r for r in rows if r["confirmation"]]
    assert [(r["outcome"], r["steps"]) for r in fresh] == [(Outcome.FAILED, 16)] * 2
    assert all(map(is_final, rows))
    other = SEARCH | {"sampler": SEARCH["sampler"] | {"objectives": [{"share": {"odd": 0.9}, "when": 8}]}}
    refused = run(other, here)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "seeds are recorded without 'odd 0.9 at 8'; go on with --fresh" in refused.stderr


def test_grokked_seeds_per_million_seed_steps_are_an_objective(here):
    study = SEARCH | {"sampler": {"name": "grid", "objectives": ["per_million"]}, "stop": {"hopeless": False}}
    del study["confirm"]
    assert run(study, here).exit_code == 0
    assert all(r["reached"] is None for r in rows_of(here / "home", "searched"))


def test_a_share_is_read_at_its_step():
    """A probe at that evaluation and not before it; token accuracy is the best so far."""
    names = list(preset("57p").probes())
    probes_ER, curve_EM = torch.zeros(4, len(names)), torch.zeros(4, 7)
    probes_ER[:, names.index("odd")] = torch.tensor([0.1, 0.9, 0.2, 0.3])
    curve_EM[:, MEASURES.index("token")] = torch.tensor([0.1, 0.6, 0.2, 0.2])
    its = SimpleNamespace(
        pair=SimpleNamespace(recipe=Recipe(eval_every=1_000)), probes_ER=probes_ER, curve_EM=curve_EM
    )
    part = SimpleNamespace(trial=SimpleNamespace(spec=preset("57p")))

    def at(step, **least):
        return ConfigurationResults.reaches(part, its, Share(share=least, when=step))

    assert [at(step, odd=0.5) for step in (1_000, 2_000, 3_000, 4_000)] == [False, True, False, False]
    assert [at(step, token=0.5) for step in (1_000, 1_500, 4_000, 9_000)] == [False, True, True, True]
    assert not at(9_000, odd=0.5) and at(9_000, odd=0.25)  # it had ended before
