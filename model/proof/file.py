"""Proofs on disk: what check.py needs to check a verdict without the prover, and the verdict beside a checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from model.proof import VERDICT_FILE, is_right
from model.proof.columns import COLUMNS
from model.proof.net import FAMILIES
from model.proof.prover import prove
from model.proof.rounding import MACHINES
from model.proof.verdict import read_values, read_verdict
from model.tied import ties_of

if TYPE_CHECKING:
    from torch import Tensor

    from model.proof.prover import Proof
    from model.spec import Spec

FORMAT = 1
SOON_S = 4.0
CHECKER = Path(__file__).with_name("check.py")


def digest(theta_P: Tensor) -> str:
    return hashlib.sha256(theta_P.numpy().tobytes()).hexdigest()


def verdict_of(spec: Spec, theta_P: Tensor, proof: Proof) -> dict[str, Any]:
    """Return everything but a proof's rows as plain values, with the spec and the digest of its θ."""
    about = {"params": spec.params, "spec": spec.as_dict(), "theta_sha256": digest(theta_P)}
    return proof.as_dict() | about


def decide(spec: Spec, theta_P: Tensor, limit_s: float) -> dict[str, Any]:
    """Decide all pairs of numbers, and return the verdict as plain values. Raises as `prove` does."""
    return verdict_of(spec, theta_P, prove(spec, theta_P, limit_s=limit_s))


def decide_soon(spec: Spec, theta_P: Tensor, limit_s: float = SOON_S) -> dict[str, Any] | None:
    """Return the verdict on all pairs that so many seconds are enough for; None of a family without proofs."""
    return decide(spec, theta_P, limit_s) if ties_of(spec)[0].family in FAMILIES else None


def write_verdict(folder: Path, spec: Spec, theta_P: Tensor, values: dict[str, Any]) -> dict[str, Any]:
    """Keep a verdict beside the checkpoint in a folder, unless it decides nothing and one there does. Return which."""
    earlier = claim_beside(folder, spec, theta_P)
    if earlier and is_right(values) is None and is_right(earlier) is not None:
        return earlier
    text = json.dumps(values | {"spec": spec.as_dict()})  # records of before lack it
    (folder / VERDICT_FILE).write_text(f"{text}\n", encoding="utf-8")
    return values


def claim_beside(folder: Path, spec: Spec, theta_P: Tensor) -> dict[str, Any] | None:
    """Return what the file in a checkpoint's folder says of all pairs; None where it says nothing of this spec and θ.

    Anyone may have written it: it is read as far as a verdict goes, and it is a claim (search/store/verdicts.py).
    """
    claim = read_verdict(read_values(folder / VERDICT_FILE))
    return claim if claim and is_about(claim, spec, theta_P) else None


def is_about(verdict: Mapping[str, Any], spec: Spec, theta_P: Tensor) -> bool:
    """True if a verdict is on all pairs, of this spec and θ."""
    return (verdict["spec"], verdict["theta_sha256"], verdict["digits"]) == (spec.as_dict(), digest(theta_P), COLUMNS)


def claims_proof(folder: Path, spec: Spec, theta_P: Tensor) -> bool | None:
    """Return what the file in a checkpoint's folder claims of all pairs; None where it decides nothing."""
    return is_right(claim_beside(folder, spec, theta_P))


def proof_text(spec: Spec, theta_P: Tensor, proof: Proof) -> str:
    """Return a proof as JSON, a row a line."""
    values = {
        "format": FORMAT,
        "claim": f"greedy decoding in float32 is right for all pairs of {proof.digits}-digit numbers",
        "params": spec.params,
        "spec": spec.as_dict(),
        "theta_sha256": digest(theta_P),
        "level": proof.level,
        "digits": proof.digits,
        "bounds": asdict(MACHINES[proof.level]),
        "margin": {"logits": proof.margin, "pair": proof.pair, "digit": proof.digit},
        "checker": CHECKER.name if is_checkable(spec, proof) else None,
        "versions": {name: _version(name) for name in ("adder-search", "torch", "numpy", "scipy")},
    }
    if proof.level == "here":
        values["machine"] = {
            "processor": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
        }
    head = json.dumps(values, indent=1).rstrip("}").rstrip()
    rows = ",\n  ".join(map(json.dumps, proof.rows if proof.complete else []))
    return f'{head},\n "rows": [\n  {rows}\n ]\n}}\n'


def is_checkable(spec: Spec, proof: Proof) -> bool:
    """True if check.py can check the proof: the level 'any', one head, an attention output of rank 1."""
    is_known = ties_of(spec)[0].family == "split_subspace"
    return is_known and proof.complete and proof.level == "any" and bool(proof.rows)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # of a checkout
        return "not installed"
