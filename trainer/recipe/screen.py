"""Screens: rungs at which a study ends the seeds that show too little, beside the futility rule.

A rung looks at a seed once, at its first evaluation at or past `at`. A study chooses its rungs. How often one
is wrong depends on spec and recipe: trainer/bank/measured.json has a few, and every study measures its own on
its spared seeds (trainer/bank/futility.py). `python -m benchmarks.screening` replays screens on complete runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

from model.fields import did_you_mean

BEST = ("exact", "token")
"""Measures whose best value so far counts. Any other name is a probe, with its newest value."""
PROBE = "probe."
"""Prefix of a probe's name among measures."""
Keep = tuple[tuple[str, float, float], ...]
"""Names with the lowest and the highest value that keep a seed."""


@dataclass(frozen=True)
class Rung:
    """A stage at step `at`. A seed goes on if any of `keep` holds."""

    at: int
    keep: Keep = ()

    def keeps(self, values: Mapping[str, float]) -> bool:
        """True if any value is within its bounds in `keep`."""
        return is_within_any(self.keep, values)

    def __str__(self) -> str:
        """Short and unique, as records have it: `token 0.35 at 5000`."""
        return f"{describe(self.keep)} at {self.at}"


def is_within_any(keep: Keep, values: Mapping[str, float]) -> bool:
    """True if any of the named values is within its bounds."""
    return any(low <= values[name] <= high for name, low, high in keep)


THRESHOLDS = "pairs [exact, token or a probe, least]"
"""Form of a recipe's thresholds. A seed must reach one of them."""


def parse_thresholds(name: str, entries: Sequence[Any]) -> tuple[tuple[str, float], ...]:
    """Return `entries` of the field `name` in their canonical form. Raise ValueError for one that is no pair."""
    for entry in entries:
        named = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)
        if not named or type(entry[1]) not in (int, float) or isnan(entry[1]):
            raise ValueError(f"{name} must be {THRESHOLDS}, got {entry!r:.80}")
    return tuple((of, float(least)) for of, least in entries)


def reaches_any(entries: Sequence[tuple[str, float]], values: Mapping[str, float]) -> bool:
    """True if any of the named values reaches its threshold."""
    # A threshold is a bound without an upper end.
    bounds = tuple((name, least, inf) for name, least in entries)
    return is_within_any(bounds, values)


def check_thresholds(name: str, entries: Sequence[tuple[str, float]], probes: Iterable[str]) -> None:
    """Raise ValueError unless each is a measure or one of a spec's probes."""
    valid = (*BEST, *probes)
    for entry, _ in entries:
        if entry not in valid:
            raise ValueError(f"{name}: unknown probe {entry!r:.80}; {did_you_mean(entry, valid)}")


def describe(keep: Keep) -> str:
    """Return `keep` in words: `token 0.35 or stride 0.1 to 0.2`."""
    ends = list[str]()
    for name, low, high in keep:
        upto = f" to {high:g}" if high < inf else ""
        ends.append(f"{name} {low:g}{upto}")
    return " or ".join(ends) or "nothing"
