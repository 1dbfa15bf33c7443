"""The optimiser, against torch's own, and the golden curve."""

import json

import pytest
import torch

from model import rung
from tests import make_golden_curve
from trainer import step
from trainer.recipe import Recipe
from trainer.schedule import hyper_of

SPEC = rung("57p")
CONSTANT = {"warmup": 0, "lr_floor": 1.0}


def state_of(theta_SP):
    slots = len(theta_SP)
    return {
        "theta": theta_SP,
        "m": torch.zeros_like(theta_SP),
        "v": torch.zeros_like(theta_SP),
        "step": torch.zeros(slots, dtype=torch.int64),
        "data_seed": torch.arange(slots),
        "wd_scale": torch.ones(slots, dtype=theta_SP.dtype),
        "mix_scale": torch.ones(slots),
        "active": torch.ones(slots, dtype=torch.bool),
    }


def torch_adamw(theta_P, hyper, slot=0):
    """torch's optimiser and a step function with this slot's numbers."""
    h = {name: t[slot].item() for name, t in hyper.items() if t.dim() == 1}
    parameter = torch.nn.Parameter(theta_P.clone())
    options = {"betas": (h["beta1"], h["beta2"]), "eps": h["epsilon"], "weight_decay": h["weight_decay"]}
    optimiser = torch.optim.AdamW([parameter], lr=h["lr"], **options)

    def take(grad_P):
        parameter.grad = grad_P.clone()
        norm = torch.nn.utils.clip_grad_norm_([parameter], h["clip"])
        optimiser.step()
        return norm

    return parameter, take


def test_fifty_steps_are_torchs_adamw_and_clipping():
    """In float64, where what differs is the algorithm and not the rounding."""
    hyper = hyper_of([Recipe(**CONSTANT, clip=0.5)])
    state = state_of(SPEC.initial(777).double()[None])
    blocks = step.tokens_of(SPEC, *step.draw(state, hyper, 16, 50))
    parameter, take = torch_adamw(state["theta"][0], hyper)
    norms = []
    for tokens in blocks:
        grad = torch.autograd.grad(step.loss(SPEC, parameter[None], tokens).sum(), parameter)[0]
        norms.append(float(take(grad)))
        state, _ = step.train_step(SPEC, state, hyper, tokens)
    assert min(norms) < 0.5 < max(norms), "clipping must be seen both on and off"
    torch.testing.assert_close(state["theta"][0], parameter.data, rtol=0, atol=1e-6)
    assert (parameter - SPEC.initial(777)).abs().max() > 0.1
    assert state["step"].tolist() == [50]


def test_float32_updates_are_torchs_for_every_slot():
    """The same gradients for both, so that rounding does not feed back."""
    other = Recipe(**CONSTANT, lr=0.003, weight_decay=0.1, clip=3.0, beta1=0.8, beta2=0.95)
    recipes = [Recipe(**CONSTANT), other]
    hyper, gen = hyper_of(recipes), torch.Generator().manual_seed(0)
    state = state_of(torch.stack([SPEC.initial(s) for s in range(2)]))
    theirs = [torch_adamw(state["theta"][s], hyper, s) for s in range(2)]
    for _ in range(50):
        grad = torch.randn(2, SPEC.params, generator=gen) * torch.rand(2, 1, generator=gen)
        state = step.adamw(state, hyper, grad)
        for s, (_, take) in enumerate(theirs):
            take(grad[s])
    for s, (parameter, _) in enumerate(theirs):
        torch.testing.assert_close(state["theta"][s], parameter.data, rtol=1e-6, atol=1e-6)


def test_an_inactive_slot_stands_still():
    hyper = hyper_of([Recipe(**CONSTANT)] * 2)
    state = state_of(torch.stack([SPEC.initial(s) for s in range(2)]))
    state["active"][1] = False
    after = step.adamw(state, hyper, torch.ones(2, SPEC.params))
    for name in ("theta", "m", "v", "step"):
        assert torch.equal(after[name][1], state[name][1])
        assert not torch.equal(after[name][0], state[name][0])


def test_the_decay_scale_multiplies_weight_decay():
    hyper = hyper_of([Recipe(**CONSTANT, weight_decay=0.4), Recipe(**CONSTANT, weight_decay=0.1)])
    state = state_of(SPEC.initial(0).repeat(2, 1))
    state["wd_scale"][0] = 0.25
    after = step.adamw(state, hyper, torch.ones(2, SPEC.params))["theta"]
    assert torch.equal(after[0], after[1])


def test_a_nan_gradient_stays_in_its_slot():
    hyper = hyper_of([Recipe(**CONSTANT)] * 2)
    state = state_of(torch.stack([SPEC.initial(s) for s in range(2)]))
    good = torch.ones(2, SPEC.params)
    bad = good.clone()
    bad[0, 3] = torch.nan
    after, expected = step.adamw(state, hyper, bad)["theta"], step.adamw(state, hyper, good)["theta"]
    assert torch.equal(after[1], expected[1]) and after[0].isnan().any()


def test_the_golden_curve():
    """Changed training code reproduces the stored curve; what is meant to differ regenerates it."""
    stored = json.loads(make_golden_curve.FILE.read_text())
    for seed, curve in make_golden_curve.curves().items():
        assert curve == pytest.approx(stored[seed], rel=1e-4)
        assert len(curve) == 30 and curve[-1] < 0.97 * curve[0]
