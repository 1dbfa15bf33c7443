"""The recipe: everything about training that is not architecture, put together of groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from trainer.optimisers import Stepping
from trainer.recipe.budget import Budget
from trainer.recipe.carry import CarrySchedule
from trainer.recipe.curriculum import Curriculum
from trainer.recipe.data import Data
from trainer.recipe.learning_rate import Rates
from trainer.recipe.losses import Losses
from trainer.recipe.ramp import Ramp
from trainer.recipe.recycle import Recycle
from trainer.recipe.restarts import Restarts
from trainer.recipe.starts import Starts
from trainer.recipe.weight_decay import Decay
from trainer.retired import without_retired


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(
    Restarts, Recycle, Starts, Data, Losses, CarrySchedule, Ramp, Curriculum, Stepping, Decay, Rates, Budget
):  # listed from the last one to the first
    """How a seed is trained. The defaults are those of the 57p paper's training command.

    What shapes the compiled program says so, and seeds share a bank where `program()` is the same. Everything
    else is a number a seed.
    """

    def program(self) -> tuple[Any, ...]:
        """What shapes the compiled program: the values of SHAPING, and the names of those SWITCHES that are
        on.
        """
        return (*(getattr(self, name) for name in SHAPING), *self.switched_on())

    def switched_on(self) -> tuple[str, ...]:
        """The fields of SWITCHES that differ from their defaults."""
        return tuple(name for name, off in SWITCHES.items() if getattr(self, name) != off)

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> Recipe:
        """Return the recipe of recorded fields. Raise Retired for what went away, ValueError or TypeError for
        what none has.
        """
        return cls(**without_retired(fields))

    def as_dict(self) -> dict[str, Any]:
        """Every field, as plain values."""
        return {name: _lists(value) for name, value in dataclasses.asdict(self).items()}


def _lists(value: Any) -> Any:
    return [_lists(entry) for entry in value] if isinstance(value, tuple) else value


FIELDS = dataclasses.fields(Recipe)
SHAPING = tuple(field.name for field in FIELDS if field.metadata["shapes"])
SWITCHES = {field.name: field.default for field in FIELDS if field.metadata["switch"]}
