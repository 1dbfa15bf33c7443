"""How many seeds are left after each stage of their recipe."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from search.stats.counting import COUNTED
from search.stats.record import SeedRecord
from trainer.recipe.passed import passed


@dataclass
class StageCounts:
    """Seeds at one stage: those that began it, those that went on or, in the last stage, grokked, and their cost."""

    began: int = 0
    left: int = 0
    tries: int = 0
    """Trainings of all of them."""


def stage_counts(rows: Iterable[SeedRecord]) -> dict[str, StageCounts]:
    """Return the counts of seeds that have ended, by stage, in order; none of seeds without stages."""
    counts: dict[str, StageCounts] = {}
    for row in rows:
        if row.outcome not in COUNTED:
            continue
        stages = passed(row.stages)
        for place, stage in enumerate(stages):
            is_last = place == len(stages) - 1
            count = counts.setdefault(stage.stage, StageCounts())
            count.began += 1
            count.left += row.has_grokked if is_last else 1
            count.tries += stage.tries
    return counts


def describe_stages(rows: Iterable[SeedRecord]) -> str:
    """Return how many seeds are left after each stage, in words; nothing for seeds without stages.

    >>> lost = SeedRecord(outcome="failed", stages='[["wide", 1, 0, 60000]]')
    >>> whole = SeedRecord(outcome="grokked", stages='[["wide", 1, 1, 30000], ["narrow", 3, 2, 72000]]')
    >>> describe_stages([lost, whole])
    'left of 2 seeds: 1 after wide, 1 after narrow (3 tries)'
    """
    counts = stage_counts(rows)
    if not counts:
        return ""
    texts = []
    for stage, count in counts.items():
        tries = f" ({count.tries:,} tries)" if count.tries > count.began else ""
        texts.append(f"{count.left:,} after {stage}{tries}")
    began = next(iter(counts.values())).began
    return f"left of {began:,} seeds: {', '.join(texts)}"
