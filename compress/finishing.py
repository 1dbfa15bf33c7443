"""Curvature for candidates that training does not bring there: finish one that is near, project one that is far.

First-order steps creep along the valleys of a loss of a dozen numbers; damped Gauss-Newton steps
(adders/curvature/minimise.py) do not. They see problems of their own, never those that judge.

Axes: P parameters of a base, R numbers.
"""

import torch
from torch import Tensor

from adders.acceptance import AcceptanceSet, base_theta, own_theta
from adders.curvature.minimise import (
    QuadraticPenalty,
    Task,
    gauss_newton,
    levenberg_marquardt,
)
from adders.curvature.pool import Cost, Pool, draw_problems, tokens_from
from compress.descent import Training
from model.tied import Ties, selection_matrix, shared, tie

TURNS = 3  # each with new problems, and the errors that are left
HOPELESS = 0.5  # share of errors above which no further turn is made
# A projection's problems and steps; its penalty's first weight, and growth from step to step.
PROBLEMS = 256
STEPS = 14
FIRST_WEIGHT = 1e-3
GROWTH = 3.0


def finish_candidate(acceptance: AcceptanceSet, ties: Ties, thetas: list[Tensor], seed: int, until: float) -> Training:
    """Take each θ [P of the base] to the ties by Levenberg-Marquardt, and return them with their errors.

    seed: names the problems of the turns. until: a loss at which a turn ends, because a θ with very little loss has
    large numbers, and training cannot take it anywhere else.
    """
    rows = [_finish(acceptance, ties, theta_P, seed, until) for theta_P in thetas]
    finished, errors, losses = zip(*rows, strict=True)
    exact = 1 - max(errors) / acceptance.size
    return Training(finished, exact, max(losses), errors=max(errors), is_finished=True)


def _finish(
    acceptance: AcceptanceSet, ties: Ties, theta_P: Tensor, seed: int, until: float
) -> tuple[Tensor, int, float]:
    """Return the θ [P of the base], errors and loss of the best of a few turns."""
    spec = tie(acceptance.base, ties)
    best_R = own_theta(spec, theta_P)
    fewest = acceptance.size + 1
    loss = float("inf")
    for turn in range(TURNS):
        task = Task(spec, seed, turn, Cost())
        theta_R = levenberg_marquardt(task, best_R, until).float()
        theta_P = base_theta(spec, theta_R)
        errors = acceptance.errors(theta_P)
        if errors >= fewest:
            break
        best_R = theta_R
        fewest = errors
        loss = acceptance.loss(theta_P)
        if not errors or errors > HOPELESS * acceptance.size:
            break
    return base_theta(spec, best_R), fewest, loss


def project_by_curvature(acceptance: AcceptanceSet, before: Ties, ties: Ties, theta_P: Tensor, seed: int) -> Tensor:
    """Move θ [P of the base], which keeps the ties `before`, onto other ties while its loss is held down.

    seed: names the problems. The penalty is half the squared distance from the ties; it weighs GROWTH times more with
    every step.
    """
    common = shared(before, ties)
    spec = tie(acceptance.base, common)
    goal = tie(acceptance.base, ties)
    spread_PR = selection_matrix(common).T
    basis_PR, _ = torch.linalg.qr(selection_matrix(ties).T)
    # What is left of each direction when its projection onto the ties is taken away: the distance from them.
    apart_PR = spread_PR - basis_PR @ (basis_PR.T @ spread_PR)
    tokens_1TB = tokens_from(spec, draw_problems(seed, -1, PROBLEMS))
    pool = Pool(spec, tokens_1TB, Cost())
    penalty = QuadraticPenalty((apart_PR.T @ apart_PR).numpy(), FIRST_WEIGHT, GROWTH)
    start_R = own_theta(spec, theta_P).double()
    near_R = gauss_newton(pool, start_R, STEPS, penalty=penalty).float()
    projected_R = own_theta(goal, base_theta(spec, near_R))
    return base_theta(goal, projected_R)
