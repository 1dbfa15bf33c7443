"""Screens: rungs at which a study ends the seeds that show too little, beside the rule for hopeless seeds.

A rung looks at a seed once, at its first evaluation at or past `at`. What it asks for is the study's own,
and how often it is wrong depends on spec and recipe: `MEASURED` has what is known of some, and every study
measures it anew on the tenth that is spared (trainer/bank/futility.py). `python -m benchmarks.stopping` replays
both on complete runs. Successive halving (Jamieson and Talwalkar 2016) of seeds is a row of rungs with `top`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isnan
from typing import Any

from model.fields import did_you_mean

BEST = ("exact", "token")
"""Measures, of which the best so far counts; all else that a rung names is a probe, as it reads then."""
PROBE = "probe."
"""What stands before a probe's name among measures."""
Keep = tuple[tuple[str, float, float], ...]
"""Names with the lowest and the highest value that keep a seed."""


@dataclass(frozen=True)
class Rung:
    """At step `at` a seed goes on that has any of `keep`; with `top`, that is among the best of its group."""

    at: int
    keep: Keep = ()
    top: float = 0.0
    by: str = "token"

    def keeps(self, values: Mapping[str, float]) -> bool:
        """Whether a seed with these values reaches any of what is asked for."""
        return is_within_any(self.keep, values)

    def best_of(self, values: Mapping[int, float]) -> set[int]:
        """Of members of a group, by their numbers, those that go on: `top` of them, rounded up; what is no
        number is last, and of equals the first.
        """
        order = sorted(values, key=lambda n: (isnan(values[n]), -values[n], n))
        return set(order[: ceil(self.top * len(values) - 1e-9)])

    def __str__(self) -> str:
        """Short and unique, as records have it: `token 0.35 at 5000`."""
        asked = f"top {self.top:g} by {self.by}" if self.top else describe(self.keep)
        return f"{asked} at {self.at}"


def is_within_any(keep: Keep, values: Mapping[str, float]) -> bool:
    """Whether any of the named values is where it is asked to be."""
    return any(low <= values[name] <= high for name, low, high in keep)


THRESHOLDS = "pairs [exact, token or a probe, least]"
"""How a recipe asks for any of some values: `reaches`."""


def parse_thresholds(name: str, entries: Sequence[Any]) -> tuple[tuple[str, float], ...]:
    """Such pairs, in one spelling. Raises ValueError for what is none."""
    for entry in entries:
        named = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str)
        if not named or type(entry[1]) not in (int, float) or isnan(entry[1]):
            raise ValueError(f"{name} must be {THRESHOLDS}, got {entry!r:.80}")
    return tuple((of, float(least)) for of, least in entries)


def reaches_any(entries: Sequence[tuple[str, float]], values: Mapping[str, float]) -> bool:
    """Whether any of the named values is as high as is asked for."""
    return is_within_any(tuple((name, least, inf) for name, least in entries), values)


def check_thresholds(name: str, entries: Sequence[tuple[str, float]], probes: Iterable[str]) -> None:
    """Raise ValueError unless each is a measure or one of a spec's probes."""
    for asked, _ in entries:
        if asked not in (known := (*BEST, *probes)):
            raise ValueError(f"{name}: unknown probe {asked!r:.80}; {did_you_mean(asked, known)}")


def describe(keep: Keep) -> str:
    """What keeps a seed, in words: `token 0.35 or stride 0.1 to 0.2`."""
    ends = (f"{name} {low:g}" + (f" to {high:g}" if high < inf else "") for name, low, high in keep)
    return " or ".join(ends) or "nothing"
