"""Counts that a worker reports of a trial's seeds.

A bank on a GPU trains a thousand seeds: a row of each, in every report, would keep the driver busy.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median
from typing import Any, Self

from search.stats.counting import group_by
from trainer import Outcome, Seed

Row = Mapping[str, Any]
"""Of a seed: configuration, seed, outcome, step, budget, grok_step, best_exact; unit: steps."""
OPEN = (Outcome.QUEUED, Outcome.RUNNING)


@dataclass(frozen=True)
class TrialReport:
    """Progress of a trial's seeds, as JSON has it."""

    states: Mapping[str, int]
    """Seeds by outcome."""
    left: int
    """Remaining budgets of the seeds that have not ended; unit: seed-steps."""
    grokked: Mapping[str, int] = field(default_factory=dict)
    """Seeds that were perfect once, by configuration."""
    holding: Sequence[tuple[str, str]] = ()
    """Grokked seeds that train on, to see if they hold: configuration and seed."""
    best_exact: float = 0.0
    steps: Sequence[tuple[int, int]] = ()
    """Steps of the seeds in the trial's order, run-length encoded: (step, number of seeds)."""
    training: Sequence[tuple[int, int]] = ()
    """Seeds that have not ended, by the percentage of their budgets that they have trained."""
    spent: Sequence[tuple[int, int]] = ()
    """The same of those that have ended."""
    progress: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """By configuration: seeds that train, their median step, and seeds that have ended."""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """Make a report of a trial's rows, in its order."""
        perfect = [row for row in rows if row["grok_step"] is not None]
        return cls(
            states=dict(Counter(row["outcome"] for row in rows)),
            left=sum(row["budget"] - row["step"] for row in rows if row["outcome"] in OPEN),
            grokked=dict(Counter(row["configuration"] for row in perfect)),
            holding=[
                (row["configuration"], str(Seed(*row["seed"]))) for row in perfect if row["outcome"] == Outcome.RUNNING
            ],
            best_exact=max((row["best_exact"] for row in rows), default=0.0),
            steps=[(step, len(list(same))) for step, same in groupby(row["step"] for row in rows)],
            training=_percentages(row for row in rows if row["outcome"] in OPEN),
            spent=_percentages(row for row in rows if row["outcome"] not in OPEN),
            progress={key: _progress(group) for key, group in group_by(rows, "configuration").items()},
        )

    @property
    def open(self) -> int:
        """Number of seeds that have not ended."""
        return sum(self.states.get(outcome, 0) for outcome in OPEN)

    def each_step(self) -> Iterator[int]:
        """Yield the step of each seed; nothing before the first report."""
        for step, count in self.steps:
            yield from [step] * count


def _percentages(rows: Iterable[Row]) -> list[tuple[int, int]]:
    return sorted(Counter(100 * row["step"] // row["budget"] for row in rows).items())


def _progress(rows: Sequence[Row]) -> tuple[int, int, int]:
    steps = [row["step"] for row in rows if row["outcome"] == Outcome.RUNNING]
    return len(steps), int(median(steps or [0])), sum(row["outcome"] not in OPEN for row in rows)
