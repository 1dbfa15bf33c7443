"""Finishing by curvature: a task, L-BFGS, and damped Gauss-Newton steps, with an optional penalty.

Axes: P parameters, R numbers of a tied spec.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from model.adderboard import Pairs
from model.spec import Spec
from model.tied import Tied, Ties, project, tie
from trainer.curvature.pool import Cost, Pool, draw_problems, tokens_from, wrong_pairs
from trainer.curvature.together import Slope

FRESH, MOST_ERRORS = 4_096, 2_048
SEARCHED = 16_384  # problems searched for a θ's own errors
ITERATIONS = 1_000  # of L-BFGS


@dataclass
class Task:
    """Input of one turn of a method. `seed` and `turn` name its problems."""

    spec: Spec
    seed: int
    turn: int
    cost: Cost
    searched: int = field(default_factory=lambda: SEARCHED)
    """Problems searched for errors."""
    slope: Slope = Pool.slope

    def own_errors(self, theta_P: Tensor) -> Pairs:
        """Return θ's errors among fresh problems."""
        pairs = draw_problems(self.seed, -1 - self.turn, self.searched)
        return wrong_pairs(self.spec, theta_P.float(), pairs, self.cost)[:MOST_ERRORS]

    def pool(self, theta_P: Tensor, fresh: int = FRESH, errors: int = MOST_ERRORS) -> Pool:
        """Return `fresh` problems and up to `errors` of θ's own errors."""
        pairs = draw_problems(self.seed, self.turn, fresh) + self.own_errors(theta_P)[:errors]
        return Pool(self.spec, tokens_from(self.spec, pairs), self.cost)


def lbfgs(task: Task, theta_P: Tensor) -> Tensor:
    """Minimise by L-BFGS (Byrd, Lu, Nocedal and Zhu 1995; SciPy's) on fresh problems and θ's own errors."""
    from scipy.optimize import minimize

    pool = task.pool(theta_P)

    def slope(x: Any) -> tuple[float, Any]:
        loss, grad_P = task.slope(pool, torch.from_numpy(x))
        return loss, grad_P.numpy()

    options = {"maxiter": ITERATIONS, "maxcor": 40, "ftol": 0.0, "gtol": 1e-9}
    solution = minimize(slope, theta_P.double().numpy(), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(solution.x)


def levenberg_marquardt(task: Task, theta_P: Tensor, until: float = 0.0) -> Tensor:
    """Take damped Gauss-Newton steps on the whole pool (Marquardt 1963; Schraudolph 2002), to a loss `until`."""
    return gauss_newton(task.pool(theta_P, FRESH // 4, FRESH // 8), theta_P.double(), until=until)


@dataclass(frozen=True)
class QuadraticPenalty:
    """½ w θᵀ A θ beside the loss, A = `by_PP`; w begins at `first` and grows by `growth` a step."""

    by_PP: Tensor
    first: float
    growth: float


def gauss_newton(
    pool: Pool, theta_P: Tensor, steps: int = 20, until: float = 0.0, penalty: QuadraticPenalty | None = None
) -> Tensor:
    """Take damped Gauss-Newton steps; stop at the first that is no gain, unless there is a penalty."""
    damping, by_PP = 1e-3, penalty.by_PP if penalty else torch.zeros(()).double()
    for n in range(steps):
        weight = penalty.first * penalty.growth**n if penalty else 0.0

        def worth(at_P: Tensor, weight: float = weight) -> float:
            return pool.loss(at_P) + (weight * float(at_P @ by_PP @ at_P) / 2 if weight else 0.0)

        loss, (_, grad_P) = worth(theta_P), pool.slope(theta_P)
        curved_PP = pool.curvature(theta_P)
        if penalty:
            grad_P, curved_PP = grad_P + weight * by_PP @ theta_P, curved_PP + weight * by_PP
        scale = torch.diag(curved_PP.diagonal() + 1e-12)
        for _ in range(8):
            new_P = theta_P - torch.linalg.solve(curved_PP + damping * scale, grad_P)
            new = worth(new_P)
            if new < loss:
                break
            damping *= 4
        else:
            if penalty is None:
                break
            damping = 1.0
            continue
        gained, theta_P, loss, damping = loss - new, new_P, new, damping / 3
        if penalty is None and (gained < 1e-4 * loss or loss <= until):
            break
    return theta_P


MANY_TURNS = (lbfgs,) * 5
FEW_TURNS = (lbfgs, levenberg_marquardt, levenberg_marquardt, levenberg_marquardt)
SECOND_ORDER_LIMIT = 48  # numbers; beyond, curvature costs minutes and only L-BFGS is used
JUDGED = 32_768  # problems that judge a turn
WIDELY = 65_536  # problems searched for errors here


def finish_by_curvature(
    spec: Spec,
    ties: Ties | None,
    theta_P: Tensor,
    seed: int,
    slope: Slope = Pool.slope,
) -> Tensor:
    """Return the best θ [P] after turns of curvature within its ties; stop when nothing is added wrongly.

    `seed` names the problems, which are not the selection's nor AdderBoard's. slope: how gradients are had
    (trainer/curvature/together.py).
    """
    inner = spec if ties is None else tie(spec, ties)
    judged = draw_problems(seed, 100, JUDGED)
    within = inner if ties is not None and isinstance(inner, Tied) else None
    best_R = project(within.ties, theta_P[None])[0] if within else theta_P
    least = len(wrong_pairs(inner, best_R, judged, Cost()))
    for turn, method in enumerate(FEW_TURNS if len(best_R) <= SECOND_ORDER_LIMIT else MANY_TURNS):
        if not least:
            break
        new_R = method(Task(inner, seed, turn, Cost(), WIDELY, slope), best_R).float()
        wrong = len(wrong_pairs(inner, new_R, judged, Cost()))
        if wrong < least:
            best_R, least = new_R, wrong
    return within.untie(best_R[None])[0] if within else best_R
