"""Seed-steps/s of a bank, all included: problems, steps and evaluations.

    python -m benchmarks.throughput [--rung 57p] [--seeds 1,8,16] [--batch B]
                                    [--processes N] [--threads T] [--seconds S] [--json FILE]

`--processes 2 --threads 1` splits the seeds as a study places trials: each process has a bank, and all train at the
same time. Whole intervals between evaluations are timed, for S seconds, after one that is not. Nothing is given up by
the rule for hopeless seeds, and a seed that ends is replaced.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import platform
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import torch

from model import preset
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import code_version
from trainer.files.cores import usable_cores
from trainer.files.installed import missing_for_compilation

FIRST_SEED, SPARE = 777, 64


@dataclass(frozen=True)
class Setup:
    """What all rows of a run have in common."""

    rung: str
    batch: int
    processes: int
    threads: int
    seconds: float


# In the processes

_barrier: Any = None


def _begin(barrier: Any, threads: int) -> None:
    """Take what a process shares with the others, and its threads."""
    global _barrier
    _barrier = barrier
    torch.set_num_threads(threads)


def rate_of(setup: Setup, seeds: int) -> float:
    """Return the seed-steps/s of a bank, timed together with those of the other processes."""
    recipe = Recipe(batch=setup.batch)
    pairs = [Pair(recipe, Seed.of(FIRST_SEED + n)) for n in range(seeds + max(seeds, SPARE))]
    try:
        bank = Bank(preset(setup.rung), pairs, slots=seeds)
        bank.advance()
        _barrier.wait()
    except BaseException:
        _barrier.abort()  # the others need not wait
        raise
    start, before = time.perf_counter(), bank.seed_steps
    while time.perf_counter() - start < setup.seconds and bank.advance():
        pass
    return (bank.seed_steps - before) / (time.perf_counter() - start)


# Around the processes


def measure(setup: Setup, seeds: int) -> float:
    """Return the seed-steps/s of all processes, each a fresh one."""
    context, count = mp.get_context("spawn"), setup.processes
    begin = (context.Barrier(count), setup.threads)
    with ProcessPoolExecutor(count, context, _begin, begin) as pool:
        results = [pool.submit(rate_of, setup, seeds // count + (n < seeds % count)) for n in range(count)]
        errors = [error for result in results if (error := result.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error
    return sum(result.result() for result in results)


def about(setup: Setup) -> dict[str, Any]:
    """What was run, on what, with which versions."""
    return {
        **asdict(setup),
        "hardware": processor(),
        "cores": usable_cores(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "code": code_version(),
        "commit": commit(),
    }


def processor() -> str:
    """The CPU's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def commit() -> str | None:
    """The repository's commit, with -dirty where files differ from it; None outside of a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        said = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()


# The command


def numbers(text: str) -> list[int]:
    """Read whole numbers with commas between them."""
    return [int(number) for number in text.split(",")]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description=__doc__.splitlines()[0])
    parser.add_argument("--rung", default="57p")
    parser.add_argument("--seeds", type=numbers, default="1,8,16", help="numbers of seeds, a row each")
    parser.add_argument("--batch", type=int, default=Recipe().batch, help="problems in a step")
    parser.add_argument("--processes", type=int, default=1, help="that share the seeds")
    parser.add_argument("--threads", type=int, help="of each process (default: the cores divided by them)")
    parser.add_argument("--seconds", type=float, default=20.0, help="that a row's speed is measured for")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(words)
    if missing := missing_for_compilation():
        parser.error(f"the engine needs {missing}")
    threads = args.threads or max(usable_cores() // args.processes, 1)
    setup = Setup(args.rung, args.batch, args.processes, threads, args.seconds)
    rows: list[dict[str, Any]] = []
    for seeds in args.seeds:
        rows.append({"seeds": seeds, "seed_steps_per_s": measure(setup, seeds)})
        print(f"{seeds} seeds: {rows[-1]['seed_steps_per_s']:,.0f} seed-steps/s", flush=True)
        if args.json:
            args.json.write_text(json.dumps({**about(setup), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
