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
"""Other seeds beside the checkpoint's: a page holds all of its data."""
POINTS = 200
"""Of a curve."""


class Recorded:
    """The records of a checkpoint's seed: its study, its configuration, and its row."""

    def __init__(self, records: StudyRecords, configuration: str, seed: Seed, rows: Sequence[SeedRecord]):
        self.records = records
        self.configuration = configuration
        self.seed = seed
        self.rows = rows

    @classmethod
    def find(cls, home: Home, checkpoint: Checkpoint) -> Recorded | None:
        """Return the records of the seed that a checkpoint's provenance names; None where the home has none."""
        # a stranger's checkpoint may have anything there
        study = checkpoint.provenance.get("study")
        configuration = checkpoint.provenance.get("configuration")
        if not (isinstance(study, str) and isinstance(configuration, str)):
            return None
        if not home.exists() or checkpoint.seed.keys() != {"init_seed", "data_seed"}:
            return None
        records = StudyRecords(Ledger(home), study)
        seed = Seed(**checkpoint.seed)
        rows = [row for row in records.list_seeds(configuration) if row.is_final]
        if all(row.seed != seed for row in rows):
            return None
        return cls(records, configuration, seed, rows)

    def training(self) -> dict[str, Any]:
        """Return the seed's curve among those of its configuration, as plain values, and a sentence on both."""
        row = next(r for r in self.rows if r.seed == self.seed)
        others = [r for r in self.rows if r is not row]
        curves = [_points(seed.result) for seed in self.records.seeds([row, *others[:MOST_CURVES]])]
        # a search picks what did well in it, so its rate is higher than that of seeds drawn afterwards
        searched = [r for r in self.rows if not r.confirmation]
        fresh = [r for r in self.rows if r.confirmation]
        rate = f"{_grokked(searched)} seeds of its configuration grokked"
        if fresh:
            rate += f" in the search that chose it, {_grokked(fresh)} fresh ones"
        end = f"grokked at step {row.grok_step:,}" if row.grok_step else f"ended as {row.outcome}"
        seed = f"Seed {self.seed} of study {self.records.study}"
        return {
            "words": f"{seed} {end}; {rate}. Share of selection problems that are right, by step.",
            "curve": curves[0],
            "curves": curves[1:],
        }


def _grokked(rows: Sequence[SeedRecord]) -> str:
    """Say how many of some rows grokked."""
    return f"{sum(r.has_grokked for r in rows):,} of {len(rows):,}"


def _points(result: Result) -> dict[str, list[float]]:
    """Return at most POINTS steps of a curve, the last among them."""
    exact_E = result.curve_EM[:, MEASURES.index("exact")]
    every = result.pair.recipe.eval_every
    stride = max(1, -(-len(exact_E) // POINTS))
    # from the end, where it says what the seed came to
    places = range(len(exact_E) - 1, -1, -stride)[::-1]
    return {
        "steps": [(place + 1) * every for place in places],
        "exact": [round(float(exact_E[place]), 4) for place in places],
    }
