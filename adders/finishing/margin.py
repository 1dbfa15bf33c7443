"""Raise the smallest margin over all 10^20 pairs by linear programmes on the worst pairs.

The prover names each case's worst pairs. By Danskin's theorem the slope of the smallest margin is that of its pair, so
the step within a trust region that lifts the smallest of some hundred margins most is a linear programme. A
step that new worst pairs do not confirm makes the region smaller, and these pairs join the others.

Axes: P parameters, S points, N pair, V vocabulary, A answer position, B problem.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adders.curvature.minimise import Task
from adders.curvature.pool import LEAST_NUMBER, Cost, tokens_from
from adders.proof.prover import worst_pairs
from model.spec import Spec

Array = NDArray[np.float64]
Row = tuple[int, int, int]
"""Digit, and the two numbers."""
WORST, MOST_ROWS = 600, 3_000
RADIUS, WIDEST, NARROWEST = 0.01, 0.1, 1e-6
"""Of the trust region, relative to each number."""
POINTS = 24
"""θ that are evaluated together."""
ROUNDS = 24
"""Steps that the prover looks at; some 1.5 core-seconds each."""
ENOUGH = 0.01
"""Smallest margin, relative to the largest logit, at which no more is asked for."""


@dataclass
class Margins:
    """Margins of rows, relative to the largest logit, so that larger numbers are no gain."""

    spec: Spec
    cost: Cost
    rows: list[Row] = field(default_factory=list)

    def at(self, theta_SP: Tensor) -> Array:
        """Return the margins of the rows at each point [S, N]."""
        tokens_1TB = tokens_from(self.spec, [(a, b) for _, a, b in self.rows])
        digits = torch.tensor([k for k, _, _ in self.rows])
        right_N = tokens_1TB[0, self.spec.prompt + digits, torch.arange(len(digits))].long()
        parts = [self._part(part_SP, tokens_1TB, digits, right_N) for part_SP in theta_SP.split(POINTS)]
        self.cost.problems += len(theta_SP) * len(self.rows)
        margins: Array = torch.cat(parts).numpy()
        return margins

    @torch.no_grad()
    def _part(self, theta_SP: Tensor, tokens_1TB: Tensor, digits: Tensor, right_N: Tensor) -> Tensor:
        logits = self.spec.forward(theta_SP, tokens_1TB[:, :-1], first=self.spec.prompt - 1)
        logits_VSAB = torch.stack(list(torch.broadcast_tensors(*logits)))
        logits_VSN = logits_VSAB[:, :, digits, torch.arange(len(digits))]
        index = right_N.expand(1, len(theta_SP), -1)
        right = logits_VSN.gather(0, index)[0]
        rival = logits_VSN.scatter(0, index, -torch.inf).amax(0)
        return (right - rival) / logits_VSN.abs().amax(0)

    def slopes(self, theta_P: Tensor, scale_P: Tensor) -> Array:
        """Return the margins' slopes along each number [N, P], by differences."""
        steps_PP = torch.diag(1e-6 * scale_P)
        both = self.at(torch.cat([theta_P + steps_PP, theta_P - steps_PP]))
        ahead, behind = np.split(both, 2)
        slopes: Array = ((ahead - behind) / (2e-6 * scale_P.numpy()[:, None])).T
        return slopes


def margin(task: Task, theta_P: Tensor) -> Tensor:
    """Return θ [P] in float32 numbers with a larger smallest margin, or θ itself."""
    from scipy.optimize import linprog

    spec, theta_P, radius, rounds = (
        task.spec,
        theta_P.detach().float().double(),
        RADIUS,
        0,
    )
    scale_P = theta_P.abs().clamp_min(LEAST_NUMBER)
    pool = _worst(spec, theta_P)
    best = _smallest(spec, task.cost, pool, theta_P)
    while pool and best < ENOUGH and radius > NARROWEST and rounds < ROUNDS:
        margins = Margins(spec, task.cost, pool)
        order = np.argsort(margins.at(theta_P[None])[0])[:MOST_ROWS]
        pool = [pool[i] for i in order]
        margins.rows = pool[:WORST]
        values_N, scales_P = margins.at(theta_P[None])[0], scale_P.numpy()
        rise = np.concatenate(
            [-margins.slopes(theta_P, scale_P) * scales_P, np.ones((len(values_N), 1))],
            1,
        )
        while radius > NARROWEST:
            bounds = [(-radius, radius)] * len(theta_P) + [(None, None)]
            solution = linprog(
                np.r_[np.zeros(len(theta_P)), -1.0],
                rise,
                values_N,
                bounds=bounds,
                method="highs",
            )
            new_P = (theta_P + torch.from_numpy(solution.x[:-1]) * scale_P).float().double()
            if not margins.at(new_P[None]).min() > best:  # nor is a NaN
                radius /= 3
                continue
            rows, rounds = _worst(spec, new_P), rounds + 1
            smallest = _smallest(spec, task.cost, rows, new_P)
            pool = list(dict.fromkeys(rows[:WORST] + pool))
            if not smallest > best:
                radius /= 3
            else:
                promised = solution.x[-1] - best
                radius = min(WIDEST, 2 * radius) if smallest - best > 0.5 * promised else radius
                theta_P, best = new_P, smallest
            break
    return theta_P


def _worst(spec: Spec, theta_P: Tensor) -> list[Row]:
    """Return the pairs at the ends of the prover's cases, the smallest margins first; none where it has none."""
    try:
        rows = worst_pairs(spec, theta_P.float())
    except ValueError:  # proofs do not know the family, or numbers are lost
        return []
    return [(k, a, b) for _, k, a, b in rows if k < spec.answers][:MOST_ROWS]


def _smallest(spec: Spec, cost: Cost, rows: list[Row], theta_P: Tensor) -> float:
    return float(Margins(spec, cost, rows[:WORST]).at(theta_P[None]).min()) if rows else -np.inf
