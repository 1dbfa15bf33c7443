"""A module as rows of records tell of it. Nothing of it is run, so anybody's records can be compared."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from model.spec import Spec
from model.tasks import ADDITION
from own_modules.spec import ARG, Module, place_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedModule(Module, listed=False):
    """A module without its code."""

    asked: str = ""
    """Its task in words."""
    off: tuple[tuple[str, Any], ...] = ()
    """Arguments that are constraints, with their values that mean "off"."""
    count: int = dataclasses.field(default=0, compare=False)
    """Its parameters, as the row has them: without its code nobody can count them."""

    @property
    def params(self) -> int:
        return self.count

    @property
    def off_values(self) -> dict[str, Any]:
        return dict(self.off)

    def value_of(self, name: str) -> Any:
        # A row lacks what has the value None.
        return dict(self.args).get(name)

    def as_dict(self) -> dict[str, Any]:
        return {
            "family": self.family,
            "module": self.module,
            "digest": self.digest,
            "task": self.asked,
            **dict(self.args),
        }

    def replaced(self, values: Mapping[str, Any]) -> Spec:
        return dataclasses.replace(self, args=_sorted({**dict(self.args), **values}))


def recorded_module(fields: Mapping[str, Any], off: Any, params: int) -> RecordedModule:
    """Return the module of a row, which may be a stranger's.

    fields: as `shown` has them. off: of its constraints, by name. params: how many it has. Raises ValueError for what
    is no module's row.
    """
    arguments = {name.removeprefix(ARG): value for name, value in fields.items() if name.startswith(ARG)}
    digest = str(fields.get("digest", ""))
    asked = str(fields.get("task", ADDITION))  # which a row may leave out
    # Names and values reach pages and terminals: a stranger's must be plain words.
    if not isinstance(off, dict) or not all(name.isidentifier() for name in (*arguments, *off)):
        raise ValueError("constraints and arguments of a module must have names of Python")
    if not (digest + asked).isprintable():
        raise ValueError("a module's digest and task must be one line of text")
    return RecordedModule(
        module=place_of(fields["module"]),
        digest=digest,
        asked=asked,
        args=_sorted(arguments),
        off=_sorted(off),
        count=params,
    )


def _sorted(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return names and values in the order of the names: columns of a file may have any."""
    return tuple((name, _plain(values[name])) for name in sorted(values))


def _plain(value: Any) -> Any:
    """Return a value that can be hashed and shown. Raises ValueError for another.

    In a frame a list may be an array, and in a file it is JSON text.
    """
    value = getattr(value, "tolist", lambda: value)()
    if isinstance(value, str) and value.startswith("["):
        with suppress(ValueError, RecursionError):
            return _plain(json.loads(value))
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    is_plain = value is None or isinstance(value, bool | int | float | str)
    if not is_plain or not str(value).isprintable():
        raise ValueError(f"{value!r:.80} is no value of a module's argument")
    return value
