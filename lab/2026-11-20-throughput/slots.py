"""Seeds resolved per hour with and without refilled slots.

    python lab/2026-11-20-throughput/slots.py [--rung 57p] [--seeds 64] [--slots 16] [--steps 60000] [--json FILE]

The same seeds twice, at the same time, a core each: one bank whose free slots take the next seed at once, and
banks of `slots` seeds one after another, each of which waits for its slowest. Both give up hopeless seeds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from model import preset
from trainer import FUTILITY_RULE, Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import code_version

Row = dict[str, Any]


def resolve(rung_name: str, pairs: list[Pair], slots: int, refill: bool, compiled: bool = True) -> Row:
    """Train all pairs to their outcomes. The hours leave compilation out."""
    torch.set_num_threads(1)
    chunks = [pairs] if refill else [pairs[i : i + slots] for i in range(0, len(pairs), slots)]
    outcomes: Counter[str] = Counter()
    seconds, taken, offered = 0.0, 0, 0
    for chunk in chunks:
        bank = Bank(preset(rung_name), chunk, slots=slots, compiled=compiled, futility=FUTILITY_RULE)
        start = time.perf_counter()
        while bank.advance():
            offered += bank.slots * bank.eval_every
        seconds += time.perf_counter() - start
        taken += bank.seed_steps
        outcomes.update(bank.result(n).outcome.value for n in range(len(chunk)))
    return {
        "refill": refill,
        "outcomes": dict(outcomes),
        "hours": seconds / 3600,
        "seeds_per_hour": len(pairs) / seconds * 3600,
        "slots_live": taken / offered,
    }


def _child(queue: Any, *args: Any) -> None:
    queue.put(resolve(*args))


def measure(*args: Any) -> list[Row]:
    """With and without refill, in two processes at the same time."""
    context = mp.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=_child, args=(queue, *args, refill)) for refill in (False, True)]
    for child in children:
        child.start()
    rows = sorted((queue.get() for _ in children), key=lambda row: row["refill"])
    for child in children:
        child.join()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rung", default="57p")
    parser.add_argument("--seeds", type=int, default=64, help="from 777 on")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60_000, help="budget of a seed")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    recipe = Recipe(steps=args.steps)
    rows = measure(args.rung, [Pair(recipe, Seed.of(777 + n)) for n in range(args.seeds)], args.slots)
    for row in rows:
        kind = "refilled" if row["refill"] else "not refilled"
        outcomes = ", ".join(f"{count} {name}" for name, count in row["outcomes"].items())
        print(
            f"{kind}: {row['seeds_per_hour']:,.0f} seeds/hour ({row['hours'] * 60:.1f} min), "
            f"{row['slots_live']:.0%} of the slots live; {outcomes}"
        )
    without, refilled = (row["seeds_per_hour"] for row in rows)
    print(f"refilled slots resolve {refilled / without:.2f} times as many seeds per hour")
    if args.json:
        settings = {k: v for k, v in vars(args).items() if k != "json"}
        args.json.write_text(json.dumps({**settings, "code": code_version(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
