"""Finish rope-six's near misses by worst margins: a line each in rope-finished.csv. Lines that are there stay.

    PYTHONPATH=. python lab/2026-11-24-rope/finish_near.py KEPT_FOLDER [SIZE ...]

KEPT_FOLDER: of `lab/scripts/seeds_in_banks.py --kept`. A near miss has spent its budget at 0.98 exact match or more.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from adders.finishing.finish import MARGIN
from lab.finished import finished_row
from model import preset

HERE = Path(__file__).parent
TABLE = HERE / "rope-finished.csv"
LOW, TURNS, LIMIT_S = 0.98, 2, 120


def main(kept: Path, sizes: list[str]) -> None:
    torch.set_num_threads(1)
    lines = pd.read_csv(TABLE).to_dict("records") if TABLE.exists() else []
    there = {(line["arm"], line["init_seed"]) for line in lines}
    for path in sorted(kept.glob("*.npz")):
        size, chunk = path.stem.split("-")[0], np.load(path)
        for n, seed in enumerate(chunk["init_seed"].tolist()):
            exact = float(np.nanmax(chunk["curve"][n][:, 0]))
            if (sizes and size not in sizes) or (size, seed) in there or not LOW <= exact < 1:
                continue
            theta_P = torch.from_numpy(chunk["best_theta"][n])
            about = {"arm": size, "init_seed": seed, "exact": round(exact, 4)}
            lines.append(about | finished_row(preset(size), theta_P, MARGIN, TURNS, LIMIT_S))
            pd.DataFrame(lines).to_csv(TABLE, index=False)
            print(lines[-1], flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
