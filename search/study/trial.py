"""Configurations with their keys, and the programs that train them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from model import Spec, preset_name
from model.spec import choices
from model.tasks import ADDITION, Task, options_of
from model.tied import Tied
from search.study.start import InitialTheta, digest_of
from trainer import Pair, Recipe, Seed
from trainer.recipe.teacher import shown

LONGEST_PARAM = 5_000  # characters; MLflow takes 6,000
CARRY_MIX = ("recipe.carry_mix", "recipe.fade_start", "recipe.fade_end")


Program = tuple[Any, ...]
"""Everything that a compiled program depends on. Configurations with equal programs can share a bank."""


@dataclass(frozen=True)
class Configuration:
    """A spec, a recipe, and the θ that seeds start from unless at random.

    Equal configurations have equal keys, in every study and home.
    """

    spec: Spec
    recipe: Recipe
    start: InitialTheta | None = None

    @cached_property
    def key(self) -> str:
        origin = [self.start.digest] if self.start else []
        return digest_of([self.spec.family, choices(self.spec), choices(self.recipe), *origin])

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def trained(self) -> Spec:
        """The spec that a bank trains: of a tied spec with a ramp the base, which moves into the ties."""
        return self.spec.base if isinstance(self.spec, Tied) and self._moves_into_ties else self.spec

    @property
    def _moves_into_ties(self) -> bool:
        return bool(self.recipe.ramp) and not self.recipe.stages

    @property
    def program(self) -> Program:
        """The program that trains it. Configurations with equal programs can share a bank."""
        return self.trained, *self.pair(Seed.of(0)).program()

    def pair(self, seed: Seed) -> Pair:
        """Return the pair that a bank trains for a seed."""
        start = self.start.theta_of(seed) if self.start else None
        ties = self.spec.ties if isinstance(self.spec, Tied) and self._moves_into_ties else None
        return Pair(self.recipe, seed, start, ties)

    @property
    def title(self) -> str:
        """The spec's name and the beginning of the key."""
        return f"{preset_name(self.spec)} {self.key[:6]}"

    def as_params(self) -> dict[str, Any]:
        """Return every constraint, size and recipe field, flat."""
        return {
            "rung": preset_name(self.spec),
            "params": self.spec.params,
            **{f"model.{k}": v for k, v in _fields(self.spec).items()},
            **({} if self.spec.task == ADDITION else task_fields(self.spec.task)),
            **{f"recipe.{k}": v for k, v in shown(self.recipe.as_dict()).items()},
            **({"recipe.start": self.start.title} if self.start else {}),
        }


def task_fields(task: Task) -> dict[str, Any]:
    """Return a task's options by key path, without a table's entries."""
    return {f"task.{name}": value for name, value in options_of(task).items() if name != "entries"}


def _fields(spec: Spec) -> dict[str, Any]:
    """Return a spec's fields as single values; of a tied one its base's, and the ties in words."""
    if not isinstance(spec, Tied):
        return spec.shown()
    return {**spec.base.shown(), "family": spec.family, "ties": ", ".join(spec.spelt())[:LONGEST_PARAM]}
