"""Freezing in place: entries keep their bits from a step on, and for the rest they are constants."""

import pytest
import torch

from tests.banks import EVERY, SPEC, finish, make, pair
from tests.contract.test_optimisers import VARIANTS, recipe_of, state_of
from trainer import Recipe
from trainer.files.installed import missing_for_compilation
from trainer.optimisers import optimiser_of
from trainer.step import step
from trainer.step.schedule import hyper_of

pytestmark = pytest.mark.usefixtures("few_selection_problems")
ROWS = ((0, "arc"), (EVERY, "head", "norm[0,4]"))
FROM_START, LATER = SPEC.layout.places("arc"), [*SPEC.layout.places("head"), *SPEC.layout.places("norm[0,4]")]
engines = pytest.mark.parametrize(
    "compiled",
    [
        False,
        pytest.param(True, marks=pytest.mark.skipif(bool(missing_for_compilation()), reason="no compiler")),
    ],
)


def thetas(bank):
    """θ of the first slot at each evaluation, [E, P]."""
    seen = [bank.state["theta"][0].clone()]
    while bank.advance():
        seen.append(bank.state["theta"][0].clone())
    return torch.stack(seen)


@engines
def test_entries_keep_their_bits_from_their_step_on(compiled):
    theta_EP = thetas(make([pair(1, steps=3 * EVERY, freeze=ROWS)], compiled=compiled))
    assert theta_EP[1:, FROM_START].eq(theta_EP[0, FROM_START]).all()
    assert theta_EP[2:, LATER].eq(theta_EP[1, LATER]).all()
    assert theta_EP[1, LATER].ne(theta_EP[0, LATER]).any(), "before its step it trains"
    free = [p for p in range(SPEC.params) if p not in FROM_START + LATER]
    moved = theta_EP[1:, free].ne(theta_EP[:-1, free]).any(1)
    assert moved.all(), "the rest trains on"


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_moves_them(name):
    """Whatever optimiser, wrapper or mean of θ is on: the θ that is handed out has them too."""
    fields = {**VARIANTS[name], "freeze": ((0, "arc", "fc1"),)}
    kept = [*SPEC.layout.places("arc"), *SPEC.layout.places("fc1")]
    bank = finish(make([pair(3, **fields, steps=2 * EVERY, lr=0.05)]))
    for theta_P in (bank.result(0).theta_P, bank.state["theta"][0]):
        assert theta_P[kept].equal(SPEC.initial(3)[kept])
        assert not theta_P.equal(SPEC.initial(3))


def test_the_rest_trains_as_if_they_were_constants():
    """Beside torch's AdamW on the other tensors alone, in float64: clipping too sees nothing of them."""
    recipe = recipe_of("adamw", freeze=((0, "norm", "fc1"),), clip=5.0)
    hyper = hyper_of([recipe], SPEC.layout)
    optimiser = optimiser_of(recipe)
    state = state_of(SPEC.initial(777).double()[None], optimiser)
    tensors = {n: t[0].clone() for n, t in SPEC.layout.split(state["theta"]).items()}
    free = {n: torch.nn.Parameter(t) for n, t in tensors.items() if n not in ("norm", "fc1")}
    theirs = torch.optim.AdamW(free.values(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    norms = []
    for tokens in step.tokens_of(SPEC, *step.draw(state, hyper, 16, 20)):
        theta_P = torch.cat([{**tensors, **free}[n].flatten() for n in SPEC.layout.names])
        theirs.zero_grad()
        step.loss(SPEC, theta_P[None], tokens).sum().backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(free.values(), 5.0)))
        theirs.step()
        state, _ = step.train_step(SPEC, optimiser, state, hyper, tokens)
    theta_P = torch.cat([{**tensors, **free}[n].detach().flatten() for n in SPEC.layout.names])
    assert min(norms) < 5.0 < max(norms)
    torch.testing.assert_close(state["theta"][0], theta_P, rtol=0, atol=1e-6)


def test_a_mean_of_thetas_has_them_as_they_are():
    bank = make([pair(1, steps=2 * EVERY, ema_decay=0.9, freeze=((EVERY, "arc"),))])
    bank.advance()
    before = bank.state["theta"][0, FROM_START].clone()
    assert not bank.state["average"][0, FROM_START].equal(before)
    bank.advance()
    assert bank.state["average"][0, FROM_START].equal(before)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"freeze": ((3,),)}, "freeze must be rows"),
        ({"freeze": (("arc",),)}, "freeze must be rows"),
        ({"freeze": ((-1, "arc"),)}, "freeze must be rows"),
        ({"freeze": ((0, 3),)}, "freeze must be rows"),
        ({"freeze": ((0, "arc"),), "ramp": 5}, "freeze excludes ramp"),
        ({"freeze": ((0, "arc"),), "fold_step": 1_000}, "freeze excludes fold_step"),
    ],
)
def test_what_cannot_be_is_one_line(fields, line):
    with pytest.raises(ValueError, match=line) as error:
        Recipe(**fields)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("ark", "did you mean arc"), ("arc[3]", r"did you mean arc\["), ("out_A[2]", r"out_A\[2,0\]")],
)
def test_a_name_that_is_no_entry_says_the_nearest(name, hint):
    with pytest.raises(ValueError, match=f"freeze must be of entries or tensors of θ: .*{hint}"):
        make([pair(1, freeze=((0, name),))])
