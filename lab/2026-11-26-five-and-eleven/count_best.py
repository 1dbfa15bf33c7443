"""Count the wrong pairs of 10^20 of the set of each parent that was not accepted and has the largest smallest margin.

A line each in wrong.csv. PYTHONPATH=. python lab/2026-11-26-five-and-eleven/count_best.py [SECONDS EACH]
"""

from __future__ import annotations

import json
import sys

import pandas as pd
import torch
from judge import spec_of
from search_sets import HERE, TABLE, parent_of

from adders.proof.count import count_wrong


def main(seconds: str = "30") -> None:
    torch.set_num_threads(1)
    rows, lines = pd.read_csv(TABLE), []
    rows = rows[(rows["over"] == "pool") & ~rows["kind"].str.startswith("descent")]
    rows = rows[~rows["parent"].str.startswith("planted")]
    for parent, group in rows.groupby("parent"):
        best = group.sort_values("margin").iloc[-1]
        spec, _ = spec_of(parent_of(str(parent))[0], tuple(json.loads(best["labels"])))
        counted = count_wrong(spec, torch.tensor(json.loads(best["theta"])).float(), limit_s=float(seconds))
        lines.append((parent, best["ties_added"], best["margin"], counted.wrong, counted.possible))
        print(*lines[-1], flush=True)
        head = ["parent", "ties_added", "margin", "wrong", "possible"]
        pd.DataFrame(lines, columns=head).to_csv(HERE / "wrong.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
