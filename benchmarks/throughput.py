"""Seed-steps/s of a bank, all included, against the published way and the machine's ceilings.

    python -m benchmarks.throughput [--device cpu|cuda] [--rung 57p] [--seeds 1,8,16] [--batch B]
                                    [--processes N] [--threads T] [--seconds S] [--json FILE]

Each measurement has processes of its own. `--processes 2 --threads 1` splits the seeds as a study places
trials. The baseline is the published way twice: one script with one thread or with as many as all processes
have, whichever is faster (`ratio`), and as many scripts at once as there are processes (`ratio_together`).
The ceilings are those of as many processes with as many threads each, at the same time, and summed.

`measured_by` says how a row's speed was found. "intervals": whole `Bank.advance()`s, for S seconds. "blocks",
where one would take longer than S: blocks of steps for S seconds, and evaluations, are timed, and the speed
follows for an interval of `eval_every` steps. Keeping the records of seeds (milliseconds an interval) is then
not in it. Where the time goes is told as shares of it: sampling problems, the rest of the steps, of which so
much in the family's kernel (the engine has one), and the evaluation.

`of_arithmetic`: the time that operations and exponentials would take one after the other at the ceilings of
the engine's own vectors (on a GPU at those of torch), as a share of the time taken.

Compile times are those of a bank's programs: cold in a fresh cache, warm in another process with that cache.
Nothing is given up by the rule for hopeless seeds, and a seed that ends is replaced.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any, NoReturn

import torch

from benchmarks import baseline, ceilings, count
from benchmarks.timings import PARTS, shares, timings, whole
from model import preset
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import code_version
from trainer.files.cores import usable_cores
from trainer.files.installed import missing_for_compilation

FIRST_SEED, SPARE = 777, 64
PROBE = 0.1  # share of the seconds for each part of a step that is timed alone
CACHE = "TORCHINDUCTOR_CACHE_DIR"

Wait = Callable[[], object]


@dataclass(frozen=True)
class Setup:
    """What all rows of a run have in common."""

    rung: str
    device: str
    batch: int
    processes: int
    threads: int
    seconds: float
    compiled: bool


# In the processes


def compile_s(setup: Setup, wait: Wait, seeds: int) -> float:
    """Seconds in which the programs of a bank are made."""
    wait()
    return make_bank(setup, seeds).backend.compile_s


def train(setup: Setup, wait: Wait, seeds: int) -> dict[str, Any]:
    """Make a bank and time it, together with the other processes."""
    wait()
    bank = make_bank(setup, seeds)
    wait()
    interval, by = timings(bank, setup.seconds * PROBE, setup.seconds * PROBE), "blocks"
    short = whole(interval) < setup.seconds
    wait()
    if short:
        rate, by = intervals_rate(bank, setup.seconds), "intervals"
    else:
        interval = timings(bank, setup.seconds * PROBE, setup.seconds)
        rate = _live(bank) * bank.eval_every / whole(interval)
    about = {"compile_s": bank.backend.compile_s, "measured_by": by}
    return {"rate": rate, "peak": peak_memory(setup.device), **about, **shares(interval)}


def make_bank(setup: Setup, seeds: int) -> Bank:
    """As a study makes it, with some pairs more for slots that become free."""
    recipe = Recipe(batch=setup.batch)
    pairs = [Pair(recipe, Seed.of(FIRST_SEED + n)) for n in range(seeds + max(seeds, SPARE))]
    device, compiled = setup.device, setup.compiled
    return Bank(preset(setup.rung), pairs, slots=seeds, device=device, compiled=compiled)


def intervals_rate(bank: Bank, seconds: float) -> float:
    """Seed-steps/s of whole intervals between evaluations, one of them beforehand."""
    bank.advance()
    start, before = time.perf_counter(), bank.seed_steps
    while time.perf_counter() - start < seconds and bank.advance():
        pass
    return (bank.seed_steps - before) / (time.perf_counter() - start)


def _live(bank: Bank) -> int:
    return int(bank.state["active"].sum())


def peak_memory(device: str) -> int:
    """Bytes: the most that torch has held of the GPU's memory, else the process's largest resident size."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def baseline_rate(setup: Setup, wait: Wait, threads: int) -> float:
    """Steps/s of the published way."""
    torch.set_num_threads(threads)
    wait()
    return baseline.steps_per_s(preset(setup.rung), setup.seconds / 2, setup.batch, setup.device)


def ceilings_of(setup: Setup, wait: Wait, sizes: ceilings.Sizes | None) -> dict[str, float]:
    return ceilings.ceilings(setup.device, sizes, wait)


# Around the processes

_barrier: Any = None


def _take(barrier: Any, threads: int) -> None:
    """A process begins: what it shares with the others, and its threads."""
    global _barrier
    _barrier = barrier
    torch.set_num_threads(threads)


def _run(function: Callable[..., Any], setup: Setup, args: tuple[Any, ...]) -> Any:
    try:
        return function(setup, _barrier.wait, *args)
    except BaseException:
        _barrier.abort()  # the others need not wait
        raise


def in_processes(function: Callable[..., Any], setup: Setup, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Results of function(setup, wait, *arguments), a fresh process for each of the arguments.

    `wait` returns when all have called it; each must call it once or more, equally often.
    """
    context, processes = mp.get_context("spawn"), len(arguments)
    begin = (context.Barrier(processes), setup.threads)
    with ProcessPoolExecutor(processes, context, _take, begin) as pool:
        results = [pool.submit(_run, function, setup, args) for args in arguments]
        errors = [e for e in (r.exception() for r in results) if e]
    for error in sorted(errors, key=lambda e: isinstance(e, BrokenBarrierError)):
        raise error
    return [r.result() for r in results]


@contextmanager
def fresh_cache() -> Iterator[None]:
    """The compiler's cache of processes that are started meanwhile: a folder of its own."""
    before = os.environ.get(CACHE)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ[CACHE] = folder
        try:
            yield
        finally:
            os.environ.pop(CACHE)
            if before is not None:
                os.environ[CACHE] = before


def measure(setup: Setup, seeds: int) -> dict[str, Any]:
    """One row, without what it is compared with."""
    parts = [(seeds // setup.processes + (n < seeds % setup.processes),) for n in range(setup.processes)]
    with fresh_cache():
        cold = in_processes(compile_s, setup, parts) if setup.compiled else None
        results = in_processes(train, setup, parts)
    return {
        "seeds": seeds,
        "ours_seed_steps_per_s": sum(r["rate"] for r in results),
        "measured_by": "+".join(sorted({r["measured_by"] for r in results})),
        "compile_cold_s": max(cold) if cold else None,
        "compile_warm_s": max(r["compile_s"] for r in results) if cold else None,
        **{part: _mean([r[part] for r in results]) for part in (*PARTS, "kernel")},
        "peak_memory_bytes": sum(r["peak"] for r in results),
    }


def _mean(numbers: Sequence[float | None]) -> float | None:
    return None if None in numbers else sum(numbers) / len(numbers)  # type: ignore[arg-type]


def compared(row: dict[str, Any], setup: Setup, rates: Baselines, best: dict[str, float]) -> dict[str, Any]:
    """A row with the baselines' rates, the work that a seed-step needs, and shares of the ceilings."""
    spec, ours = preset(setup.rung), row["ours_seed_steps_per_s"]
    work, moved = count.train_step(spec, setup.batch), count.traffic(spec, setup.batch)
    each = {"flops": work.flops, "exponentials": work.exponentials, "bytes": moved}
    names = {"flops": "gflops_per_s", "exponentials": "gexps_per_s", "bytes": "gbytes_per_s"}
    achieved = {names[what]: number * ours / 1e9 for what, number in each.items()}
    peaks = {name: best.get(f"lane_{name}", best[name]) for name in ("gflops_per_s", "gexps_per_s")}
    return {
        **row,
        "baseline_seed_steps_per_s": rates.one,
        "ratio": ours / rates.one,
        "together_seed_steps_per_s": rates.together,
        "ratio_together": ours / rates.together,
        **{f"{what}_per_seed_step": number for what, number in each.items()},
        **achieved,
        **{f"{name}_of_ceiling": value / best[name] for name, value in achieved.items()},
        "of_arithmetic": sum(achieved[name] / peak for name, peak in peaks.items()),
    }


@dataclass(frozen=True)
class Baselines:
    """Steps/s of the published way: the faster of one script with `threads`, all of several at once."""

    one: float
    threads: int
    together: float

    @classmethod
    def measured(cls, setup: Setup) -> Baselines:
        counts = sorted({1, setup.processes * setup.threads})
        rates = {n: in_processes(baseline_rate, setup, [(n,)])[0] for n in counts}
        threads, rate = max(rates.items(), key=lambda item: item[1])
        if setup.processes == 1:
            return cls(rate, threads, rate)
        return cls(rate, threads, sum(in_processes(baseline_rate, setup, [(setup.threads,)] * setup.processes)))


def about(setup: Setup) -> dict[str, Any]:
    """What was run, on what, with which versions."""
    return {
        "rung": setup.rung,
        "device": setup.device,
        "batch": setup.batch,
        "processes": setup.processes,
        "threads": setup.threads,
        "seconds": setup.seconds,
        "compiled": setup.compiled,
        "hardware": torch.cuda.get_device_name() if setup.device == "cuda" else processor(),
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


class OneLineParser(argparse.ArgumentParser):
    """Wrong use is one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def parse(words: Sequence[str] | None) -> tuple[Setup, list[int], Path | None]:
    """The setup, the numbers of seeds, and where the JSON goes."""
    parser = OneLineParser(
        prog="python -m benchmarks.throughput", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rung", default="57p")
    parser.add_argument("--seeds", default="1,8,16", help="numbers of seeds, a row each")
    parser.add_argument("--processes", type=int, default=1, help="that share the seeds")
    parser.add_argument("--threads", type=int, help="of each process (default: the cores divided by them)")
    parser.add_argument("--batch", type=int, help="problems in a step (default: the recipe's)")
    parser.add_argument("--seconds", type=float, default=20.0, help="that a row's speed is measured for")
    parser.add_argument("--eager", action="store_true", help="without compiling, to try the benchmark out")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(words)
    try:
        seeds = [int(n) for n in args.seeds.split(",")]
    except ValueError:
        parser.error(f"--seeds must be whole numbers with commas between them, got {args.seeds}")
    threads = args.threads if args.threads is not None else max(usable_cores() // max(args.processes, 1), 1)
    batch = args.batch if args.batch is not None else Recipe().batch
    setup = Setup(args.rung, args.device, batch, args.processes, threads, args.seconds, not args.eager)
    if problem := wrong(setup, seeds, args.json):
        parser.error(problem)
    return setup, seeds, args.json


def wrong(setup: Setup, seeds: Sequence[int], target: Path | None) -> str | None:
    """Why a run is impossible, or None; before minutes are spent on it."""
    try:
        preset(setup.rung), Recipe(batch=setup.batch)
    except ValueError as error:
        return str(error)
    if setup.processes < 1 or setup.threads < 1 or not 0 < setup.seconds < float("inf"):
        return "--processes, --threads and --seconds must be above 0"
    if min(seeds) < setup.processes:
        return f"--seeds must give each of {setup.processes} processes one or more, got {min(seeds)}"
    if setup.device == "cuda" and not torch.cuda.is_available():
        return "--device cuda: torch finds no CUDA device"
    if setup.compiled and (missing := missing_for_compilation()):
        return f"compiling needs {missing}; --eager does without"
    if target and (target.is_dir() or not target.parent.is_dir()):
        return f"--json {target}: is a folder, or its folder does not exist"
    return None


def main(words: Sequence[str] | None = None, sizes: ceilings.Sizes | None = None) -> None:
    """`sizes`: of the ceilings' arrays, instead of those that the device needs."""
    setup, numbers, target = parse(words)
    best_of_each = in_processes(ceilings_of, setup, [(sizes,)] * setup.processes)
    best = {name: sum(each[name] for each in best_of_each) for name in best_of_each[0]}
    print("ceilings: " + ", ".join(f"{name} {value:,.1f}" for name, value in best.items()), flush=True)
    rates = Baselines.measured(setup)
    said = f"{rates.one:,.0f} steps/s, one seed, threads: {rates.threads}; at once {rates.together:,.0f}"
    print(f"baseline: {said}", flush=True)
    rows: list[dict[str, Any]] = []
    for seeds in numbers:
        rows.append(compared(measure(setup, seeds), setup, rates, best))
        print(line(rows[-1]), flush=True)
        if target:
            run = {**about(setup), "baseline_threads": rates.threads, "ceilings": best, "rows": rows}
            target.write_text(json.dumps(run, indent=2) + "\n")


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    cold, warm = row["compile_cold_s"], row["compile_warm_s"]
    each = ((name, row[f"{name}_of_ceiling"]) for name in ("gflops_per_s", "gexps_per_s", "gbytes_per_s"))
    return "; ".join(
        [
            f"{row['seeds']} seeds: {row['ours_seed_steps_per_s']:,.0f} seed-steps/s ({row['measured_by']})",
            f"{row['ratio']:,.1f} x baseline ({row['ratio_together']:,.1f} x as many at once)",
            "eager" if cold is None else f"compiled in {cold:.0f} s, from the cache in {warm:.1f} s",
            ", ".join(f"{part} {row[part]:.1%}" for part in (*PARTS, "kernel") if row[part] is not None),
            f"{row['peak_memory_bytes'] / 1e6:,.0f} MB",
            f"of the arithmetic {row['of_arithmetic']:.0%}",
            "of the ceilings: " + ", ".join(f"{name} {share:.2%}" for name, share in each),
        ]
    )


if __name__ == "__main__":
    main()
