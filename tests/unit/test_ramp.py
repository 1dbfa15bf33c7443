"""Pairs with ties: θ moves into them over a ramp and ends on them; pairs that begin wide are folded on the way."""

from pathlib import Path

import pytest
import torch

from model import preset
from model.tied import Tied, constrained, projector
from model.transfer import transfer
from tests.banks import finish
from tests.commands import call
from tests.homes import quick  # noqa: F401
from tests.reference import QUICK, rows_of, write_study
from trainer import Bank, Outcome, Pair, Recipe, Seed
from trainer.bank.folding import FoldingBank
from trainer.checkpoints.checkpoint import Checkpoint

pytestmark = pytest.mark.usefixtures("few_selection_problems")
CERTIFICATES = Path(__file__).parents[2] / "lab" / "certificates"
WIDE, SPEC = preset("54p"), preset("46p")
SETS = (["form[0,2] = 0"], ["norm[0,1] = -norm[0,0]", "fc1[1,4] = fc1[0,0]"], [])
SMALL = {"steps": 40, "eval_every": 20, "batch": 16, "warmup": 5, "ramp": 20, "curriculum": (), "hold": 0}


def recipe(**changes):
    return Recipe(**(SMALL | changes))


def pairs(**changes):
    return [Pair(recipe(**changes), Seed.of(n), ties=constrained(SPEC, s)) for n, s in enumerate(SETS)]


def trained(pairs, **how):
    bank = finish(Bank(SPEC, pairs, futility=None, **how))
    return [bank.result(n) for n in range(len(pairs))]


@pytest.mark.parametrize("compiled", [True, False])
def test_every_slot_ends_on_its_own_ties_to_the_bit(compiled):
    for result in trained(pairs(), compiled=compiled):
        theta, ties = result.theta_P, torch.tensor(result.pair.ties)
        assert result.best_step == 40 or result.best_step == 20
        for k in range(1, int(ties.max()) + 1):
            mine = theta[ties.abs() == k] * ties[ties.abs() == k].sign()
            assert (mine == mine[0]).all()
        assert (theta[ties == 0] == 0).all() and (theta[ties != 0] != 0).any()


def test_the_engine_trains_as_the_eager_programs_do():
    for one, other in zip(trained(pairs(), compiled=True), trained(pairs(), compiled=False), strict=True):
        assert torch.allclose(one.theta_P, other.theta_P, atol=3e-4)
        assert torch.allclose(one.curve_EM, other.curve_EM, atol=3e-3)


def test_before_the_ramp_has_ended_nothing_counts():
    start = tuple(Checkpoint.load(CERTIFICATES / "46p").theta_P.tolist())
    still = recipe(ramp=40, lr=0.0)
    done = trained([Pair(still, Seed.of(1), start, constrained(SPEC, []))], compiled=False)[0]
    assert done.curve_EM[:, 0].tolist() == [1.0, 1.0]
    assert (done.grok_step, done.best_step) == (40, 40)


def test_a_pair_starts_where_it_is_told():
    start = tuple(float(x) for x in SPEC.initial(9))
    still = recipe(ramp=0, lr=0.0, weight_decay=0.0)
    assert trained([Pair(still, Seed.of(3), start=start)], compiled=False)[0].theta_P.tolist() == list(start)
    ties = constrained(SPEC, SETS[1])
    held = trained([Pair(recipe(lr=0.0), Seed.of(3), start, ties)], compiled=False)[0].theta_P
    assert torch.allclose(held, projector(ties) @ torch.tensor(start), atol=1e-6)


# Folded on the way

WORDS = ["form[0,2] = 0", "norm[0,1] = norm[0,0]"]
TIES = constrained(SPEC, WORDS)
FIELDS = {
    "steps": 24, "eval_every": 4, "batch": 8, "warmup": 2, "curriculum": [], "hold": 0, "fade_start": 4,
    "fade_end": 8, "fold_step": 8, "ramp_start": 12, "ramp": 4,
}  # fmt: skip


def wide_pairs(*numbers, **changes):
    return [Pair(Recipe(**FIELDS | changes), Seed.of(n), ties=TIES) for n in numbers]


def bank_of(pairs, **how):
    return FoldingBank(WIDE, SPEC, pairs, **{"compiled": False, "futility": None, **how})


def test_a_seed_is_folded_and_goes_on_where_it_was():
    found = finish(bank_of(wide_pairs(3))).result(0)
    recipe = Recipe(**FIELDS)
    wide = Bank(WIDE, [Pair(recipe, Seed.of(3), wide=True)], compiled=False, futility=None)
    finish(wide)
    begun = wide.result(0)
    assert begun.steps == begun.best_step == 8
    start = tuple(transfer(WIDE, begun.theta_P, SPEC).theta_Q.tolist())
    later = Bank(SPEC, [Pair(recipe, Seed.of(3), start, TIES, first_step=8)], compiled=False, futility=None)
    finish(later)
    assert torch.equal(found.theta_P, later.result(0).theta_P) and found.steps == 24
    assert torch.equal(found.curve_EM[:2], begun.curve_EM) and not found.curve_EM.isnan().any()
    assert torch.equal(found.curve_EM[2:], later.result(0).curve_EM[2:])
    assert found.best_step >= 16, "before the ramp has ended nothing counts"
    ties = torch.tensor(TIES)
    assert (found.theta_P[ties == 0] == 0).all()


def test_company_slots_and_interruptions_change_nothing(tmp_path):
    alone = finish(bank_of(wide_pairs(3))).result(0)
    several = bank_of(wide_pairs(1, 2), slots=2)
    several.advance()
    numbers = several.add(wide_pairs(3))
    for n in range(20):
        several.save(tmp_path / "state", numbers)
        again = bank_of(wide_pairs(3), slots=2)
        assert again.load(tmp_path / "state") or n == 0
        assert torch.equal(finish(again).result(0).theta_P, alone.theta_P), n
        if not several.advance():
            break
    assert torch.equal(several.result(2).theta_P, alone.theta_P)
    rows = several.newest()
    assert [r["step"] for r in rows] == [24] * 3 and {r["outcome"] for r in rows} == {Outcome.FAILED}


STUDY = QUICK | {
    "name": "one-run",
    "start": {"model": "54p"},
    "model": {"base": "46p", "ties": WORDS},
    "recipe": FIELDS,
    "seeds": [1, 2],
}


@pytest.mark.usefixtures("no_ray", "quick", "here")
def test_a_study_of_it_has_a_rate_and_checkpoints_that_are_trained_again(here):
    done = call("run", write_study(here, STUDY), "--home", "home")
    assert done.exit_code == 0, done.output
    rows = rows_of(here / "home", "one-run")
    assert [(r["steps"], r["outcome"]) for r in rows] == [(24, "failed")] * 2
    assert call("pull", "one-run", "--seed", 2, "-o", "pulled", "--home", "home").exit_code == 0
    made = Checkpoint.load(Path("pulled"))
    assert made.spec == Tied(base=SPEC, ties=TIES) and made.provenance["trained"] == "from scratch"
    assert made.provenance["start"] == {"spec": WIDE.as_dict(), "theta": None}
    alone = finish(bank_of(wide_pairs(2))).result(0)
    assert torch.equal(made.spec.untie(made.theta_P[None])[0], alone.theta_P)
    assert call("rerun", "pulled").exit_code == 0
