"""The carry schedule: the share of carry problems over time, by kind, and the columns that they use.

Up to five points in steps, linear between them, constant before the first and after the last. Without points
the share is `carry_mix` with its fade, and all kinds and lengths are equally likely.

The kinds are those of trainer/data/problems.py; trainer/step/schedule.py evaluates the schedule at a step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from model.fields import LARGEST, option
from trainer.fields import Group

POINTS, DIGITS = 5, 10
KINDS = ("single", "chain", "place", "boundary")
SHARES = "[step, share] or [step, single, chain, place, boundary]"
LENGTHS = "[step, fewest, most]"
OURS = "docs/results.md"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CarrySchedule(Group):
    carry_shares: tuple[tuple[float, ...], ...] = option(
        (),
        f"up to {POINTS} points {SHARES}: the share of carry problems, or of each kind, linear between them; "
        "instead of carry_mix and its fade",
        unit="steps, fractions",
        source=OURS,
        max_length=POINTS,
        entries="points",
    )
    carry_lengths: tuple[tuple[float, ...], ...] = option(
        (),
        f"up to {POINTS} points {LENGTHS}: how many columns a carry problem uses, linear between them and "
        "rounded down, never more than the curriculum's digits; none: 1 to all",
        unit="steps, columns",
        source=OURS,
        max_length=POINTS,
        entries="points",
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        for name, form, widths in (("carry_shares", SHARES, (2, 5)), ("carry_lengths", LENGTHS, (3,))):
            points = getattr(recipe, name)
            _check_points(points, name, form, widths)
            canonical = tuple((int(point[0]), *map(float, point[1:])) for point in points)
            object.__setattr__(recipe, name, canonical)
        for point in recipe.carry_shares:
            if not (min(point[1:]) >= 0 and sum(point[1:]) <= 1 + 1e-9):
                raise ValueError(f"carry_shares must be fractions that sum to at most 1, got {list(point)}")
        for point in recipe.carry_lengths:
            if not 1 <= point[1] <= point[2] <= DIGITS:
                raise ValueError(f"carry_lengths must be 1 to {DIGITS}, fewest first, got {list(point)}")


def _check_points(points: tuple[tuple[float, ...], ...], name: str, form: str, widths: Sequence[int]) -> None:
    for point in points:
        numbers = isinstance(point, tuple) and len(point) > 1 and all(type(n) in (int, float) for n in point)
        if not numbers or len(point) not in widths or not all(abs(n) <= LARGEST for n in point):
            raise ValueError(f"{name} must be points {form}, got {point!r:.80}")
        if point[0] < 0 or point[0] % 1:
            raise ValueError(f"{name} must be at whole steps of 0 or more, got {point[0]!r:.80}")
    if len({len(point) for point in points}) > 1:
        raise ValueError(f"{name} must be points of one form, {form}, got {list(map(list, points))!r:.80}")
    steps = [point[0] for point in points]
    if any(a >= b for a, b in pairwise(steps)):
        raise ValueError(f"{name} must be in rising order of steps, got {[int(s) for s in steps]}")
