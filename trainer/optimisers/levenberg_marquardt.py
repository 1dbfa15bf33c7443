"""The damped Gauss-Newton step, with Marquardt's damping. Axes: S slot, P parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from trainer.fields import Group, dependent_option
from trainer.optimisers.base import Model, Optimiser, Tensors, columns, slot_by_slot

if TYPE_CHECKING:
    from torch import Tensor

NAME = "levenberg_marquardt"
SOURCE = "Marquardt, SIAM J. 11, 1963; for cross-entropy: Schraudolph, Neural Computation 14, 2002"
RANGE = 1e8  # how far the damping moves from the recipe's, either way


@dataclasses.dataclass(frozen=True, kw_only=True)
class LevenbergMarquardt(Group):
    damping: float = dependent_option(
        f"optimiser={NAME}", 0.01, "added to every eigenvalue of the Gauss-Newton matrix, at first",
        unit="curvature", ge=1e-12, source=SOURCE,
    )  # fmt: skip
    damping_by: float = dependent_option(
        f"optimiser={NAME}",
        2.0,
        "divides the damping where a step makes the loss of its own problems fall; else multiplies it, and "
        "the step is not taken; 1: it stays, and each step is taken",
        unit="factor", ge=1, source=SOURCE,
    )  # fmt: skip


def fresh(theta_SP: Tensor) -> Tensors:
    return {"damped": theta_SP.new_ones(len(theta_SP))}


def look(model: Model, state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
    """Where the step would lead, and by how much the loss of the same problems falls on the way."""
    import torch

    lr, decay = columns(now, "lr", "decay")
    theta_SP, damping_S = state["theta"], now["damping"] * state["damped"]
    one_PP = torch.eye(theta_SP.shape[1], device=theta_SP.device, dtype=theta_SP.dtype)
    damped_SPP = model.curvature(theta_SP) + damping_S[:, None, None] * one_PP
    down_SP1 = slot_by_slot(lambda m, g: torch.linalg.solve_ex(m, g)[0], damped_SPP, -grad_SP[:, :, None])
    trial_SP = theta_SP * (1 - decay) + lr * down_SP1[:, :, 0]
    return {"trial": trial_SP, "fall": model.loss(theta_SP) - model.loss(trial_SP)}


def update(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
    """The step where the loss falls, and the damping of the next one. With lr 1 it is Gauss and Newton's."""
    import torch

    factor_S, fell_S = now["damping_by"], now["fall"] > 0
    damped_S = state["damped"] * torch.where(fell_S, 1 / factor_S, factor_S)
    taken_S1 = (fell_S | (factor_S == 1))[:, None]
    nothing_SP = grad_SP - grad_SP  # not a number where the gradient is none
    theta = torch.where(taken_S1, now["trial"], state["theta"]) + nothing_SP
    return {"theta": theta, "damped": damped_S.clamp(1 / RANGE, RANGE)}


LEVENBERG_MARQUARDT = Optimiser(fresh, update, look=look)
