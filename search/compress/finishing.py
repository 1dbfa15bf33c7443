"""A set that does not hold after its training, taken on or entered by curvature.

First-order steps creep along the valleys of a loss of a dozen numbers; damped Gauss-Newton steps
(trainer/curvature/minimise.py) do not. They see problems of their own, never those that judge.

Axes: P parameters of a base, R numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from model.tied import Ties, project, selection_matrix, shared, tie
from search.compress.acceptance import AcceptanceSet, of_base
from trainer.curvature.minimise import QuadraticPenalty, Task, gauss_newton, levenberg_marquardt
from trainer.curvature.pool import Cost, Pool, draw_problems, tokens_from

TURNS = 3  # each with new problems, and the errors that are left
FAR = 0.5  # what is still more wrong than this is given up
ON_THE_WAY, STEPS, FIRST, GROWTH = 256, 14, 1e-3, 3.0  # problems and steps of entering; its pull


@dataclass(frozen=True)
class Finished:
    """θ [P] of the base on the set, how many of the exam's problems it adds wrongly, and its loss."""

    theta_P: Tensor
    wrong: int
    loss: float


def finished(exam: AcceptanceSet, ties: Ties, theta_P: Tensor, seed: int, until: float) -> Finished:
    """The best of a few turns of Levenberg-Marquardt from θ [P] of the base, on the set.

    until: a loss at which a turn ends. A θ of very little loss has large numbers, and training cannot take it
    anywhere else.
    """
    spec = tie(exam.base, ties)
    mean_P, least = project(ties, theta_P[None])[0], exam.size + 1
    best_P, loss = mean_P, float("inf")
    for turn in range(TURNS):
        task = Task(spec, exam.programs, seed, turn, Cost())  # of the base: these steps ask none
        mean_P = levenberg_marquardt(task, best_P, until).float()
        whole_P = of_base(spec, mean_P)
        wrong, _ = exam.wrong(whole_P)
        if wrong >= least:
            break
        best_P, least = mean_P, wrong
        loss = float(exam.programs.evaluate(whole_P[None])["loss"])
        if not wrong or wrong > FAR * exam.size:
            break
    return Finished(of_base(spec, best_P), least, loss)


def entered(exam: AcceptanceSet, before: Ties, ties: Ties, theta_P: Tensor, seed: int) -> Tensor:
    """θ [P] of the base, which keeps the ties of before, moved onto a set by curvature: what sets it apart
    from the set weighs three times more with every step, while the loss is held down.
    """
    both = shared(before, ties)
    spec = tie(exam.base, both)
    spread_PR = selection_matrix(both).T
    basis_PR, _ = torch.linalg.qr(selection_matrix(ties).T)
    apart_PR = spread_PR - basis_PR @ (basis_PR.T @ spread_PR)
    pool = Pool(spec, tokens_from(spec, draw_problems(seed, -1, ON_THE_WAY)), Cost())
    start_R = project(both, theta_P[None])[0].double()
    found_R = gauss_newton(
        pool, start_R, STEPS, penalty=QuadraticPenalty(apart_PR.T @ apart_PR, FIRST, GROWTH)
    )
    near_P = of_base(spec, found_R.float())
    return of_base(tie(exam.base, ties), project(ties, near_P[None])[0])
