"""What a study of thousands of trials costs beside the training.

    python -m benchmarks.load [--trials 2000] [--workers 2] [--busy 0] [--max-hours H]
                              [--seeds 10000] [--json FILE]

Trials: a study of so many, each of one seed (four seeds a configuration), with real Ray, workers, ledger and
MLflow, and in the place of training a bank that sleeps for `--busy` seconds (benchmarks/fake.py).
Scheduling overhead a trial, memory and processor time of the driver, and how long it takes to list, table and
report afterwards. With `--workers 0` there is no Ray and each trial has ended when it begins: what the driver
itself can take at the most, its writing to MLflow included (`written_s`, a trial). Seeds: so many recorded in
one study of `--configurations`, `--each` a trial, without Ray, with the rate of the first and the last tenth
of the trials of a configuration, and the memory that each further seed takes: the size of the store, and
`table`. `stolen`: the share of the processors' time that
the machine gave to others meanwhile; with much of it, times mean little, and counts of processor time more.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from rich.console import Console

from benchmarks import fake
from search.run import ray_executor
from search.run.driver import Driver
from search.run.executor import LocalExecutor
from search.run.messages import Reply, Report, Speed
from search.run.mirror import Shown
from search.run.progress import Display
from search.stats.record import SeedRecord
from search.store.ended_seed import EndedSeed, TrainedBy
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.schema import Study
from search.study.trial import Configuration
from tracking.projection import Projection, write_study
from tracking.store import connect
from tracking.sync import AtOnce
from tracking.tracker import Tracker
from trainer import MEASURES, Outcome, Pair, Recipe, Result, Seed
from trainer.checkpoints.checkpoint import code_version
from trainer.files.cores import usable_cores

EACH = 4  # seeds of a configuration
STEPS, EVERY = 30_000, 1_000
TOGGLED = ("tie_vo", "shared_norm", "no_eos", "qk_dim=4")  # an arm each, beside 57p itself


def result_of(pair: Pair, spec: Any) -> Result:
    """A made-up seed: a curve of 30 evaluations, one of eight grokked. No training."""
    draw = torch.Generator().manual_seed(pair.seed.init_seed)
    grokked = pair.seed.init_seed % 8 == 0
    return Result(
        pair=pair, outcome=Outcome.GROKKED if grokked else Outcome.FAILED, steps=STEPS,
        grok_step=20_000 if grokked else None, held=grokked, hopeless_step=None, best_step=STEPS,
        best_exact=float(grokked), best_token=0.9, theta_P=torch.randn(spec.params, generator=draw),
        curve_EM=torch.rand(STEPS // EVERY, len(MEASURES), generator=draw),
    )  # fmt: skip


def trained_by() -> TrainedBy:
    return TrainedBy(1_000.0, {"code": code_version(), "threads": 1, "slots": 1})


def train(config: dict[str, Any], desk: Any, bank: Any, speed: float) -> None:
    """In the place of ray_executor.train: the same, with banks that train nothing."""
    from search.run import ray_executor as real  # of its own process
    from search.run import worker

    bank.speed = speed
    worker.Bank = bank
    real.train(config, desk)


def study_of(trials: int) -> Study:
    configurations = [{"recipe": {"lr": 0.001 + i / 1e6}} for i in range(trials // EACH)]
    return Study.model_validate(
        {
            "name": "load", "model": "57p", "recipe": {"steps": STEPS, "eval_every": STEPS},
            "seeds": {"first": 1, "count": EACH}, "configurations": configurations,
            "resources": {"gpu": 0, "slots": 1, "compiled": False},
        }
    )  # fmt: skip


class Measured(Driver):
    """A driver that notes its own memory and time at each seed's end."""

    def __init__(self, *args: Any, **options: Any):
        self.noted: list[dict[str, Any]] = []
        self.written: float | None = None
        super().__init__(*args, **options)

    def _show_drain(self, mirror: Shown, remaining: int) -> bool:
        if remaining <= 1:  # the study's own pictures and table, whatever the number of its seeds
            self.written = self.written or time.perf_counter()
        return super()._show_drain(mirror, remaining)

    def _complete(self, *given: Any) -> None:
        super()._complete(*given)
        row = {"wall_s": time.perf_counter(), "cpu_s": time.process_time(), "memory": memory()}
        self.noted.append(row | {"jobs": sum(mirror.pending for mirror in self.shown)})


def memory() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def jiffies() -> tuple[int, int]:
    """All processors' time since they started, and what of it was stolen: given to other machines."""
    spent = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(spent), spent[7]


def run_trials(home: Home, trials: int, workers: int, busy_s: float, max_hours: float | None = None) -> dict[str, Any]:
    """The study from its first trial to its end, or for so long."""
    study = study_of(trials)
    home.create()
    if workers:
        for module in (fake, sys.modules[train.__module__]):  # which workers cannot import
            ray.cloudpickle.register_pickle_by_value(module)
        speed = STEPS / busy_s if busy_s else float("inf")
        ray_executor.train = functools.partial(train, bank=fake.FakeBank, speed=speed)  # type: ignore[assignment]
        ray.init = functools.partial(ray.init, num_cpus=workers)
    records = StudyRecords(Ledger(home), study.name)
    connect(home, creates=True)
    start, before = time.perf_counter(), jiffies()
    with (
        records.lease,
        Display(Console(file=sys.stderr)) as display,
        Measured.open(study, records, display, max_hours) as driver,
    ):
        driver.run(ray_executor.RayExecutor(study, home.ray, display.say_if_due) if workers else Instant())
    rows = records.list_seeds()
    done = [r for r in rows if r.is_final]
    if not driver.ended.interrupted:
        assert len(done) == trials, "not all is recorded"
    if len(driver.noted) < 2:
        raise SystemExit(f"{len(driver.noted)} trials ended: too few to say what one takes")
    end, after = time.perf_counter(), jiffies()
    written_s = ((driver.written or end) - driver.noted[0]["wall_s"]) / len(done)
    stolen = (after[1] - before[1]) / (after[0] - before[0])
    return summary(driver.noted, end - start, workers, busy_s) | {"written_s": written_s, "stolen": stolen}


class Instant(LocalExecutor):
    """Workers that take no time and train nothing."""

    def start(self, worker: str, on_gpu: bool, attempt: int = 0) -> None:
        self.workers[worker] = instant(worker)
        self.turns.append((worker, None))


def instant(name: str) -> Generator[Report, Reply, None]:
    number, report, by = 0, Report(name, 0, 0), trained_by()
    while not (reply := (yield report)).is_end:
        spec, number = reply.bank.spec if reply.bank else spec, number + 1  # noqa: F821  the first reply has a bank
        ended = {order.number: EndedSeed.of(result_of(order.pair, spec)) for order in reply.orders}
        report = Report(name, 0, number, ended, environment=by.environment, speed=Speed(by.seed_steps_per_s))


def summary(noted: Sequence[dict[str, Any]], total_s: float, workers: int, busy_s: float) -> dict[str, Any]:
    """Rates between the first tenth of the trials and the last, so that starting is left out."""
    first, last = noted[len(noted) // 10], noted[-1]
    count = len(noted) - len(noted) // 10 - 1
    wall_s = (last["wall_s"] - first["wall_s"]) / count
    memory_MiB = np.array([row["memory"] for row in noted]) / 2**20
    later = memory_MiB[len(noted) // 4 :]
    slope = np.polyfit(np.arange(len(later)), later, 1)[0]
    quarter = noted[-max(2, len(noted) // 4) :]
    late_s = (last["cpu_s"] - quarter[0]["cpu_s"]) / (len(quarter) - 1)
    return {
        "trials": len(noted), "workers": workers, "busy_s": busy_s, "total_s": total_s,
        "trial_wall_s": wall_s, "overhead_s": wall_s * max(1, workers) - busy_s,
        "driver_cpu_s": (last["cpu_s"] - first["cpu_s"]) / count, "driver_cpu_last_quarter_s": late_s,
        "memory_MiB": float(memory_MiB[-1]), "memory_slope_KiB": float(slope * 1024),
        "jobs_at_the_end": last["jobs"],
    }  # fmt: skip


def record_seeds(home: Home, seeds: int, bank: int = 100, count: int = 5) -> dict[str, Any]:
    """A study of toggled constraints with so many seeds, recorded as by a driver. bank: seeds of a trial;
    count: configurations, at most five. Rates are by processor time, but for `record_s`.
    """
    recipe = Recipe(steps=STEPS, eval_every=EVERY)
    study = Study.model_validate({"name": "many", "model": "57p", "seeds": [1], "toggle": list(TOGGLED)})
    specs = [spec for spec, _ in study.listed][:count]
    home.create()
    records, client = StudyRecords(Ledger(home), study.name), connect(home, creates=True)
    records.lease.acquire()
    projection = Projection(records, Tracker(client, home, study), AtOnce(), write_study)
    start, each = time.perf_counter(), seeds // len(specs)
    took_s: list[list[float]] = []
    memories: list[int] = []
    for spec in specs:
        configuration = Configuration(spec, recipe)
        took_s.append([])
        rows: list[SeedRecord] = []
        for first in range(0, each, bank):
            seeds_of = [Seed.of(n) for n in range(first, min(first + bank, each))]
            results = {
                (configuration.key, seed.init_seed, seed.data_seed): EndedSeed.of(
                    result_of(configuration.pair(seed), spec)
                )
                for seed in seeds_of
            }
            began = time.process_time()
            records.claim([(configuration, seed, False) for seed in seeds_of])
            records.record(results, trained_by())
            rows += [
                SeedRecord(configuration=key, init_seed=init, data_seed=data, **trained_by().columns(ended))
                for (key, init, data), ended in results.items()
            ]
            projection.note_counts(configuration, rows)
            took_s[-1].append(time.process_time() - began)
            memories.append(memory())
        projection.note_configuration(configuration, is_done=True)
    took = time.perf_counter() - start
    records.lease.release()
    ends = (
        {"first": [t[0:tenth] for t in took_s], "last": [t[-tenth:] for t in took_s]}
        if (tenth := len(took_s[0]) // 10)
        else {}
    )
    rates: dict[str, Any] = {f"{k}_tenth_seeds_per_s": bank / float(np.mean(t)) for k, t in ends.items()}
    slope = np.polyfit(np.arange(len(memories)), memories, 1)[0] / bank if len(memories) > 1 else 0.0
    rates |= {"seeds_per_s": each * len(specs) / sum(map(sum, took_s)), "memory_slope_B": float(slope)}
    rates["quarters"] = quarters([t for mine in took_s for t in mine], memories, bank)
    return {"seeds": each * len(specs), "trial": bank, "record_s": took, **rates, **sizes(home)}


def quarters(took_s: Sequence[float], memories: Sequence[int], bank: int) -> list[dict[str, float]]:
    """Of each quarter of the trials, in order: seeds/s by processor time, and memory at its highest."""
    parts = zip(np.array_split(np.array(took_s), 4), np.array_split(np.array(memories), 4), strict=True)
    return [{"seeds_per_s": bank / float(t.mean()), "memory_MiB": float(m.max()) / 2**20} for t, m in parts if len(t)]


def sizes(home: Home) -> dict[str, int]:
    files = [f for f in home.artifacts.rglob("*") if f.is_file()]
    return {
        "ledger_bytes": home.ledger_db.stat().st_size,
        "mlflow_bytes": home.mlflow_db.stat().st_size,
        "artifact_bytes": sum(f.stat().st_size for f in files),
        "artifact_files": len(files),
    }


def commands(home: Home, study: str, scratch: Path) -> dict[str, float]:
    """Seconds of whole commands, Python's start included."""
    asked: dict[str, list[str]] = {
        "status_s": ["status"],
        "records_s": ["records", study, "-o", str(scratch / "records.csv")],
        "seeds_s": ["records", study, "--of", "seeds", "-o", str(scratch / "seeds.csv")],
        "table_s": ["table", study],
        "best_s": ["best", study],
        "report_s": ["report", study, "-o", str(scratch / "report.html")],
    }
    return {name: timed(lambda w=words: _command(home, w)) for name, words in asked.items()}


def _command(home: Home, words: list[str]) -> None:
    command = [sys.executable, "-P", "-m", "adder_search", *words, "--home", str(home.path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 2):  # 2: nothing to be put into a table
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--trials", type=int, default=2_000)
    parser.add_argument("--workers", type=int, default=2, help="trials at one time; 0: no Ray")
    parser.add_argument("--busy", type=float, default=0.0, help="seconds that a trial sleeps")
    parser.add_argument("--max-hours", type=float, help="no new trials after so long")
    parser.add_argument("--seeds", type=int, default=10_000, help="0: none")
    parser.add_argument("--each", type=int, default=100, help="seeds of a trial of those")
    parser.add_argument("--configurations", type=int, default=5, help="of those, at most five")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    row: dict[str, Any] = {"cores": usable_cores(), "cpu": platform.machine(), "code": code_version()}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if args.trials:
            home = Home(scratch / "trials")
            row["trials"] = run_trials(home, args.trials, args.workers, args.busy, args.max_hours)
            row["trials"] |= sizes(home) | commands(home, "load", scratch)
            print(json.dumps(row["trials"], indent=2), flush=True)
        if args.seeds:
            home = Home(scratch / "seeds")
            row["seeds"] = record_seeds(home, args.seeds, args.each, args.configurations) | commands(
                home, "many", scratch
            )
            print(json.dumps(row["seeds"], indent=2), flush=True)
    if args.json:
        args.json.write_text(json.dumps(row, indent=2) + "\n")


if __name__ == "__main__":
    main()
