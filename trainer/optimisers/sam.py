"""SAM: the gradient of a worse place nearby. Axes: S slot, P parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from model.fields import option
from trainer.fields import Group
from trainer.optimisers.base import Optimiser, Tensors, columns

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sam(Group):
    sam_rho: float = option(
        0.0, "SAM: how far up the gradient is taken; 0 is off, else a step costs two gradients",
        unit="norm of θ", ge=0.0, switch=True,
        source="Foret et al., Sharpness-aware minimization, ICLR 2021; Reflection 2",
    )  # fmt: skip


def uphill(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensor:
    """Return θ + ρ g / |g| (equation 2)."""
    norm_S1 = grad_SP.square().sum(1, keepdim=True).sqrt()
    return state["theta"] + grad_SP * (columns(now, "sam_rho")[0] / (norm_S1 + 1e-12))


def sam(inner: Optimiser) -> Optimiser:
    return dataclasses.replace(inner, probe=uphill)
