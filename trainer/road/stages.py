"""A road as data: stages, and how a net becomes the starts of the next stage's trainings.

A road begins with a net that has more parts than it shall have in the end. A stage trains it, drops parts of it, or
moves it into ties, which the recipe's ramp imposes. Where a stage has several ways to do so it tries those that keep
most of what the net can do, and hands on the first that groks.

Axes: W way, P entries of θ.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model.parts import count_of, inside, keep, only, orders
from model.spec import Spec, make_spec
from model.tied import Ties, project, selection_matrix
from trainer.recipe import Pair, Recipe, Seed
from trainer.recipe.seed import check_fit

Losses = Callable[[Tensor], Tensor]
"""From θ [W, P] of the spec that a stage trains: the loss of each on the selection problems."""


@dataclass(frozen=True)
class Try:
    """One training of a stage. start: its θ [P], drawn by the seed if None. words: which parts stay, in their order."""

    start: Tensor | None = None
    ties: Ties | None = None
    words: str = ""

    def pair(self, recipe: Recipe, seed: Seed) -> Pair:
        """Return what a bank trains."""
        start = None if self.start is None else tuple(self.start.tolist())
        return Pair(recipe, seed, start, self.ties)


@dataclass(frozen=True)
class Whole:
    """Train the net as it is."""

    def as_dict(self) -> dict[str, Any]:
        """Return what it is, as plain values."""
        return {}

    def hands_on(self, spec: Spec) -> Spec:
        """Return the spec that the stage leaves. Raises ValueError if a spec cannot be narrowed so."""
        return spec

    def tries(self, spec: Spec, theta_P: Tensor, losses: Losses, most: int) -> list[Try]:
        """Return the ways to train on from θ, the best first. most: their number at most."""
        return [Try(theta_P)]

    def reduced(self, spec: Spec, trained: Try, theta_P: Tensor) -> Tensor:
        """Return θ of the spec that the stage leaves."""
        return theta_P


@dataclass(frozen=True)
class Keep(Whole):
    """Keep so many parts of a kind, and ramp the others to zero. The best are those with which, the others cut, the
    net has the least loss.
    """

    kind: str
    count: int

    def as_dict(self) -> dict[str, Any]:
        return {"keep": self.kind, "count": self.count}

    def hands_on(self, spec: Spec) -> Spec:
        total = count_of(spec, self.kind)
        if not 0 < self.count < total:
            raise ValueError(f"of {total} {self.kind} a stage keeps fewer, but at least one; got {self.count}")
        return keep(spec, self.kind, range(self.count))[0]

    def tries(self, spec: Spec, theta_P: Tensor, losses: Losses, most: int) -> list[Try]:
        total = count_of(spec, self.kind)
        ways = list(itertools.combinations(range(total), self.count))
        ties = [only(spec, self.kind, way) for way in ways]
        is_kept_WP = torch.tensor(ties) != 0
        loss_W = losses(theta_P * is_kept_WP).tolist()
        ranked = sorted(range(len(ways)), key=loss_W.__getitem__)
        return [Try(theta_P, ties[w], _listed(ways[w])) for w in ranked[:most]]

    def reduced(self, spec: Spec, trained: Try, theta_P: Tensor) -> Tensor:
        parts = [int(part) for part in trained.words.split("-")]
        return theta_P[keep(spec, self.kind, parts)[1]]


@dataclass(frozen=True)
class Into(Whole):
    """Become a spec that is the net with ties. The parts of the net may trade places first; the best order is the one
    that the ties cost least.
    """

    target: Spec

    def as_dict(self) -> dict[str, Any]:
        return {"into": self.target.as_dict()}

    def hands_on(self, spec: Spec) -> Spec:
        inside(spec, self.target)
        return self.target

    def tries(self, spec: Spec, theta_P: Tensor, losses: Losses, most: int) -> list[Try]:
        ties, _ = inside(spec, self.target)
        theta_WP = theta_P[torch.tensor(list(orders(spec)))]
        matrix_RP = selection_matrix(ties).to(theta_P.dtype)
        loss_W = losses(project(ties, theta_WP) @ matrix_RP).tolist()
        ranked = sorted(range(len(theta_WP)), key=loss_W.__getitem__)
        return [Try(theta_WP[w], ties, str(w)) for w in ranked[:most]]

    def reduced(self, spec: Spec, trained: Try, theta_P: Tensor) -> Tensor:
        ties, order = inside(spec, self.target)
        return _placed(project(ties, theta_P[None])[0], order)


def _placed(numbers_R: Tensor, order: Sequence[int]) -> Tensor:
    """Return numbers in the order of another spec's θ. order: the place of each."""
    theta_R = torch.empty_like(numbers_R)
    theta_R[list(order)] = numbers_R
    return theta_R


def _listed(parts: Sequence[int]) -> str:
    return "-".join(map(str, parts))


@dataclass(frozen=True)
class Stage:
    """One stage of a road.

    narrows: what it does to the net. tries: how many ways it tries side by side. longer: what follows if none of them
    has grokked: a net that is trained as it is goes on from its best θ; others begin again, from every net that
    grokked in the stage before. enough: share of the selection problems with which the best net goes on where none
    has grokked.
    """

    name: str
    recipe: Recipe
    narrows: Whole = Whole()
    tries: int = 1
    longer: Recipe | None = None
    longer_tries: int = 1
    enough: float = 0.95

    def check(self, spec: Spec, recipe: Recipe) -> None:
        """Raise ValueError unless a recipe fits the stage. spec: what the stage trains."""
        check_fit(spec, recipe, has_start=True)
        is_narrowing = type(self.narrows) is not Whole
        if is_narrowing and not recipe.ramp:
            raise ValueError(f"stage {self.name}: a net is narrowed by a ramp, and its recipe has none")
        if recipe.ramp and not is_narrowing:
            raise ValueError(f"stage {self.name}: a ramp needs something to narrow to")


@dataclass(frozen=True)
class Road:
    """A spec, and the stages that lead from it to a smaller one."""

    spec: Spec
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        """Raise ValueError unless the stages follow one another."""
        if not self.stages:
            raise ValueError("a road needs at least one stage")
        intervals = {stage.recipe.eval_every for stage in self.stages}
        intervals |= {stage.longer.eval_every for stage in self.stages if stage.longer}
        if len(intervals) > 1:
            raise ValueError(f"eval_every must be the same in all stages, got {sorted(intervals)}")
        for spec, stage in zip(self.specs(), self.stages, strict=False):
            for recipe in filter(None, (stage.recipe, stage.longer)):
                stage.check(spec, recipe)

    def specs(self) -> list[Spec]:
        """Return the spec that each stage trains, and at last the one at which the road ends."""
        specs = [self.spec]
        for stage in self.stages:
            specs.append(stage.narrows.hands_on(specs[-1]))
        return specs

    @property
    def end(self) -> Spec:
        """The spec at which it ends."""
        return self.specs()[-1]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, which `of_dict` reads."""
        stages = []
        for stage in self.stages:
            stages.append({
                "name": stage.name,
                "recipe": stage.recipe.as_dict(),
                "longer": stage.longer.as_dict() if stage.longer else None,
                "narrows": stage.narrows.as_dict(),
                "tries": stage.tries,
                "longer_tries": stage.longer_tries,
                "enough": stage.enough,
            })  # fmt: skip
        return {"spec": self.spec.as_dict(), "stages": stages}

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> Road:
        """Make a road of what `as_dict` returns. Raises ValueError for what is none."""
        stages = []
        for known in values["stages"]:
            recipes = {name: Recipe(**known[name]) for name in ("recipe", "longer") if known[name]}
            stages.append(Stage(**{**known, **recipes, "narrows": _narrowing(known["narrows"])}))
        return cls(make_spec(**values["spec"]), tuple(stages))


def _narrowing(values: Mapping[str, Any]) -> Whole:
    if "into" in values:
        return Into(make_spec(**values["into"]))
    return Keep(values["keep"], values["count"]) if "keep" in values else Whole()
