"""The fields that a study searched, or whose values differ: names, units, and values to plot."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from model.spec import FAMILIES
from model.tasks import TASKS
from search.study.described import describe, shown
from search.study.schema import Study
from search.study.space import Distribution, Space, conditions
from trainer import Recipe

MOST_CATEGORIES = 6
"""Up to this many different numbers are categories, where no space says what they are."""
WIDE = 30
"""Numbers that differ by this factor or more are plotted along a logarithmic axis."""


@dataclass(frozen=True)
class Field:
    """A field of the configurations."""

    path: str
    name: str
    unit: str
    help: str
    allowed: str
    """Its distribution in words; empty if it was not searched."""
    values: pd.Series
    """Its value in each configuration."""
    log: bool
    categories: tuple[str, ...]
    """Its labels in order; empty if it is a number."""

    @property
    def title(self) -> str:
        """Name and unit, for an axis."""
        return f"{self.name} ({self.unit})" if self.unit not in ("", self.name) else self.name

    def labels(self) -> list[str]:
        return [shown(value) for value in self.values]

    def numbers(self) -> list[float]:
        return [float(value) for value in self.values]

    @property
    def is_present(self) -> np.ndarray:
        """True where the family has it."""
        return self.values.notna().to_numpy()

    @property
    def varies(self) -> bool:
        """True if configurations that have it differ in it."""
        return self.values[self.is_present].map(shown).nunique() > 1

    @property
    def range(self) -> str:
        """The values that it may have, or else that it had."""
        if self.allowed and self.varies:
            return self.allowed
        if self.allowed:
            drawn = self.values[self.is_present]
            only = f"only {shown(drawn.iloc[0])}" if len(drawn) else "none"
            return f"{self.allowed}; drawn: {only}"
        if self.categories:
            return "; ".join(self.categories)
        return f"{shown(self.values.min())} to {shown(self.values.max())}"

    def positions(self) -> np.ndarray:
        """Return the configurations' places along an axis; NaN where the family lacks it."""
        if self.categories:
            places = {label: float(i) for i, label in enumerate(self.categories)}
            x = [places.get(label, np.nan) for label in self.labels()]
        else:
            x = self.numbers()
        return np.where(self.is_present, x, np.nan)


def fields_of(study: Study | None, configurations: pd.DataFrame) -> list[Field]:
    """Return the fields of the study's space, or else those of all columns that have more than one value."""
    space = study.kind.space if study else {}
    absent = [path for path in space if path not in configurations]  # of a task that no configuration has
    configurations = configurations.assign(**dict.fromkeys(absent, np.nan))
    fields = [_field(path, space, configurations) for path in space or columns(configurations)]
    return [f for f in fields if space or f.varies]


def columns(configurations: pd.DataFrame) -> list[str]:
    """Return the columns that are fields of the spec or the recipe."""
    return [c for c in configurations.columns if c.startswith(("model.", "recipe."))]


def _field(path: str, space: Space, configurations: pd.DataFrame) -> Field:
    distribution = space.get(path)
    name = path.partition(".")[2]
    values = configurations[path]
    if distribution and None in (distribution.choice or ()):
        values = values.astype(object).where(values.notna(), shown(None))  # nothing is a value here, like any other
    if distribution and distribution.after:
        # The sampler draws the distance: the sum would show what the other field does.
        values = values - configurations[distribution.after]
        name += f" after {distribution.after.partition('.')[2]}"
    if distribution:
        for other, wanted in conditions(space, path).items():
            # Elsewhere the field is as in the base, whatever the column says.
            is_searched = configurations[other].map(shown) == shown(wanted)
            values = values.where(is_searched)

    known = values.dropna()
    categories = _categories(known, distribution)
    is_log = False
    if not categories:
        is_log = distribution.log if distribution else _is_wide(known)
    return Field(
        path,
        name,
        *meaning(path),
        allowed=describe(distribution) if distribution else "",
        values=values,
        log=is_log,
        categories=categories,
    )


def _categories(values: pd.Series, distribution: Distribution | None) -> tuple[str, ...]:
    """Return labels in order, numbers by their size; empty if the values are points of a range."""
    by_label = {shown(value): value for value in values}
    are_numbers = all(map(_is_number, by_label.values()))
    is_range = are_numbers and len(by_label) > MOST_CATEGORIES
    # Where a space says what the values are, it does not matter how many were drawn.
    if distribution:
        is_range = distribution.choice is None
    if is_range:
        return ()
    return tuple(sorted(by_label, key=by_label.__getitem__ if are_numbers else None))


def _is_number(value: Any) -> bool:
    """True for a number: to Python a switch is one too, and here a category."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _is_wide(values: pd.Series) -> bool:
    """True if all numbers are above 0 and some differ by a factor of WIDE or more."""
    return bool(values.min() > 0 and values.max() >= WIDE * values.min())


def meaning(path: str) -> tuple[str, str]:
    """Return unit and help of a field, from where it is defined; empty for the family's name.

    >>> meaning("recipe.warmup"), meaning("model.args.width")
    (('steps', 'linear warm-up of the learning rate'), ('', 'an argument of the module'))
    """
    part, _, name = path.partition(".")
    if name.startswith("args."):
        return "", "an argument of the module"
    classes: Mapping[str, Iterable[Any]] = {"recipe": [Recipe], "task": TASKS.values()}
    for cls in classes.get(part, FAMILIES.values()):
        for field in dataclasses.fields(cls):
            if field.name == name and field.metadata:
                return field.metadata["unit"], field.metadata["help"]
    return "", ""
