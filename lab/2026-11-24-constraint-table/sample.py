"""Train recorded rows drawn at random again, without the finish by curvature, and print both results.

PYTHONPATH=. python lab/2026-11-24-constraint-table/sample.py

These are the rows that were trained with denormals as 0; with ADDER_SEARCH_DENORMALS=kept those with them kept.
"""

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from search.study.file import load_study
from search.study.trial import Configuration
from trainer import Bank, Pair, Seed

ROWS, DRAW, COUNT = Path(__file__).with_name("so-far.parquet"), 20261126, 16
ENDED = ("grokked", "failed", "screened")


def drawn() -> pd.DataFrame:
    rows = pd.read_parquet(ROWS).query("outcome in @ENDED").sort_values(["configuration", "init_seed"])
    return rows.iloc[random.Random(DRAW).sample(range(len(rows)), COUNT)]


def main() -> None:
    torch.set_num_threads(1)
    study, kept = load_study("constraints"), os.environ.get("ADDER_SEARCH_DENORMALS") == "kept"
    configurations = {c.key: c for c in (Configuration(*listed) for listed in study.listed)}
    for row in drawn().itertuples():
        environment = json.loads(row.environment) if isinstance(row.environment, str) else row.environment
        if (environment.get("denormals") != "0") != kept:
            continue
        configuration, seed = configurations[row.configuration], Seed(int(row.init_seed), int(row.data_seed))
        recipe = replace(configuration.recipe, finish_above=1.0)
        bank = Bank(configuration.spec, [Pair(recipe, seed, rungs=study.stop.rungs)])
        while bank.advance():
            pass
        again = bank.result(0)
        for name, one in (("recorded", row), ("again", again)):
            print(
                row.params,
                seed,
                name,
                one.outcome,
                one.steps,
                f"{one.best_exact:.4f} {one.best_token:.6f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
