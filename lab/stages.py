"""A run of several stages (`provenance.stages`), trained again from its first one on, as `adder-search rerun` needs it.

Each later stage begins at the θ of the one before, transferred to its spec (model/transfer.py), or at some of that θ's
entries.

Axes: P parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from model import Spec, make_spec
from model.tied import Tied, ties_of
from model.transfer import transfer
from search.run.rerun import Request
from trainer import Bank, Pair, Recipe, Seed


@dataclass(frozen=True)
class EarlierStage:
    """A stage of a run before its last. A tied spec's base is trained, with its ties held after the recipe's ramp.

    entries: those of its θ at which the next stage begins; empty for a transfer.
    """

    spec: Spec
    recipe: Recipe
    entries: tuple[int, ...] = ()

    @classmethod
    def of(cls, about: Any) -> Self:
        """Build from plain values. Raises ValueError for others."""
        try:
            spec, recipe = make_spec(**about["spec"]), Recipe.from_record(about["recipe"])
            stage = cls(spec, recipe, tuple(map(int, about.get("entries", ()))))
            stage.pair(Seed.of(0), None).check(stage.base)
            torch.zeros(stage.base.params)[list(stage.entries)]
        except (AttributeError, TypeError, ValueError, LookupError) as error:
            raise ValueError(f"its provenance has a stage that cannot be trained: {error}") from None
        return stage

    @property
    def base(self) -> Spec:
        return ties_of(self.spec)[0]

    def pair(self, seed: Seed, start: tuple[float, ...] | None) -> Pair:
        """Return the pair that a bank trains from θ `start`; None for the spec's initial values."""
        ties = self.spec.ties if isinstance(self.spec, Tied) else None
        return Pair(self.recipe, seed, start, ties)

    def following_theta(self, theta_P: Tensor, into: Spec) -> Tensor:
        """Return θ [P] of `into` at the first step of the next stage, from this one's θ [P]."""
        if self.entries:
            return theta_P[list(self.entries)]
        return transfer(self.base, theta_P, into).theta_Q


class Stages:
    """The stages of a run before its last, in order. Raises ValueError where one cannot be trained."""

    def __init__(self, stages: Sequence[Any]):
        self.stages = [EarlierStage.of(about) for about in stages]
        self.recipes = [stage.recipe for stage in self.stages]

    def train(self, request: Request, device: str, watch: Callable[[int], None]) -> tuple[tuple[float, ...], int]:
        """Train them, each to its end. Return θ [P] at the first step of the last stage, and their steps.

        request: of the last stage. watch: gets the steps so far at each evaluation.
        """
        configuration, seed, resources = request.configuration, request.seed, request.resources
        torch.set_num_threads(resources.threads)
        specs = [*(stage.base for stage in self.stages), configuration.trained]
        steps, start = 0, None
        for stage, spec_after in zip(self.stages, specs[1:], strict=True):
            compiled, pair = resources.compiled, stage.pair(seed, start)
            bank = Bank(stage.base, [pair], slots=request.slots, device=device, compiled=compiled)
            while bank.advance():
                watch(steps + bank.result(0).steps)
            steps += bank.result(0).steps
            start = tuple(stage.following_theta(bank.result(0).theta_P, spec_after).tolist())
        return start or (), steps
