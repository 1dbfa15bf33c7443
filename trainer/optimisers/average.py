"""A moving mean of θ, evaluated beside θ. Axes: S slot, P parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from model.fields import option
from trainer.fields import Group
from trainer.optimisers.base import Optimiser, Tensors, also, columns

if TYPE_CHECKING:
    from torch import Tensor

NAME = "average"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Average(Group):
    ema_decay: float = option(
        0.0,
        "memory of a moving mean of θ, which is evaluated too: what has more problems right counts; 0 is off",
        unit="fraction", ge=0, le=0.9999999, switch=True,
        source="Polyak and Juditsky, SIAM J. Control 30, 1992; tbukic and warlockee have 0.999",
    )  # fmt: skip


def average(inner: Optimiser) -> Optimiser:
    """Keep a moving mean of θ, which does not change θ."""

    def update(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
        new = inner.update(state, now, grad_SP)
        memory = columns(now, "ema_decay")[0]
        return {**new, NAME: state[NAME] * memory + new["theta"] * (1 - memory)}

    return also(inner, lambda theta_SP: {NAME: theta_SP.clone()}, update=update, beside=NAME)
