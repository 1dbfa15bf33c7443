"""Finishing by curvature: a task, L-BFGS, and damped Gauss-Newton steps, with an optional penalty.

Axes: P parameters, R numbers of a tied spec.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from adders.curvature.arithmetic import Array, dot, solve, total
from adders.curvature.pool import Cost, Pool, draw_problems, tokens_from, wrong_pairs
from model.adderboard import Pairs
from model.spec import Spec
from model.tied import Tied, Ties, project, tie

FRESH = 4_096
MOST_ERRORS = 2_048
SEARCHED = 16_384  # problems searched for a θ's own errors
ITERATIONS = 1_000  # of L-BFGS
MEMORY = 40  # moves that L-BFGS remembers
LOOKS = 20  # points of a search along a direction
LEAST_FALL = 1e-3  # share of the fall that the first slope promises (Wolfe's first condition)
MOST_SLOPE = 0.9  # share of the first slope that may be left (his second)


@dataclass
class Task:
    """Input of one turn of a method. `seed` and `turn` name its problems."""

    spec: Spec
    seed: int
    turn: int
    cost: Cost
    searched: int = field(default_factory=lambda: SEARCHED)
    """Problems searched for errors."""

    def own_errors(self, theta_P: Tensor) -> Pairs:
        """Return θ's errors among fresh problems."""
        pairs = draw_problems(self.seed, -1 - self.turn, self.searched)
        return wrong_pairs(self.spec, theta_P.float(), pairs, self.cost)[:MOST_ERRORS]

    def pool(self, theta_P: Tensor, fresh: int = FRESH, errors: int = MOST_ERRORS) -> Pool:
        """Return `fresh` problems and up to `errors` of θ's own errors."""
        pairs = draw_problems(self.seed, self.turn, fresh) + self.own_errors(theta_P)[:errors]
        return Pool(self.spec, tokens_from(self.spec, pairs), self.cost)


@dataclass(frozen=True)
class Point:
    """A θ [P], in float32 numbers, with its loss and the loss's gradient there; all float64."""

    theta_P: Array
    loss: float
    slope_P: Array

    @classmethod
    def of(cls, pool: Pool, theta_P: Array) -> Point:
        """Evaluate the float32 numbers that are nearest to θ. The loss is infinite where the gradient is not finite."""
        theta_P = rounded(theta_P)
        loss, slope_P = pool.slope(theta_P)
        return cls(
            theta_P,
            loss if np.isfinite(slope_P).all() else math.inf,
            slope_P.astype(float),
        )


def lbfgs(task: Task, theta_P: Tensor) -> Tensor:
    """Minimise the loss from θ [P] by L-BFGS (Liu and Nocedal 1989), on fresh problems and θ's own errors."""
    pool = task.pool(theta_P)
    at = Point.of(pool, theta_P.numpy())
    moves = deque[Move](maxlen=MEMORY)
    for _ in range(ITERATIONS):
        down_P = -_newton(at.slope_P, moves)
        # Without moves the direction is the gradient's, whose length says nothing of the way: try length 1 at most.
        length = 1.0 if moves else 1 / max(1.0, dot(down_P, down_P) ** 0.5)
        new = _search(pool, at, down_P, length)
        if new is None:
            if not moves:
                break
            moves.clear()  # and go straight down
            continue
        step_P = new.theta_P - at.theta_P
        change_P = new.slope_P - at.slope_P
        bend = dot(step_P, change_P)
        if bend > 0:  # else the Hessian that the moves show would not be positive
            moves.append(Move(step_P, change_P, bend))
        at = new
    return torch.from_numpy(at.theta_P)


def rounded(theta_P: Array) -> Array:
    """Return θ in float32 numbers, as float64."""
    return theta_P.astype(np.float32).astype(float)


class Move(NamedTuple):
    """A step of θ [P], by how much it changed the gradient, and the product of both."""

    step_P: Array
    change_P: Array
    bend: float


def _newton(slope_P: Array, moves: Sequence[Move]) -> Array:
    """Return the gradient [P] times the inverse of the Hessian that the last moves show.

    By Nocedal's two loops (Mathematics of Computation 35, 1980): the newest move first, then the oldest.
    """
    shares = list[float]()
    for move in reversed(moves):
        share = dot(move.step_P, slope_P) / move.bend
        shares.append(share)
        slope_P = slope_P - share * move.change_P
    if moves:
        newest = moves[-1]
        slope_P = slope_P * (newest.bend / dot(newest.change_P, newest.change_P))
    for move, share in zip(moves, reversed(shares), strict=True):
        back = dot(move.change_P, slope_P) / move.bend
        slope_P = slope_P + (share - back) * move.step_P
    return slope_P


def _search(pool: Pool, at: Point, down_P: Array, length: float) -> Point | None:
    """Return a point along a direction where the loss has fallen and its slope is flatter (Wolfe 1969), or None.

    at: where the search begins. down_P: the direction. length: how much of it is tried first; then by halves and
    doubles (Lewis and Overton 2013), LOOKS points at most.
    """
    fall = dot(at.slope_P, down_P)
    low = 0.0
    high = math.inf
    for _ in range(LOOKS):
        new = Point.of(pool, at.theta_P + length * down_P)
        if not new.loss < at.loss + LEAST_FALL * length * fall:  # too far, or no number
            high = length
        elif dot(new.slope_P, down_P) < MOST_SLOPE * fall:  # still steep: go further
            low = length
        else:
            return new
        length = (low + high) / 2 if high < math.inf else 2 * length
    return None


def levenberg_marquardt(task: Task, theta_P: Tensor, until: float = 0.0) -> Tensor:
    """Take damped Gauss-Newton steps on the whole pool (Marquardt 1963; Schraudolph 2002), to a loss `until`."""
    return gauss_newton(task.pool(theta_P, FRESH // 4, FRESH // 8), theta_P.double(), until=until)


@dataclass(frozen=True)
class QuadraticPenalty:
    """½ w θᵀ A θ beside the loss, A = `by_PP`; w begins at `first` and grows by `growth` a step."""

    by_PP: Array
    first: float
    growth: float


def gauss_newton(
    pool: Pool,
    start_P: Tensor,
    steps: int = 20,
    until: float = 0.0,
    penalty: QuadraticPenalty | None = None,
) -> Tensor:
    """Take damped Gauss-Newton steps from `start_P` [P] on a pool's problems. Return θ [P], float64.

    Stop after `steps`; without a penalty also at the first step without a gain, and at a loss `until`.
    """
    theta_P = rounded(start_P.numpy())
    damping = 1e-3
    by_PP = penalty.by_PP if penalty else np.zeros((len(theta_P),) * 2)
    for n in range(steps):
        weight = penalty.first * penalty.growth**n if penalty else 0.0

        def worth(at_P: Array, weight: float = weight) -> tuple[float, Array]:
            loss, slope_P = pool.slope(at_P)
            pull_P = weight * total(by_PP * at_P)
            return loss + dot(pull_P, at_P) / 2, slope_P + pull_P

        loss, slope_P = worth(theta_P)
        curved_PP = pool.curvature(theta_P) + weight * by_PP
        # Marquardt: damp each entry by its own curvature, so that the step does not depend on the entries' scales.
        scale_PP = np.diag(curved_PP.diagonal() + 1e-12)
        for _ in range(8):
            new_P = rounded(theta_P - solve(curved_PP + damping * scale_PP, slope_P))
            new, _ = worth(new_P)
            if new < loss:
                break
            damping *= 4
        else:
            if penalty is None:
                break
            damping = 1.0  # the penalty grows, so the next step is another problem
            continue
        gained = loss - new
        theta_P = new_P
        loss = new
        damping = damping / 3
        if penalty is None and (gained < 1e-4 * loss or loss <= until):
            break
    return torch.from_numpy(theta_P)


MANY_TURNS = (lbfgs,) * 5
FEW_TURNS = (lbfgs, levenberg_marquardt, levenberg_marquardt, levenberg_marquardt)
SECOND_ORDER_LIMIT = 48  # numbers; beyond, curvature costs minutes and only L-BFGS is used
JUDGED = 32_768  # problems that judge a turn
WIDELY = 65_536  # problems searched for errors here


def finish_by_curvature(spec: Spec, ties: Ties | None, theta_P: Tensor, seed: int) -> Tensor:
    """Return the best θ [P] after turns of curvature within its ties; stop when nothing is added wrongly.

    `seed` names the problems, which are not the selection's nor AdderBoard's.
    """
    inner = spec if ties is None else tie(spec, ties)
    judged = draw_problems(seed, 100, JUDGED)
    within = inner if ties is not None and isinstance(inner, Tied) else None
    best_R = project(within.ties, theta_P[None])[0] if within else theta_P
    least = len(wrong_pairs(inner, best_R, judged, Cost()))
    turns = FEW_TURNS if len(best_R) <= SECOND_ORDER_LIMIT else MANY_TURNS
    for turn, method in enumerate(turns):
        if not least:
            break
        task = Task(inner, seed, turn, Cost(), WIDELY)
        new_R = method(task, best_R).float()
        wrong = len(wrong_pairs(inner, new_R, judged, Cost()))
        if wrong < least:
            best_R = new_R
            least = wrong
    return within.untie(best_R[None])[0] if within else best_R
