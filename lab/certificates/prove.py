"""Prove or refute certificates and published checkpoints: a line each in proofs.csv, and proof.json in each folder.

python lab/certificates/prove.py [NAME ...]      of NAMEs alone; the other lines stay
ADDER_SEARCH_GOLDEN: folder of MicroAdder's published checkpoints, which are proved too where it is set
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from adders.foreign.read import read_foreign
from adders.proof import check
from adders.proof.count import count_wrong
from adders.proof.file import proof_text, verdict_of
from adders.proof.prover import prove
from model.verdict import COUNTEREXAMPLE, PROVED, VERDICT_FILE
from trainer.checkpoints.checkpoint import Checkpoint

FOLDER = Path(__file__).parent
TABLE = FOLDER / "proofs.csv"
PUBLISHED = "microadder_"
LIMIT_S = 600
COUNT_LIMIT_S = 60


def checkpoints() -> dict[str, Path]:
    """Return the paths of all checkpoints by name."""
    paths = {path.parent.name: path.parent for path in FOLDER.glob("*/checkpoint.json")}
    if folder := os.environ.get("ADDER_SEARCH_GOLDEN"):
        paths |= {f"published-{p.stem.removeprefix(PUBLISHED)}": p for p in Path(folder).glob(f"{PUBLISHED}*.pt")}
    return paths


def judged(path: Path) -> dict[str, Any]:
    """Return what `adder-search prove --json` says of a checkpoint, how it was checked, and in how many seconds."""
    checkpoint = Checkpoint.load(path) if path.is_dir() else read_foreign(path)
    spec, theta_P = checkpoint.spec, checkpoint.theta_P
    proof = prove(spec, theta_P, limit_s=LIMIT_S)
    values = verdict_of(spec, theta_P, proof) | {"check": "unchecked", "check_seconds": None}
    if proof.verdict == COUNTEREXAMPLE:
        values["check"] = "run"  # through the exported program, by the prover
        if path.is_dir():
            values["count"] = asdict(count_wrong(spec, theta_P, limit_s=COUNT_LIMIT_S))
    elif proof.verdict == PROVED:
        content = json.loads(proof_text(spec, theta_P, proof))
        if content["checker"]:
            start = time.process_time()
            check.check(content, spec.as_dict(), theta_P.tolist())
            values |= {"check": "checked", "check_seconds": round(time.process_time() - start, 1)}
    return values


def line(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return a line of the table."""
    a, b = values["pair"]
    wrong, count = values["wrong"][0] if values["wrong"] else {}, values.get("count", {})
    return {
        "net": name, "params": values["params"], "verdict": values["verdict"], "level": values["level"],
        "margin": f"{values['margin'] or 0:.4g}", "digit": values["digit"], "a": a, "b": b,
        "wrong_a": wrong.get("a"), "wrong_b": wrong.get("b"), "answer": wrong.get("answer"),
        "count": count.get("wrong"), "count_possible": count.get("possible"),
        "cases": values["cases"], "boxes": values["boxes"], "seconds": f"{values['seconds']:.1f}",
        "check": values["check"], "check_seconds": values["check_seconds"],
    }  # fmt: skip


def write(new: dict[str, Any]) -> None:
    """Put a line into the table, in place of the one that its net has there."""
    table = pd.DataFrame([new]).astype(object)
    if TABLE.exists():
        rows = pd.read_csv(TABLE, dtype=object)
        table = pd.concat([rows[rows["net"] != new["net"]], table], ignore_index=True)
    order = pd.DataFrame({"params": table["params"].astype(int), "net": table["net"]}).sort_values(["params", "net"])
    table.loc[order.index].to_csv(TABLE, index=False, lineterminator="\n")


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    paths = checkpoints()
    for name in names or sorted(paths):
        values = judged(paths[name])
        if paths[name].is_dir():
            (paths[name] / VERDICT_FILE).write_text(json.dumps(values) + "\n", encoding="utf-8")
        write(line(name, values))
        print(*line(name, values).values(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
