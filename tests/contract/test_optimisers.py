"""What every optimiser and wrapper keeps to. That each computes what it is named after: test_optimisers_references;
that a slot depends on itself alone: test_seeds_of_their_own.
"""

import numpy as np
import pytest
import torch

from model import preset
from tests import needs_compiler
from tests.banks import EVERY, SMALL, SPEC, make, pair
from trainer import Recipe
from trainer.bank.bank import _empty
from trainer.engine.native import EngineBackend, run
from trainer.optimisers import OPTIMISERS, WRAPPERS, optimiser_of
from trainer.optimisers.freeze import frozen_from
from trainer.recipe import SWITCHES
from trainer.recipe.teacher import Teacher
from trainer.step import step
from trainer.step.schedule import hyper_of
from trainer.step.schedule import now as now_of

CONSTANT = {"warmup": 0, "lr_floor": 1.0}
pytestmark = pytest.mark.usefixtures("few_selection_problems")
TEACHER = Teacher(preset("100p"), tuple(preset("100p").initial(5).tolist())).word
WRAPPED = {
    "sam": {"sam_rho": 0.05},
    "grokfast": {"grokfast_lambda": 2.0, "grokfast_end": 4},
    "average": {"ema_decay": 0.9},
    "factors": {"lr_factors": (("norm", 3.0),)},
    "schedules": {"wd_schedule": "cyclical", "wd_period": 4},
    "teacher": {"teacher": TEACHER, "distill_alpha": 0.5},
    "data": {"targeted": 0.5},
    "l1": {"l1_lambda": 0.5, "l1_entries": ("fc1", "norm[0,4]"), "l1_start": 1, "l1_rise": 4},
    "freeze": {"freeze": ((1, "arc", "norm[0,4]"), (4, "out_B"))},
}
VARIANTS = {**{name: {"optimiser": name} for name in OPTIMISERS}, **WRAPPED}
VARIANTS["all wrappers"] = {k: v for fields in WRAPPED.values() for k, v in fields.items()} | {"optimiser": "sgd"}
every_variant = pytest.mark.parametrize("name", VARIANTS)


def test_every_entry_and_every_switch_is_tried():
    assert {fields.get("optimiser", "adamw") for fields in VARIANTS.values()} == OPTIMISERS.keys()
    tried = {key for fields in VARIANTS.values() for key in fields}
    assert tried >= WRAPPERS.keys() and tried >= SWITCHES.keys()


def recipe_of(name, **more):
    return Recipe(**{**SMALL, **CONSTANT, **VARIANTS[name], **more})


def state_of(theta_SP, optimiser):
    """A bank's slots at step 0, all of them active."""
    fresh = _empty(SPEC, optimiser, len(theta_SP), "cpu")
    state = {**fresh, **optimiser.init(theta_SP), "theta": theta_SP}
    state |= {"data_seed": torch.arange(len(theta_SP)), "active": torch.ones(len(theta_SP)).bool()}
    return state | {"wd_scale": state["wd_scale"].to(theta_SP)}


def initial(slots):
    return torch.stack([SPEC.initial(s) for s in range(slots)])


def steps(optimiser, state, hyper, grads):
    for grad_SP in grads:
        state = step.apply_update(optimiser, state, hyper, grad_SP)
    return state


# The contract


@every_variant
def test_a_slot_that_is_not_active_stands_still(name):
    recipe = recipe_of(name)
    optimiser, hyper = optimiser_of(recipe), hyper_of([recipe] * 2, SPEC.layout)
    state = state_of(initial(2), optimiser)
    state["active"][1] = False
    after = steps(optimiser, state, hyper, torch.ones(3, 2, SPEC.params))
    assert all(torch.equal(after[key][1], state[key][1]) for key in after)
    assert not torch.equal(after["theta"][0], state["theta"][0])


@pytest.mark.parametrize(
    "others", [["l1"], ["grokfast"], ["sam", "l1"], ["average"], ["sam", "l1", "grokfast", "average"]]
)
def test_what_is_frozen_has_no_gradient_whatever_is_added_to_it(others):
    """Nor a share in its norm; SAM's point and the mean of θ leave it where it is; NaN stays."""
    fields = {k: v for name in others for k, v in WRAPPED[name].items()}
    fields |= {"freeze": ((2, "fc1", "norm[0,4]"),)} | ({"l1_start": 0} if "l1" in others else {})
    recipe, theta = recipe_of("adamw", **fields), initial(1)
    frozen_P = torch.tensor(frozen_from(SPEC.layout, recipe.freeze)) == 2
    optimiser, hyper = optimiser_of(recipe), hyper_of([recipe], SPEC.layout)
    raw_SP = torch.full_like(theta, 3.0)
    state = steps(optimiser, state_of(theta, optimiser), hyper, [raw_SP] * 2)
    now = now_of(state, hyper)
    grad_SP, _ = optimiser.gradient(state, now, raw_SP)
    assert 0 < frozen_P.sum() < len(frozen_P) and not grad_SP[0, frozen_P].any()
    assert float(grad_SP.norm()) == pytest.approx(recipe.clip, rel=1e-4)
    if optimiser.gradient_point:
        moved_SP = optimiser.gradient_point(state, now, raw_SP) - state["theta"]
        assert not moved_SP[0, frozen_P].any() and float(moved_SP.norm()) == pytest.approx(recipe.sam_rho, rel=1e-3)
    after = steps(optimiser, state, hyper, [raw_SP])
    for name in filter(None, ("theta", optimiser.eval_theta)):
        assert torch.equal(after[name][0, frozen_P], state["theta"][0, frozen_P])
    raw_SP[0, frozen_P.nonzero()[0]] = torch.nan
    assert optimiser.gradient(state, now, raw_SP)[0].isnan().any()


@needs_compiler
def test_the_engine_sees_what_is_not_finite_where_theta_is_frozen():
    programs = EngineBackend(SPEC, recipe_of("freeze"))
    state, hyper = state_of(initial(1), programs.optimiser), hyper_of([programs.recipe], SPEC.layout)
    row = programs.slots_of({**state, "step": state["step"] + 4}, hyper).rows[0]
    row[programs.places["gradient"].start + SPEC.layout.places("arc")[0]] = torch.nan
    assert np.isnan(run(programs.tapes[3], row)[: SPEC.params]).any()


@needs_compiler
@every_variant
def test_the_engine_takes_the_steps_that_torchs_programs_take(name):
    """Before rounding has grown."""
    pairs = [pair(s, **VARIANTS[name], steps=6 * EVERY, warmup=3, lr=0.01) for s in (1, 2)]
    engine, eager = make(pairs), make(pairs, compiled=False)
    assert isinstance(engine.backend, EngineBackend)
    for _ in range(2):
        engine.advance(), eager.advance()
        here, there = (b.state["theta"][:2] for b in (engine, eager))
        torch.testing.assert_close(here, there, rtol=2e-3, atol=2e-3)
    assert (engine.state["theta"][:2] - initial(3)[1:]).abs().max() > 1e-3
