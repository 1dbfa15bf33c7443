"""Raise the smallest margin over all 10^20 pairs by linear programmes on the worst pairs.

The prover names each case's worst pairs. By Danskin's theorem the slope of the smallest margin is that of its pair, so
the step within a trust region that lifts the smallest of some hundred margins most is a linear programme. Each step
has worst pairs of its own, which join the others; where they do not confirm it, the region shrinks.

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
WORST = 600
"""Rows of a linear programme, those with the smallest margins."""
MOST_ROWS = 3_000
"""Rows that are remembered from step to step."""
RADIUS = 0.01
"""Of the trust region at first, relative to each number."""
WIDEST = 0.1
NARROWEST = 1e-6
DIFFERENCE = 1e-6
"""Of the slopes' differences, relative to each number: margins are evaluated in float64."""
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
        parts = []
        for part_SP in theta_SP.split(POINTS):
            parts.append(self._part(part_SP, tokens_1TB, digits, right_N))
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
        steps_PP = torch.diag(DIFFERENCE * scale_P)
        both = self.at(torch.cat([theta_P + steps_PP, theta_P - steps_PP]))
        ahead, behind = np.split(both, 2)
        apart_P1 = 2 * DIFFERENCE * scale_P.numpy()[:, None]
        slopes: Array = ((ahead - behind) / apart_P1).T
        return slopes


def margin(task: Task, theta_P: Tensor) -> Tensor:
    """Return θ [P] in float32 numbers with a larger smallest margin, or θ itself."""
    spec = task.spec
    # a float32 number each, as the prover reads them
    theta_P = theta_P.detach().float().double()
    scale_P = theta_P.abs().clamp_min(LEAST_NUMBER)
    pool = _worst(spec, theta_P)
    best = _smallest(spec, task.cost, pool, theta_P)
    radius = RADIUS
    rounds = 0
    while pool and best < ENOUGH and radius > NARROWEST and rounds < ROUNDS:
        margins = Margins(spec, task.cost, pool)
        # those that are far from the smallest will not matter soon
        order = np.argsort(margins.at(theta_P[None])[0])[:MOST_ROWS]
        pool = [pool[i] for i in order]
        margins.rows = pool[:WORST]
        values_N = margins.at(theta_P[None])[0]
        slopes_NP = margins.slopes(theta_P, scale_P) * scale_P.numpy()
        while radius > NARROWEST:
            step_P, promised = _step(values_N, slopes_NP, radius)
            new_P = (theta_P + torch.from_numpy(step_P) * scale_P).float().double()
            # margins bend: the known pairs are asked first, as the prover takes longer. `not >` is true of a NaN too
            if not margins.at(new_P[None]).min() > best:
                radius /= 3
                continue
            rows = _worst(spec, new_P)
            rounds += 1
            smallest = _smallest(spec, task.cost, rows, new_P)
            pool = list(dict.fromkeys(rows[:WORST] + pool))
            if not smallest > best:
                radius /= 3
            else:
                # Kept what it promised: the margins are nearly linear so far, and a longer step may be
                if smallest - best > 0.5 * (promised - best):
                    radius = min(WIDEST, 2 * radius)
                theta_P = new_P
                best = smallest
            break
    return theta_P


def _step(values_N: Array, slopes_NP: Array, radius: float) -> tuple[Array, float]:
    """Return the step [P] within a radius that lifts the smallest of some margins most, and that margin then.

    values_N, slopes_NP: the margins, and their slopes along the numbers that the step is made of.
    """
    from scipy.optimize import linprog

    # unknown are the step and the smallest margin m, which is the largest with m - slopes · step <= values
    _, numbers = slopes_NP.shape
    below_NP = np.concatenate([-slopes_NP, np.ones((len(values_N), 1))], 1)
    aim = np.zeros(numbers + 1)
    aim[-1] = -1.0
    bounds = [(-radius, radius)] * numbers + [(None, None)]
    solution = linprog(aim, below_NP, values_N, bounds=bounds, method="highs").x
    return solution[:-1], solution[-1]


def _worst(spec: Spec, theta_P: Tensor) -> list[Row]:
    """Return the pairs at the ends of the prover's cases, the smallest margins first; none where it has none."""
    try:
        rows = worst_pairs(spec, theta_P.float())
    except ValueError:  # proofs do not know the family, or numbers are lost
        return []
    # what is asked for behind the answer is no digit of it, and `Margins` has no right token there
    return [(k, a, b) for _, k, a, b in rows if k < spec.answers][:MOST_ROWS]


def _smallest(spec: Spec, cost: Cost, rows: list[Row], theta_P: Tensor) -> float:
    """Return the smallest margin of the first rows; minus infinity where there are none."""
    if not rows:
        return -np.inf
    return float(Margins(spec, cost, rows[:WORST]).at(theta_P[None]).min())
