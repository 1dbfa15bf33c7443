"""Damaged inputs as hypothesis strategies."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Damage = Callable[[Any], Any]


def feed(strategy: st.SearchStrategy[Any], count: int, read: Callable[[Any], None]) -> None:
    """Give `count` inputs to a reader, and check that it was that many.

    They are the same ones each time; `--hypothesis-profile=default` draws others.
    """
    fed = 0

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def one(value: Any) -> None:
        nonlocal fed
        fed += 1
        read(value)

    one()
    assert fed >= count


# ---- values that nobody expects


class Raw(str):
    """YAML as it stands."""


HUGE = st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**30, 10**400, -(16**900), 1e308, 1e-320, -0.0])
TEXTS = st.sampled_from(
    [
        "", "\x00", "\ud800", "\u202e", "a\nb", "\x1b[31m", "../../x", "/etc/passwd", "<script>", "{{7*7}}",
        "é" * 99, "x" * 10_000, "nan", "57p", "__class__", "²", "٣", "%s%n", "'; drop table x; --", "$(id)",
    ]
)  # fmt: skip
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.integers(-3, 3) | st.floats() | HUGE | TEXTS
    | st.text(max_size=6)
)  # fmt: skip
NESTED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


def deep(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = [inner] if depth % 2 else {"a": inner}
    return inner


VALUES = NESTED | st.builds(deep, st.sampled_from([9, 40, 150]), LEAVES)


# ---- damaged structures and bytes


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in nested dictionaries and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*place, key)
        yield from _places(inner, (*place, key))


def _edit(whole: Any, where: int, how: str, value: Any) -> None:
    places = list(_places(whole))
    if not places:
        return
    *path, last = places[where % len(places)]
    holder = whole
    for key in path:
        holder = holder[key]
    if how == "replace":
        holder[last] = value
    elif how == "remove":
        del holder[last]
    elif how == "add":
        holder.update({str(value)[:80]: value}) if isinstance(holder, dict) else holder.append(value)
    else:  # another's value
        holder[last] = copy.deepcopy(_at(whole, places[hash(str(value)) % len(places)]))


def _at(whole: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        whole = whole[key]
    return whole


def damaged(values: st.SearchStrategy[Any] = VALUES) -> st.SearchStrategy[Damage]:
    """A function that gives a copy of a structure with one to three things wrong."""
    how = st.sampled_from(["replace", "replace", "replace", "remove", "add", "exchange"])
    edits = st.lists(st.tuples(st.integers(0, 10_000), how, values), min_size=1, max_size=3)

    def damage(edits: list[tuple[int, str, Any]]) -> Damage:
        def apply(whole: Any) -> Any:
            content = copy.deepcopy(whole)
            for where, kind, value in edits:
                _edit(content, where, kind, copy.deepcopy(value))
            return content

        return apply

    return edits.map(damage)


def _bitten(data: bytes, where: int, how: str, value: int) -> bytes:
    place = where % (len(data) + 1)
    if how == "flip" and place < len(data):
        return data[:place] + bytes([data[place] ^ (1 << value % 8)]) + data[place + 1 :]
    if how == "set":
        return data[:place] + bytes([value]) + data[place + 1 :]
    if how == "cut":
        return data[:place]
    if how == "leave out":
        return data[:place] + data[place + value :]
    if how == "insert":
        return data[:place] + bytes([value]) * (1 + value % 5) + data[place:]
    return data[:place] + data[place // 2 : place] + data[place:]


BITES: st.SearchStrategy[Damage] = st.lists(
    st.tuples(
        st.integers(0, 1 << 20),
        st.sampled_from(["flip", "set", "cut", "leave out", "insert", "repeat"]),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
).map(lambda bites: lambda data: _all_bites(data, bites))
"""Functions that damage bytes: bits flipped, bytes set, left out, inserted and repeated, the end cut off."""


def _all_bites(data: bytes, bites: list[tuple[int, str, int]]) -> bytes:
    for where, how, value in bites:
        data = _bitten(data, where, how, value)
    return data


# ---- as text


def as_yaml(value: Any) -> str:
    """YAML in flow style."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_yaml(k)}: {as_yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(as_yaml, value)) + "]"
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return ".nan" if value != value else ".inf" if value > 0 else "-.inf"
    if isinstance(value, Raw):
        return str(value)
    return json.dumps(value)


# ---- what a reader must say

SHARES = {"studies": 200, "checkpoints": 150, "other programs' files": 150}
"""Generated inputs by reader: 500 in all."""
LONGEST = 2_000  # characters of a complaint


def complaint(read: Callable[[], Any], kind: type[Exception]) -> str | None:
    """The one-line complaint of a reader, or None if it took its input."""
    try:
        read()
    except kind as error:
        return str(error)
    return None


def check_lines(text: str) -> None:
    assert text and len(text) < 20 * LONGEST and text.count("\n") < 40, f"{len(text)}: {text[:LONGEST]}"
    assert all(line.isprintable() and len(line) < LONGEST for line in text.split("\n")), ascii(text)[:LONGEST]
