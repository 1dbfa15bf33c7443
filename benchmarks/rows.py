"""What the commands that read records cost, by the number of recorded seeds.

    python -m benchmarks.rows [--rows 10000] [--times 10] [--each 100] [--json FILE]

Two homes with made-up ledgers, `--each` seeds of each configuration: one with `--rows` rows, one with `--times` as
many. Seconds are processor time of whole commands, Python's start included; the ratio of the two is what counts.
MLflow has none of the seeds, so `report` draws no curves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from search.store.database import ROWS
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.schema import Study
from search.study.trial import Configuration
from tracking.store import connect
from trainer import Outcome

NAME = "rows"
STEPS = 30_000
ENVIRONMENT = {"code": "0", "threads": 1, "slots": 1}


def study_of(configurations: int, each: int) -> Study:
    """Return a study of configurations that differ in their learning rate, with `each` seeds."""
    listed = [{"recipe": {"lr": 0.001 + i / 1e6}} for i in range(configurations)]
    recipe = {"steps": STEPS, "fade_start": 5_000, "fade_end": 20_000}
    about = {"name": NAME, "model": "57p", "recipe": recipe, "configurations": listed}
    return Study.model_validate(about | {"seeds": {"first": 1, "count": each}})


def rows_of(configuration: Configuration, each: int) -> Iterator[dict[str, Any]]:
    """Yield ledger rows of seeds that have ended: one of eight grokked."""
    for seed in range(1, each + 1):
        has_grokked = seed % 8 == 0
        yield {
            "study": NAME,
            "configuration": configuration.key,
            "init_seed": seed,
            "data_seed": seed,
            "outcome": (Outcome.GROKKED if has_grokked else Outcome.FAILED).value,
            "steps": STEPS,
            "grok_step": 20_000 + seed if has_grokked else None,
            "held": has_grokked,
            "best_step": STEPS,
            "best_exact": float(has_grokked),
            "best_token": 0.9,
            "core_s": 1.0,
            "environment": ENVIRONMENT,
        }


def write_home(folder: Path, configurations: int, each: int) -> Path:
    """Make a home with a ledger of `configurations` times `each` seeds. Return the path of the study's file."""
    home, study = Home(folder), study_of(configurations, each)
    home.create()
    records = StudyRecords(Ledger(home), NAME)
    listed = [Configuration(*pair) for pair in study.listed]
    definition = study.model_dump(mode="json", by_alias=True)
    records.lease.acquire()
    records.update_study(definition)
    records.create_configurations(listed)
    with records.writing() as db:
        for configuration in listed:
            db.execute(sa.insert(ROWS), list(rows_of(configuration, each)))
    records.lease.release()
    (file := folder / f"{NAME}.json").write_text(json.dumps(definition))
    return file


def commands(file: Path, scratch: Path) -> dict[str, list[str]]:
    """Return the words of each command. file: the study's."""
    return {
        "status": ["status"],
        "status STUDY": ["status", NAME],
        "best": ["best"],
        "records": ["records", NAME, "-o", str(scratch / "configurations.csv")],
        "records --of seeds": ["records", NAME, "--of", "seeds", "-o", str(scratch / "seeds.csv")],
        "table": ["table", NAME],
        "report": ["report", NAME, "-o", str(scratch / "report.html")],
        "run --dry-run": ["run", str(file), "--dry-run"],
    }


def measure(home: Path, words: list[str]) -> float:
    """Run a command. Return its processor time in seconds."""
    command = [sys.executable, "-P", "-m", "adder_search", *words, "--home", str(home)]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 2):  # 2: nothing to be put into a table
            said.seek(0)
            raise SystemExit(f"{' '.join(words)}: {said.read().decode()}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--each", type=int, default=100, help="seeds of a configuration")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = {"rows": args.rows, "times": args.times, "each": args.each}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        homes = [scratch / "few", scratch / "many"]
        sizes = [args.rows // args.each, args.times * args.rows // args.each]
        files = [write_home(home, size, args.each) for home, size in zip(homes, sizes, strict=True)]
        for home in homes:
            connect(Home(home), creates=True)  # an empty store of MLflow's, for `report`
        print(f"{'':20} {args.rows:>8,} rows {args.rows * args.times:>8,} rows   times")
        for name in commands(files[0], scratch):
            few, many = (measure(home, commands(file, scratch)[name]) for home, file in zip(homes, files, strict=True))
            found[name] = {"few_s": few, "many_s": many}
            print(f"{name:20} {few:11.2f} s {many:11.2f} s {many / few:7.1f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
