"""A module as rows of records tell of it. Nothing of it is run, so anybody's records can be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from model.families.module.spec import ARG, Module
from model.spec import Spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedModule(Module, listed=False):
    """A module without its code. asked: its task in words."""

    asked: str = ""
    off: tuple[tuple[str, Any], ...] = ()
    """Arguments that are constraints, with their values that mean "off"."""
    count: int = dataclasses.field(default=0, compare=False)

    @property
    def params(self) -> int:
        return self.count

    @property
    def off_values(self) -> dict[str, Any]:
        return dict(self.off)

    def value_of(self, name: str) -> Any:
        return dict(self.args).get(name)  # a row has no value that is none

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


def recorded_module(fields: Mapping[str, Any], off: Mapping[str, Any], params: int) -> RecordedModule:
    """Return the module of a row. fields: as `shown` has them. off: of its constraints. params: how many it has."""
    arguments = {name.removeprefix(ARG): value for name, value in fields.items() if name.startswith(ARG)}
    return RecordedModule(
        module=str(fields["module"]),
        digest=str(fields["digest"]),
        asked=str(fields.get("task", "")),
        args=_sorted(arguments),
        off=_sorted(off),
        count=params,
    )


def _sorted(values: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return values by name, as they can be hashed: in a frame a list may be an array."""
    return tuple((name, _plain(values[name])) for name in sorted(values))


def _plain(value: Any) -> Any:
    value = getattr(value, "tolist", lambda: value)()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value
