"""Adam with the whole matrix of second moments, and the inverse root that it steps by.

Only models as small as these afford it: [P, P] a slot. Axes: S slot, P parameters.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from trainer.fields import Group, dependent_option
from trainer.optimisers.base import Optimiser, Tensors, columns, slot_by_slot

if TYPE_CHECKING:
    from torch import Tensor


NAME = "full_adam"
SOURCE = "Agarwal et al., Efficient full-matrix adaptive regularization, ICML 2019"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FullAdam(Group):
    root_every: int = dependent_option(
        f"optimiser={NAME}", 100, "distance of new inverse roots; divides eval_every",
        unit="steps", ge=1, shapes=True, source=SOURCE,
    )  # fmt: skip
    root_damping: float = dependent_option(
        f"optimiser={NAME}", 0.001, "added to every eigenvalue of the second moment, of their mean",
        unit="fraction", ge=0.0, source=SOURCE,
    )  # fmt: skip

    @staticmethod
    def validate(recipe: Any) -> None:
        if recipe.optimiser == NAME and recipe.eval_every % recipe.root_every:
            raise ValueError(
                f"root_every must divide eval_every, got {recipe.root_every} and {recipe.eval_every}"
            )


def fresh(theta_SP: Tensor) -> Tensors:
    square = theta_SP.new_zeros(*theta_SP.shape, theta_SP.shape[1])
    return {"m": theta_SP.new_zeros(theta_SP.shape), "second": square, "root": square.clone()}


def update(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
    """θ moves by the inverse root times the mean gradient; it stands still until there is a first root.

    Weight decay is decoupled, and both moments are without bias, the second at the step of its root.
    """
    lr, decay, beta1, beta2, every = columns(now, "lr", "decay", "beta1", "beta2", "root_every")
    done_S1 = state["step"][:, None]
    m = state["m"] + (grad_SP - state["m"]) * (1 - beta1)
    squares = grad_SP[:, :, None] * grad_SP[:, None, :]
    second = state["second"] * beta2[..., None] + squares * (1 - beta2)[..., None]
    at_root = (done_S1 / every).floor() * every
    bias = (1 - beta2**at_root).sqrt() / (1 - beta1 ** (done_S1 + 1))
    moved = (state["root"] * m[:, None, :]).sum(2) * bias
    return {"theta": state["theta"] * (1 - decay) - lr * moved, "m": m, "second": second}


def inverse_root(second_SPP: Tensor, damping_S: Tensor, epsilon_S: Tensor) -> Tensor:
    """(M + (damping · mean eigenvalue of M + epsilon²) 1)^(-1/2) of each slot's M, in float64 and rounded."""
    import torch

    def root(matrix: Tensor, damping: Tensor, epsilon: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        added = damping * values.mean(1) + epsilon**2
        made: Tensor = (vectors * (values.clamp(min=0) + added[:, None]).rsqrt()[:, None]) @ vectors.mT
        return made

    finite_S11 = second_SPP.isfinite().all(2).all(1)[:, None, None]
    matrix_SPP = torch.where(finite_S11, second_SPP.double(), 0.0)
    made_SPP = slot_by_slot(root, matrix_SPP, damping_S.double(), epsilon_S.double())
    return torch.where(finite_S11, made_SPP, torch.nan).to(second_SPP)


FULL_ADAM = Optimiser(fresh, update, root=("second", "root"))
