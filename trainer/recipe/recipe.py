"""The recipe: everything about training that is not architecture, composed of groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from model.trust import let_run
from trainer.optimisers import Stepping
from trainer.recipe.budget import Budget
from trainer.recipe.carry import CarrySchedule
from trainer.recipe.curriculum import Augmentation, Curriculum
from trainer.recipe.learning_rate import LearningRate
from trainer.recipe.ramp import Ramp
from trainer.recipe.restarts import Recycle, Restarts
from trainer.recipe.stages import Stages, Values
from trainer.recipe.starts import Starts
from trainer.recipe.teacher import Distillation, code_in
from trainer.recipe.weight_decay import WeightDecay


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(
    Stages,
    Restarts,
    Recycle,
    Starts,
    Augmentation,
    Distillation,
    CarrySchedule,
    Ramp,
    Curriculum,
    Stepping,
    WeightDecay,
    LearningRate,
    Budget,
):  # listed from the last one to the first
    """Everything about a seed's training, by keyword. The defaults are those of the 57p paper's training command.

    Raises ValueError, in one line, for values that are out of bounds or contradict each other.

        >>> recipe = Recipe(lr=0.01, steps=20_000)
        >>> recipe.batch
        256

    Fields that shape the compiled program say so; seeds of the same `program()` share a bank. All other fields
    are numbers of a seed.
    """

    def program(self) -> tuple[Any, ...]:
        """Return the values of SHAPING and the names of the SWITCHES that are on; with stages, the whole recipe."""
        if self.stages:  # each stage has a program of its own: seeds share banks only if all of them agree
            return (self,)
        return (*(getattr(self, name) for name in SHAPING), *self.switched_on())

    def switched_on(self) -> tuple[str, ...]:
        """Return the fields of SWITCHES that differ from their defaults."""
        return tuple(name for name, off in SWITCHES.items() if getattr(self, name) != off)

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Recipe:
        """Return the recipe of recorded fields. Raise ValueError or TypeError for a name or value that is not valid."""
        names = {field.name for field in FIELDS}
        for name in fields:
            if name not in names:
                raise ValueError(f"{name:.80}: this version's recipes have no such field")
        return cls(**fields)

    def as_dict(self) -> dict[str, Any]:
        """Return every field, as plain values."""
        return {field.name: _lists(getattr(self, field.name)) for field in FIELDS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        # Of a pickle nothing is asked: a driver's worker runs what the driver runs, as it does of a spec.
        for text in code_in(self.as_dict()):
            let_run(text)


def _lists(value: Any) -> Any:
    if isinstance(value, Values):
        return dict(value)
    return [_lists(entry) for entry in value] if isinstance(value, tuple) else value


FIELDS = dataclasses.fields(Recipe)
SHAPING = tuple(field.name for field in FIELDS if field.metadata["shapes"])
SWITCHES = {field.name: field.default for field in FIELDS if field.metadata["switch"]}
