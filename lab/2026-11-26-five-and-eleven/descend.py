"""From a certificate down, any two numbers equal: the cheapest constraint that is accepted, then the next one.

    PYTHONPATH=. python lab/2026-11-26-five-and-eleven/descend.py PARENT SECONDS

A line a set in candidates.csv, as `descent N` of so many numbers; goes on from the last accepted set that is there.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pandas as pd
import torch
from judge import FIRST, Pool, judge, lift, look, spec_of
from search_sets import TABLE, added, base_spec, numbers, parent_of, row, sets_of, write

from model.proof.prover import PROVED
from model.tied import canonical

LIMIT_S = 10.0


def main(parent: str, seconds: str) -> None:
    torch.set_num_threads(1)
    end = time.process_time() + float(seconds)
    base, theta_P, labels = parent_of(parent)
    rows = pd.read_csv(TABLE)
    rows = rows[(rows["parent"] == parent) & rows["kind"].str.startswith("descent")]
    accepted = rows[rows["verdict"] == PROVED]
    if len(accepted):
        last = accepted.iloc[-1]
        labels = canonical(json.loads(last["labels"]))
        spec, _ = spec_of(base, labels)
        theta_P = spec.untie(torch.tensor([json.loads(last["theta"])], dtype=torch.float64))[0].numpy()
    tried = set(rows["labels"])
    while time.process_time() < end:
        spec, x_R, pool = base_spec(base, labels), numbers(labels, theta_P), Pool()
        pool.add(look(spec, x_R)[:FIRST])
        lifted = lift(spec, x_R, pool, time.process_time() + 5, looks=3, enough=np.inf)
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
        for candidate in sets.singles():
            if (
                json.dumps([int(k) for k in canonical(candidate.labels)]) in tried
                or time.process_time() > end
            ):
                continue
            try:
                verdict = judge(base, theta_P, labels, candidate, pool, LIMIT_S)
            except ValueError as error:
                print(error, flush=True)
                continue
            line = row(parent, base, labels, candidate, verdict) | {"kind": f"descent {spec.params - 1}"}
            line["labels"] = json.dumps([int(k) for k in canonical(candidate.labels)])
            write([line])
            print(*list(line.values())[1:9], line["verdict"], line["level"], line["cpu_s"], flush=True)
            if line["verdict"] == PROVED:
                labels = canonical(candidate.labels)
                new, _ = spec_of(base, labels)
                theta_P = new.untie(torch.from_numpy(verdict.lifted.x_R)[None])[0].numpy()
                break
        else:
            print("nothing is left:", added(base, labels, labels), flush=True)
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
