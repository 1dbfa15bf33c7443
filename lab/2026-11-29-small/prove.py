"""Prove what small.py left: `python lab/2026-11-29-small/prove.py BRANCH ...` adds what small-proofs.csv lacks."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import torch
from small import CERTIFICATES, HERE

from lab.scripts.proved import judged
from lab.scripts.table_file import append, read
from trainer.checkpoints.checkpoint import Checkpoint

PROOFS = HERE / "small-proofs.csv"
LIMIT_S = 60.0
ENDS = {"7": "7p", "6": "6p", "28": "28p", "10": "10p-inside"}


def main(*branches: str) -> None:
    torch.set_num_threads(1)
    there = {(row["branch"], row["init_seed"]) for row in read(PROOFS)}
    nets = pd.read_parquet(Path(HERE) / "small-nets.parquet")
    for net in nets[nets["branch"].isin(branches)].itertuples():
        if (net.branch, str(net.init_seed)) not in there:
            spec = Checkpoint.load(CERTIFICATES / ENDS[net.branch]).spec
            theta_P = torch.tensor(net.theta, dtype=torch.float32)
            row = judged(spec, theta_P, LIMIT_S)
            del row["level"]  # the table has no such column
            append(PROOFS, [{"branch": net.branch, "init_seed": net.init_seed} | row])


if __name__ == "__main__":
    main(*sys.argv[1:])
