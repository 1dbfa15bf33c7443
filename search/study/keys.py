"""Every key of a study file, read off the classes that check it."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

from search.study.schema import Study
from search.study.space import Strict
from trainer import Recipe

WITHIN = {
    "space": "space.FIELD", "configurations": "configurations.N",
    "scales": "scales.PRESET", "scales.PRESET.bases": "scales.PRESET.bases.NAME",
}  # fmt: skip
"""Sections whose keys stand below a name or number of the file."""


@dataclasses.dataclass(frozen=True)
class Key:
    """One key: its path, its description, and its default (None: required, or off)."""

    path: str
    says: str
    default: Any = None


def every_key() -> list[Key]:
    """Return all keys in the order of search/study/schema.py, the recipe's below `recipe`."""
    return list(_keys(Study, ""))


def _keys(cls: type[Strict], prefix: str) -> Iterator[Key]:
    for name, field in cls.model_fields.items():
        path = prefix + (field.alias or name)
        inner = sections(field.annotation)
        says = field.description or str(inner[0].__doc__).partition("\n")[0]
        plain = isinstance(field.default, bool | int | float | str) and field.default != ""
        yield Key(path, says, field.default if plain else None)
        for section in inner:
            yield from _keys(section, f"{WITHIN.get(path, path)}.")
        if path == "recipe":
            defaults = Recipe().as_dict()
            for option in dataclasses.fields(Recipe):
                says = f"{option.metadata['help']}; unit: {option.metadata['unit']}"
                yield Key(f"recipe.{option.name}", says, defaults[option.name])


def sections(annotation: Any) -> list[type[Strict]]:
    """Return the section classes in a type annotation, however nested."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return [annotation]
    return [section for part in typing.get_args(annotation) for section in sections(part)]
