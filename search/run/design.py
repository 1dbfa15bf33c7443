"""The plan of a table of constraints before it is trained: cells, seeds, core-hours and power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from search.stats.intervals import LEVEL, power
from search.study.described import aligned
from search.study.scales import Cell, Design
from search.study.trial import Configuration

POWER = 0.8
"""Power that a plan should have."""
ABOUT = (
    "core-hours: at most, every seed training its whole budget. rate: planned, of the base.",
    "fatal, halves: power where one arm has the planned rate and the other 0, or half of it; McNemar's exact test,",
    "two-sided, independent arms, 5 % by Holm's worst case in the scale (in brackets: 5 % for the cell alone).",
)
HEAD = ("scale", "base", "cells", "arms", "seeds each", "to train", "core-hours", "rate", "fatal", "halves")


def describe_design(
    design: Design, to_train: Mapping[Configuration, int], core_hours: Mapping[Configuration, float]
) -> list[str]:
    """Return lines: a row for each base of each scale, then what its columns say and what is missing.

    to_train, core_hours: of each configuration. One that two scales have is an arm of the first.
    """
    rows: list[Sequence[object]] = [HEAD]
    weak, counted = [], set[Configuration]()
    for scale, column in groupby(design.cells, lambda cell: cell.scale):
        for cells, level in _by_base(list(column)):
            first, names = cells[0], ", ".join(cell.constraint for cell in cells)
            arms = {Configuration(*pair) for cell in cells for pair in (cell.base, cell.toggled)} - counted
            counted |= arms
            fatal, halves = ([power(first.seeds, first.rate, other, a) for a in (level, LEVEL)]
                             for other in (0.0, first.rate / 2))  # fmt: skip
            if halves[0] < POWER:
                weak.append(f"{scale} {names}: {halves[0]:.0%}")
            base = f"{first.base_name}: {names}" if first.base_name else ""
            rows.append((
                scale, base, len(cells), len(arms), first.seeds, sum(to_train[c] for c in arms),
                f"{sum(core_hours[c] for c in arms):.2f}", first.rate, _spelt(fatal), _spelt(halves),
            ))  # fmt: skip
    total = f"{sum(core_hours.values()):.2f}"
    rows.append(("all", "", len(design.cells), len(counted), "", sum(to_train.values()), total, "", "", ""))
    lines = [*aligned(rows, right=range(2, len(HEAD))), "", *ABOUT]
    for constraint, reasons in design.skipped.items():
        lines += [f"{constraint} is not toggled at {scale}: {reason}" for scale, reason in reasons.items()]
    if weak:
        lines.append(f"power against halves below {POWER:.0%} by Holm: {'; '.join(weak)}")
    return [f"  {line}".rstrip() for line in lines]


def _by_base(column: list[Cell]) -> list[tuple[list[Cell], float]]:
    """Return a scale's cells by their base, the scale's own first, each with the level of Holm's worst case."""
    by_name: dict[str, list[Cell]] = {"": []}
    for cell in column:
        by_name.setdefault(cell.base_name, []).append(cell)
    return [(cells, LEVEL / len(column)) for cells in by_name.values() if cells]


def _spelt(powers: list[float]) -> str:
    by_holm, alone = (f"{power:.0%}" for power in powers)
    return f"{by_holm} ({alone})"
