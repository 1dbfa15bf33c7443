"""What a home has of a checkpoint's training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from search.stats.record import SeedRecord
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from trainer import MEASURES, Result, Seed

if TYPE_CHECKING:
    from search.store.home import Home
    from trainer.checkpoints.checkpoint import Checkpoint

MOST_CURVES = 64
POINTS = 200
"""Of a curve."""


class Recorded:
    """The records of a checkpoint's seed: its study, its configuration, and its row."""

    def __init__(self, records: StudyRecords, configuration: str, seed: Seed, rows: Sequence[SeedRecord]):
        self.records, self.configuration, self.seed, self.rows = (
            records,
            configuration,
            seed,
            rows,
        )

    @classmethod
    def find(cls, home: Home, checkpoint: Checkpoint) -> Recorded | None:
        """Return the records of the seed that a checkpoint's provenance names; None where the home has none."""
        study, configuration = (checkpoint.provenance.get(k) for k in ("study", "configuration"))
        has_seed = checkpoint.seed.keys() == {"init_seed", "data_seed"}
        if not (home.exists() and has_seed and isinstance(study, str) and isinstance(configuration, str)):
            return None
        records, seed = StudyRecords(Ledger(home), study), Seed(**checkpoint.seed)
        rows = [r for r in records.list_seeds(configuration) if r.is_final]
        return cls(records, configuration, seed, rows) if seed in (row.seed for row in rows) else None

    def training(self) -> dict[str, Any]:
        """Return the seed's curve among those of its configuration, as plain values, and a sentence on both."""
        row = next(r for r in self.rows if r.seed == self.seed)
        rows = [row, *(r for r in self.rows if r is not row)][: MOST_CURVES + 1]
        curves = [_points(seed.result) for seed in self.records.seeds(rows)]
        searched, fresh = ([r for r in self.rows if r.confirmation == kind] for kind in (False, True))
        rate = f"{_grokked(searched)} seeds of its configuration grokked"
        if fresh:
            rate += f" in the search that chose it, {_grokked(fresh)} fresh ones"
        step = row.grok_step
        words = f"Seed {self.seed} of study {self.records.study} " + (
            f"grokked at step {step:,}" if step else f"ended as {row.outcome}"
        )
        return {
            "words": f"{words}; {rate}. Share of selection problems that are right, by step.",
            "curve": curves[0],
            "curves": curves[1:],
        }


def _grokked(rows: Sequence[SeedRecord]) -> str:
    return f"{sum(r.has_grokked for r in rows):,} of {len(rows):,}"


def _points(result: Result) -> dict[str, list[float]]:
    """Return at most POINTS steps of a curve, the last among them."""
    exact_E, every = (
        result.curve_EM[:, MEASURES.index("exact")],
        result.pair.recipe.eval_every,
    )
    stride = max(1, -(-len(exact_E) // POINTS))
    places = range(len(exact_E) - 1, -1, -stride)[::-1]
    return {
        "steps": [(place + 1) * every for place in places],
        "exact": [round(float(exact_E[place]), 4) for place in places],
    }
