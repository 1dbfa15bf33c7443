"""The page's pilots: `python pilots.py NAME ...` trains seeds 1 to 4 of each and prints what they came to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from own_modules import load_module
from trainer import Bank, Pair, Recipe, Seed

FILE = Path(__file__).with_name("net.py")
RECIPE = {
    "batch": 128, "eval_every": 1_000, "hold": 0, "lr": 0.01, "lr_floor": 0.05, "warmup": 500, "weight_decay": 0.01,
    "carry_mix": 0.0, "curriculum": ((3, 2_000), (6, 5_000)), "mixed_lengths": 1.0,
}  # fmt: skip
SLOWER = {"lr": 0.003, "carry_mix": 0.3}
WIDER = {"steps": 30_000, "lr": 0.005, "carry_mix": 0.3, "curriculum": ((3, 4_000), (6, 10_000)), "mixed_lengths": 0.5}
PILOTS: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    # name: the net's arguments, digits, changes of the recipe
    "three digits": ({}, 3, {"steps": 6_000, **SLOWER, "curriculum": (), "mixed_lengths": 0.0}),
    "a fifth of mixed lengths": ({}, 10, {"steps": 20_000, **SLOWER, "mixed_lengths": 0.2}),
    "lengths always drawn": ({}, 10, {"steps": 30_000}),
    "wider": ({"width": 24, "hidden": 64}, 10, WIDER),
}


def main(*names: str) -> None:
    torch.set_num_threads(1)
    for name in names or PILOTS:
        args, digits, changes = PILOTS[name]
        task = f"subtraction digits={digits} units_first=true"
        spec = load_module(f"{FILE}:Net", args | {"length": 3 * digits + 3}, task)
        recipe = Recipe(**RECIPE | changes)
        bank = Bank(spec, [Pair(recipe, Seed.of(seed)) for seed in range(1, 5)])
        while bank.advance():
            pass
        for n in range(4):
            its = bank.result(n)
            print(name, spec.params, n + 1, its.outcome.value, its.steps, its.best_token, its.best_exact, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
