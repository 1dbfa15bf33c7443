"""Finish seeds that ended nearly right, by one method each: a line each in finished.csv. Lines that are there stay.

    PYTHONPATH=. python lab/2026-11-26-margin-finish/finish_seeds.py parents HOME
    PYTHONPATH=. python lab/2026-11-26-margin-finish/finish_seeds.py lbfgs margin

`parents` writes parents.parquet, the plan's parents and their θ, from the home in which law-large was trained.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pandas as pd
import torch

from model import preset, verify
from model.proof.prover import prove
from search.compress.acceptance import AcceptanceSet
from search.store.results import RESULTS, ConfigurationResults
from trainer.finishing.finish import finish

HERE = Path(__file__).parent
PARENTS, TABLE = HERE / "parents.parquet", HERE / "finished.csv"
LOW, COUNT, LIMIT_S = 0.5, 48, 60
TURNS = {"lbfgs": 3, "margin": 1}


def choose(home: Path) -> None:
    rows = []
    for path in sorted(home.rglob(RESULTS)):
        part = ConfigurationResults.read(path.parent)
        rows += [
            {
                "init_seed": r.pair.seed.init_seed, "params": part.trial.spec.params, "outcome": r.outcome.value,
                "exact": r.best_exact, "theta": r.theta_P.tolist(),
            }
            for r in part.results
        ]  # fmt: skip
    near = pd.DataFrame(rows).query("outcome == 'failed' and exact >= @LOW")
    near.sort_values(["init_seed", "params"])[:COUNT].to_parquet(PARENTS, index=False)


def row(parent: pd.Series, method: str) -> dict[str, object]:
    spec, theta_P = preset(f"{parent.params}p"), torch.tensor(parent.theta.tolist())
    exam, start = AcceptanceSet(spec), time.process_time()
    done = finish(spec, theta_P, exam.errors, [method], turns=TURNS[method])
    seconds, proof = time.process_time() - start, prove(spec, done.theta_P, limit_s=LIMIT_S)
    return {
        "init_seed": parent.init_seed, "params": parent.params, "exact": round(parent.exact, 4),
        "method": method, "wrong_before": done.before, "wrong": done.wrong,
        "right": verify(spec, done.theta_P).correct, "verdict": proof.verdict, "level": proof.level,
        "margin": f"{proof.margin:.4g}", "turns": len(done.turns), "cpu_s": round(seconds, 1),
    }  # fmt: skip


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
    if sys.argv[1] == "parents":
        choose(Path(sys.argv[2]))
    else:
        main(sys.argv[1:])
