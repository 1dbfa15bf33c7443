"""The parts of a configuration as a file gives them: models and recipes, with errors at their key paths."""

from __future__ import annotations

import dataclasses
from typing import Any

from model import Spec, make_spec, rung
from model.fields import nearest
from search.study.space import at
from trainer import Recipe
from trainer.starts import check_start


def toggled(spec: Spec, name: str, path: str) -> Spec:
    """A spec with a constraint toggled that is written as `tie_vo` or `qk_dim=4`."""
    constraint, _, value = name.partition("=")
    if value and not value.isdecimal():
        raise at(path, f"a constraint's value must be a whole number, got {value!r}")
    try:
        return spec.toggled(constraint, int(value) if value else True)
    except ValueError as error:
        raise at(path, error) from None


def options_of(model: str | dict[str, Any], path: str) -> dict[str, Any]:
    """Family and fields of a model as it is given: a rung's, changed by what stands beside it."""
    options = {"rung": model} if isinstance(model, str) else dict(model)
    for name in {"rung", "family"} & options.keys():
        if not isinstance(options[name], str):
            raise at(f"{path}.{name}", f"must be a string, got {options[name]!r}")
    if "rung" in options:
        try:
            return {**rung(options.pop("rung")).as_dict(), **options}
        except ValueError as error:
            raise at(path, error) from None
    if "family" not in options:
        raise at(path, f"give a rung or a family; keys found: {', '.join(options) or 'none'}")
    return options


def spec_of(options: dict[str, Any], path: str) -> Spec:
    """The spec that they say."""
    try:
        return make_spec(**options)
    except (TypeError, ValueError) as error:
        raise at(path, error) from None


def startable(spec: Spec, recipe: Recipe, path: str) -> tuple[Spec, Recipe]:
    """Both, if seeds of the spec can start as the recipe says."""
    try:
        check_start(spec, recipe)
    except ValueError as error:
        raise at(path, error) from None
    return spec, recipe


def recipe_of(
    given: dict[str, Any], changes: dict[str, Any], path: str, base: dict[str, Any] | None = None
) -> Recipe:
    """The recipe of some fields over those of `base`, some of them changed."""
    known = [f.name for f in dataclasses.fields(Recipe)]
    for name in given:
        if name not in known:
            raise at(f"{path}.{name}", f"unknown key; {nearest(name, known)}")
    try:
        return Recipe(**{**(base or {}), **given, **changes})
    except (TypeError, ValueError) as error:
        raise at(path, error) from None
