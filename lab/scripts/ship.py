"""Write a study's records to the package, where `adder-search table --shipped` reads them: two files, under 1 MB each.

    python lab/scripts/ship.py NAME [--home DIR] [FILE ...]

NAME: a study of the home; with files of its seeds and configurations (.csv, .parquet) the name of what is written,
studies/records/NAME-configurations.parquet and NAME-seeds.parquet. Seeds keep what the table and a retraining need.
`git add` them; `make pages` draws README's table again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from search.analysis.frames import RecordSet, as_columns

RECORDS = Path(__file__).parents[2] / "studies/records"
LARGEST = 1_000_000  # bytes
SEEDS = (
    "study", "configuration", "init_seed", "data_seed", "outcome", "budget", "steps", "grok_step", "held",
    "hopeless_step", "screen", "best_exact", "best_token", "verified",
)  # fmt: skip
IN_THE_HOME = {"experiment_id": "", "run_id": ""}  # nobody else has these runs


def ship(name: str, files: list[str], home: str | None = None, to: Path = RECORDS) -> list[Path]:
    """Write the files and return their paths."""
    records = RecordSet(files or [name], home)
    seeds = pd.DataFrame(records.seed_rows()).rename(columns={"correct": "verified"})
    frames = {
        "configurations": pd.DataFrame(records.configurations()).assign(**IN_THE_HOME),
        "seeds": seeds[[column for column in SEEDS if column in seeds]],
    }
    paths = []
    for of, frame in frames.items():
        if len(frame):
            paths.append(to / f"{name}-{of}.parquet")
            as_columns(frame).to_parquet(paths[-1], index=False, compression="zstd")
            if paths[-1].stat().st_size > LARGEST:
                raise ValueError(f"{paths[-1]}: larger than {LARGEST:,} bytes")
    return paths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--home")
    args = parser.parse_args()
    for path in ship(args.name, args.files, args.home):
        print(f"{path}: {path.stat().st_size:,} bytes")
