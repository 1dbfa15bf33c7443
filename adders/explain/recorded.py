"""What a home has of a checkpoint's training, and where its page is logged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from search.stats.counting import Row, seed_of
from search.store.ledger import Ledger
from search.store.record import is_final
from search.store.study_records import StudyRecords
from search.tracking.artifacts import ArtifactCache
from search.tracking.tracking import PARENT_TAG, SEED_TAG, answered, check_place, connect
from trainer import Outcome, Seed

if TYPE_CHECKING:
    import pandas as pd

    from search.store.home import Home
    from trainer.checkpoints.checkpoint import Checkpoint

MOST_CURVES = 64
POINTS = 200
"""Of a curve."""
PAGE = "explain.html"


class Recorded:
    """The records of a checkpoint's seed: its study, its configuration, and its row."""

    def __init__(self, records: StudyRecords, configuration: str, seed: Seed, rows: Sequence[Row]):
        self.records, self.configuration, self.seed, self.rows = records, configuration, seed, rows

    @classmethod
    def find(cls, home: Home, checkpoint: Checkpoint) -> Recorded | None:
        """Return the records of the seed that a checkpoint's provenance names; None where the home has none."""
        study, configuration = (checkpoint.provenance.get(k) for k in ("study", "configuration"))
        has_seed = checkpoint.seed.keys() == {"init_seed", "data_seed"}
        if not (home.exists() and has_seed and isinstance(study, str) and isinstance(configuration, str)):
            return None
        records, seed = StudyRecords(Ledger(home), study), Seed(**checkpoint.seed)
        rows = [r for r in records.list_seeds(configuration) if is_final(r) and r["published"]]
        return cls(records, configuration, seed, rows) if seed in map(seed_of, rows) else None

    def training(self) -> dict[str, Any]:
        """Return the seed's curve among those of its configuration, as plain values, and a sentence on both."""
        row = next(r for r in self.rows if seed_of(r) == self.seed)
        trials = dict.fromkeys(r["trial"] for r in [row, *self.rows])
        curves: dict[Seed, dict[str, list[float]]] = {}
        with ArtifactCache(connect(self.records.home, only_reads=True), self.records) as artifacts:
            for trial in trials:
                if len(curves) >= MOST_CURVES:
                    break
                by_seed = artifacts.curves(self.configuration, trial).groupby(["init_seed", "data_seed"])
                curves |= {Seed(*map(int, numbers)): _points(curve) for numbers, curve in by_seed}
        searched, fresh = ([r for r in self.rows if r["confirmation"] == kind] for kind in (False, True))
        rate = f"{_grokked(searched)} seeds of its configuration grokked"
        if fresh:
            rate += f" in the search that chose it, {_grokked(fresh)} fresh ones"
        step = row["grok_step"]
        words = f"Seed {self.seed} of study {self.records.study} " + (
            f"grokked at step {step:,}" if step else f"ended as {row['outcome']}"
        )
        return {
            "words": f"{words}; {rate}. Share of selection problems that are right, by step.",
            "curve": curves.pop(self.seed),
            "curves": list(curves.values())[:MOST_CURVES],
        }

    def log(self, html: str) -> bool:
        """Log the page beside the seed's checkpoint in MLflow. False where the seed has no run of its own."""
        client = connect(self.records.home)
        _, parent = self.records.list_runs().get(self.configuration, ("", ""))
        if not parent:
            return False
        tags = f"tags.`{PARENT_TAG}` = '{parent}' and tags.`{SEED_TAG}` = '{self.seed}'"
        with answered(client.tracking_uri):
            runs = client.search_runs([client.get_run(parent).info.experiment_id], tags)
            for run in runs:
                check_place(client, self.records.home, run)
                client.log_text(run.info.run_id, html, PAGE)
        return bool(runs)


def _grokked(rows: Sequence[Row]) -> str:
    return f"{sum(r['outcome'] == Outcome.GROKKED for r in rows):,} of {len(rows):,}"


def _points(curve: pd.DataFrame) -> dict[str, list[float]]:
    """Return at most POINTS steps of a curve, the last among them."""
    thinned = curve.iloc[:: -max(1, -(-len(curve) // POINTS))][::-1]
    return {"steps": thinned["step"].tolist(), "exact": thinned["exact"].round(4).tolist()}
