"""Pairs with ties: θ moves into them over a ramp and ends on them."""

import pytest
import torch

from model import preset
from model.tied import constrained, project, selection_matrix
from tests import CERTIFICATES
from tests.banks import finish
from tests.commands import refusal
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("few_selection_problems")
SPEC = preset("46p")
SETS = (["form[0,2] = 0"], ["norm[0,1] = -norm[0,0]", "fc1[1,4] = fc1[0,0]"], [])
SMALL = {"steps": 40, "eval_every": 20, "batch": 16, "warmup": 5, "ramp": 20, "curriculum": (), "hold": 0}


def recipe(**changes):
    return Recipe(**(SMALL | changes))


def pairs(**changes):
    return [Pair(recipe(**changes), Seed.of(n), ties=constrained(SPEC, s)) for n, s in enumerate(SETS)]


def trained(pairs, **how):
    bank = finish(Bank(SPEC, pairs, **how))
    return [bank.result(n) for n in range(len(pairs))]


def test_by_engine_and_eager_programs_alike_every_slot_ends_on_its_own_ties_to_the_bit():
    by_engine, eager = (trained(pairs(), compiled=compiled) for compiled in (True, False))
    for one, other in zip(by_engine, eager, strict=True):
        assert torch.allclose(one.theta_P, other.theta_P, atol=3e-4)
        assert torch.allclose(one.curve_EM, other.curve_EM, atol=3e-3)
    for result in (*by_engine, *eager):
        theta, ties = result.theta_P, torch.tensor(result.pair.ties)
        assert result.best_step in (20, 40)
        for k in range(1, int(ties.max()) + 1):
            mine = theta[ties.abs() == k] * ties[ties.abs() == k].sign()
            assert (mine == mine[0]).all()
        assert (theta[ties == 0] == 0).all() and (theta[ties != 0] != 0).any()


def test_before_the_ramp_has_ended_nothing_counts():
    start = tuple(Checkpoint.load(CERTIFICATES / "46p").theta_P.tolist())
    still = recipe(ramp=40, lr=0.0)
    done = trained([Pair(still, Seed.of(1), start, constrained(SPEC, []))], compiled=False)[0]
    assert done.curve_EM[:, 0].tolist() == [1.0, 1.0]
    assert (done.grok_step, done.best_step) == (40, 40)


@pytest.mark.parametrize("number", [47, -47, 10**30, True, 1.0])
def test_ties_of_numbers_that_a_model_has_not_are_refused(number):
    """The engine writes by them."""
    ties = (*constrained(SPEC, [])[:-1], number)
    said = refusal(ValueError, Bank, SPEC, [Pair(recipe(), Seed.of(1), ties=ties)])
    assert said == f"ties must be whole numbers from -46 to 46, got {number!r}"


def test_a_pair_starts_where_it_is_told():
    start = tuple(float(x) for x in SPEC.initial(9))
    still = recipe(ramp=0, lr=0.0, weight_decay=0.0)
    assert trained([Pair(still, Seed.of(3), start=start)], compiled=False)[0].theta_P.tolist() == list(start)
    ties = constrained(SPEC, SETS[1])
    held = trained([Pair(recipe(lr=0.0), Seed.of(3), start, ties)], compiled=False)[0].theta_P
    nearest = project(ties, torch.tensor(start)[None]).double() @ selection_matrix(ties)
    assert torch.allclose(held, nearest[0].float(), atol=1e-6)
