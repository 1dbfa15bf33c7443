"""Seeds of a study that left the plateau and did not grok, trained on by `finish --method train`.

    PYTHONPATH=. python lab/2026-11-23-fewer-numbers/trained_on.py STUDY SEEDS.csv KEPT OUT.csv

SEEDS.csv and KEPT: what seeds_in_banks.py wrote of the study, with `--kept KEPT`. Each seed of a token
accuracy of 0.6 or more goes on from θ at its best evaluation. `outcome`: grokked where all of our own
problems are right.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from lab.scripts.seeds_in_banks import arms
from lab.scripts.table_file import append, read
from model import verify
from search.study.file import load_study
from trainer import Seed
from trainer.checkpoints.checkpoint import Checkpoint

LEFT = 0.6


def main(path: str, seeds: str, kept: str, out: str) -> None:
    study, done = load_study(path), {(r["arm"], r["init_seed"]) for r in read(Path(out))}
    configurations = dict(arms(study))
    with Path(seeds).open() as file:
        rows = [r for r in csv.DictReader(file) if r["study"] == study.name]
    for row in rows:
        arm, number = row["arm"], int(row["init_seed"])
        over = row["outcome"] == "grokked" or float(row["best_token"]) < LEFT
        if over or (arm, row["init_seed"]) in done:
            continue
        theta = next(
            file["best_theta"][file["init_seed"] == number][0]
            for file in map(np.load, sorted(Path(kept).glob(f"{arm}-*.npz")))
            if number in file["init_seed"]
        )
        its = Checkpoint(
            configurations[arm].spec, torch.from_numpy(theta), seed=asdict(Seed.of(number)),
            provenance={"trained": "from scratch", "study": study.name},
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            before, after = Path(folder) / "before", Path(folder) / "after"
            its.save(before)
            command = ["adder-search", "finish", str(before), "-o", str(after), "--method", "train"]
            subprocess.run(command, capture_output=True)  # it exits with 1 where not all is right
            found, papers = Checkpoint.load(after), json.loads((after / "checkpoint.json").read_text())
        turns = papers["provenance"]["turns"]
        wrong = turns[-1]["wrong"]
        made = {
            "study": study.name, "arm": arm, "configuration": arm, "init_seed": number, "data_seed": number,
            "before_exact": row["best_exact"], "before_token": row["best_token"], "turns": len(turns),
            "outcome": "failed" if wrong else "grokked", "own_wrong": wrong,
            "correct": verify(found.spec, found.theta_P).correct,
        }  # fmt: skip
        append(Path(out), [made])


if __name__ == "__main__":
    main(*sys.argv[1:])
