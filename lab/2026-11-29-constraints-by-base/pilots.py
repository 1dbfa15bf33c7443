"""Pilots: does the recipe of the table of constraints train other sums? Adds rows to pilots.csv.

python pilots.py [FIRST STEP]

FIRST STEP: every STEP-th pilot, from FIRST on, so that two can train side by side.
"""

from __future__ import annotations

import csv
import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch
import yaml
from make import ANY_BASE, TABLE  # beside this file

from model import make_spec, preset
from trainer import Bank, Pair, Recipe, Seed

FILE = Path(__file__).with_name("pilots.csv")
COLUMNS = ["preset", "task", "equals", "seed", "outcome", "steps", "best_token", "best_exact"]
SEEDS = range(1, 17)
TASKS: tuple[dict[str, Any], ...] = (
    {"name": "addition"},
    {"name": "addition", "base": 2},
    {"name": "addition", "base": 3},
    {"name": "addition", "base": 5},
    {"name": "addition", "base": 7},
    {"name": "addition", "terms": 3},
)
FREE = {"init": (), "lr_factors": ()}
"""EQUALS anywhere: where it is put is of base ten."""


def pilots() -> list[tuple[str, dict[str, Any], bool]]:
    """Return presets, tasks, and whether EQUALS starts where it does in base ten."""
    return list(product(("67p",), TASKS, (True, False)))


def recipe_of(scale: str, is_placed: bool) -> Recipe:
    """Return the table's recipe of a scale, without the finish."""
    study = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    values = study["recipe"] | study["scales"][scale].get("recipe", {}) | ANY_BASE
    return Recipe(**(values if is_placed else values | FREE))


def rows(scale: str, task: dict[str, Any], is_placed: bool) -> list[list[Any]]:
    """Train the seeds of a pilot."""
    spec = make_spec(**preset(scale).as_dict() | {"task": task})
    recipe = recipe_of(scale, is_placed)
    bank = Bank(spec, [Pair(recipe, Seed.of(seed)) for seed in SEEDS])
    while bank.advance():
        pass
    facts = [scale, str(spec.task), "placed" if is_placed else "anywhere"]
    results = [bank.result(n) for n in range(len(SEEDS))]
    return [
        [*facts, seed, its.outcome.value, its.steps, f"{its.best_token:.3f}", f"{its.best_exact:.4f}"]
        for seed, its in zip(SEEDS, results, strict=True)
    ]


def main(first: str = "0", step: str = "1") -> None:
    torch.set_num_threads(1)
    done = set()
    if FILE.exists():
        with FILE.open(newline="") as file:
            done = {(row["preset"], row["task"], row["equals"]) for row in csv.DictReader(file)}
    for scale, task, is_placed in pilots()[int(first) :: int(step)]:
        name = str(make_spec(**preset(scale).as_dict() | {"task": task}).task)
        if (scale, name, "placed" if is_placed else "anywhere") in done:
            continue
        trained = rows(scale, task, is_placed)
        is_new = not FILE.exists()
        with FILE.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([COLUMNS, *trained] if is_new else trained)
        grokked = sum(row[4] == "grokked" for row in trained)
        print(scale, name, is_placed, grokked, "of", len(trained), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
