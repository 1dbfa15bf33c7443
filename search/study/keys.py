"""`adder-search keys`: every key of a study file, as the file is checked by it."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from search.errors import UserError
from search.cli.options import json_option

if TYPE_CHECKING:
    from pydantic import BaseModel

WITHIN = {"space": "space.FIELD", "configurations": "configurations.N"}
"""Where keys stand below a name or a number that the file gives."""


@dataclasses.dataclass(frozen=True)
class Key:
    """One key: its path, what it says, and its default (None: it must be given, or is off without)."""

    path: str
    says: str
    default: Any = None


@click.command()
@click.argument("section", required=False)
@json_option
def keys(section: str | None, as_json: bool) -> None:
    """List the keys of a study file with their defaults, or those of one SECTION: recipe, seeds, space."""
    from model.fields import nearest

    found = every_key()
    if section is not None:
        sections = dict.fromkeys(k.path.partition(".")[0] for k in found)
        if section not in sections:
            raise UserError(f"no key {section!r}; {nearest(section, sections)}")
        found = [k for k in found if k.path.partition(".")[0] == section]
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(k) for k in found]))
        return
    width = max(len(k.path) for k in found)
    for key in found:
        default = "" if key.default is None else f" [{json.dumps(key.default)}]"
        click.echo(f"{key.path:{width}}  {key.says}{default}")


def every_key() -> list[Key]:
    """All keys in the order of the file's own description (search/study.py), the recipe's below `recipe`."""
    from search.study.schema import Study

    return list(_keys(Study, ""))


def _keys(cls: type[BaseModel], prefix: str) -> Iterator[Key]:
    for name, field in cls.model_fields.items():
        path = prefix + (field.alias or name)
        inner = _sections(field.annotation)
        says = field.description or str(inner[0].__doc__).partition("\n")[0]
        plain = isinstance(field.default, bool | int | float | str) and field.default != ""
        yield Key(path, says, field.default if plain else None)
        for section in inner:
            yield from _keys(section, f"{WITHIN.get(path, path)}.")
        if path == "recipe":
            yield from _recipe()


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The classes of sections in a type, whatever they are listed, mapped or chosen in."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [section for part in typing.get_args(annotation) for section in _sections(part)]


def _recipe() -> Iterator[Key]:
    from trainer import Recipe

    defaults = Recipe().as_dict()
    for field in dataclasses.fields(Recipe):
        unit = field.metadata["unit"]
        yield Key(f"recipe.{field.name}", f"{field.metadata['says']}; unit: {unit}", defaults[field.name])
