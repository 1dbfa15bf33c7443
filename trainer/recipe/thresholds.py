"""Thresholds of a recipe: pairs of a measure or probe and the least value. A seed must reach one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Any

from model.fields import did_you_mean
from trainer.outcomes import BEST, as_measured

THRESHOLDS = "pairs [exact, token or a probe, least]"
"""Form of thresholds."""


def parse_thresholds(name: str, entries: Sequence[Any]) -> tuple[tuple[str, float], ...]:
    """Return the thresholds `entries` of the field `name`, with floats. Raise ValueError for one that is no pair."""
    for entry in entries:
        is_named = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)
        # No seed would ever reach NaN.
        if not is_named or type(entry[1]) not in (int, float) or isnan(entry[1]):
            raise ValueError(f"{name} must be {THRESHOLDS}, got {entry!r:.80}")
    return tuple((of, float(least)) for of, least in entries)


def reaches_any(entries: Sequence[tuple[str, float]], values: Mapping[str, float]) -> bool:
    """True if any of the named values reaches its threshold."""
    return any(as_measured(least) <= values[name] for name, least in entries)


def check_thresholds(name: str, entries: Sequence[tuple[str, float]], probes: Iterable[str]) -> None:
    """Raise ValueError unless each is a measure or one of a spec's probes."""
    valid = (*BEST, *probes)
    for entry, _ in entries:
        if entry not in valid:
            raise ValueError(f"{name}: unknown probe {entry!r:.80}; {did_you_mean(entry, valid)}")
