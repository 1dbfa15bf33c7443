"""Train recorded seeds of a study, drawn at random, again on a CPU, and say whether they come out the same.

python lab/scripts/sample.py STUDY ROWS.parquet [--draw N] [--count N] [--denormals 0|kept] [--no-finish]

STUDY: a name or a file. --draw: the number that the draw is made of. --denormals: only rows of engines that treated
denormal numbers so; for `kept`, ADDER_SEARCH_DENORMALS=kept must be set. --no-finish: without the finish by curvature.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from search.study.file import load_study
from search.study.schema import Study
from search.study.trial import Configuration
from trainer import FUTILITY_RULE, Bank, Pair, Seed

ENDED = ("grokked", "failed", "screened")
COMPARED = ("outcome", "steps", "grok_step", "best_step", "best_exact", "best_token")


def drawn(path: str, draw: int, count: int) -> pd.DataFrame:
    rows = pd.read_parquet(path).query("outcome in @ENDED").sort_values(["configuration", "init_seed"])
    return rows.iloc[random.Random(draw).sample(range(len(rows)), count)]


def denormals_of(row: Mapping[str, Any]) -> str:
    environment = row["environment"]
    environment = json.loads(environment) if isinstance(environment, str) else environment
    return "0" if environment.get("denormals") == "0" else "kept"


def again(study: Study, row: Mapping[str, Any], finish: bool) -> tuple[Any, ...]:
    """Return what a row has under COMPARED, trained again."""
    configurations = (Configuration(*listed) for listed in study.listed)
    configuration = next(c for c in configurations if c.key == row["configuration"])
    recipe = configuration.recipe if finish else replace(configuration.recipe, finish_above=1.0)
    seed = Seed(int(row["init_seed"]), int(row["data_seed"]))
    bank = Bank(configuration.trained, [Pair(recipe, seed, rungs=study.stop.rungs)], futility=FUTILITY_RULE)
    while bank.advance():
        pass
    result = bank.result(0)
    return tuple(getattr(result, name) for name in COMPARED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("rows")
    parser.add_argument("--draw", type=int, default=20261127)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--denormals", choices=("0", "kept"))
    parser.add_argument("--no-finish", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    study, same = load_study(asked.study), []
    for row in drawn(asked.rows, asked.draw, asked.count).to_dict("records"):
        if asked.denormals not in (None, denormals_of(row)):
            continue
        recorded = tuple(None if pd.isna(row[name]) else row[name] for name in COMPARED)
        values = again(study, row, not asked.no_finish)
        same.append(recorded == values)
        print(
            row["title"],
            row["init_seed"],
            *recorded,
            "the same" if same[-1] else f"again: {values}",
            flush=True,
        )
    print(f"{sum(same)} of {len(same)} came out the same")


if __name__ == "__main__":
    main()
