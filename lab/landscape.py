"""The loss around a θ: along directions and on planes, every point a slot of one bank.

Axes: S slot, P numbers, N points on a side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from compress.hessian import expand_loss, sample_of, shares
from trainer.engine.kernel import KernelLoss

if TYPE_CHECKING:
    from model import Spec

PROBLEMS = 256
RISE = 0.1
"""Loss at which a basin ends; a trained adder's is some 10^-4, that of a guess 2.3."""
SIDE = 25


@dataclass(frozen=True)
class Basin:
    """How far θ may go: distances in shares of |θ| at which the loss has risen by RISE, the nearer of both ways."""

    loss: float
    curvature: float
    """Largest eigenvalue of the Hessian."""
    sharpest: float
    flattest: float
    random: float
    """Median of the random directions."""


class Landscape:
    """A θ [P] of a spec with its Hessian on PROBLEMS selection problems, in float64."""

    def __init__(self, spec: Spec, theta_P: Tensor, seed: int = 0):
        self.spec, self.theta_P = spec, theta_P.double()
        self.tokens = sample_of(spec, PROBLEMS)
        at = expand_loss(spec, theta_P, PROBLEMS)
        self.loss, self.curvature = at.loss, float(at.values_R[-1])
        vectors_RR = _unit(at.vectors_RR.T / shares(at.ties).sqrt())
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(16, len(theta_P), generator=generator, dtype=torch.float64)
        self.sharpest, self.flattest, self.random = vectors_RR.flip(0)[:2], vectors_RR[:2], _unit(drawn)
        self.size = float(self.theta_P.norm())

    def losses(self, theta_SP: Tensor) -> Tensor:
        """Return the loss of each θ [S], by the family's kernel; of one that is not finite, infinity."""
        problems = KernelLoss(self.spec, self.tokens)
        losses = [problems.slope(theta_P.float().numpy())[0] for theta_P in theta_SP]
        return torch.tensor(losses, dtype=torch.float64).nan_to_num(nan=torch.inf)

    def widths(self, directions_DP: Tensor, points: int = 33) -> list[float]:
        """Return for each direction the share of |θ| at which the loss has risen by RISE, at most 1."""
        distances = torch.logspace(-5, 0, points, dtype=torch.float64)
        moves = directions_DP[:, None, None] * distances[:, None] * torch.tensor([1.0, -1.0])[:, None, None]
        theta_SP = self.theta_P + self.size * moves.reshape(-1, len(self.theta_P))
        risen = (self.losses(theta_SP) > self.loss + RISE).reshape(len(directions_DP), 2, points).any(1)
        beyond = risen.cummax(1).values
        return [float(distances[row.int().argmax()]) if row.any() else 1.0 for row in beyond]

    def basin(self) -> Basin:
        ends = self.widths(torch.cat([self.sharpest[:1], self.flattest[:1], self.random]))
        return Basin(self.loss, self.curvature, ends[0], ends[1], float(torch.tensor(ends[2:]).median()))

    def planes(self, other_P: Tensor | None = None) -> list[dict[str, Any]]:
        """Return planes through θ as plain values: names, reach of both axes in shares of |θ|, and log10 of the loss
        [N, N]. other_P: another θ of the spec, in whose direction a plane goes.
        """
        pairs = [("sharpest", self.sharpest), ("flattest", self.flattest), ("random", self.random[:2])]
        planes = [self._plane(name, pair_DP) for name, pair_DP in pairs]
        if other_P is not None and (toward_P := other_P.double() - self.theta_P).any():
            across = self.random[0] - (self.random[0] @ _unit(toward_P)) * _unit(toward_P)
            reach = float(toward_P.norm()) / self.size
            pair_DP = torch.stack([_unit(toward_P), _unit(across)])
            planes.append(self._plane("toward the other", pair_DP, [1.25 * reach, 1.25 * reach]))
        return planes

    def _plane(self, name: str, pair_DP: Tensor, reach: list[float] | None = None) -> dict[str, Any]:
        reach = reach or [min(1.0, 3 * width) for width in self.widths(pair_DP)]
        steps = torch.linspace(-1, 1, SIDE, dtype=torch.float64)
        moves = (
            steps[None, :, None] * reach[0] * pair_DP[0] - steps[:, None, None] * reach[1] * pair_DP[1]
        ) * self.size
        losses = self.losses(self.theta_P + moves.reshape(-1, len(self.theta_P)))
        logs = losses.clamp(1e-6, 1e3).log10().reshape(SIDE, SIDE)
        return {"name": name, "reach": reach, "losses": [[round(n, 3) for n in row] for row in logs.tolist()]}


def planes(spec: Spec, theta_P: Tensor, other_P: Tensor | None = None) -> list[dict[str, Any]]:
    """Return planes through θ (`Landscape.planes`): for `adder-search explain --landscape`."""
    return Landscape(spec, theta_P).planes(other_P)


def _unit(vectors: Tensor) -> Tensor:
    """Scale vectors [..., P] to length 1."""
    return vectors / vectors.norm(dim=-1, keepdim=True)
