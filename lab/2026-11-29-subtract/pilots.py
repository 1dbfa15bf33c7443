"""Pilots: which net subtracts at all? Each line of PILOTS is a net, a task and a recipe, trained on some seeds.

python lab/2026-11-29-subtract/pilots.py NAME ...    # appends a row per seed to pilots.csv
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import torch

from model import make_spec, preset
from trainer import Bank, Pair, Recipe, Seed

FILE = Path(__file__).with_name("pilots.csv")
COLUMNS = ["pilot", "family", "params", "task", "seed", "outcome", "steps", "best_token", "best_exact"]

COSINE = {
    "steps": 60_000, "batch": 128, "eval_every": 1_000, "hold": 0, "lr": 0.01, "lr_floor": 0.1, "warmup": 0,
    "weight_decay": 0.01, "carry_mix": 0.3, "curriculum": (),
}  # fmt: skip
"""A cosine of the rate, by which 24 of 64 seeds of 122p learnt to add (rope-published), and some borrows."""
GPT = {
    "steps": 54_000, "batch": 512, "eval_every": 1_000, "hold": 0, "lr": 0.02, "warmup": 1_350, "weight_decay": 0.01,
    "curriculum": ((3, 2_000), (6, 5_000)), "mixed_lengths": 1.0, "carry_mix": 0.0,
}  # fmt: skip
"""That of the 456p report, by which 7 of 16 seeds of 763p learnt to add in half as many steps (claims-low-rank)."""
SIX = {
    "steps": 60_000, "batch": 128, "eval_every": 1_000, "hold": 0, "lr": 0.01, "lr_floor": 0.01, "warmup": 1_000,
    "beta2": 0.95, "weight_decay": 0.01, "wd_drop": 0.1, "wd_drop_exact": 0.02, "wd_drop_exact_final": 0.2,
    "wd_drop_token": 0.5, "carry_mix": 0.0, "curriculum": ((3, 2_000), (6, 5_000)), "grokfast_lambda": 2.0,
    "grokfast_end": 20_000, "targeted": 0.5,
    "init": tuple((name, "scaled", 15) for name in ("q", "k", "v", "gate", "up", "down")),
}  # fmt: skip
"""That of rope-six without new starts, in fewer steps: with eight units it made 17 of 32 seeds of 62p add."""
SHORT = {**GPT, "steps": 30_000, "batch": 128, "lr": 0.01, "curriculum": (), "mixed_lengths": 0.0}
MINUS, PLUS = {"name": "subtraction"}, {"name": "addition"}
PILOTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], int | tuple[int, ...]]] = {
    # name: net, task, recipe, how many seeds from 1 on, or which
    "rope two heads, 4 units": ({"preset": "122p", "heads": 2, "ffn": 4}, MINUS, COSINE, 8),
    "rope two heads, 8 units": ({"preset": "122p", "heads": 2, "ffn": 8}, MINUS, COSINE, 8),
    "rope one head, 8 units": ({"preset": "122p", "heads": 1, "ffn": 8}, MINUS, COSINE, 8),
    "rope one head, 8 units, adds": ({"preset": "122p", "heads": 1, "ffn": 8}, {"name": "addition"}, COSINE, 8),
    "rope two heads, 8 units, six": ({"preset": "122p", "heads": 2, "ffn": 8}, MINUS, SIX, 8),
    "228p, six": ({"preset": "228p"}, MINUS, SIX, 8),
    "rope two heads, 8 units, six, 3 digits": (
        {"preset": "122p", "heads": 2, "ffn": 8},
        {**MINUS, "digits": 3},
        {**SIX, "curriculum": ()},
        8,
    ),
    # An answer digit is 22 positions from X and 10 from Y, 12 apart. With base 3 these 12 are 1.91 turns of one pair
    # and 1.10 of the other: a head that sees X sees Y. With base 14.6 they are half a turn of the second.
    "base 14.6, two heads, 8 units, six": ({"preset": "122p", "heads": 2, "ffn": 8, "rope_base": 14.6}, MINUS, SIX, 8),
    "base 14.6, one head, 8 units, six": ({"preset": "122p", "heads": 1, "ffn": 8, "rope_base": 14.6}, MINUS, SIX, 8),
    "base 14.6, two heads, 8 units, six, 4 wide": (
        {"preset": "122p", "heads": 2, "ffn": 8, "width": 4, "rope_base": 14.6},
        MINUS,
        SIX,
        8,
    ),
    "rope two heads, 8 units, 4 wide, 2 digits": (
        {"preset": "122p", "heads": 2, "ffn": 8, "width": 4},
        {**MINUS, "digits": 2},
        {**SIX, "steps": 30_000, "grokfast_end": 10_000, "curriculum": ()},
        8,
    ),
    "rope two heads, 8 units, 4 wide, 2 digits, adds": (
        {"preset": "122p", "heads": 2, "ffn": 8, "width": 4},
        {"name": "addition", "digits": 2},
        {**SIX, "steps": 30_000, "grokfast_end": 10_000, "curriculum": ()},
        8,
    ),
    "two digits by a cosine, subtracts": (
        {"preset": "122p", "heads": 2, "ffn": 8, "width": 4},
        {**MINUS, "digits": 2},
        {**COSINE, "steps": 30_000},
        8,
    ),
    "763p, two digits, subtracts": ({"preset": "763p"}, {**MINUS, "digits": 2}, SHORT, 8),
    "two digits by a cosine, adds": (
        {"preset": "122p", "heads": 2, "ffn": 8, "width": 4},
        {**PLUS, "digits": 2},
        {**COSINE, "steps": 30_000},
        8,
    ),
    "763p, two digits, adds": ({"preset": "763p"}, {**PLUS, "digits": 2}, SHORT, 8),
    "763p, ten digits, mixed lengths": (
        {"preset": "763p"},
        MINUS,
        {**SHORT, "curriculum": ((3, 2_000), (6, 5_000)), "mixed_lengths": 1.0},
        8,
    ),
    # One head, but a position of its own for each digit of each number.
    "low_rank 12 wide, 32 units, 3 digits": (
        {"preset": "763p", "width": 12, "ffn": 32},
        {**MINUS, "digits": 3},
        {**GPT, "steps": 30_000, "batch": 128, "lr": 0.01, "curriculum": (), "mixed_lengths": 0.0},
        8,
    ),
    "low_rank 12 wide, 32 units": (
        {"preset": "763p", "width": 12, "ffn": 32},
        MINUS,
        {**GPT, "steps": 30_000, "batch": 128, "lr": 0.01},
        8,
    ),
    "763p": ({"preset": "763p"}, MINUS, GPT, 8),
    "base 14.6, two heads, 8 units, longer": (
        {"preset": "122p", "heads": 2, "ffn": 8, "rope_base": 14.6},
        MINUS,
        {**SIX, "steps": 200_000, "grokfast_end": 60_000},
        (3, 7),
    ),
    "rope two heads, 8 units, 3 digits, longer": (
        {"preset": "122p", "heads": 2, "ffn": 8},
        {**MINUS, "digits": 3},
        {**SIX, "steps": 200_000, "grokfast_end": 60_000, "curriculum": ()},
        (4, 6),
    ),
    # More units, in the width of the best one; then with borrows, and by a cosine of the rate.
    "base 14.6, two heads, 16 units, six": (
        {"preset": "122p", "heads": 2, "ffn": 16, "rope_base": 14.6},
        MINUS,
        SIX,
        8,
    ),
    "base 14.6, two heads, 16 units, six, borrows": (
        {"preset": "122p", "heads": 2, "ffn": 16, "rope_base": 14.6},
        MINUS,
        {**SIX, "carry_mix": 0.5},
        8,
    ),
    "base 14.6, two heads, 16 units, cosine": (
        {"preset": "122p", "heads": 2, "ffn": 16, "rope_base": 14.6},
        MINUS,
        COSINE,
        8,
    ),
    "base 14.6, two heads, 16 units, 8 wide": (
        {"preset": "122p", "heads": 2, "ffn": 16, "width": 8, "rope_base": 14.6},
        MINUS,
        COSINE,
        8,
    ),
    "base 14.6, four heads, 16 units, 5 wide": (
        {"preset": "122p", "heads": 4, "ffn": 16, "width": 5, "rope_base": 14.6},
        MINUS,
        SIX,
        8,
    ),
}


def rows(name: str) -> list[list[Any]]:
    """Train the seeds of a pilot."""
    net, task, recipe, count = PILOTS[name]
    seeds = range(1, count + 1) if isinstance(count, int) else count
    changes = {key: value for key, value in net.items() if key != "preset"}
    spec = make_spec(**preset(net["preset"]).as_dict() | changes | {"task": task})
    bank = Bank(spec, [Pair(Recipe(**recipe), Seed.of(seed)) for seed in seeds])
    while bank.advance():
        pass
    results = [bank.result(n) for n in range(len(seeds))]
    facts = [name, spec.family, spec.params, str(spec.task)]
    return [
        [*facts, seed, its.outcome.value, its.steps, f"{its.best_token:.3f}", f"{its.best_exact:.4f}"]
        for seed, its in zip(seeds, results, strict=True)
    ]


def main(*names: str) -> None:
    torch.set_num_threads(1)
    for name in names:
        trained = rows(name)
        is_new = not FILE.exists()
        with FILE.open("a", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([COLUMNS, *trained] if is_new else trained)
        print(name, [row[5:] for row in trained], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
