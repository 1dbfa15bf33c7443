"""Put a study's recorded seeds into the ledger of a home that lacks them: `run` then trains the others alone.

    python lab/scripts/home_from_records.py STUDY SEEDS.parquet --home DIR

Their θ and curves stay where they were trained: `rerun` makes any of them again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd
import sqlalchemy as sa

from search.stats.record import SeedRecord
from search.store.database import ROWS
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.file import load_study
from search.study.trial import Configuration
from tracking.store import connect
from tracking.tracker import Tracker


def fill(study: str, file: str, home: Path) -> int:
    """Insert the final seeds of the file and return how many. Raises IntegrityError if the home has one of them."""
    frame = pd.read_parquet(file)
    frame = frame.astype(object).where(frame.notna(), None)
    columns = [name for name in frame if name in ROWS.c]
    rows = [dict(zip(columns, row, strict=True)) for row in frame[columns].itertuples(index=False)]
    place, plan = Home(home), load_study(study)
    final = [row | {"study": plan.name} for row in rows if SeedRecord.of(row).is_final]
    for row in final:
        row["environment"] = json.loads(row["environment"]) if row.get("environment") else None
    home.mkdir(parents=True, exist_ok=True)
    ledger, keys = Ledger(place), {row["configuration"] for row in final}
    listed = [Configuration(spec, recipe) for spec, recipe in plan.listed]
    records = StudyRecords(ledger, plan.name)
    with ledger.database.begin() as db:
        records.insert_configurations(db, [c for c in listed if c.key in keys])
        db.execute(sa.insert(ROWS), final)
    Tracker(connect(place, creates=True), place, plan, records=records)  # creates the experiment
    return len(final)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study")
    parser.add_argument("seeds")
    parser.add_argument("--home", type=Path, default=Path("adder-runs"))
    args = parser.parse_args()
    print(f"{fill(args.study, args.seeds, args.home):,} seeds recorded in {args.home}")
