"""From a certificate down, any two numbers equal: the cheapest constraint that is accepted, then the next one.

    PYTHONPATH=. python lab/2026-11-26-five-and-eleven/descend.py PARENT SECONDS [WORKER OF]

A line a set in candidates.csv, as `descent N` of so many numbers. Goes on from the accepted set with the fewest
numbers that is there, whichever worker came to it.
"""

from __future__ import annotations

import json
import sys
import time

import pandas as pd
import torch
from candidates import Array, Labels
from judge import FIRST, Pool, judge, lift, look, spec_of
from search_sets import TABLE, base_spec, numbers, parent_of, row, sets_of, write

from model.spec import Spec
from model.tied import canonical
from model.verdict import PROVED

LIMIT_S, CENTRED_S = 10.0, 1.5


def smallest(parent: str) -> tuple[Spec, Array, Labels, set[str]]:
    """Return the base, θ [P of the base] and ties of the smallest accepted set, and what was tried."""
    base, theta_P, labels = parent_of(parent)
    rows = pd.read_csv(TABLE)
    rows = rows[(rows["parent"] == parent) & rows["kind"].str.startswith("descent")]
    accepted = rows[rows["verdict"] == PROVED].sort_values("numbers", kind="stable")
    if len(accepted):
        best = accepted.iloc[0]
        labels = canonical(json.loads(best["labels"]))
        spec, _ = spec_of(base, labels)
        theta_P = spec.untie(torch.tensor([json.loads(best["theta"])], dtype=torch.float64))[0].numpy()
    return base, theta_P, labels, set(rows["labels"])


def main(parent: str, seconds: str, worker: str = "0", of: str = "1") -> None:
    torch.set_num_threads(1)
    end = time.process_time() + float(seconds)
    left = True
    while left and time.process_time() < end:
        base, theta_P, labels, _ = smallest(parent)
        spec, pool, x_R = base_spec(base, labels), Pool(), numbers(labels, theta_P)
        pool.add(look(spec, x_R)[:FIRST])
        lifted = lift(spec, x_R, pool, time.process_time() + CENTRED_S, looks=1, enough=1e9)
        if lifted.over == "all pairs":
            theta_P = spec.untie(torch.from_numpy(lifted.x_R)[None])[0].numpy()
        print(
            spec.params,
            f"{lifted.margin:.3g}",
            lifted.over,
            numbers(labels, theta_P).round(4).tolist(),
            flush=True,
        )
        sets = sets_of(base, theta_P, labels, pool)
        sets.across = True
        left = False
        for candidate in sets.singles()[int(worker) :: int(of)]:
            *_, newest, tried = smallest(parent)
            if newest != labels or time.process_time() > end:
                left = True
                break
            name = json.dumps([int(k) for k in canonical(candidate.labels)])
            if name in tried:
                continue
            try:
                verdict = judge(base, theta_P, labels, candidate, pool, LIMIT_S)
            except ValueError as error:
                print(error, flush=True)
                continue
            line = row(parent, base, labels, candidate, verdict)
            line |= {"kind": f"descent {spec.params - 1}", "labels": name}
            write([line])
            print(*list(line.values())[1:9], line["verdict"], line["level"], line["cpu_s"], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
