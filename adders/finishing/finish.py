"""Turns of methods, one after another, until a θ gets all of some unseen problems right.

Axes: P parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module

import torch
from torch import Tensor

from adders import finishing
from adders.curvature.minimise import Task
from adders.curvature.pool import Cost
from model.spec import Spec
from trainer.bank.bank import backend_of
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files.installed import code_version
from trainer.recipe import Recipe

MARGIN = "margin"
METHODS: dict[str, Callable[[Task, Tensor], Tensor]] = {
    name: getattr(import_module(place), name) for name, place in finishing.METHODS.items()
}
Wrong = Callable[[Tensor], int]


@dataclass(frozen=True)
class Turn:
    """One turn of a method: the problems wrong after it, the loss, and its cost."""

    method: str
    wrong: int
    loss: float
    problems: int
    """Passed through the model, forwards or backwards; a step of training takes three times its batch."""
    cpu_s: float


@dataclass(frozen=True)
class Finished:
    """The best θ [P] after all turns. `by`: the methods whose turns were gains; None if none was."""

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
    """Move θ [P] to where `wrong` counts no error.

    Each method has up to `turns` turns, each from the best θ so far. The next method follows as soon as a turn
    is no gain. `wrong` judges each turn; no method sees its problems. "margin" alone runs where nothing is wrong
    too. `seed` names the problems of methods.
    """
    backend = backend_of(spec, Recipe(), "cpu", compiled=True)

    def judged(theta_P: Tensor) -> tuple[int, float]:
        return wrong(theta_P), float(backend.evaluate(theta_P[None])["loss"])

    first = least = judged(theta_P)
    best_P = theta_P
    by = list[str]()
    log = list[Turn]()
    is_alone = set(methods) == {MARGIN}
    for method in methods:
        for _ in range(turns):
            if not (least[0] or is_alone):
                break
            cost = Cost()
            start = time.process_time()
            # the number of turns so far names the problems of this one, which no other turn has
            new_P = METHODS[method](Task(spec, seed, len(log), cost), best_P).float()
            verdict = judged(new_P)
            log.append(Turn(method, *verdict, cost.problems, time.process_time() - start))
            watch(log[-1])
            if method == MARGIN:
                # it may raise the loss: what it raises is the smallest margin of all pairs
                gained = verdict[0] <= least[0] and not torch.equal(new_P, best_P)
            else:
                gained = verdict < least
            if not gained:
                break
            best_P = new_P
            least = verdict
            by.append(method)
    names = ", ".join(dict.fromkeys(by))
    return Finished(best_P, first[0], *least, names or None, tuple(log))


def finished(parent: Checkpoint, result: Finished) -> Checkpoint:
    """Return the checkpoint of a finished θ, with its parent, its method and its cost as provenance."""
    provenance = {
        "trained": "from a parent",
        "finished_from": parent.as_origin(),
        "finished_by": result.by,
        "turns": [asdict(turn) for turn in result.turns],
    }
    metrics = {"own_problems_wrong": result.wrong, "loss": result.loss}
    return replace(
        parent,
        theta_P=result.theta_P,
        metrics=metrics,
        provenance=provenance,
        code=code_version(),
    )
