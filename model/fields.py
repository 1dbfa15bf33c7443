"""Documented fields: what a number counts, which values it may take, and where it comes from.

Specs and recipes are frozen dataclasses whose fields are made by `option`. Each fact about a field is written
once, beside it; `check` enforces the bounds, error messages, `keys` and the report show the rest.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from heapq import nlargest
from typing import Any

LARGEST = 2**31 - 1
ON = object()
"""In `needs`: anything but the other field's default."""


def option(
    default: Any,
    help: str,
    *,
    unit: str = "",
    ge: float | None = None,
    le: float | None = None,
    off: Any = None,
    values: Sequence[Any] = (),
    needs: Mapping[str, Any] | None = None,
    excludes: Sequence[str] = (),
    source: str = "",
    shapes: bool = False,
    switch: bool = False,
    max_length: int = 100,
    entries: str = "entries",
) -> Any:
    """Make a dataclass field that carries its meaning.

    default: its value unless given; its type is the field's.
    help: one sentence.
    unit: what the number counts (steps, problems per seed, fraction ...).
    ge, le: inclusive bounds.
    off: for a constraint, the value that means "not applied".
    values: the only allowed ones.
    needs: for a constraint, what other fields must be where it is applied.
    excludes: constraints that cannot be applied with it.
    source: paper and section.
    shapes: True if a compiled program depends on its value.
    switch: True if a compiled program depends on the field being off, at its default.
    max_length, entries: for a list, the largest number of entries and their name.
    """
    meta = {
        "help": help,
        "unit": unit,
        "ge": ge,
        "le": le,
        "off": off,
        "values": tuple(values),
        "needs": dict(needs or {}),
        "excludes": tuple(excludes),
        "source": source,
        "shapes": shapes,
        "switch": switch,
        "max_length": max_length,
        "entries": entries,
    }
    return dataclasses.field(default=default, metadata=meta)


def check(instance: Any) -> None:
    """Raise ValueError naming the first field of a dataclass that is out of its bounds or type."""
    for field in dataclasses.fields(instance):
        name, meta = field.name, field.metadata
        if "help" not in meta:
            continue
        value = getattr(instance, name)
        kind = type(field.default)
        is_whole_number = kind is float and type(value) is int
        if not is_whole_number and type(value) is not kind:
            raise ValueError(f"{name} must be {_kind(kind)}, got {value!r:.80}")
        if kind in (int, float) and not abs(value) <= LARGEST:  # put this way, NaN is refused too
            raise ValueError(f"{name} must be finite and at most {LARGEST}, got {value!r:.80}")
        # Frozen, but still being made: 1 and 1.0 must be one spec or recipe, with one key.
        if is_whole_number:
            object.__setattr__(instance, name, float(value))
        ge, le = meta["ge"], meta["le"]
        is_below = ge is not None and value < ge
        is_above = le is not None and value > le
        if is_below or is_above:
            raise ValueError(f"{name} must be {_range(ge, le)}, got {value!r:.80}")
        if meta["values"] and value not in meta["values"]:
            raise ValueError(f"{name} must be {_either(meta['values'])}, got {value!r:.80}")


def check_combination(instance: Any) -> None:
    """Raise ValueError naming the first two fields of a dataclass that do not go together."""
    fields = instance.__dataclass_fields__
    for field in dataclasses.fields(instance):
        meta = field.metadata
        value = getattr(instance, field.name)
        if meta.get("off") is None or value == meta["off"]:
            continue
        constraint = spelt(field.name, value)
        for name, needed in meta["needs"].items():
            actual = getattr(instance, name)
            if needed is ON and actual == fields[name].default:
                raise ValueError(f"{constraint} needs {name}")
            if needed is not ON and actual != needed:
                raise ValueError(f"{constraint} needs {spelt(name, needed)}")
        for name in meta["excludes"]:
            actual = getattr(instance, name)
            if actual != fields[name].metadata["off"]:
                raise ValueError(f"{constraint} excludes {spelt(name, actual)}")


def spelt(name: str, value: Any) -> str:
    """Return a constraint as one writes it: `tie_vo`, or a size with its value, `qk_dim=4`."""
    return name if value is True else f"{name}={value}"


def _kind(kind: type) -> str:
    """Return a type in words."""
    names = {
        int: "an integer",
        float: "a number",
        bool: "true or false",
        str: "a string",
        tuple: "a list",
    }
    return names.get(kind, kind.__name__)


def _either(values: Sequence[Any]) -> str:
    """Return the allowed values in words."""
    *first, last = map(str, values)
    return f"{', '.join(first)} or {last}" if first else last


def _range(ge: float | None, le: float | None) -> str:
    """Return inclusive bounds in words."""
    if le is None:
        return f"{ge} or more"
    return f"{le} or less" if ge is None else f"from {ge} to {le}"


COUNT = re.compile(r"\d{1,9}p")
"""Name of a preset: a number of parameters."""


def did_you_mean(name: object, valid: Iterable[Any]) -> str:
    """Return a hint for an unknown name: the valid names spelt most like it, or all of them.

    Where names are counts (`58p`), return the nearest ones by number.

    >>> did_you_mean("heds", ["heads", "hidden", "width"])
    'did you mean heads?'
    >>> did_you_mean("weightdecay", ["weight_decay", "ema_decay", "beta2"])  # nothing far less like it
    'did you mean weight_decay?'
    """
    text = str(name)
    names = [str(v) for v in valid]
    counts = [n for n in names if COUNT.fullmatch(n)]
    if COUNT.fullmatch(text) and counts:
        # By number: how alike two counts are spelt says nothing of how near they are.
        asked = int(text[:-1])
        nearest = sorted(counts, key=lambda n: abs(int(n[:-1]) - asked))
        return f"did you mean {' or '.join(nearest[:2])}?"

    likeness = {name: SequenceMatcher(None, name, text).ratio() for name in names}
    nearest = nlargest(3, names, likeness.__getitem__)
    # Without a closer match all are too far: learning_rate is not again_at.
    if nearest and (most := likeness[nearest[0]]) >= 0.58:
        likely = [name for name in nearest if likeness[name] >= max(0.5, most - 0.1)]
        return f"did you mean {' or '.join(likely)}?"
    return "valid: " + (", ".join(sorted(names)) or "none yet")
