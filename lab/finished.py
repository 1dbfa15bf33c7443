"""What a method of finishing makes of a θ: the columns that tables of finished seeds share."""

from __future__ import annotations

import time

from torch import Tensor

from adders.acceptance import AcceptanceSet
from adders.finishing.finish import finish
from adders.proof.prover import prove
from model import Spec, verify


def finished_row(spec: Spec, theta_P: Tensor, method: str, turns: int, limit_s: float) -> dict[str, object]:
    """Finish θ [P] by one method, and decide the result on all pairs within `limit_s` seconds."""
    exam, start = AcceptanceSet(spec), time.process_time()
    done = finish(spec, theta_P, exam.errors, [method], turns=turns)
    seconds, proof = time.process_time() - start, prove(spec, done.theta_P, limit_s=limit_s)
    return {
        "wrong_before": done.before, "wrong": done.wrong, "right": verify(spec, done.theta_P).correct,
        "verdict": proof.verdict, "level": proof.level, "margin": f"{proof.margin:.4g}",
        "turns": len(done.turns), "cpu_s": round(seconds, 1),
    }  # fmt: skip
