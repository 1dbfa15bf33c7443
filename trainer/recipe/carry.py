"""The carry schedule: the share of carry problems over time, by kind.

Up to five points in steps, linear between them, constant before the first and after the last. Without points
the share is `carry_mix` with its fade, and all kinds are equally likely.

The kinds are those of trainer/data/problems.py; trainer/step/schedule.py evaluates the schedule at a step.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from model.fields import LARGEST, option
from trainer.fields import Group

POINTS = 5
KINDS = ("single", "chain", "place", "boundary")
FORM = "[step, share] or [step, single, chain, place, boundary]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CarrySchedule(Group):
    carry_shares: tuple[tuple[float, ...], ...] = option(
        (),
        f"up to {POINTS} points {FORM}: the share of carry problems, or of each kind, linear between them; "
        "instead of carry_mix and its fade",
        unit="steps, fractions",
        source="docs/results.md",
        max_length=POINTS,
        entries="points",
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        points = recipe.carry_shares
        for point in points:
            has_numbers = isinstance(point, tuple) and all(type(n) in (int, float) for n in point)
            has_form = has_numbers and len(point) in (2, 5)
            if not has_form or not all(abs(n) <= LARGEST for n in point):
                raise ValueError(f"carry_shares must be points {FORM}, got {point!r:.80}")
            step, *shares = point
            if step < 0 or step % 1:
                raise ValueError(f"carry_shares must be at whole steps of 0 or more, got {step!r:.80}")
            if min(shares) < 0 or sum(shares) > 1 + 1e-9:  # as the sum of four rounded fractions may be
                raise ValueError(f"carry_shares must be fractions that sum to at most 1, got {list(point)}")
        if len({len(point) for point in points}) > 1:
            raise ValueError(f"carry_shares must be points of one form, {FORM}, got {points!r:.80}")
        steps = [int(point[0]) for point in points]
        if sorted(set(steps)) != steps:
            raise ValueError(f"carry_shares must be in rising order of steps, got {steps}")
        canonical = tuple((int(point[0]), *map(float, point[1:])) for point in points)
        # Frozen, but still being made: 1 and 1.0 must be one recipe, with one key.
        object.__setattr__(recipe, "carry_shares", canonical)
