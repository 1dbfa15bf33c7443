"""Wrappers of any optimiser: Grokfast, SAM, and a moving mean of θ. Axes: S slot, P parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from model.fields import option
from trainer.fields import Group, dependent_option
from trainer.optimisers.base import Optimiser, Tensors, columns, extend, zeros

if TYPE_CHECKING:
    from torch import Tensor

GROKFAST = "Lee et al., Grokfast, arXiv 2405.20233, algorithm 1"
AVERAGE = "average"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grokfast(Group):
    grokfast_lambda: float = option(
        0.0,
        "Grokfast: how much of the gradients' moving mean is added; 0 is off",
        unit="factor",
        ge=0.0,
        switch=True,
        source=GROKFAST,
    )
    grokfast_alpha: float = dependent_option(
        "grokfast_lambda",
        0.98,
        "that mean's memory",
        unit="fraction",
        ge=0,
        le=0.9999999,
        source=GROKFAST,
    )
    grokfast_end: int = dependent_option("grokfast_lambda", 0, "when it ends; 0: never", unit="steps", ge=0)


def grokfast(inner: Optimiser) -> Optimiser:
    """Filter the gradient before it is clipped, as MicroAdder does."""

    def gradient(state: Tensors, now: Tensors, grad_SP: Tensor) -> tuple[Tensor, Tensors]:
        import torch

        alpha, factor, end = columns(now, "grokfast_alpha", "grokfast_lambda", "grokfast_end")
        step_S1 = state["step"][:, None]
        is_first_S1 = step_S1 == 0  # the mean begins at the first gradient, not at 0
        moved_SP = state["slow"] * alpha + grad_SP * (1 - alpha)
        mean_SP = torch.where(is_first_S1, grad_SP, moved_SP)
        is_on_S1 = (end == 0) | (step_S1 < end)
        raw_SP = torch.where(is_on_S1, grad_SP + factor * mean_SP, grad_SP)
        filtered_SP, tensors = inner.gradient(state, now, raw_SP)
        return filtered_SP, {**tensors, "slow": mean_SP}

    return extend(inner, zeros("slow"), gradient=gradient)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sam(Group):
    sam_rho: float = option(
        0.0,
        "SAM: how far up the gradient is taken; 0 is off, else a step costs two gradients",
        unit="norm of θ",
        ge=0.0,
        switch=True,
        source="Foret et al., Sharpness-aware minimization, ICLR 2021; Reflection 2",
    )


def uphill(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensor:
    """Return θ + ρ g / |g| [S, P], where the loss rises most (Foret et al., equation 2)."""
    # With a gradient of 0 it is θ itself, by the small number.
    norm_S1 = grad_SP.square().sum(1, keepdim=True).sqrt()
    (rho_S1,) = columns(now, "sam_rho")
    return state["theta"] + grad_SP * (rho_S1 / (norm_S1 + 1e-12))


def sam(inner: Optimiser) -> Optimiser:
    """Take the gradient uphill of θ, and the step from θ."""
    return dataclasses.replace(inner, gradient_point=uphill)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Average(Group):
    ema_decay: float = option(
        0.0,
        "memory of a moving mean of θ, which is evaluated too: what has more problems right counts; 0 is off",
        unit="fraction",
        ge=0,
        le=0.9999999,
        switch=True,
        source="Polyak and Juditsky, SIAM J. Control 30, 1992; tbukic and warlockee have 0.999",
    )


def average(inner: Optimiser) -> Optimiser:
    """Keep a moving mean of θ beside it, to be evaluated; training does not see it."""

    def update(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
        new = inner.update(state, now, grad_SP)
        (memory,) = columns(now, "ema_decay")
        mean_SP = state[AVERAGE] * memory + new["theta"] * (1 - memory)
        return {**new, AVERAGE: mean_SP}

    # The mean begins at the first θ, so that it needs no correction as Adam's means do.
    return extend(
        inner,
        lambda theta_SP: {AVERAGE: theta_SP.clone()},
        update=update,
        eval_theta=AVERAGE,
    )
