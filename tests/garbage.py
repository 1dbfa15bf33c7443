"""Damaged inputs as hypothesis strategies, and what a reader must say of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Damage = Callable[[Any], Any]
LONGEST = 2_000  # characters of a line of a complaint


def feed(strategy: st.SearchStrategy[Any], count: int, read: Callable[[Any], None]) -> None:
    """Give `count` inputs to a reader: the same ones each time; `--hypothesis-profile=default` draws others."""
    fed = 0

    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def feed_one(value: Any) -> None:
        nonlocal fed
        fed += 1
        read(value)

    feed_one()
    assert fed >= count


def complaint(read: Callable[[], Any], kind: type[Exception]) -> str | None:
    """The complaint of a reader, of short printable lines, or None if it took its input."""
    try:
        read()
    except kind as error:
        text = str(error)
        assert text and text.count("\n") < 40, text[:LONGEST]
        assert all(line.isprintable() and len(line) < LONGEST for line in text.split("\n")), ascii(text)
        return text
    return None


# Values that nobody expects

HUGE = st.sampled_from([2**31, 2**63, 2**64, -(2**63), 10**30, 10**400, 1e308, 1e-320, -0.0])
TEXTS = st.sampled_from(
    [
        "",
        "\x00",
        "\ud800",
        "\u202e",
        "a\nb",
        "\x1b[31m",
        "../../x",
        "{{7*7}}",
        "x" * 10_000,
        "nan",
        "57p",
        "²",
    ]
)
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


# Damaged structures and bytes


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key in nested dictionaries and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _edit(whole: Any, where: int, how: str, value: Any) -> None:
    if places := list(_places(whole)):
        container, key = places[where % len(places)]
        if how == "remove":
            del container[key]
        elif how == "add" and isinstance(container, dict):
            container[str(value)[:80]] = value
        else:
            container[key] = value


def damaged(values: st.SearchStrategy[Any] = VALUES) -> st.SearchStrategy[Damage]:
    """Functions that return a copy of a structure with one to three things wrong."""
    how = st.sampled_from(["replace", "replace", "replace", "remove", "add"])
    edits = st.lists(st.tuples(st.integers(0, 10_000), how, values), min_size=1, max_size=3)

    def damage(whole: Any, edits: list[tuple[int, str, Any]]) -> Any:
        content = copy.deepcopy(whole)
        for where, kind, value in edits:
            _edit(content, where, kind, copy.deepcopy(value))
        return content

    return edits.map(lambda edits: lambda whole: damage(whole, edits))


def _bitten(data: bytes, bites: list[tuple[int, str, int]]) -> bytes:
    for where, how, value in bites:
        place = where % (len(data) + 1)
        head, tail = data[:place], data[place:]
        data = {
            "flip": head + bytes(b ^ (1 << value % 8) for b in tail[:1]) + tail[1:],
            "cut": head,
            "leave out": head + tail[value:],
            "insert": head + bytes([value]) * (1 + value % 5) + tail,
        }[how]
    return data


BITES: st.SearchStrategy[Damage] = st.lists(
    st.tuples(
        st.integers(0, 1 << 20), st.sampled_from(["flip", "cut", "leave out", "insert"]), st.integers(0, 255)
    ),
    min_size=1,
    max_size=4,
).map(lambda bites: lambda data: _bitten(data, bites))
"""Functions that damage bytes: bits flipped, bytes left out and inserted, the end cut off."""
