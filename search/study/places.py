"""Places in a field that is a list of lists, such as a curriculum: a number there can be searched alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def value_at(value: Any, places: Sequence[str]) -> Any:
    """What stands in a list of lists at some places, counted from 0; None where nothing does."""
    for place in places:
        there = isinstance(value, list | tuple) and place.isdecimal() and int(place) < len(value)
        value = value[int(place)] if there else None
    return value


def replaced(value: Any, places: Sequence[str], by: Any) -> Any:
    """A list of lists with something else at a place that it has."""
    if not places:
        return by
    return [replaced(v, places[1:], by) if i == int(places[0]) else v for i, v in enumerate(value)]
