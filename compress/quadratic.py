"""The loss's quadratic model in all entries of a base's θ: it predicts the cost of any ties.

hessian.py looks at the numbers of a tied spec. This model looks at entries, with the gradient that ties hold back,
so it also predicts the gain of moving an entry from its number to another. In float64.

Axes: P entries of the base's θ, K numbers of a set, N set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from compress.hessian import LossExpansion, expand_loss, shares
from model.spec import Spec
from model.tied import Ties, tie

CHUNK = 1_024  # sets at once: memory
TRUST = 1e-6
"""Added to each eigenvalue, as a share of the largest: freed entries stay near. For certificates 12p and 17p the
cheapest constraints are the same for any value from 1e-7 to 1e-4."""


@dataclass(frozen=True)
class Quadratic:
    """loss + gᵀd + ½ dᵀHd for θ + d; H is positive."""

    base: Spec
    theta_P: Tensor
    loss: float
    gradient_P: Tensor
    hessian_PP: Tensor

    def costs(self, sets: Sequence[Ties]) -> Tensor:
        """Return the least loss on each set of ties [N], less the loss at θ."""
        costs = []
        for n in range(0, len(sets), CHUNK):
            costs_N, _ = self._costs(sets[n : n + CHUNK])
            costs.append(costs_N)
        return torch.cat(costs)

    def inside(self, ties: Ties) -> LossExpansion:
        """Return the model on one set of ties, around its lowest point there."""
        cost_N, numbers_NK = self._costs([ties])
        # In x, in which a distance is one between θ of the base (hessian.py).
        weight_K = shares(ties).sqrt()
        spread_PK = _spread([ties])[0] / weight_K
        values_K, vectors_KK = torch.linalg.eigh(spread_PK.T @ self.hessian_PP @ spread_PK)
        x_K = numbers_NK[0] * weight_K
        loss = self.loss + float(cost_N[0])
        return LossExpansion(
            tie(self.base, ties),
            ties,
            x_K,
            loss,
            torch.zeros_like(x_K),
            values_K,
            vectors_KK,
        )

    def _costs(self, sets: Sequence[Ties]) -> tuple[Tensor, Tensor]:
        """Return the costs [N], and the numbers [N, K] at the lowest points."""
        spread_NPK = _spread(sets)
        curved_NKK = spread_NPK.mT @ self.hessian_PP @ spread_NPK
        unused_NK = (spread_NPK == 0).all(1).double()  # numbers beyond a small set's own
        pull_P = self.hessian_PP @ self.theta_P - self.gradient_P
        pull_NK = (spread_NPK * pull_P[:, None]).sum(1)
        # The lowest point: where the model's gradient within the ties is 0.
        numbers_NK = torch.linalg.solve(curved_NKK + torch.diag_embed(unused_NK), pull_NK)
        step_NP = (spread_NPK @ numbers_NK[..., None])[..., 0] - self.theta_P
        curved_N = (step_NP @ self.hessian_PP * step_NP).sum(1)
        return step_NP @ self.gradient_P + curved_N / 2, numbers_NK


def quadratic(base: Spec, theta_P: Tensor, count: int) -> Quadratic:
    """Fit the model around θ [P] of a base, on `count` selection problems."""
    at = expand_loss(base, theta_P, count)
    largest = at.values_R.abs().max().clamp(min=1e-30)
    damped_P = at.values_R.clamp(min=0) + TRUST * largest
    hessian_PP = (at.vectors_RR * damped_P) @ at.vectors_RR.T
    return Quadratic(base, at.x_R, at.loss, at.gradient_R, hessian_PP)


def _spread(sets: Sequence[Ties]) -> Tensor:
    """Return the sign with which each entry reads each number [N, P, K], else 0; K is the largest set's."""
    ties_NP = torch.tensor(sets)
    largest = int(ties_NP.abs().max())
    one_hot = torch.nn.functional.one_hot(ties_NP.abs(), largest + 1)
    numbers = one_hot[..., 1:]  # number 0 is the constant 0
    return (numbers * torch.sign(ties_NP)[..., None]).double()
