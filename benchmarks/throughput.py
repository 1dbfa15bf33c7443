"""Seed-steps/s of a bank, sampling and evaluation included, against the published way of training.

    python -m benchmarks.throughput [--device cpu] [--rung 57p] [--seeds 1,8,16] [--processes 1] [--json FILE]

With `--processes 2` the seeds are split over processes of one thread each, as a study's trials are.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import platform
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.baseline import steps_per_s
from model import rung
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoint import code_version

WARM_EVALUATIONS, SECONDS = 1, 20.0


def train(rung_name: str, seeds: int, device: str, threads: int, barrier: Any) -> dict[str, float]:
    """One process: compile, wait for the others, train for SECONDS."""
    torch.set_num_threads(threads)
    pairs = [Pair(Recipe(), Seed.of(777 + n)) for n in range(seeds)]
    bank = Bank(rung(rung_name), pairs, device=device)
    for _ in range(WARM_EVALUATIONS):
        bank.advance()
    if barrier is not None:
        barrier.wait()
    start, before = time.perf_counter(), bank.seed_steps
    while time.perf_counter() - start < SECONDS:
        bank.advance()
    elapsed = time.perf_counter() - start
    parts = shares(bank)
    return {"rate": (bank.seed_steps - before) / elapsed, "compile_s": bank.programs.compile_s, **parts}


def shares(bank: Bank) -> dict[str, float]:
    """Seconds of sampling, training and evaluation between two evaluations, each timed alone."""
    programs, blocks = bank.programs, bank.eval_every // bank.programs.block
    tokens = programs.make_block(bank.state, bank.hyper)

    def timed(call: Any, repeat: int) -> float:
        start = time.perf_counter()
        for _ in range(repeat):
            call()
        if bank.device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / repeat

    sampling = timed(lambda: programs.make_block(bank.state, bank.hyper), 10) * blocks
    step = timed(lambda: programs.train_step(bank.state, bank.hyper, tokens[0]), 100) * bank.eval_every
    evaluation = timed(lambda: programs.evaluate(bank.state["theta"]), 5)
    total = sampling + step + evaluation
    return {"sampling": sampling / total, "step": step / total, "evaluation": evaluation / total}


def _child(queue: Any, *args: Any) -> None:
    queue.put(train(*args))


def measure(rung_name: str, seeds: int, device: str, processes: int) -> dict[str, Any]:
    """Seeds split evenly over processes; with one process it has all the cores."""
    if processes == 1:
        results = [train(rung_name, seeds, device, os.cpu_count() or 1, None)]
    else:
        context = mp.get_context("spawn")
        queue, barrier = context.Queue(), context.Barrier(processes)
        args = (queue, rung_name, seeds // processes, device, 1, barrier)
        children = [context.Process(target=_child, args=args) for _ in range(processes)]
        for child in children:
            child.start()
        results = [queue.get() for _ in children]
        for child in children:
            child.join()
    row: dict[str, Any] = {"seeds": seeds, "processes": processes}
    row["ours_seed_steps_per_s"] = sum(r["rate"] for r in results)
    return row | {name: max(r[name] for r in results) for name in results[0] if name != "rate"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rung", default="57p")
    parser.add_argument("--seeds", default="1,8,16")
    parser.add_argument("--processes", type=int, default=1, help="of one thread each")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    baseline = steps_per_s(rung(args.rung), SECONDS / 2)
    print(f"baseline: {baseline:.0f} steps/s, one seed")
    rows = []
    for seeds in map(int, args.seeds.split(",")):
        row = measure(args.rung, seeds, args.device, args.processes)
        row["baseline_seed_steps_per_s"] = baseline
        row["ratio"] = row["ours_seed_steps_per_s"] / baseline
        rows.append(row)
        speed = f"{row['ours_seed_steps_per_s']:,.0f} seed-steps/s, {row['ratio']:.0f} x baseline"
        parts = ", ".join(f"{part} {row[part]:.1%}" for part in ("sampling", "step", "evaluation"))
        print(f"{seeds} seeds: {speed}; compiled in {row['compile_s']:.0f} s; {parts}")
    about = {
        "rung": args.rung,
        "device": torch.cuda.get_device_name() if args.device == "cuda" else platform.machine(),
        "cores": os.cpu_count(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "code": code_version(),
    }
    if args.json:
        args.json.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
