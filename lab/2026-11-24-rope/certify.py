"""Write grokked seeds as checkpoints, each verified: python certify.py PLAN.yaml ARM KEPT.npz [SEED ...]

KEPT: a chunk that `lab/scripts/seeds_in_banks.py --kept` wrote. A folder each, PRESET-seedN, beside this file;
`adder-search prove FOLDER --record` proves it. A seed that does not decode all 10,010 is named and left out.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from lab.plans import LAB, load_plan
from lab.scripts.seeds_in_banks import arms
from model import preset_name, verify
from trainer.checkpoints.checkpoint import Checkpoint

FOLDER = Path(__file__).parent


def main(plan: str, arm: str, kept: str, *seeds: str) -> None:
    study = load_plan(plan)
    configuration = dict(arms(study))[arm]
    chunk = np.load(kept)
    for n, seed in enumerate(chunk["init_seed"].tolist()):
        if (seeds and str(seed) not in seeds) or np.nanmax(chunk["curve"][n][:, 0]) < 1:
            continue
        theta_P = torch.from_numpy(chunk["best_theta"][n])
        verification = verify(configuration.spec, theta_P)
        if not verification.verified:
            print(f"{arm}, seed {seed}: {verification.correct} of {verification.total}")
            continue
        folder = FOLDER / f"{preset_name(configuration.spec)}-seed{seed}"
        Checkpoint(
            configuration.spec, theta_P, configuration.recipe.as_dict(),
            asdict(next(s for s in study.first_seeds if s.init_seed == seed)), int(chunk["best_step"][n]),
            provenance={"plan": str(Path(plan).resolve().relative_to(LAB.parent)), "arm": arm,
                        "trained_by": "lab/scripts/seeds_in_banks.py"},
        ).save(folder)  # fmt: skip
        (folder / "verification.json").write_text(json.dumps(verification.as_dict()) + "\n")
        print(f"{folder.name}: {verification.correct} of {verification.total}, margin {verification.margin:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
