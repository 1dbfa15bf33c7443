"""Results of the CUDA engine against the CPU's, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from trainer.data import hard_examples
from trainer.engine.native import EngineBackend
from trainer.engine.tape_graph import Array
from trainer.recipe import Recipe
from trainer.recipe.starts import initial_theta
from trainer.step.schedule import Hyper, hyper_of
from trainer.step.step import State

STEPS = 20
"""Steps of a test from a start."""
TIMES = 2
"""Runs of a test, which must agree."""
LATE = 12_000
"""A late step, where schedules are elsewhere than at the start."""


def is_different(ours: Array, expected: Array) -> Array:
    """Mark the numbers with other bits. No number (NaN) equals any other: a CPU and a GPU have different ones."""
    if ours.dtype.kind != "f":
        return ours != expected
    # As whole numbers, so that 0 and -0 are different.
    bits = ours.view(f"i{ours.itemsize}") != expected.view(f"i{ours.itemsize}")
    return bits & ~(np.isnan(ours) & np.isnan(expected))


def first_difference(ours: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Return the first entry with other bits, as in "seed 2, theta[17]", or "". The tensors' first axis is seeds."""
    for name, tensor in expected.items():
        places = np.argwhere(is_different(ours[name].numpy(), tensor.numpy()))
        if len(places):
            seed, *rest = places[0].tolist()
            return f"seed {seed}, {name}{''.join(f'[{n}]' for n in rest)}"
    return ""


def compare(
    cuda: EngineBackend,
    cpu: EngineBackend,
    state: State,
    hyper: Hyper,
    steps: int = STEPS,
) -> str:
    """Train a state by both engines and evaluate it. Return where they differ first, or ""."""
    if not _after(cuda, cpu, state, hyper, steps):
        theta_SP = state["theta"]
        where = first_difference(cuda.evaluate(theta_SP), cpu.evaluate(theta_SP))
        return where and f"evaluation, {where}"
    # They differ somewhere: one step at a time says where.
    for step in range(1, steps + 1):
        if where := _after(cuda, cpu, state, hyper, 1):
            return f"step {step}, {where}"
        state, _ = cpu.train(state, hyper, 1)
    return f"within {steps} steps"


def _after(cuda: EngineBackend, cpu: EngineBackend, state: State, hyper: Hyper, steps: int) -> str:
    """Train a state by both engines. Return where state or losses differ first, or ""."""
    ours, our_loss = cuda.train(state, hyper, steps)
    expected, expected_loss = cpu.train(state, hyper, steps)
    return first_difference({**ours, "loss": our_loss}, {**expected, "loss": expected_loss})


def examples(cpu: EngineBackend, recipe: Recipe, count: int = 4) -> tuple[State, Hyper]:
    """Return seeds at their first steps, each from its own θ."""
    # Each from its own θ: equal seeds would hide that one reads another's memory.
    theta_SP = torch.stack([initial_theta(cpu.spec, recipe, n) for n in range(count)])
    state = {
        "theta": theta_SP,
        **cpu.optimiser.init(theta_SP),
        "data_seed": torch.arange(count),
        "wd_scale": torch.ones(count),
        "mix_scale": torch.ones(count),
        "step": torch.zeros(count, dtype=torch.int64),
        "before": torch.zeros(count, dtype=torch.int64),
    }
    if recipe.targeted:
        state |= hard_examples.empty_buffer(count, "cpu")
    return state, hyper_of([recipe] * count, cpu.spec.layout)


def failure(cuda: EngineBackend, cpu: EngineBackend, recipe: Recipe) -> str:
    """Return the first error of the CUDA engine in early and late steps of four seeds, tried twice, or ""."""
    state, hyper = examples(cpu, recipe)
    for start in (0, LATE) * TIMES:
        if where := compare(cuda, cpu, {**state, "step": state["step"] + start}, hyper):
            return f"other bits ({where})"
    return ""
