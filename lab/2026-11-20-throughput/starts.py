"""What it costs a worker to go on with another trial, and what a worker of its own costs.

    PYTHONPATH=. python lab/2026-11-20-throughput/starts.py

Forty trials of as many specs (benchmarks/engine.py), four seeds and 60 steps each, in one process as a worker
that goes on: orders read, bank and programs made, parts written. Twice; the first time makes what is kept of
compilation. Prints seconds a trial without the training itself, beside `python -c "import ray.tune, torch"`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.engine import SMOKE, different
from search.run.worker import run_trial
from search.store.results import WorkerAssignment
from search.study.resources import Resources
from search.study.stopping import Stop
from search.study.trial import Configuration, Trial
from trainer import Recipe, Seed


def chained(folder: Path, trials: list[Trial]) -> tuple[float, float]:
    """Seconds that a worker takes for the trials, one after another, and those of its training."""
    for trial in trials:
        trial.write(folder / trial.key)
    WorkerAssignment(tuple(trial.key for trial in trials)).write(folder / trials[0].key)
    start, trained = time.perf_counter(), 0.0
    for report in run_trial(folder / trials[0].key):
        trained = report.get("train_s", trained)
    return time.perf_counter() - start, trained


def main() -> None:
    resources = Resources(cpu=1, gpu=0)
    work = [[(Configuration(spec, Recipe(**SMOKE)), Seed.of(n)) for n in range(4)] for spec in different()]
    trials = [Trial("starts", tuple(its), 4, resources, Stop(hopeless=False)) for its in work]
    for which in ("first", "again"):
        with tempfile.TemporaryDirectory() as folder:
            whole, trained = chained(Path(folder), trials)
        a_trial = (whole - trained) / len(trials)
        print(f"{which}: {len(trials)} trials in {whole:.1f} s, {a_trial:.3f} s each without training")
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import ray.tune, torch"], check=True)
    print(f"a process that imports Ray Tune and torch: {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
