"""Proofs on disk: what check.py proves again without the prover, and the verdict beside a checkpoint."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from adders.proof.net import FAMILIES, Asked
from adders.proof.program import source
from adders.proof.prover import prove
from adders.proof.rounding import MACHINES
from adders.proof.second import program_digest
from model.tied import ties_of
from model.verdict import UNDECIDED, digest
from search.store.verdicts import beside, settle

if TYPE_CHECKING:
    from torch import Tensor

    from adders.proof.prover import Proof
    from model.spec import Spec

FORMAT = 3
CHECKER = Path(__file__).with_name("check.py")


def verdict_of(spec: Spec, theta_P: Tensor, proof: Proof) -> dict[str, Any]:
    """Return a proof as plain values, with the spec and the digests of its θ and its program."""
    about = {
        "params": spec.params,
        "spec": spec.as_dict(),
        "theta_sha256": digest(theta_P),
        "program_sha256": program_digest(source(spec, theta_P)),
    }
    return proof.as_dict() | about


def decide(spec: Spec, theta_P: Tensor, limit_s: float) -> dict[str, Any]:
    """Decide all pairs of numbers, and return the verdict as plain values. Raises as `prove` does."""
    return verdict_of(spec, theta_P, prove(spec, theta_P, limit_s=limit_s))


def decide_soon(spec: Spec, theta_P: Tensor, limit_s: float) -> dict[str, Any] | None:
    """Return the verdict on all pairs that so many seconds are enough for; None of what no proof is about."""
    # asked for any model that a home has, so a family without proofs is no error
    is_known = spec.adds and ties_of(spec)[0].family in FAMILIES
    return decide(spec, theta_P, limit_s) if is_known else None


def own_verdict(verdict: dict[str, Any] | None, spec: Spec, theta_P: Tensor) -> dict[str, Any] | None:
    """Return a verdict if it was decided here, of the program that is exported today; else None.

    Raises ValueError for a model that cannot be exported.
    """
    program = program_digest(source(spec, theta_P))
    is_own = verdict and "claimed" not in verdict and verdict.get("program_sha256") == program
    return verdict if is_own else None


def settled(folder: Path, spec: Spec, theta_P: Tensor, text: str, if_any: bool = False) -> dict[str, Any] | None:
    """Return a verdict on a checkpoint's submission that was decided here: the one in its folder, or one of now.

    text: of the submission. if_any: None where the folder has none. Raises ValueError where the folder's verdict names
    another program; one that decides nothing is passed over.
    """
    claim = beside(folder, spec, theta_P)
    named = claim.get("program_sha256") if claim else None
    if claim and named and named != program_digest(text):
        if claim.get("claimed", claim["verdict"]) != UNDECIDED:
            decides = f"`adder-search prove {folder} --record` decides this one"
            raise ValueError(f"its verdict is of another program; {decides}")
        claim = None
    if if_any and not claim:
        return None
    # verdicts of before proofs named a program are claims again
    if claim and not named:
        claim = {"claimed": claim["verdict"]} | claim | {"verdict": UNDECIDED}
    return settle(claim, spec, theta_P)


def proof_text(spec: Spec, theta_P: Tensor, proof: Proof) -> str:
    """Return what is proved, as JSON."""
    values = {
        "format": FORMAT,
        "claim": claim_of(spec, proof.digits),
        "params": spec.params,
        "spec": spec.as_dict(),
        "theta_sha256": digest(theta_P),
        "program_sha256": program_digest(source(spec, theta_P)),
        "level": proof.level,
        "digits": proof.digits,
        "bounds": asdict(MACHINES[proof.level]),
        "margin": {"logits": proof.margin, "pair": proof.pair, "digit": proof.digit},
        "checker": CHECKER.name if proof.level == "any" else None,
        "versions": {name: _version(name) for name in ("adder-search", "torch", "numpy", "scipy")},
    }
    # a proof of this level holds where torch takes the same kernels
    if proof.level == "here":
        values["machine"] = {
            "processor": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
        }
    return json.dumps(values, indent=1) + "\n"


def claim_of(spec: Spec, digits: int) -> str:
    """Return what a proof for numbers of so many digits says, in words."""
    asked = Asked.of(spec.task)
    claim = f"greedy decoding in float32 is right for all pairs of {digits}-digit numbers"
    claim += f" in base {asked.base}" if asked.base != 10 else ""
    return f"{claim} of which the second is no larger" if asked.is_difference else claim


def _version(name: str) -> str:
    """Return the version of an installed package."""
    try:
        return version(name)
    except PackageNotFoundError:  # a checkout that is run without being installed
        return "not installed"
