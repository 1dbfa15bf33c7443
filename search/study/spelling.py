"""Spec and recipe as a study file spells them: a rung with changes, a base with ties, a recipe over
another.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import yaml

from model import Spec, make_spec, preset
from model.fields import did_you_mean
from model.tied import Tied
from search.study.space import error_at
from trainer import Recipe
from trainer.recipe.seed import check_fit

CHECKPOINT = "checkpoint.json"
LARGEST_FILE = 1 << 20  # bytes


def toggled(spec: Spec, name: str, path: str) -> Spec:
    """A spec with a constraint toggled that is written as `tie_vo` or `qk_dim=4`."""
    constraint, _, value = name.partition("=")
    if value and not value.isdecimal():
        raise error_at(path, f"a constraint's value must be a whole number, got {value!r}")
    try:
        return spec.toggled(constraint, int(value) if value else True)
    except ValueError as error:
        raise error_at(path, error) from None


def model_options(model: str | dict[str, Any], path: str) -> dict[str, Any]:
    """Family and fields of a model as it is given: a rung's, changed by what stands beside it; or a base's,
    and ties of it.
    """
    options = {"rung": model} if isinstance(model, str) else dict(model)
    if "ties" in options and "family" not in options:
        base = options.pop("base", None)
        if not isinstance(base, str | dict):
            raise error_at(f"{path}.base", f"must be a string or a mapping, got {base!r:.80}")
        return {"family": Tied.family, "base": model_options(base, f"{path}.base"), **options}
    for name in {"rung", "family"} & options.keys():
        if not isinstance(options[name], str):
            raise error_at(f"{path}.{name}", f"must be a string, got {options[name]!r}")
    if "rung" in options:
        try:
            return {**preset(options.pop("rung")).as_dict(), **options}
        except ValueError as error:
            raise error_at(path, error) from None
    if "family" not in options:
        raise error_at(path, f"give a rung or a family; keys found: {', '.join(options) or 'none'}")
    return options


def spec_of(options: dict[str, Any], path: str) -> Spec:
    try:
        return make_spec(**options)
    except (TypeError, ValueError) as error:
        raise error_at(path, error) from None


def validated_pair(spec: Spec, recipe: Recipe, path: str) -> tuple[Spec, Recipe]:
    """Both, if the recipe names only what the spec has, and its seeds can start as the recipe says. Raises
    ValueError at the recipe's key path.
    """
    try:
        check_fit(spec, recipe)
    except ValueError as error:
        raise error_at(path, error) from None
    return spec, recipe


WORD = re.compile(r"[0-9a-f]{12}:")
"""How a teacher's word begins, which a file may have as it is."""


def recipe_of(
    given: dict[str, Any], changes: dict[str, Any], path: str, base: dict[str, Any] | None = None
) -> Recipe:
    known = [f.name for f in dataclasses.fields(Recipe)]
    for name in given:
        if name not in known:
            raise error_at(f"{path}.{name}", f"unknown key; {did_you_mean(name, known)}")
    try:
        return Recipe(**{**(base or {}), **given, **changes})
    except (TypeError, ValueError) as error:
        raise error_at(path, error) from None


def inline_files(data: dict[str, Any]) -> dict[str, Any]:
    """A study's plain values with what is named in files put in their place: of a model `checkpoint: DIR`,
    whose spec is meant, and `ties: FILE`, a list of constraints or a mapping by tensor; of a recipe
    `teacher: DIR`, a checkpoint. Raises ValueError at the key path.

    So what is recorded of a study needs no file.
    """
    data = _with_parts_read(data, "")
    for key in ("configurations", "stages"):
        if isinstance(entries := data.get(key), list):
            made = [
                _with_parts_read(e, f"{key}.{n}.") if isinstance(e, dict) else e
                for n, e in enumerate(entries)
            ]
            data = {**data, key: made}
    return data


def _with_parts_read(entry: dict[str, Any], path: str) -> dict[str, Any]:
    readers = {"model": _read, "recipe": _taught}
    found = {n: read(entry[n], path + n) for n, read in readers.items() if isinstance(entry.get(n), dict)}
    return {**entry, **found}


def _taught(recipe: dict[str, Any], path: str) -> dict[str, Any]:
    """A recipe with its teacher's word in the place of a path."""
    name = recipe.get("teacher")
    if not isinstance(name, str) or not name or WORD.match(name):
        return recipe
    from trainer.checkpoints.teachers import read_teacher

    try:
        return {**recipe, "teacher": read_teacher(Path(name))}
    except ValueError as error:
        raise error_at(f"{path}.teacher", error) from None


def _read(model: dict[str, Any], path: str) -> dict[str, Any]:
    if isinstance(name := model.get("checkpoint"), str):
        about = _parsed(Path(name) / CHECKPOINT if Path(name).is_dir() else Path(name), f"{path}.checkpoint")
        spec = about.get("spec") if isinstance(about, dict) else None
        if not isinstance(spec, dict):
            raise error_at(f"{path}.checkpoint", f"{name}: not a checkpoint, which has a spec")
        return {**spec, **{k: v for k, v in model.items() if k != "checkpoint"}}
    if isinstance(name := model.get("ties"), str):
        return {**model, "ties": _parsed(Path(name), f"{path}.ties")}
    return model


def _parsed(file: Path, path: str) -> Any:
    """What a file of JSON or YAML says."""
    try:
        if not file.is_file() or file.stat().st_size > LARGEST_FILE:
            raise error_at(path, f"{file}: {'larger than any of ties' if file.is_file() else 'no such file'}")
        return yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError):
        raise error_at(path, f"{file}: cannot be read as JSON or YAML") from None
