"""Keep the accepted set of candidates.csv with the fewest numbers as a certificate, its smallest margin raised.

    PYTHONPATH=. python lab/2026-11-26-five-and-eleven/keep.py 12p-inside 11p-inside
    PYTHONPATH=. python lab/2026-11-26-five-and-eleven/keep.py 12p-one-run 10p-inside "11 of 12p-one-run"

Parent, name, and the steps after the first. Where there are steps, the margin's programmes have 5 rounds.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pandas as pd
import torch
from judge import spec_of
from search_sets import CERTIFICATES, TABLE, parent_of

from adders.curvature.minimise import Task
from adders.curvature.pool import Cost
from adders.finishing import margin as programmes
from adders.proof.prover import prove
from model.verdict import PROVED
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files.installed import code_version


def accepted(rows: pd.DataFrame) -> pd.Series:
    return rows[rows["verdict"] == PROVED].sort_values(["numbers", "margin"]).iloc[0]


def main(parent: str, name: str, *steps: str) -> None:
    torch.set_num_threads(1)
    rows = pd.read_csv(TABLE)
    rows = rows[rows["parent"].isin([parent, *steps]) & ~rows["kind"].str.startswith("descent")]
    chosen = [accepted(rows[rows["parent"] == step]) for step in (parent, *steps)]
    base = parent_of(parent)[0]
    for row in chosen:
        spec, _ = spec_of(base, tuple(json.loads(row["labels"])))
        base = spec.base
    start_P = torch.tensor(json.loads(row["theta"]), dtype=torch.float64)
    programmes.ROUNDS = 5 if steps else programmes.ROUNDS
    theta_P = programmes.margin(Task(spec, 1, 0, Cost()), start_P).float()
    proof = prove(spec, theta_P)
    print(proof.verdict, proof.level, proof.margin, proof.pair, theta_P.tolist(), flush=True)
    assert proof.verdict == PROVED
    origin = Checkpoint.load(CERTIFICATES / parent)
    provenance = {
        "trained": "from a parent", "moved_from": origin.as_origin(),
        "constraints_added": [row["ties_added"] for row in chosen],
        "sets_tried": len(rows), "finished_by": "margin", "script": "lab/2026-11-26-five-and-eleven",
    }  # fmt: skip
    metrics = {"own_problems_wrong": 0}
    replace(origin, spec=spec, theta_P=theta_P, metrics=metrics, provenance=provenance, code=code_version()).save(
        CERTIFICATES / name
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
