"""Finish seeds that ended nearly right, by one method each: a line each in finished.csv. Lines that are there stay.

    PYTHONPATH=. python lab/2026-11-26-margin-finish/finish_seeds.py lbfgs margin

parents.parquet has the plan's parents and their θ, from the home in which law-large was trained.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import torch

from lab.finished import finished_row
from model import preset

HERE = Path(__file__).parent
PARENTS, TABLE = HERE / "parents.parquet", HERE / "finished.csv"
LIMIT_S = 60
TURNS = {"lbfgs": 3, "margin": 1}


def row(parent: pd.Series, method: str) -> dict[str, object]:
    spec, theta_P = preset(f"{parent.params}p"), torch.tensor(parent.theta.tolist())
    about = {
        "init_seed": parent.init_seed, "params": parent.params, "exact": round(parent.exact, 4), "method": method,
    }  # fmt: skip
    return about | finished_row(spec, theta_P, method, TURNS[method], LIMIT_S)


def main(methods: list[str]) -> None:
    torch.set_num_threads(1)
    lines = pd.read_csv(TABLE).to_dict("records") if TABLE.exists() else []
    done = {(line["init_seed"], line["params"], line["method"]) for line in lines}
    for method in methods:
        for _, parent in pd.read_parquet(PARENTS).iterrows():
            if (parent.init_seed, parent.params, method) not in done:
                lines.append(row(parent, method))
                pd.DataFrame(lines).to_csv(TABLE, index=False, lineterminator="\n")
                print(*lines[-1].values(), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
