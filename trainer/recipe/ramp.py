"""The ramp into ties: fields of a recipe."""

from __future__ import annotations

import dataclasses
from typing import Any

from model.fields import option
from trainer.fields import Group


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ramp(Group):
    """The ramp of a tied model, which trains its base with each entry free and moves into its ties. 0 is off."""

    ramp: int = option(
        0,
        "how long ties take to full hold on θ, linearly; for models that are tied",
        unit="steps",
        ge=0,
    )
    ramp_start: int = option(0, "where the ramp begins; before, no tie holds", unit="steps", ge=0)

    @property
    def counts_from(self) -> int:
        """The first step at which θ has its final form: no evaluation before counts."""
        return self.ramp_start + self.ramp if self.ramp else 0

    @staticmethod
    def validate(recipe: Any) -> None:
        if recipe.ramp > recipe.steps:
            raise ValueError(f"ramp must be at most steps, got {recipe.ramp} > {recipe.steps}")
        if recipe.ramp_start and not recipe.ramp:
            raise ValueError(f"ramp_start={recipe.ramp_start} needs a ramp")
        if recipe.ramp_start + recipe.ramp > recipe.steps:
            ends = f"{recipe.ramp_start} + {recipe.ramp} > {recipe.steps}"
            raise ValueError(f"ramp_start must leave the ramp its steps, got {ends}")


def largest_divisor(steps: int, most: int) -> int:
    """Return the largest number up to `most` that divides a number of steps."""
    return next(k for k in range(most, 0, -1) if steps % k == 0)
