"""What it costs to save a bank, and what is left of one that is killed.

    python lab/2026-11-20-reliability/resume.py [--slots 1024] [--kills 20] [--json FILE]

Saving: 57p, a full curve for every seed, one file with its checksum, flushed to the disk. Kills: a small
eager bank in a process of its own that saves after every evaluation is sent SIGKILL at random instants;
whoever comes after it goes on from the last state, and every θ and curve must be bit for bit those of a bank
that nobody disturbed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from model import preset
from trainer import FUTILITY_RULE, Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import code_version

SMALL = Recipe(steps=60, batch=16, eval_every=3, warmup=10, curriculum=((3, 20),))
SEEDS, SLOTS = 6, 4
LONGEST_S = 2.0  # that a process lives after its first save


def save_s(slots: int, repeat: int = 20) -> tuple[float, float, int]:
    """Median and largest seconds to save a bank of so many slots, and the file's size in bytes."""
    bank = Bank(
        preset("57p"), [Pair(Recipe(), Seed.of(n)) for n in range(slots)], compiled=False, futility=FUTILITY_RULE
    )
    bank.tracker.records["curve"].normal_()  # numbers that do not compress
    with tempfile.TemporaryDirectory() as folder:
        path, times = Path(folder) / "bank.state", []
        for _ in range(repeat):
            start = time.perf_counter()
            bank.save(path)
            times.append(time.perf_counter() - start)
        return statistics.median(times), max(times), path.stat().st_size


def small_bank() -> Bank:
    pairs = [Pair(SMALL, Seed.of(n)) for n in range(SEEDS)]
    return Bank(preset("57p"), pairs, slots=SLOTS, compiled=False, futility=FUTILITY_RULE)


def train(path: Path) -> None:
    """Go on from `path` to the end, saving after every evaluation; the end is saved too."""
    torch.set_num_threads(1)
    bank = small_bank()
    bank.load(path)
    while bank.advance():
        bank.save(path)


def kill_at_random(path: Path, kills: int, rng: random.Random) -> None:
    """Train to the end through `kills` deaths, each at a random instant after the process has first saved.

    One that ends before it is killed makes room for a fresh start.
    """
    context, deaths = mp.get_context("spawn"), 0
    while deaths < kills:
        before = _written(path)
        child = context.Process(target=train, args=(path,))
        child.start()
        while child.is_alive() and _written(path) == before:
            time.sleep(0.01)
        child.join(rng.uniform(0, LONGEST_S))
        child.kill()
        child.join()
        deaths += child.exitcode != 0
        if child.exitcode == 0:
            for file in path.parent.glob(f"{path.name}*"):
                file.unlink()
    train(path)


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def is_seamless(path: Path) -> bool:
    """Whether the bank at `path` ended as one that nobody disturbed: θ, curves, outcomes."""
    found, expected = small_bank(), small_bank()
    found.load(path)
    while expected.advance():
        pass
    same = [
        torch.equal(a.theta_P, b.theta_P) and torch.equal(a.curve_EM, b.curve_EM) and a.outcome == b.outcome
        for a, b in ((found.result(n), expected.result(n)) for n in range(SEEDS))
    ]
    return all(same)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--slots", type=int, default=1_024)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    median, largest, size = save_s(args.slots)
    times = f"{median * 1e3:.0f} ms (at most {largest * 1e3:.0f})"
    print(f"saving {args.slots} seeds of 57p: {times}, {size:,} bytes")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bank.state"
        kill_at_random(path, args.kills, random.Random(0))
        seamless = is_seamless(path)
    joined = "join without a seam" if seamless else "DIFFER from an undisturbed bank's"
    print(f"{args.kills} kills: θ and curves {joined}")
    if args.json:
        row: dict[str, Any] = {"slots": args.slots, "median_s": median, "largest_s": largest, "bytes": size}
        row |= {"kills": args.kills, "seamless": seamless, "code": code_version()}
        args.json.write_text(json.dumps(row, indent=2) + "\n")
    raise SystemExit(not seamless)


if __name__ == "__main__":
    main()
