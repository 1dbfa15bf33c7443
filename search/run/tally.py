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
    """How far a trial's seeds are. JSON has all of it."""

    states: Mapping[str, int]
    """Seeds by outcome."""
    left: int
    """What is not spent of the budgets of those that have not ended; unit: seed-steps."""
    grokked: Mapping[str, int] = field(default_factory=dict)
    """Seeds that were perfect once, by configuration."""
    holding: Sequence[tuple[str, str]] = ()
    """Those of them that train on, to see whether they hold: configuration and seed."""
    best_exact: float = 0.0
    steps: Sequence[tuple[int, int]] = ()
    """How far the seeds are, in the trial's order: (step, how many that follow each other are there)."""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> TrialReport:
        """Of a trial's rows, in its order."""
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
        """Seeds that have not ended."""
        return sum(self.states.get(outcome, 0) for outcome in OPEN)

    def each_step(self) -> Iterator[int]:
        """How far each seed is; of a trial that has not been heard of, nothing."""
        for step, count in self.steps:
            yield from [step] * count
