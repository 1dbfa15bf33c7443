"""Seeds that begin wide, are folded on the way and ramp into ties: one run, whatever interrupts it."""

from pathlib import Path

import pytest
import torch

from model import preset
from model.tied import Tied, constrained
from model.transfer import transfer
from tests.commands import call
from tests.homes import quick  # noqa: F401
from tests.reference import QUICK, rows_of, write_study
from trainer import Bank, Outcome, Pair, Recipe, Seed
from trainer.bank.folding import FoldingBank
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.step.schedule import hyper_of, learning_rate, ramp

pytestmark = pytest.mark.usefixtures("few_selection_problems")
WIDE, SPEC = preset("54p"), preset("46p")
WORDS = ["form[0,2] = 0", "norm[0,1] = norm[0,0]"]
TIES = constrained(SPEC, WORDS)
FIELDS = {
    "steps": 24, "eval_every": 4, "batch": 8, "warmup": 2, "curriculum": [], "hold": 0, "fade_start": 4,
    "fade_end": 8, "fold_step": 8, "ramp_start": 12, "ramp": 4,
}  # fmt: skip


def pairs(*numbers, **changes):
    return [Pair(Recipe(**FIELDS | changes), Seed.of(n), ties=TIES) for n in numbers]


def bank_of(pairs, **how):
    return FoldingBank(WIDE, SPEC, pairs, **{"compiled": False, "futility": None, **how})


def finished(bank):
    while bank.advance():
        pass
    return bank


def test_a_seed_is_folded_and_goes_on_where_it_was():
    found = finished(bank_of(pairs(3))).result(0)
    recipe = Recipe(**FIELDS)
    wide = Bank(WIDE, [Pair(recipe, Seed.of(3), wide=True)], compiled=False, futility=None)
    finished(wide)
    begun = wide.result(0)
    assert begun.steps == begun.best_step == 8
    start = tuple(transfer(WIDE, begun.theta_P, SPEC).theta_Q.tolist())
    later = Bank(SPEC, [Pair(recipe, Seed.of(3), start, TIES, first_step=8)], compiled=False, futility=None)
    finished(later)
    assert torch.equal(found.theta_P, later.result(0).theta_P) and found.steps == 24
    assert torch.equal(found.curve_EM[:2], begun.curve_EM) and not found.curve_EM.isnan().any()
    assert torch.equal(found.curve_EM[2:], later.result(0).curve_EM[2:])
    assert found.best_step >= 16, "before the ramp has ended nothing counts"
    ties = torch.tensor(TIES)
    assert (found.theta_P[ties == 0] == 0).all()


def test_company_slots_and_interruptions_change_nothing(tmp_path):
    alone = finished(bank_of(pairs(3))).result(0)
    several = bank_of(pairs(1, 2), slots=2)
    several.advance()
    numbers = several.add(pairs(3))
    for n in range(20):
        several.save(tmp_path / "state", numbers)
        again = bank_of(pairs(3), slots=2)
        assert again.load(tmp_path / "state") or n == 0
        assert torch.equal(finished(again).result(0).theta_P, alone.theta_P), n
        if not several.advance():
            break
    assert torch.equal(several.result(2).theta_P, alone.theta_P)
    rows = several.newest()
    assert [r["step"] for r in rows] == [24] * 3 and {r["outcome"] for r in rows} == {Outcome.FAILED}


def test_a_theta_that_cannot_be_folded_has_failed(monkeypatch):
    whole = Bank.advance

    def nothing(self):
        alive = whole(self)
        self.tracker.records["best_theta"][:] = 0.0  # the output's row begins with 0
        return alive

    monkeypatch.setattr(Bank, "advance", nothing)
    bank = finished(bank_of(pairs(1)))
    found = bank.result(0)
    assert found.outcome in (Outcome.FAILED, Outcome.GROKKED) and found.theta_P.shape == (46,)


def test_the_rate_is_warmed_up_again_and_the_ramp_begins_where_it_is_told():
    hyper = hyper_of([Recipe(**FIELDS), Recipe(**FIELDS | {"fold_step": 0, "ramp_start": 0, "ramp": 0})])
    for step, share in ((7, 1.0), (8, 0.5), (9, 1.0), (15, 1.0)):
        one, plain = learning_rate(torch.tensor([step, step]), hyper).tolist()
        assert one == pytest.approx(share * plain)
    assert [ramp(torch.tensor([s, s]), hyper)[0].item() for s in (0, 11, 12, 14, 16, 20)] == [
        0,
        0,
        0,
        0.5,
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fold_step": 6}, "fold_step must be an evaluation"),
        ({"fold_step": 24, "ramp": 0, "ramp_start": 0}, "fold_step must be an evaluation"),
        ({"ramp_start": 4}, "ramp_start must be fold_step or more, got 4 < 8"),
        ({"ramp_start": 22}, r"ramp_start must leave the ramp its steps, got 22 \+ 4 > 24"),
        ({"ramp": 0}, "ramp_start=12 needs a ramp"),
    ],
)
def test_recipes_that_cannot_be(changes, says):
    with pytest.raises(ValueError, match=says):
        Recipe(**FIELDS | changes)


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
    alone = finished(bank_of(pairs(2))).result(0)
    assert torch.equal(made.spec.untie(made.theta_P[None])[0], alone.theta_P)
    assert call("rerun", "pulled").exit_code == 0
