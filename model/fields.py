"""Documented fields: what a number counts, which values it may take, and where it comes from.

Specs and recipes are frozen dataclasses whose fields are made by `option`, so that each fact about a field
is written once, beside it: bounds are checked from there, and the rest is there to be read and shown.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

LARGEST = 2**31 - 1
ON = object()
"""In `needs`: anything but the other field's default."""


def option(
    default: Any,
    says: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    off: Any = None,
    values: Sequence[Any] = (),
    needs: Mapping[str, Any] | None = None,
    excludes: Sequence[str] = (),
    source: str = "",
    shapes: bool = False,
    switch: bool = False,
    most: int = 100,
    entries: str = "entries",
) -> Any:
    """A dataclass field with its meaning.

    says: one sentence; unit: what the number counts (steps, problems per seed, fraction ...);
    low, high: inclusive bounds; values: the only ones there are; off: for a constraint, the value that means
    "not applied"; needs: what other fields must be where it is applied; excludes: constraints that cannot be
    applied with it; source: paper and section; shapes: whether a compiled program depends on its value;
    switch: whether it depends on its being off, at its default; most, entries: of a list, how many of what.
    """
    meta = {"says": says, "unit": unit, "low": low, "high": high, "off": off, "values": tuple(values)}
    meta |= {"needs": dict(needs or {}), "excludes": tuple(excludes), "source": source}
    meta |= {"shapes": shapes, "switch": switch, "most": most, "entries": entries}
    return dataclasses.field(default=default, metadata=meta)


def check(instance: Any) -> None:
    """Raise ValueError naming the first field of a dataclass that is out of its bounds or type."""
    for field in dataclasses.fields(instance):
        value, meta = getattr(instance, field.name), field.metadata
        if "says" not in meta:
            continue
        kind = type(field.default)
        whole = kind is float and type(value) is int
        if not whole and type(value) is not kind:
            raise ValueError(f"{field.name} must be {_kind(kind)}, got {value!r:.80}")
        if kind in (int, float) and not abs(value) <= LARGEST:  # so put, a NaN is refused too
            raise ValueError(f"{field.name} must be finite and at most {LARGEST}, got {value!r:.80}")
        if whole:
            object.__setattr__(instance, field.name, float(value))
        low, high = meta["low"], meta["high"]
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError(f"{field.name} must be {_range(low, high)}, got {value!r:.80}")
        if meta["values"] and value not in meta["values"]:
            raise ValueError(f"{field.name} must be {_either(meta['values'])}, got {value!r:.80}")


def check_combination(instance: Any) -> None:
    """Raise ValueError naming the first two fields of a dataclass that do not go together."""
    for field in dataclasses.fields(instance):
        meta, value = field.metadata, getattr(instance, field.name)
        if meta.get("off") is None or value == meta["off"]:
            continue
        for other, wanted in meta["needs"].items():
            found, default = getattr(instance, other), instance.__dataclass_fields__[other].default
            if found == default if wanted is ON else found != wanted:
                needed = other if wanted is ON else spelt(other, wanted)
                raise ValueError(f"{spelt(field.name, value)} needs {needed}")
        for other in meta["excludes"]:
            found = getattr(instance, other)
            if found != instance.__dataclass_fields__[other].metadata["off"]:
                raise ValueError(f"{spelt(field.name, value)} excludes {spelt(other, found)}")


def spelt(name: str, value: Any) -> str:
    """A constraint as one writes it: `tie_vo`, or a size with its value, `qk_dim=4`."""
    return name if value is True else f"{name}={value}"


def _kind(kind: type) -> str:
    names = {int: "an integer", float: "a number", bool: "true or false", str: "a string", tuple: "a list"}
    return names.get(kind, kind.__name__)


def _either(values: Sequence[Any]) -> str:
    *others, last = map(str, values)
    return f"{', '.join(others)} or {last}" if others else last


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return f"{low} or more"
    return f"{high} or less" if low is None else f"from {low} to {high}"


def nearest(name: object, valid: Any) -> str:
    """A hint for an unknown name: the valid ones that are spelt most like it, or all of them."""
    names = [str(v) for v in valid]
    close = get_close_matches(str(name), names, n=3, cutoff=0.5)
    if get_close_matches(
        str(name), close, n=1, cutoff=0.58
    ):  # else all are far: learning_rate is not again_at
        return "did you mean " + " or ".join(close) + "?"
    return "valid: " + ", ".join(sorted(names))
