"""Train the atlas's one combination that groks by the finish alone again, all its seeds, into finish-again.csv.

    PYTHONPATH=. python lab/2026-11-24-atlas/finish_again.py

`was` and `was_exact` are the atlas's. No seed is ended early but by the study's screen.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

from search.study.file import load_study
from search.study.trial import Configuration
from trainer import Bank, Pair, Seed

HERE = Path(__file__).parent
COMBINATION = "21e0440a0f2b"


def main() -> None:
    torch.set_num_threads(1)
    study = load_study("atlas")
    configuration = next(c for listed in study.listed if (c := Configuration(*listed)).key == COMBINATION)
    recorded = pd.read_parquet(HERE / "atlas-seeds.parquet").query("configuration == @COMBINATION")
    recorded = recorded.sort_values("init_seed")
    seeds = [Seed(int(row.init_seed), int(row.data_seed)) for row in recorded.itertuples()]
    pairs = [Pair(configuration.recipe, seed, rules=study.stop.rules) for seed in seeds]
    bank = Bank(configuration.trained, pairs)
    while bank.advance():
        pass
    results = [bank.result(n) for n in range(len(pairs))]
    table = pd.DataFrame(
        {
            "init_seed": [seed.init_seed for seed in seeds],
            "was": recorded["outcome"].tolist(),
            "was_exact": recorded["best_exact"].round(4).tolist(),
            "outcome": [r.outcome.value for r in results],
            "best_exact": [round(r.best_exact, 4) for r in results],
            "best_step": [r.best_step for r in results],
        }
    )
    table.to_csv(HERE / "finish-again.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
