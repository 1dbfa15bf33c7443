"""Prove what small.py left: `python lab/2026-11-29-small/prove.py BRANCH ...` adds what small-proofs.csv lacks."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from small import CERTIFICATES, HERE

from adders.proof import check
from adders.proof.file import proof_text
from adders.proof.prover import prove
from lab.scripts.table_file import append, read
from model.spec import Spec
from model.verdict import PROVED
from trainer.checkpoints.checkpoint import Checkpoint

PROOFS = HERE / "small-proofs.csv"
LIMIT_S = 60.0
ENDS = {"7": "7p", "6": "6p", "28": "28p", "10": "10p-inside"}


def judged(spec: Spec, theta_P: torch.Tensor) -> dict[str, Any]:
    """Return the prover's verdict, and whether check.py accepts it."""
    start = time.process_time()
    proof = prove(spec, theta_P, limit_s=LIMIT_S)
    seconds, checked = time.process_time() - start, ""
    if proof.verdict == PROVED:
        content = json.loads(proof_text(spec, theta_P, proof))
        checked = "checked" if content["checker"] and check.check(content, spec.as_dict(), theta_P.tolist()) else ""
    wrong = proof.wrong[0] if proof.wrong else None
    return {
        "verdict": proof.verdict, "margin": f"{proof.margin:.4g}", "wrong_a": wrong.a if wrong else "",
        "wrong_b": wrong.b if wrong else "", "check": checked, "core_s": f"{seconds:.1f}",
    }  # fmt: skip


def main(*branches: str) -> None:
    torch.set_num_threads(1)
    there = {(row["branch"], row["init_seed"]) for row in read(PROOFS)}
    nets = pd.read_parquet(Path(HERE) / "small-nets.parquet")
    for net in nets[nets["branch"].isin(branches)].itertuples():
        if (net.branch, str(net.init_seed)) not in there:
            spec = Checkpoint.load(CERTIFICATES / ENDS[net.branch]).spec
            theta_P = torch.tensor(net.theta, dtype=torch.float32)
            append(PROOFS, [{"branch": net.branch, "init_seed": net.init_seed} | judged(spec, theta_P)])


if __name__ == "__main__":
    main(*sys.argv[1:])
