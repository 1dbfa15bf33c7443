"""An evaluation decides in a bank: grokked, held, diverged, failed, hopeless, screened, the best θ, the decay."""

from dataclasses import replace
from math import inf, nan

import pytest
import torch

from tests.banks import SPEC, make, pair
from trainer import Outcome, Seed
from trainer.recipe.seed import is_spared
from trainer.recipe.thresholds import reaches_any
from trainer.stopping import Hopeless, Rung

pytestmark = pytest.mark.usefixtures("few_selection_problems")


def scripted(exact, token=0.9, loss=1.0, pairs=None, slots=1, **recipe):
    """A bank whose evaluations say what the script says, advanced to its end or the script's. Instead of
    training, θ grows by a thousandth with every step.

    exact, token, loss: one number an evaluation, or one for all. Returns the bank and θ at every
    evaluation, [E][S, P].
    """
    pairs = pairs or [pair(1, **{"steps": 60, "eval_every": 5, "batch": 2, "hold": 15, **recipe})]
    bank, thetas = make(pairs, slots, compiled=False), []

    def train(state, hyper, steps):
        moved = {"theta": state["theta"] + 0.001 * steps, "step": state["step"] + steps}
        return state | moved, torch.ones(len(state["theta"]))

    def evaluate(theta_SP):
        e = len(thetas)
        thetas.append(theta_SP.clone())
        here = (m[e] if isinstance(m, list) else m for m in (exact, token, loss))
        one = torch.ones(len(theta_SP))
        return {n: torch.as_tensor(v) * one for n, v in zip(("exact", "token", "loss"), here, strict=True)}

    bank.backend.train, bank.backend.evaluate = train, evaluate
    while len(thetas) < len(exact) and bank.advance():
        pass
    return bank, thetas


@pytest.mark.parametrize(
    ("exact", "loss", "expected"),
    [
        ([0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0], 1.0, (Outcome.GROKKED, 15, True, 30)),
        ([0.0, 1.0, 1.0, 0.9998, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0], 1.0, (Outcome.GROKKED, 10, True, 60)),
        ([0.0, 1.0] + [0.9] * 10, 1.0, (Outcome.GROKKED, 10, False, 60)),
        ([0.0, 1.0, 0.0], [1.0, 0.1, torch.nan], (Outcome.GROKKED, 10, False, 15)),
        ([0.0, 0.0, 0.0], [1.0, torch.inf, 1.0], (Outcome.DIVERGED, None, False, 10)),
    ],
    ids=["held", "a dip", "not held", "diverged after grokking", "diverged"],
)
def test_perfect_once_has_grokked_and_perfect_for_long_has_held_and_frees_the_slot(exact, loss, expected):
    """A dip restarts holding, but not the grok step; what follows, divergence too, is told by `held`."""
    bank, thetas = scripted(exact, loss=loss)
    result = bank.result(0)
    assert (result.outcome, result.grok_step, result.held, result.steps) == expected
    assert torch.equal(result.theta_P, thetas[exact.index(max(exact))][0]) and result.best_exact == max(exact)
    assert bank.seed_steps == result.steps and bank.pair_S.tolist() == [-1]


def test_the_best_theta_is_the_most_exact_and_then_the_one_of_least_loss():
    exact = [0.0, 0.5, 0.7, 0.7, 0.7, 0.6] + [0.1] * 6
    loss = [1.0, 0.9, 0.8, 0.5, 0.6, 0.1] + [0.01] * 6
    bank, thetas = scripted(exact, loss=loss)
    result = bank.result(0)
    assert result.best_step == 20 and result.best_exact == pytest.approx(0.7)
    assert torch.equal(result.theta_P, thetas[3][0])
    assert result.curve_EM[:, 0].tolist() == pytest.approx(exact)
    assert result.curve_EM[:, 2].tolist() == pytest.approx(loss)


# The rule that gives seeds up


def test_a_tenth_of_the_seeds_is_spared_and_which_was_fixed_once():
    assert 900 < sum(is_spared(Seed.of(n)) for n in range(10_000)) < 1_100
    assert 900 < sum(is_spared(Seed(n % 100, n // 100)) for n in range(10_000)) < 1_100
    assert [n for n in range(60) if is_spared(Seed.of(n))] == [2, 7, 9, 11]
    assert not any(is_spared(Seed(1, n)) for n in range(12))


# Seeds that it ends, or a screen does

HALFWAY = Hopeless(checkpoints=((0.5, 0.1, 0.6),))
TWICE = Hopeless(checkpoints=(*HALFWAY.checkpoints, (0.6, 0.2, 0.9)))
TOKEN, EXACT = Rung(at=15, keep=(("token", 0.35, inf),)), Rung(at=15, keep=(("exact", 0.01, inf),))
SIX = {"steps": 30, "eval_every": 5, "batch": 2, "curriculum": (), "hold": 30}
ZERO = [0.0] * 6
AT_15 = "token 0.35 at 15"
ENDS = [  # rules, exact match, token accuracy, if the seed is spared; outcome, steps, what called it
    ([TWICE], ZERO, 0.5, False, (Outcome.GIVEN_UP, 15, 15)),
    ([TWICE], ZERO, 0.6, False, (Outcome.GIVEN_UP, 20, 20)),
    ([TWICE], ZERO, [0.6, 0.6, 0.6, 0.9, 0.5, 0.5], False, (Outcome.FAILED, 30, None)),
    ([HALFWAY], ZERO, [0.5, 0.5, 0.6, 0.5, 0.5, 0.5], False, (Outcome.FAILED, 30, None)),  # once is enough
    ([HALFWAY], [0.1, 0.0, 0.0, 0.0, 0.0, 0.0], 0.5, False, (Outcome.FAILED, 30, None)),
    ([HALFWAY], ZERO, 0.5, True, (Outcome.FAILED, 30, 15)),
    ([HALFWAY], [0.0, 0.0, 0.0, 0.0, 1.0, 1.0], 0.5, True, (Outcome.GROKKED, 30, 15)),  # it would have been lost
    ([TOKEN], ZERO, 0.34, False, (Outcome.SCREENED, 15, AT_15)),
    ([TOKEN], ZERO, [0.1, 0.36, 0.1, 0.1, 0.1, 0.1], False, (Outcome.FAILED, 30, None)),  # the best so far
    ([TOKEN], ZERO, [0.1, 0.1, 0.1, 0.9, 0.9, 0.9], False, (Outcome.SCREENED, 15, AT_15)),
    ([TOKEN], [0.0, 1.0, 0.0, 0.0, 0.0, 0.0], 0.1, False, (Outcome.GROKKED, 30, None)),  # nobody who has grokked
    ([TOKEN, EXACT], ZERO, 0.4, False, (Outcome.SCREENED, 15, "exact 0.01 at 15")),  # all that are due
    ([TOKEN, replace(EXACT, at=20)], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0], 0.1, True, (Outcome.GROKKED, 30, AT_15)),
]


def ruled(*rules):
    return [replace(pair(1, **SIX), rules=rules)]


def facts(bank, n=0):
    result = bank.result(n)
    return result.outcome, result.steps, result.hopeless_step or result.screen


@pytest.mark.parametrize(("stop", "exact", "token", "is_spared", "expected"), ENDS)
def test_a_seed_is_ended_by_what_it_has_shown(stop, exact, token, is_spared, expected, monkeypatch):
    """A spared one runs on, and what called it first is kept."""
    monkeypatch.setattr("trainer.bank.tracker.is_spared", lambda seed: is_spared)
    bank, _ = scripted(exact, token, pairs=ruled(*stop))
    assert facts(bank) == expected


@pytest.mark.parametrize("name", ["exact", "odd"])
@pytest.mark.parametrize("share", [0.35, 0.7, 0.9, 0.95])
def test_a_measure_or_probe_that_is_just_what_is_asked_for_is_enough(share, name):
    """Both are float32, in which these shares are a little less."""
    value, lower = torch.tensor([share, share - 1e-6])
    assert reaches_any([(name, share)], {name: value.item()})
    assert not reaches_any([(name, share)], {name: lower.item()})
    rung = Rung(5_000, ((name, share, inf),))
    assert rung.keeps({name: value}) and not rung.keeps({name: lower})


def test_a_bank_keeps_a_seed_whose_probe_reads_just_what_is_asked_for(monkeypatch):
    monkeypatch.setattr("trainer.bank.tracker.is_spared", lambda seed: False)
    constant = {"mine": lambda spec, theta_SP: torch.full_like(theta_SP[:, 0], 0.7)}
    monkeypatch.setattr(type(SPEC), "probes", lambda spec: constant)
    bank, _ = scripted([0.0] * 6, 0.1, pairs=ruled(Rung(15, (("mine", 0.7, inf),))))
    assert facts(bank)[0] == Outcome.FAILED and reaches_any([("mine", 0.7)], bank.tracker.values(0))


def test_a_rung_keeps_whoever_has_any_of_what_it_asks_for():
    keep = (("token", 0.35, inf), ("stride", 0.1, 0.2))
    for token, stride, is_kept in ((0.36, 0.5, True), (0.1, 0.2, True), (0.34, 0.21, False), (nan, nan, False)):
        values = {"token": torch.tensor(token), "stride": torch.tensor(stride, dtype=torch.float64)}
        assert Rung(5_000, keep).keeps(values) == is_kept
    assert not Rung(5_000).keeps({})
    assert str(Rung(5_000, keep)) == "token 0.35 or stride 0.1 to 0.2 at 5000"
    assert str(Rung(12_000)) == "nothing at 12000"


def test_a_probe_keeps_a_seed_as_it_reads_at_that_evaluation(monkeypatch):
    """θ grows with the step: at step 15 the stride is 0.29 + 0.015."""
    monkeypatch.setattr("trainer.bank.tracker.is_spared", lambda seed: False)
    for low, high, outcome in ((0.304, 0.306, Outcome.FAILED), (0.0, 0.304, Outcome.SCREENED)):
        bank, _ = scripted([0.0] * 6, 0.1, pairs=ruled(Rung(15, (("stride", low, high),))))
        assert facts(bank)[0] == outcome
    column = list(SPEC.probes()).index("stride")
    assert bank.result(0).probes_ER[:, column].tolist() == pytest.approx([0.295, 0.3, 0.305], abs=1e-6)


# What evaluations change of the training


def factors(name, exact, token, **recipe):
    """A factor in a bank's state after each evaluation."""
    ends = range(1, len(exact) + 1)
    return [float(scripted(exact[:end], token[:end], **recipe)[0].state[name][0]) for end in ends]


def test_adaptive_decay_drops_at_both_thresholds_and_never_rises():
    exact = [0.5, 0.0, 0.02, 0.03, 0.0, 0.3, 0.0]
    token = [0.6, 0.9, 0.90, 0.90, 0.9, 0.9, 0.9]
    assert factors("wd_scale", exact, token, wd_drop=0.25) == [1.0, 1.0, 1.0, 0.25, 0.25, 0.0625, 0.0625]


def test_the_carry_share_follows_token_accuracy_down_and_up_again():
    token = [0.5, 0.7, 0.75, 0.8, 0.9, 0.95, 0.6]
    scales = factors("mix_scale", [0.0] * 7, token, fade_token=0.7, fade_token_end=0.9)
    assert scales == pytest.approx([1.0, 1.0, 0.75, 0.5, 0.0, 0.0, 1.0], abs=1e-6)
