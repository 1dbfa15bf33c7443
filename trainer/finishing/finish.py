"""Turns of methods, one after the other, until a θ gets all of some problems right that none has seen.

Axes: P parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from torch import Tensor

from model.spec import Spec
from trainer.bank.bank import programs_of
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.curvature.minimise import Task, lbfgs, levenberg_marquardt
from trainer.curvature.pool import Cost
from trainer.files.installed import code_version
from trainer.finishing.methods import cma_es, targeted, train
from trainer.recipe import Recipe

METHODS: dict[str, Callable[[Task, Tensor], Tensor]] = {
    "train": train,
    "levenberg_marquardt": levenberg_marquardt,
    "targeted": targeted,
    "lbfgs": lbfgs,
    "cma_es": cma_es,
}
"""In the order in which they are tried where none is named."""
Wrong = Callable[[Tensor], int]


@dataclass(frozen=True)
class Turn:
    """One turn of a method: how many problems were wrong after it, the loss, and what it took."""

    method: str
    wrong: int
    loss: float
    problems: int
    """Passed through the model, forwards or backwards; a step of training takes three times its batch."""
    cpu_s: float


@dataclass(frozen=True)
class Finished:
    """The best θ [P], after all turns. `by`: the method that took it there; none if no turn was a gain."""

    theta_P: Tensor
    before: int
    wrong: int
    loss: float
    by: str | None
    turns: tuple[Turn, ...]


def finish(
    spec: Spec,
    theta_P: Tensor,
    wrong: Wrong,
    methods: Sequence[str] = tuple(METHODS),
    *,
    turns: int = 3,
    seed: int = 1,
    watch: Callable[[Turn], None] = lambda _: None,
) -> Finished:
    """Take θ [P] to where `wrong` finds no error.

    Each method has up to so many turns, each from the best θ so far, and gives way to the next one as soon as
    a turn is no gain. `wrong` is asked after each turn; no method sees its problems. `seed` names those that
    methods see.
    """
    programs = programs_of(spec, Recipe(), "cpu", compiled=True)

    def judged(theta_P: Tensor) -> tuple[int, float]:
        return wrong(theta_P), float(programs.evaluate(theta_P[None])["loss"])

    first = least = judged(theta_P)
    best_P, by, made = theta_P, None, list[Turn]()
    for method in methods:
        gained, left = True, turns
        while gained and left and least[0]:
            cost, start = Cost(), time.process_time()
            new_P = METHODS[method](Task(spec, programs, seed, len(made), cost), best_P).float()
            found = judged(new_P)
            made.append(Turn(method, *found, cost.problems, time.process_time() - start))
            watch(made[-1])
            gained, left = found < least, left - 1
            if gained:
                best_P, least, by = new_P, found, method
    return Finished(best_P, first[0], *least, by, tuple(made))


def finished(parent: Checkpoint, its: Finished) -> Checkpoint:
    """The checkpoint of a finished θ, whose papers say from which one it was made, how, and at what cost."""
    provenance = {
        "trained": "from a parent",
        "finished_from": parent.as_origin(),
        "finished_by": its.by,
        "turns": [asdict(turn) for turn in its.turns],
    }
    metrics = {"own_problems_wrong": its.wrong, "loss": its.loss}
    return replace(parent, theta_P=its.theta_P, metrics=metrics, provenance=provenance, code=code_version())
