"""Tasks and families of other packages: entry points, loaded where a name is unknown, on every machine that needs it.

[project.entry-points."adder_search.tasks"]
sort = "my_tasks:Sort"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, packages_distributions, version
from typing import Any

from model.fields import did_you_mean

TASKS = "adder_search.tasks"
FAMILIES = "adder_search.families"
OURS = {"model"}


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def known(name: str, registry: Mapping[str, Any], group: str, kind: str) -> Any:
    """Return what a registry has by a name, after loading the entry point that brings it.

    kind: what it is, in a word. Raises ValueError, in one line, for a name that nobody brings, with the nearest ones,
    and for an entry point that fails.
    """
    points = _points(group)
    if name not in registry and name in points:
        value = points[name].value
        try:
            points[name].load()
        except Exception as error:
            why = str(error).strip().partition("\n")[0]
            raise ValueError(f"{kind} {name}: {value} cannot be imported: {type(error).__name__}: {why}") from None
        if name not in registry:
            raise ValueError(f"{kind} {name}: {value} is no {kind} of that name")
    if name not in registry:
        raise ValueError(f"unknown {kind} {name!r:.80}; {did_you_mean(name, {*registry, *points})}")
    return registry[name]


def packages_of(places: Iterable[str]) -> dict[str, str]:
    """Return the packages beside this one that have these Python modules, with their versions."""
    tops = {place.partition(".")[0] for place in places} - OURS
    if not tops:
        return {}
    names = {name for top in tops for name in packages_distributions().get(top, ())}
    return {name: version(name) for name in sorted(names)}


def missing(packages: Any) -> Iterable[str]:
    """Yield the packages, of those that a checkpoint names with their versions, that are not installed here."""
    for name, recorded in packages.items() if isinstance(packages, dict) else ():
        try:
            version(str(name))
        except (PackageNotFoundError, ValueError):
            yield f"{name} {recorded}"
