"""The prover's verdict on a net, as a row of a table."""

from __future__ import annotations

import json
import time
from typing import Any

from torch import Tensor

from adders.proof import check
from adders.proof.file import proof_text
from adders.proof.prover import prove
from model.spec import Spec
from model.verdict import PROVED


def judged(spec: Spec, theta_P: Tensor, limit_s: float) -> dict[str, Any]:
    """Return the verdict on θ [P], and whether check.py accepts it. limit_s: seconds of proving."""
    start = time.process_time()
    proof = prove(spec, theta_P, limit_s=limit_s)
    seconds, checked = time.process_time() - start, ""
    if proof.verdict == PROVED:
        content = json.loads(proof_text(spec, theta_P, proof))
        checked = "checked" if content["checker"] and check.check(content, spec.as_dict(), theta_P.tolist()) else ""
    wrong = proof.wrong[0] if proof.wrong else None
    return {
        "verdict": proof.verdict, "level": proof.level, "margin": f"{proof.margin:.4g}",
        "wrong_a": wrong.a if wrong else "", "wrong_b": wrong.b if wrong else "",
        "check": checked, "core_s": f"{seconds:.1f}",
    }  # fmt: skip
