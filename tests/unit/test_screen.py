"""Screens in a bank: who is ended where, and that nothing else has a say in it."""

from dataclasses import replace
from math import inf, nan

import pytest

from tests.banks import SPEC, pair
from tests.unit.test_outcomes import scripted
from trainer import Outcome
from trainer.recipe.screen import Rung, is_within_any

pytestmark = pytest.mark.usefixtures("few_selection_problems")

SIX = {"steps": 30, "eval_every": 5, "batch": 2, "curriculum": (), "hold": 30}
TOKEN = Rung(at=15, keep=(("token", 0.35, inf),))


@pytest.fixture
def nobody_spared(monkeypatch):
    monkeypatch.setattr("trainer.bank.tracker.is_control", lambda seed: False)


def facts(bank, n=0):
    result = bank.result(n)
    return result.outcome, result.steps, result.screen


def screened(seed, *rungs, **recipe):
    return replace(pair(seed, **recipe), rungs=rungs)


# A rung


def test_a_rung_keeps_whoever_has_any_of_what_it_asks_for():
    keep = (("token", 0.35, inf), ("stride", 0.1, 0.2))
    assert is_within_any(keep, {"token": 0.35, "stride": 0.5}) and is_within_any(
        keep, {"token": 0.1, "stride": 0.2}
    )
    assert not is_within_any(keep, {"token": 0.34, "stride": 0.21})
    assert not is_within_any(keep, {"token": nan, "stride": nan}) and not is_within_any((), {"token": 1.0})
    assert str(Rung(5_000, keep)) == "token 0.35 or stride 0.1 to 0.2 at 5000"
    assert str(Rung(12_000)) == "nothing at 12000"


@pytest.mark.usefixtures("nobody_spared")
@pytest.mark.parametrize(
    ("exact", "token", "expected"),
    [
        ([0.0] * 6, 0.34, (Outcome.SCREENED, 15, "token 0.35 at 15")),
        ([0.0] * 6, [0.1, 0.36, 0.1, 0.1, 0.1, 0.1], (Outcome.FAILED, 30, None)),  # the best so far
        ([0.0] * 6, [0.1, 0.1, 0.1, 0.9, 0.9, 0.9], (Outcome.SCREENED, 15, "token 0.35 at 15")),
        ([0.0, 1.0, 0.0, 0.0, 0.0, 0.0], 0.1, (Outcome.GROKKED, 30, None)),  # nobody who has grokked
    ],
)
def test_a_seed_is_ended_that_shows_too_little_at_a_rung(exact, token, expected):
    bank, _ = scripted(exact, token, pairs=[screened(1, TOKEN, **SIX)])
    assert facts(bank) == expected


@pytest.mark.usefixtures("nobody_spared")
def test_rungs_at_one_step_are_all_passed_there():
    both = (TOKEN, Rung(at=15, keep=(("exact", 0.01, inf),)))
    bank, _ = scripted([0.0] * 6, 0.4, pairs=[screened(1, *both, **SIX)])
    assert facts(bank) == (Outcome.SCREENED, 15, "exact 0.01 at 15")


def test_a_spared_seed_runs_on_and_the_first_rung_that_would_have_ended_it_is_kept(monkeypatch):
    monkeypatch.setattr("trainer.bank.tracker.is_control", lambda seed: True)
    both = (TOKEN, Rung(at=20, keep=(("exact", 0.01, inf),)))
    bank, _ = scripted([0.0] * 5 + [1.0], 0.1, pairs=[screened(1, *both, **SIX)])
    assert facts(bank) == (Outcome.GROKKED, 30, "token 0.35 at 15"), "one that the screen would have lost"


@pytest.mark.usefixtures("nobody_spared")
def test_a_probe_keeps_a_seed_as_it_reads_at_that_evaluation():
    """θ grows with the step: at step 15 the stride is 0.29 + 0.015."""
    for low, high, outcome in ((0.304, 0.306, Outcome.FAILED), (0.0, 0.304, Outcome.SCREENED)):
        bank, _ = scripted([0.0] * 6, 0.1, pairs=[screened(1, Rung(15, (("stride", low, high),)), **SIX)])
        assert facts(bank)[0] == outcome
    column = list(SPEC.probes()).index("stride")
    assert bank.result(0).probes_ER[:, column].tolist() == pytest.approx([0.295, 0.3, 0.305], abs=1e-6)
