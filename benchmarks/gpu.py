"""What a GPU does of what CPUs do: the same tokens and losses? how fast, in how much memory, after how long?

    benchmarks/gpu.sh [--minutes 10] [--only correctness,throughput] [--json FILE] [--rehearse]

A part is a process of its own with a limit of its own, and prints a line of JSON for each finding. One that
fails or is out of time leaves what it had found, and the others run. Programs are compiled first, many at
once, into the user's cache; then one part runs after another, until the minutes are over. The file is written
after each part; a later run with the same file keeps the parts that it does not run itself. `--rehearse`: all
of it on a CPU, eager and tiny.

    compile      seconds to make a bank's programs; other parts take them from the cache
    correctness  tokens bit for bit, losses of the first steps and evaluations against the CPU's
    throughput   seed-steps/s with and without CUDA graphs, memory
    quarters     one process with all seeds against four with a quarter each, at once
    precision    TF32 and bfloat16: the same throughput, and the losses of the first steps
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from benchmarks import throughput
from benchmarks.gpu_parts import KINDS, Part, findings, tiny

LIMITS = {"compile": 300, "correctness": 120, "throughput": 60, "quarters": 120, "precision": 90}
"""Seconds of a part."""
FEWEST_S = 15.0  # left of the minutes: less starts nothing
AT_ONCE = 8  # programs that are compiled at the same time, a process each
BATCH = {"456p": 512}
ROUNDS = [
    [("57p", n) for n in (64, 1024, 4096, 8192)],
    [(name, n) for name in ("170p", "456p") for n in (64, 1024, 8192)] + [("57p", 256)],
]
"""What is measured, what matters most first."""
PRECISIONS = [("456p", 1024, "tf32"), ("456p", 1024, "bf16"), ("57p", 1024, "bf16")]


def plan() -> list[list[Part]]:
    """Parts in the order in which they run; those of a list of compilations run at once."""
    stages: list[list[Part]] = []
    for n, shapes in enumerate(ROUNDS):
        stages.append([part("compile", *shape) for shape in shapes])
        first = [part("correctness", name, seeds) for name, seeds in shapes if seeds == 64]
        stages.append(first + [part("throughput", *shape) for shape in shapes])
        stages[-1] += [part("quarters", "57p", 4096)] if n == 0 else []
    stages.append([part("compile", *shape) for shape in PRECISIONS])
    return [*stages, [part("precision", *shape) for shape in PRECISIONS]]


def part(kind: str, name: str, seeds: int, precision: str = "float32") -> Part:
    return Part(kind, name, seeds, BATCH.get(name, 256), precision)


def run(words: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Run a program that prints a line of JSON for each finding. Never raises for what the program does.

    `ended`: "done", "failed" or "out of time"; `said`: the end of what it wrote to stderr, unless it is done.
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(words, stdout=out, stderr=err, start_new_session=True)
        try:
            ended = "failed" if process.wait(limit_s) else "done"
        except subprocess.TimeoutExpired:
            ended = "out of time"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it had started
            process.wait()
        out.seek(0), err.seek(0)
        found = [row for row in map(_row, out) if row is not None]
        said = [] if ended == "done" else err.read().splitlines()[-12:]
    return {"ended": ended, "seconds": time.perf_counter() - start, "findings": found, "said": said}


def _row(line: str) -> dict[str, Any] | None:
    """A line that is a finding."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def command(asked: Part) -> list[str]:
    how = ["--rehearse"] if asked.rehearsed else []
    return [sys.executable, "-m", "benchmarks.gpu", "--part", asked.name, *how]


def about(device: str) -> dict[str, Any]:
    """The machine and the versions."""
    cuda = device == "cuda"
    setup = throughput.Setup("57p", device, 256, 1, torch.get_num_threads(), 3.0, cuda)
    general = throughput.about(setup)
    for name in ("rung", "batch", "processes", "threads", "seconds", "compiled"):
        del general[name]
    if not cuda:
        return general
    card = torch.cuda.get_device_properties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version,power.limit,clocks.max.sm", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    more = {"cuda": torch.version.cuda, "multiprocessors": card.multi_processor_count, "driver": driver}
    return {**general, **more, "gpu_memory_bytes": card.total_memory, "triton": _triton()}


def _triton() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)


def main(words: Sequence[str] | None = None) -> None:
    parser = throughput.OneLineParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", help="kinds of parts, commas between them: " + ", ".join(KINDS))
    parser.add_argument("--json", type=Path, default=Path("gpu.json"))
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, eager and tiny")
    parser.add_argument("--part", help="one part, in this process: its findings as lines")
    args = parser.parse_args(words)
    only = set((args.only or ",".join(KINDS)).split(","))
    if not only <= KINDS.keys():
        parser.error(f"--only: {', '.join(sorted(only - KINDS.keys()))}: there is {', '.join(KINDS)}")
    if not args.rehearse and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; --rehearse does without")
    stages = plan() if not args.rehearse else [[tiny(p) for p in stage] for stage in plan()]
    if not args.part:
        every(stages, only, args.json, "cpu" if args.rehearse else "cuda", args.minutes * 60)
        return
    asked = {p.name: p for stage in stages for p in stage}
    if args.part not in asked:
        parser.error(f"--part {args.part}: there is {', '.join(asked)}")
    for row in findings(asked[args.part]):
        print(json.dumps(row), flush=True)


def every(stages: list[list[Part]], only: set[str], target: Path, device: str, seconds: float) -> None:
    """Run the parts and write the file after each."""
    end, parts = time.perf_counter() + seconds, _before(target)
    whole = {"about": about(device), "rehearsed": device == "cpu", "parts": parts}
    one_at_a_time = Lock()

    def do(asked: Part) -> None:
        left = end - time.perf_counter()
        if left < FEWEST_S:
            found = parts.get(asked.name, {"ended": "not reached", "findings": []})
        else:
            found = run(command(asked), min(LIMITS[asked.kind], left))
        with one_at_a_time:
            parts[asked.name] = found
            print(line(asked.name, found), flush=True)
            target.write_text(json.dumps(whole, indent=1) + "\n")

    for stage in stages:
        wanted = list({p.name: p for p in stage if p.kind in only}.values())
        together = AT_ONCE if wanted and wanted[0].kind == "compile" else 1
        with ThreadPoolExecutor(max(min(together, throughput.cores() // 2), 1)) as pool:
            list(pool.map(do, wanted))


def _before(target: Path) -> dict[str, Any]:
    """The parts that are in the file already."""
    try:
        return dict(json.loads(target.read_text())["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def line(name: str, found: dict[str, Any]) -> str:
    """A part for people."""
    said = [f"{name}: {found['ended']}" + (f" in {found['seconds']:.0f} s" if "seconds" in found else "")]
    for row in found["findings"]:
        asked = {"kind", "rung", "seeds", "batch", "precision"}
        said.append("  " + ", ".join(f"{k} {_short(v)}" for k, v in row.items() if k not in asked))
    return "\n".join([*said, *(f"  | {text}" for text in found.get("said", [])[-3:])])


def _short(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
