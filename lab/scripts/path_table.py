"""Write what the probes read along paths.py's files as a table: a row a seed.

    python lab/scripts/path_table.py STUDY FOLDER OUT.csv [STEP ...]

Columns: the configuration's name in the study and its key, the seed, and at each step (3,000 and 12,000
unless told) the best token accuracy so far, odd and switches.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.scripts.seeds_in_banks import PROBES, arms
from model import Spec
from search.study.file import load_study


def rows_of(spec: Spec, file: Path, every: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    file_arrays, names = np.load(file), list(spec.probes())
    best_NE = np.fmax.accumulate(file_arrays["curve"][..., 1], axis=1)
    read = {at: spec.read(torch.from_numpy(file_arrays["theta"][:, at // every - 1])) for at in steps}
    for n, seed in enumerate(file_arrays["init_seed"]):
        row: dict[str, Any] = {"init_seed": seed}
        for at in steps:
            row[f"token_{at}"] = f"{best_NE[n, at // every - 1]:.4f}"
            row |= {f"{name}_{at}": f"{read[at][n, names.index(name)]:.4f}" for name in PROBES}
        yield row


def main(path: str, folder: str, out: str, *steps: str) -> None:
    study = load_study(path)
    table = [
        {"arm": arm, "configuration": c.key, **row}
        for arm, c in arms(study)
        for file in sorted(Path(folder).glob(f"{c.key}-*.npz"))
        for row in rows_of(c.spec, file, c.recipe.eval_every, [*map(int, steps)] or [3_000, 12_000])
    ]
    with Path(out).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
