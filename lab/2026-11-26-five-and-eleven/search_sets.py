"""Judge the sets with one number fewer than a parent's: a line each in candidates.csv. Lines that are there stay.

    PYTHONPATH=. python lab/2026-11-26-five-and-eleven/search_sets.py PARENT KIND SECONDS [COUNT]

PARENT: a certificate's name, NAME+wide (norms and the FFN's second layer apart), `11 of NAME`, or planted.
KIND: single or others. SECONDS: of one core, that this call takes at most.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from candidates import Array, Candidate, Labels, Model, Sets  # noqa: E402
from judge import FIRST, Pool, Verdict, judge, lift, look, scale_of, spec_of  # noqa: E402

from adders.proof.prover import prove  # noqa: E402
from compress.ties import describe_change  # noqa: E402
from model.families.split_subspace import SplitSubspace  # noqa: E402
from model.spec import Spec  # noqa: E402
from model.tied import Tied, canonical, tie  # noqa: E402
from trainer.checkpoints.checkpoint import Checkpoint  # noqa: E402

TABLE = HERE / "candidates.csv"
CERTIFICATES = HERE.parent / "certificates"
COUNT, PLANTED, PLANTED_S = 150, 8, 40


def parent_of(name: str) -> tuple[SplitSubspace, Array, Labels]:
    """Return a certificate's base, θ [P of the base] and labels; `+wide` over a base with more tensors; `11 of NAME`:
    of the single constraint that was accepted from it.
    """
    if " of " in name:
        certificate = name.partition(" of ")[2]
        rows = pd.read_csv(TABLE).query("parent == @certificate and kind == 'single' and verdict == 'PROVED'")
        spec, _ = spec_of(parent_of(certificate)[0], tuple(json.loads(rows.iloc[0]["labels"])))
        theta_SR = torch.tensor([json.loads(rows.iloc[0]["theta"])], dtype=torch.float64)
        assert isinstance(spec.base, SplitSubspace)
        return spec.base, spec.untie(theta_SR)[0].numpy(), spec.ties
    name, _, wide = name.partition("+")
    checkpoint = Checkpoint.load(CERTIFICATES / name)
    spec = checkpoint.spec
    assert isinstance(spec, Tied) and isinstance(spec.base, SplitSubspace)
    base, labels = spec.base, spec.ties
    number_R = checkpoint.theta_P.double().numpy()
    if wide:
        parts, norm = spec.by_tensor(), spec.by_tensor()["norm"]
        head = np.array(parts["head"]).reshape(base.tok_dim, base.width)
        parts |= {"fc2": head.T.flatten().tolist(), "norm": norm * 3}
        base = replace(base, shared_norm=False, tie_fc2_head=False)
        labels = tuple(k for part in base.layout.names for k in parts[part])
    theta_P = np.array([np.sign(k) * number_R[abs(k) - 1] if k else 0.0 for k in labels])
    return base, theta_P, labels


def sets_of(base: Spec, theta_P: Array, labels: Labels, pool: Pool) -> Sets:
    values = {abs(k): float(theta_P[p] * np.sign(k)) for p, k in enumerate(labels) if k}
    _, slopes_NP = pool.slopes(base, theta_P, 600)
    model = Model.around(theta_P, slopes_NP / scale_of(theta_P))
    tensors = [name for name, n in base.layout.budget().items() for _ in range(n)]
    read = {(abs(k), name) for k, name in zip(labels, tensors, strict=True) if k}
    return Sets(base, labels, values, model, across=len(read) > len(values))


def added(base: Spec, before: Labels, after: Labels) -> str:
    try:
        dropped, new = describe_change(base, canonical(before), canonical(after))
    except ValueError:  # a tensor of zeros
        return "norm = 0"
    return "; ".join([*(f"not {text}" for text in dropped), *new])


def write(rows: list[dict[str, object]]) -> None:
    """Add rows to the table, which several processes write."""
    with (HERE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = pd.read_csv(TABLE) if TABLE.exists() else pd.DataFrame()
        pd.concat([old, pd.DataFrame(rows)]).to_csv(TABLE, index=False, lineterminator="\n")


def row(parent: str, base: Spec, before: Labels, candidate: Candidate, verdict: Verdict) -> dict[str, object]:
    lifted, (spec, _) = verdict.lifted, spec_of(base, candidate.labels)
    theta_P = torch.from_numpy(lifted.x_R).float()
    proof = prove(spec, theta_P, limit_s=30) if lifted.over == "all pairs" else None
    k, a, b = lifted.row
    return {
        "parent": parent, "kind": candidate.kind, "numbers": spec.params,
        "ties_added": added(base, before, candidate.labels), "predicted": f"{candidate.cost:.3g}",
        "left": round(verdict.left, 4), "margin": f"{lifted.margin:.3g}", "over": lifted.over, "start": verdict.way,
        "digit": k, "a": a, "b": b, "pool_wrong": lifted.wrong, "verdict": proof.verdict if proof else "",
        "level": proof.level if proof else "", "logits": f"{proof.margin:.4g}" if proof else "",
        "cpu_s": round(verdict.seconds, 1), "labels": json.dumps([int(k) for k in candidate.labels]),
        "theta": json.dumps([float(f"{x:.9g}") for x in lifted.x_R]),
    }  # fmt: skip


def search(parent: str, kind: str, seconds: float, count: int = COUNT) -> None:
    base, theta_P, labels = parent_of(parent)
    pool = Pool()
    pool.add(look(base_spec(base, labels), numbers(labels, theta_P))[:FIRST])
    sets = sets_of(base, theta_P, labels, pool)
    listed = sets.singles() if kind == "single" else sets.others(count)
    done = set()
    if TABLE.exists():
        old = pd.read_csv(TABLE)
        done = set(old.loc[old["parent"] == parent, "labels"])
    print(len(listed), "candidates,", len(done), "done", flush=True)
    end = time.process_time() + seconds
    for candidate in sorted(listed, key=lambda c: c.cost):
        if time.process_time() > end:
            break
        if json.dumps([int(k) for k in candidate.labels]) in done:
            continue
        try:
            verdict = judge(base, theta_P, labels, candidate, pool)
        except ValueError as error:  # a set that is mute
            print(added(base, labels, candidate.labels), error, flush=True)
            continue
        write([row(parent, base, labels, candidate, verdict)])
        lifted = verdict.lifted
        print(
            candidate.kind, f"{candidate.cost:.2g}", added(base, labels, candidate.labels), f"left {verdict.left:.3f}",
            f"{lifted.margin:.3g}", lifted.over, lifted.row, f"{verdict.seconds:.1f} s", flush=True,
        )  # fmt: skip


def base_spec(base: Spec, labels: Labels) -> Spec:
    return tie(base, canonical(labels))


def numbers(labels: Labels, theta_P: Array) -> Array:
    """Return the numbers [R] of canonical ties."""
    first: dict[int, float] = {}
    for p, k in enumerate(labels):
        if k:
            first.setdefault(abs(k), float(theta_P[p]))
    return np.array(list(first.values()))


def planted(seconds: float) -> None:
    """Split groups of 6p's ties off, move θ, and look for the way back."""
    base, theta_P, labels = parent_of("6p")
    pool = Pool()
    pool.add(look(base_spec(base, labels), numbers(labels, theta_P))[:FIRST])
    splits = [s for s, _ in sets_of(base, theta_P, labels, pool).split(labels)]
    splits = list(dict.fromkeys(splits))
    chosen, end = splits[:: max(1, len(splits) // PLANTED)][:PLANTED], time.process_time() + seconds
    for split in chosen:
        if time.process_time() > end:
            break
        spec, _ = spec_of(base, split)
        start = numbers(split, theta_P)
        lifted = lift(spec, start, pool, time.process_time() + 8, looks=6, enough=np.inf)
        moved_P = spec.untie(torch.from_numpy(lifted.x_R)[None])[0].numpy()
        moved = float(np.abs(lifted.x_R / start - 1).max())
        sets = sets_of(base, moved_P, spec.ties, pool)
        stop = time.process_time() + PLANTED_S
        for rank, candidate in enumerate(sets.singles()):
            if canonical(candidate.labels) != labels and time.process_time() > stop:
                continue
            verdict = judge(base, moved_P, spec.ties, candidate, pool)
            line = row(f"planted: {added(base, split, labels)}", base, spec.ties, candidate, verdict)
            write([line | {"rank": rank, "moved": round(moved, 4)}])
            print(line["parent"], rank, f"moved {moved:.3f}", *list(line.values())[3:9], flush=True)
            if canonical(candidate.labels) == labels:
                break


def main(parent: str, *rest: str) -> None:
    torch.set_num_threads(1)
    if parent == "planted":
        planted(float(rest[0]))
    else:
        search(parent, rest[0], float(rest[1]), *map(int, rest[2:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
