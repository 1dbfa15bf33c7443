"""Tasks and families of other packages: entry points, loaded where a name is unknown, on every machine that needs it.

[project.entry-points."adder_search.tasks"]
sort = "my_tasks:Sort"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, packages_distributions, version
from itertools import islice
from typing import Any

from model.fields import did_you_mean

TASKS = "adder_search.tasks"
FAMILIES = "adder_search.families"
FINISHERS = "adder_search.finishers"
OURS = {"model"}
MOST_PACKAGES, LONGEST = 3, 80
"""Packages of a stranger's checkpoint that a message names, and characters of each."""


@cache
def points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name."""
    return {point.name: point for point in entry_points(group=group)}


def known(name: str, registry: Mapping[str, Any], group: str, kind: str) -> Any:
    """Return what a registry has by a name, after loading the entry point that brings it.

    kind: what it is, in a word. Raises ValueError, in one line, for a name that nobody brings, with the nearest ones,
    and for an entry point that fails.
    """
    brought = points(group)
    if name not in registry and name in brought:
        value = brought[name].value
        try:
            brought[name].load()  # its classes put themselves into the registry
        except Exception as error:
            raise ValueError(f"{kind} {name}: {value} cannot be imported: {first_line(error)}") from None
        if name not in registry:
            raise ValueError(f"{kind} {name}: {value} is no {kind} of that name")
    if name not in registry:
        raise ValueError(f"unknown {kind} {name!r:.80}; {did_you_mean(name, {*registry, *brought})}")
    return registry[name]


def first_line(error: BaseException) -> str:
    """Return an error's kind and the first line of its text, as what strangers' code raises is told."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text:.200}"


def packages_of(places: Iterable[str]) -> dict[str, str]:
    """Return the packages beside this one that have these Python modules, with their versions."""
    tops = {place.partition(".")[0] for place in places} - OURS
    if not tops:
        return {}
    names = {name for top in tops for name in packages_distributions().get(top, ())}
    return {name: version(name) for name in sorted(names)}


def missing(packages: Any) -> Iterable[str]:
    """Yield what is not installed here of the packages, by name and version, that a checkpoint names first."""
    given = packages.items() if isinstance(packages, dict) else ()
    for name, recorded in islice(given, MOST_PACKAGES):
        try:
            version(str(name))
        except (PackageNotFoundError, ValueError):
            text = f"{name} {recorded}"
            is_plain = text.isprintable() and len(text) <= LONGEST
            yield text if is_plain else f"{text!r:.{LONGEST}}"
