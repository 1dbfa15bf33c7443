"""Gradient noise. Axes: S slot, P parameters."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from model.fields import option
from trainer.fields import Group, dependent_option
from trainer.optimisers.base import Optimiser, Tensors, columns

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = "Neelakantan et al., Adding gradient noise, arXiv 1511.06807"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise(Group):
    noise_eta: float = option(
        0.0, "variance of the normal noise on each entry of the clipped gradient at step 0; 0 is off",
        unit="gradient squared", ge=0.0, switch=True, source=SOURCE,
    )  # fmt: skip
    noise_gamma: float = dependent_option(
        "noise_eta", 0.55, "its variance falls as (1 + step) to minus this", unit="exponent", ge=0, le=10,
        source=SOURCE,
    )  # fmt: skip


def normal(uniform_SN: Tensor) -> Tensor:
    """Normal numbers [S, N / 2] from uniform ones between 0 and 1, by Box and Muller."""
    first_SP, second_SP = uniform_SN.split(uniform_SN.shape[1] // 2, dim=1)
    return (first_SP.log() * -2).sqrt() * (second_SP * (2 * math.pi)).cos()


def noise(inner: Optimiser) -> Optimiser:
    def gradient(state: Tensors, now: Tensors, grad_SP: Tensor) -> tuple[Tensor, Tensors]:
        filtered_SP, kept = inner.gradient(state, now, grad_SP)
        eta, gamma = columns(now, "noise_eta", "noise_gamma")
        falling = ((state["step"] + 1).log()[:, None] * (gamma * -0.5)).exp()
        return filtered_SP + eta.sqrt() * falling * normal(now["draws"]), kept

    return dataclasses.replace(inner, gradient=gradient, draws=2)
