"""Finish seeds that ended nearly right, by each method: a line each in finished.csv. Lines that are there stay.

PYTHONPATH=. python lab/2026-11-26-margin/finish_seeds.py FOLDER METHODS [METHODS ...]

FOLDER: checkpoints of `lab/scripts/again.py`. METHODS: names with commas between them, in order.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import torch

from model import verify
from model.proof.prover import prove
from search.compress.acceptance import AcceptanceSet
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.finishing.finish import finish

TABLE = Path(__file__).parent / "finished.csv"
LOW, HIGH = 0.9, 0.9999
LIMIT_S = 60


def row(checkpoint: Checkpoint, methods: str) -> dict[str, object]:
    spec, exam = checkpoint.spec, AcceptanceSet(checkpoint.spec)
    done = finish(spec, checkpoint.theta_P, exam.errors, methods.split(","))
    proof = prove(spec, done.theta_P, limit_s=LIMIT_S)
    return {
        "configuration": checkpoint.provenance["configuration"], "seed": checkpoint.seed["init_seed"],
        "exact": round(checkpoint.metrics["best_exact"], 4), "methods": methods, "wrong_before": done.before,
        "wrong": done.wrong, "by": done.by or "", "right": verify(spec, done.theta_P).correct,
        "verdict": proof.verdict, "level": proof.level, "margin": f"{proof.margin:.4g}",
        "turns": len(done.turns), "cpu_s": f"{sum(t.cpu_s for t in done.turns):.1f}",
    }  # fmt: skip


def main(folder: Path, orders: list[str]) -> None:
    torch.set_num_threads(1)
    lines = pd.read_csv(TABLE, dtype=object).to_dict("records") if TABLE.exists() else []
    done = {(line["configuration"], line["seed"], line["methods"]) for line in lines}
    for path in sorted(folder.iterdir(), key=lambda path: path.name.partition("-")[::-1]):
        parent = Checkpoint.load(path)
        for methods in orders:
            key = (parent.provenance["configuration"], str(parent.seed["init_seed"]), methods)
            if LOW <= parent.metrics["best_exact"] <= HIGH and key not in done:
                lines.append(row(parent, methods))
                pd.DataFrame(lines, dtype=object).to_csv(TABLE, index=False, lineterminator="\n")
                print(*lines[-1].values(), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
