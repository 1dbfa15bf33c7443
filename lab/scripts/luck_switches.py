"""Seeds of lab/scripts/paths.py as rows: outcome, and at some steps odd, switches and where EQUALS is.

    python lab/scripts/luck_switches.py FOLDER OUT.csv [--steps 4000,8000,10000,12000,16000]
        [--study FILE]

--study: whose configurations these are, if not all of 57p; the rows then say which model.

`changed` is the place of a file's configuration among the folder's, in order of their keys; equals: the
length of EQUALS' three numbers.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import torch

from model import preset, preset_name
from search.study.file import load_study
from search.study.trial import Configuration


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", default="4000,8000,10000,12000,16000")
    parser.add_argument("--study")
    args = parser.parse_args()
    rows, specs = [], {}
    if args.study:
        specs = {Configuration(*c).key: c[0] for c in load_study(args.study).listed}
    for file in sorted(args.folder.glob("*-*.npz")):
        spec = specs.get(file.stem.split("-")[0]) or preset("57p")
        arrays = np.load(file)
        best = np.fmax.accumulate(arrays["curve"], axis=1)
        for n, seed in enumerate(arrays["init_seed"].tolist()):
            grok = int(arrays["grok_step"][n])
            row = {
                "configuration": file.stem.split("-")[0], "init_seed": seed, "data_seed": seed,
                "outcome": "grokked" if grok >= 0 else "failed", "steps": int(arrays["steps"][n]),
                "grok_step": grok if grok >= 0 else "", "best_exact": f"{best[n, -1, 0]:.4f}",
                "best_token": f"{best[n, -1, 1]:.4f}",
            }  # fmt: skip
            row |= {"rung": preset_name(spec)} if args.study else {}
            for at in (int(s) for s in args.steps.split(",")):
                theta_1P = torch.from_numpy(arrays["theta"][n, at // 1_000 - 1])[None]
                read = dict(zip(spec.probes(), spec.read(theta_1P)[0].tolist(), strict=True))
                far = float(spec.layout.split(theta_1P)["equals"].norm())
                row |= {f"{name}_{at}": f"{read[name]:.4f}" for name in ("odd", "switches")}
                row |= {f"equals_{at}": f"{far:.2f}", f"token_{at}": f"{best[n, at // 1_000 - 1, 1]:.4f}"}
            rows.append(row)
    with args.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
