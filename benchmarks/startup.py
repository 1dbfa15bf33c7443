"""How long a command takes to start, as a share of what `python -c "import torch"` takes.

    python -m benchmarks.startup [--seeds 10000] [--rounds 7] [--json FILE]

The home is made through the ledger, without training: a study of 57p and 67p, each with four constraints
toggled, so that `table` and `best` have something to say. In each round every command runs once, torch's
import with them, so that a machine that is busy for a while is so for all. What is compared are medians of
the rounds, the first left out. Exit code 1 if a limit does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from search.store.ended_seed import EndedSeed, TrainedBy
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.schema import Study
from search.study.trial import Configuration
from trainer import MEASURES, Outcome, Pair, Result, Seed

STUDY = {
    "name": "startup",
    "model": "57p",
    "configurations": [{}, {"model": "67p"}],
    "toggle": ["tie_vo", "shared_norm", "no_eos", "qk_dim=4"],
    "seeds": {"first": 1, "count": 1_000},
}
ENVIRONMENT = {"code": "0.1.0", "torch": torch.__version__, "threads": 1, "slots": 16, "compiled": True}
TORCH = "import torch"
LISTING, PLANNING = 2 / 3, 1.2
LIMITS = {
    "--help": 1 / 6,
    "studies": LISTING,
    "keys": LISTING,
    "models": LISTING,
    "status": LISTING,
    "best": LISTING,
    "table": PLANNING,
    "run 57p --dry-run": PLANNING,
}
"""The most that a command may take, in imports of torch."""


def record(home: Home, seeds: int) -> str:
    """Have a home with so many made-up seeds, of which one in eight grokked. Returns the study's name."""
    study = Study.model_validate(STUDY)
    listed = [Configuration(*c) for c in study.listed]
    home.create()
    records = StudyRecords(Ledger(home), study.name)
    records.lease.acquire()
    records.update_study(study.model_dump(mode="json", by_alias=True))
    for configuration in listed:
        work = [(configuration, Seed.of(n), False) for n in range(1, 1 + seeds // len(listed))]
        records.claim(work)
        results = {(c.key, s.init_seed, s.data_seed): EndedSeed.of(_result(c.pair(s))) for c, s, _ in work}
        records.record(results, TrainedBy(5_000.0, ENVIRONMENT))
    records.lease.release()
    return study.name


def _result(pair: Pair) -> Result:
    """What a ledger keeps of a seed; θ and curve, which it does not, are empty."""
    grokked = pair.seed.init_seed % 8 == 0
    return Result(
        pair=pair, outcome=Outcome.GROKKED if grokked else Outcome.FAILED, steps=pair.recipe.steps,
        grok_step=20_000 if grokked else None, held=grokked, hopeless_step=None, best_step=20_000,
        best_exact=1.0 if grokked else 0.25, best_token=0.9,
        theta_P=torch.empty(0), curve_EM=torch.empty(0, len(MEASURES)),
    )  # fmt: skip


def seconds(words: list[str], home: Home) -> float:
    """Of one process, from its start to its end."""
    environment = {**os.environ, "ADDER_SEARCH_HOME": str(home.path)}
    start = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    took = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return took


def measured(home: Home, rounds: int) -> dict[str, float]:
    """Median seconds of each command, and of importing torch."""
    script = str(Path(sys.executable).with_name("adder-search"))
    asked = {TORCH: [sys.executable, "-c", TORCH]} | {words: [script, *words.split()] for words in LIMITS}
    took: dict[str, list[float]] = {name: [] for name in asked}
    for _ in range(rounds + 1):
        for name, words in asked.items():
            took[name].append(seconds(words, home))
    return {name: median(times[1:]) for name, times in took.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Home(folder)
        record(home, args.seeds)
        took = measured(home, args.rounds)
    unit = took[TORCH]
    print(f"{'command':20} {'seconds':>8} {'of import torch':>16} {'at most':>8}")
    for name, s in took.items():
        most = f"{LIMITS[name]:8.2f}" if name in LIMITS else ""
        print(f"{name:20} {s:8.2f} {s / unit:16.2f} {most}".rstrip())
    if args.json:
        args.json.write_text(json.dumps({"seeds": args.seeds, "rounds": args.rounds, "seconds": took}) + "\n")
    sys.exit(any(took[name] > most * unit for name, most in LIMITS.items()))


if __name__ == "__main__":
    main()
