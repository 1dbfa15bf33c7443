"""Configurations with their keys, and the programs that train them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from model import Spec, preset_name
from model.spec import choices
from model.tasks import ADDITION, Task, options_of
from model.tied import Tied
from search.study.space import Values
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
        # Only what differs from the defaults is digested, so that a new field changes no old key.
        parts = [self.spec.family, choices(self.spec), choices(self.recipe)]
        if self.start:
            parts.append(self.start.digest)
        return digest_of(parts)

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def trained(self) -> Spec:
        """The spec that a bank trains: of a tied spec with a ramp the base, which moves into the ties."""
        if isinstance(self.spec, Tied) and self._moves_into_ties:
            return self.spec.base
        return self.spec

    @property
    def _moves_into_ties(self) -> bool:
        return bool(self.recipe.ramp) and not self.recipe.stages

    @property
    def program(self) -> Program:
        """The program that trains it. Configurations with equal programs can share a bank."""
        pair = self.pair(Seed.of(0))  # any seed's: they share the program
        return self.trained, *pair.program()

    def pair(self, seed: Seed) -> Pair:
        """Return the pair that a bank trains for a seed."""
        start = self.start.theta_of(seed) if self.start else None
        ties = self.spec.ties if isinstance(self.spec, Tied) and self._moves_into_ties else None
        return Pair(self.recipe, seed, start, ties)

    @property
    def title(self) -> str:
        """The spec's name and the beginning of the key."""
        return f"{preset_name(self.spec)} {self.key[:6]}"

    def as_params(self) -> Values:
        """Return every constraint, size and recipe field, flat."""
        params: Values = {"rung": preset_name(self.spec), "params": self.spec.params}
        for name, value in _fields(self.spec).items():
            params[f"model.{name}"] = value
        if self.spec.task != ADDITION:
            params |= task_fields(self.spec.task)
        for name, value in shown(self.recipe.as_dict()).items():
            params[f"recipe.{name}"] = value
        if self.start:
            params["recipe.start"] = self.start.title
        return params


def task_fields(task: Task) -> Values:
    """Return a task's name and options by key path, without a table's entries."""
    options = {f"task.{name}": value for name, value in options_of(task).items() if name != "entries"}
    return {"model.task": task.title, **options}


def _fields(spec: Spec) -> dict[str, Any]:
    """Return a spec's fields as single values; of a tied one its base's, and the ties in words."""
    if not isinstance(spec, Tied):
        return spec.shown()
    ties = ", ".join(spec.spelt())
    return {**spec.base.shown(), "family": spec.family, "ties": ties[:LONGEST_PARAM]}
