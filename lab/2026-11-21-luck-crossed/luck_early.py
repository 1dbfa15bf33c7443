"""The first steps of a study whose seeds cross initial values with data: a row a seed and evaluation.

    python lab/2026-11-21-luck-crossed/luck_early.py STUDY OUT.csv --rounding NAME [--until 6000]

`--rounding` only names the arithmetic in the rows. Another one is a build in which the compiler may join a
product and a sum into one operation, all else equal: CXX names a script of two lines,

    #!/bin/sh
    exec g++ "$@" -ffp-contract=fast

A data stream is trained as one bank, and written when it has come to `--until`; one that is in the file is
not trained again, so the same command goes on.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import torch

from search.study.file import load_study
from trainer import Bank, Pair

COLUMNS = ("rounding", "init_seed", "data_seed", "step", "odd", "basin", "stride", "token", "exact", "loss")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("study")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounding", required=True)
    parser.add_argument("--until", type=int, default=6_000)
    parser.add_argument("--most", type=int, default=99, help="streams that are trained now")
    args = parser.parse_args()
    torch.set_num_threads(1)
    study = load_study(args.study)
    (spec, recipe), seeds = study.listed[0], study.first_seeds
    known = set()
    if args.out.exists():
        with args.out.open() as file:
            known = {(r["rounding"], int(r["data_seed"])) for r in csv.DictReader(file)}
    left = [s for s in dict.fromkeys(s.data_seed for s in seeds) if (args.rounding, s) not in known]
    for stream in left[: args.most]:
        start, mine = time.monotonic(), [s for s in seeds if s.data_seed == stream]
        bank, rows = Bank(spec, [Pair(recipe, s) for s in mine]), []
        while bank.result(0).steps < args.until:
            bank.advance()
            theta_SP = bank.state["theta"][bank.pair_S.argsort()].double()
            read = {name: spec.probes()[name](spec, theta_SP).tolist() for name in ("odd", "basin", "stride")}
            for n, seed in enumerate(mine):
                found = bank.result(n)
                exact, token, loss = found.curve_EM[-1, :3].tolist()
                about = (args.rounding, seed.init_seed, seed.data_seed, found.steps)
                probed = (f"{read[name][n]:.4f}" for name in ("odd", "basin", "stride"))
                rows.append((*about, *probed, f"{token:.5f}", f"{exact:.5f}", f"{loss:.5f}"))
        new = not args.out.exists()
        with args.out.open("a", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows] if new else rows)
        print(args.rounding, stream, f"{time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
