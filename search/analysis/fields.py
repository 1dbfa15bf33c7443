"""The fields that a study searched, or whose values differ: names, units, and values to plot."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from model.spec import FAMILIES
from search.study.schema import Study
from search.study.space import Distribution, Space, allowed_values, value_at
from trainer import Recipe

MOST_CATEGORIES = 6  # as many different numbers, where no space says what they are, are categories
WIDE = 30  # numbers that differ by such a factor are plotted along a logarithmic axis


@dataclass(frozen=True)
class Field:
    """A field of the configurations. `values`: one each; `holds`: whether it had a say there (its
    conditions held, the family has it);
    `categories`: its labels in order, empty where it is a number; `allowed`: its distribution in words.
    """

    path: str
    name: str
    unit: str
    says: str
    allowed: str
    values: pd.Series
    holds: np.ndarray
    log: bool
    categories: tuple[str, ...]

    @property
    def title(self) -> str:
        """Name and unit, for an axis."""
        return f"{self.name} ({self.unit})" if self.unit not in ("", self.name) else self.name

    def labels(self) -> list[str]:
        return [shown(value) for value in self.values]

    def numbers(self) -> list[float]:
        return [float(value) for value in self.values]

    @property
    def range(self) -> str:
        """What it may be, or else what it was."""
        if self.allowed or not self.categories:
            return self.allowed or f"{shown(self.values.min())} to {shown(self.values.max())}"
        return "; ".join(self.categories)

    def positions(self) -> np.ndarray:
        """Where the configurations are along an axis; NaN where the field had no say."""
        if self.categories:
            place = {label: float(i) for i, label in enumerate(self.categories)}
            x = np.array([place.get(label, np.nan) for label in self.labels()])
        else:
            x = np.array(self.numbers())
        return np.where(self.holds, x, np.nan)


def varied(study: Study | None, configurations: pd.DataFrame) -> list[Field]:
    """The fields of the study's space, or else every column, that have more than one value."""
    space = study.space if study else {}
    fields = [_field(path, space, configurations) for path in space or columns(configurations)]
    return [f for f in fields if len(set(f.values[f.holds].map(shown))) > 1]


def columns(configurations: pd.DataFrame) -> list[str]:
    """The columns that are fields of the spec or the recipe."""
    return [c for c in configurations.columns if c.startswith(("model.", "recipe."))]


def column(path: str, configurations: pd.DataFrame) -> pd.Series:
    """The values of a field, or of a place in a list."""
    part, name, *places = path.split(".")
    return configurations[f"{part}.{name}"].map(lambda value: value_at(value, places))


def _field(path: str, space: Space, configurations: pd.DataFrame) -> Field:
    values, name, distribution = column(path, configurations), path.partition(".")[2], space.get(path)
    unit, says = meaning(path)
    if distribution and distribution.after:
        values = values - column(distribution.after, configurations)
        name += f" after {distribution.after.partition('.')[2]}"
    categories = _categories(values.dropna(), distribution)
    log = not categories and (distribution.log if distribution else _wide(values))
    allowed = in_words(distribution) if distribution else ""
    holds = _holds(path, space, configurations) & values.notna().to_numpy()
    return Field(path, name, unit, says, allowed, values, holds, log, categories)


def _holds(path: str, space: Space, configurations: pd.DataFrame) -> np.ndarray:
    """Where a field was searched: its conditions hold, on fields that were searched there themselves."""
    holds = np.ones(len(configurations), dtype=bool)
    for other, wanted in space[path].when.items() if path in space else ():
        if other in space:
            allowed = {shown(value) for value in allowed_values(wanted)}
            holds &= np.array([shown(value) in allowed for value in column(other, configurations)])
            holds &= _holds(other, space, configurations)
    return holds


def _categories(values: pd.Series, distribution: Distribution | None) -> tuple[str, ...]:
    numbers = all(
        isinstance(v, int | float | np.number) and not isinstance(v, bool | np.bool_) for v in values
    )
    if distribution:
        chosen = distribution.choice is not None
    else:
        chosen = not numbers or values.nunique() <= MOST_CATEGORIES
    if not chosen:
        return ()
    by_label = {shown(value): value for value in values}
    return tuple(sorted(by_label, key=(lambda label: by_label[label]) if numbers else None))


def _wide(values: pd.Series) -> bool:
    low, high = (float(end) for end in np.quantile(values, (0, 1)))
    return low > 0 and high / low >= WIDE


def meaning(path: str) -> tuple[str, str]:
    """Unit and sentence of a field, from where it is defined; empty for the family's name."""
    part, name, *_ = path.split(".")
    for cls in [Recipe] if part == "recipe" else list(FAMILIES.values()):
        for field in dataclasses.fields(cls):
            if field.name == name:
                return field.metadata["unit"], field.metadata["help"]
    return "", ""


def shown(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        stages = all(len(row) == 2 for row in value)  # a curriculum's
        return (
            ", ".join(("\u00a0for\u00a0" if stages else "\u00a0").join(map(shown, row)) for row in value)
            or "none"
        )
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return "–"
    if isinstance(value, int | float | np.number):
        number = float(value)
        return f"{number:,.0f}" if number.is_integer() and abs(number) < 1e9 else f"{number:.4g}"
    return str(value)


def in_words(distribution: Distribution) -> str:
    """What a searched field may be."""
    if distribution.choice is not None:
        words = "one of " + "; ".join(map(shown, distribution.choice))
    else:
        low, high = distribution.ends()
        kind = "whole numbers " if distribution.int_ else ""
        step = f" in steps of {shown(distribution.step)}" if distribution.step else ""
        words = f"{kind}{shown(low)} to {shown(high)}{step}{', logarithmic' if distribution.log else ''}"
    if distribution.after:
        words += f", counted from {distribution.after}"
    conditions = (
        f"{other} is {' or '.join(map(shown, allowed_values(w)))}" for other, w in distribution.when.items()
    )
    return words + "".join(f", where {condition}" for condition in conditions)
