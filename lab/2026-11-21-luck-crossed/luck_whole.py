"""A study whose seeds cross initial values with data, each to its end: a row a seed.

    python lab/2026-11-21-luck-crossed/luck_whole.py STUDY OUT.csv --rounding NAME [--most STREAMS]

`--rounding` only names the arithmetic, as for luck_early.py, whose text says how another one is built. A data
stream is trained as one bank; one that is in the file is not trained again, so the same command goes on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from lab.scripts.table_file import append, read
from search.study.file import load_study
from search.study.trial import Configuration
from trainer import Bank, Pair

COLUMNS = (
    "study",
    "configuration",
    "rounding",
    "init_seed",
    "data_seed",
    "outcome",
    "steps",
    "grok_step",
    "best_exact",
    "best_token",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("study")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounding", required=True)
    parser.add_argument("--most", type=int, default=99, help="streams that are trained now")
    args = parser.parse_args()
    torch.set_num_threads(1)
    study = load_study(args.study)
    (spec, recipe), seeds = study.listed[0], study.first_seeds
    key = Configuration(spec, recipe).key
    known = {(r["rounding"], int(r["data_seed"])) for r in read(args.out)}
    left = [s for s in dict.fromkeys(s.data_seed for s in seeds) if (args.rounding, s) not in known]
    for stream in left[: args.most]:
        start, mine = time.monotonic(), [s for s in seeds if s.data_seed == stream]
        bank = Bank(spec, [Pair(recipe, s) for s in mine])
        while bank.advance():
            pass
        rows = []
        for n, seed in enumerate(mine):
            r = bank.result(n)
            about = (study.name, key, args.rounding, seed.init_seed, seed.data_seed, r.outcome.value, r.steps)
            rows.append((*about, r.grok_step or "", f"{r.best_exact:.4f}", f"{r.best_token:.4f}"))
        append(args.out, [dict(zip(COLUMNS, row, strict=True)) for row in rows])
        won = sum(r[5] == "grokked" for r in rows)
        print(args.rounding, stream, f"{won} of {len(rows)}, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
