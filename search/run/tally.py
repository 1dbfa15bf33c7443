"""Counts that a worker reports of a trial's seeds.

A bank on a GPU trains a thousand seeds: a row of each, in every report, would keep the driver busy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from trainer import Outcome, Seed

Row = Mapping[str, Any]
"""Of a seed: configuration, seed, outcome, step, budget, grok_step, best_exact and measures; unit: steps."""
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

    @classmethod
    def of(cls, rows: Sequence[Row]) -> TrialReport:
        """Make a report of a trial's rows, in its order."""
        perfect = [row for row in rows if row["grok_step"] is not None]
        return cls(
            states=dict(Counter(row["outcome"] for row in rows)),
            left=sum(row["budget"] - row["step"] for row in rows if row["outcome"] in OPEN),
            grokked=dict(Counter(row["configuration"] for row in perfect)),
            holding=[
                (row["configuration"], str(Seed(*row["seed"])))
                for row in perfect
                if row["outcome"] == Outcome.RUNNING
            ],
            best_exact=max((row["best_exact"] for row in rows), default=0.0),
            steps=[(step, len(list(same))) for step, same in groupby(row["step"] for row in rows)],
        )

    @property
    def open(self) -> int:
        """Number of seeds that have not ended."""
        return sum(self.states.get(outcome, 0) for outcome in OPEN)

    def each_step(self) -> Iterator[int]:
        """Yield the step of each seed; nothing before the first report."""
        for step, count in self.steps:
            yield from [step] * count
