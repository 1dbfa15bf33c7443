"""Prove or refute what the project calls proved: a line each in proofs.csv, and proof.json in each folder.

python lab/certificates/prove.py [NAME ...]            of NAMEs alone; the other lines stay
python lab/certificates/prove.py --check [NAME ...]    check.py alone: the prover's verdict is that of the folder
ADDER_SEARCH_GOLDEN: folder of MicroAdder's published checkpoints, which are proved too where it is set
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from adders.foreign.read import read_foreign
from adders.proof import check
from adders.proof.count import count_wrong
from adders.proof.file import proof_text, verdict_of
from adders.proof.prover import Proof, Wrong, prove
from model.verdict import COUNTEREXAMPLE, PROVED, VERDICT_FILE, claim_beside
from trainer.checkpoints.checkpoint import Checkpoint

FOLDER = Path(__file__).parent
TABLE = FOLDER / "proofs.csv"
PUBLISHED = "microadder_"
LIMIT_S = 600
COUNT_LIMIT_S = 60
UNCHECKED = "unchecked"
NOT_YET = {
    "170p": "check.py bounds its two heads one after the other, and its cases are then too many for ten minutes",
    "published-170p": "an earlier check.py proved it in 96 s, this one was not run to its end",
    "2026-11-24-rope/122p-seed201": "check.py takes minutes, and was not run to its end",
}
"""Why check.py has not checked a proof: without its line here it is tried."""


def checkpoints() -> dict[str, Path]:
    """Return the paths of all checkpoints by name: certificates, others in lab with a verdict, published ones."""
    paths = {path.parent.name: path.parent for path in FOLDER.glob("*/checkpoint.json")}
    for verdict in FOLDER.parent.glob(f"*/*/{VERDICT_FILE}"):
        if verdict.parents[1] != FOLDER:
            paths[f"{verdict.parents[1].name}/{verdict.parent.name}"] = verdict.parent
    if folder := os.environ.get("ADDER_SEARCH_GOLDEN"):
        paths |= {f"published-{p.stem.removeprefix(PUBLISHED)}": p for p in Path(folder).glob(f"{PUBLISHED}*.pt")}
    return paths


def judged(name: str, path: Path, is_proved: bool) -> dict[str, Any]:
    """Return what `adder-search prove --json` says of a checkpoint, how it was checked, and in how many seconds.

    is_proved: the prover is not asked again where the folder has its verdict.
    """
    checkpoint = Checkpoint.load(path) if path.is_dir() else read_foreign(path)
    spec, theta_P = checkpoint.spec, checkpoint.theta_P
    known = claim_beside(path, spec, theta_P) if is_proved and path.is_dir() else None
    proof = proof_of(known) if known else prove(spec, theta_P, limit_s=LIMIT_S)
    values = verdict_of(spec, theta_P, proof) | {"check": UNCHECKED, "check_seconds": None}
    if known and "count" in (old := json.loads((path / VERDICT_FILE).read_text(encoding="utf-8"))):
        values["count"] = old["count"]
    elif proof.verdict == COUNTEREXAMPLE and path.is_dir():
        values["count"] = asdict(count_wrong(spec, theta_P, limit_s=COUNT_LIMIT_S))
    if proof.verdict == COUNTEREXAMPLE:
        values["check"] = "run"  # through the exported program, by the prover
    elif proof.verdict == PROVED:
        content = json.loads(proof_text(spec, theta_P, proof))
        if name in NOT_YET:
            values["check"] = f"{UNCHECKED}: {NOT_YET[name]}"
        elif content["checker"]:
            start = time.process_time()
            values |= check_of(content, spec.as_dict(), theta_P.tolist())
            values["check_seconds"] = round(time.process_time() - start, 1)
        else:
            values["check"] = f"{UNCHECKED}: at level {proof.level} alone, by this machine's own roundings"
    return values


def proof_of(verdict: dict[str, Any]) -> Proof:
    """Return the proof that a recorded verdict is of."""
    # what it lacks was endless
    names = {field.name for field in fields(Proof) if verdict.get(field.name) is not None}
    return Proof(**{name: verdict[name] for name in names} | {"wrong": [Wrong(**w) for w in verdict["wrong"]]})


def check_of(content: dict[str, Any], spec: dict[str, Any], theta: list[float]) -> dict[str, Any]:
    """Return what check.py says of a proof."""
    try:
        return {"check": "checked", "parts": check.check(content, spec, theta)}
    except SystemExit as refused:
        return {"check": f"{UNCHECKED}: {str(refused).removeprefix('NOT CHECKED: ')}"}


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
        "check": values["check"], "parts": values.get("parts"), "check_seconds": values["check_seconds"],
    }  # fmt: skip


def write(new: dict[str, Any]) -> None:
    """Put a line into the table, in place of the one that its net has there."""
    table = pd.DataFrame([new]).astype(object)
    if TABLE.exists():
        rows = pd.read_csv(TABLE, dtype=object)
        table = pd.concat([rows[rows["net"] != new["net"]], table], ignore_index=True)
    order = pd.DataFrame({"params": table["params"].astype(int), "net": table["net"]}).sort_values(["params", "net"])
    table.loc[order.index].to_csv(TABLE, index=False, lineterminator="\n")


def main(names: list[str], is_proved: bool) -> None:
    torch.set_num_threads(1)
    paths = checkpoints()
    for name in names or sorted(paths):
        values = judged(name, paths[name], is_proved)
        if paths[name].is_dir():
            (paths[name] / VERDICT_FILE).write_text(json.dumps(values) + "\n", encoding="utf-8")
        write(line(name, values))
        print(*line(name, values).values(), flush=True)


if __name__ == "__main__":
    main([name for name in sys.argv[1:] if name != "--check"], "--check" in sys.argv)
