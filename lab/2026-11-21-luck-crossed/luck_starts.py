"""Can a start be told from another? Read-outs of θ at step 0 beside what became of 64 vectors, 4 streams.

    python lab/2026-11-21-luck-crossed/luck_starts.py lab/2026-11-21-luck-crossed/luck-64-early.csv

Of each read-out and outcome Pearson's correlation of the read-out's rank with the share of streams in which
the vector came to it by step 6,000, and p of 10,000 permutations. With 64 vectors a correlation of 0.34 is
found in four of five studies (two-sided, 5 %, Fisher's z); 27 are tried, so none counts above p = 0.0019.

Axes: V vector, P parameters.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import torch
from make import read

from model import preset

PERMUTATIONS = 10_000


def readings(theta_VP: torch.Tensor) -> dict[str, np.ndarray]:
    """Read-outs [V] of 57p at step 0, where attention's output is still silent."""
    spec = preset("57p")
    t = {name: x.double() for name, x in spec.layout.split(theta_VP).items()}
    head, fc1, column, queries = t["head"], t["fc1"], t["out_A"][:, :, 0], t["q_proj"]
    turn = torch.zeros(4, 4, dtype=torch.float64)
    turn[[0, 1, 2, 3], [1, 0, 3, 2]] = torch.tensor([-1.0, 1, -1, 1], dtype=torch.float64)
    rotation = torch.einsum("via,ij,vjb->vab", queries, turn, queries)
    values = {
        "probe odd": spec.probes()["odd"](spec, theta_VP.double()),
        "fc1 · head, unit by unit": (fc1[:, 0] * head[:, 0]).sum(1) - (fc1[:, 1] * head[:, 1]).sum(1),
        "turn of the scores": rotation[:, 1, 0].abs(),
        "fc1 in the basin's signs": fc1[:, 0, 0] - fc1[:, 0, 1] - fc1[:, 1, 0] + fc1[:, 1, 1],
        "length of head · A": torch.einsum("vij,vj->vi", head, column).norm(dim=1),
        **{
            f"length of {name}": x.flatten(1).norm(dim=1)
            for name, x in {"head": head, "fc1": fc1, "A": column, "q_proj": queries}.items()
        },
    }
    return {name: x.numpy() for name, x in values.items()}


def correlation(reading_V: np.ndarray, share_V: np.ndarray) -> tuple[float, float]:
    """Return the correlation of the read-out's rank with the share, and its p."""
    rank_V, generator = reading_V.argsort().argsort(), np.random.default_rng(1)
    rho = float(np.corrcoef(rank_V, share_V)[0, 1])
    chance = (np.corrcoef(generator.permutation(rank_V), share_V)[0, 1] for _ in range(PERMUTATIONS))
    return rho, (1 + sum(abs(r) >= abs(rho) for r in chance)) / (1 + PERMUTATIONS)


def main() -> None:
    file = Path(sys.argv[1])
    with file.open() as opened:
        vectors = sorted({row["init_seed"] for row in csv.DictReader(opened)})
    theta_VP = torch.stack([preset("57p").initial(int(v)) for v in vectors])
    for outcome, x_VDR in read(file, 6_000, ["as-built"]).items():
        for name, reading_V in readings(theta_VP).items():
            rows, p = correlation(reading_V, x_VDR.mean((1, 2)))
            print(f"{outcome}; {name}: {rows:+.2f}, p {p:.4f}")


if __name__ == "__main__":
    main()
