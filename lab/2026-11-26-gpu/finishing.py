"""Core-seconds of finishing eight seeds of 57p by curvature, together and one after another, and if the bits are equal.

python lab/2026-11-26-gpu/finishing.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from trainer.checkpoints.checkpoint import Checkpoint
from trainer.curvature.minimise import finish_by_curvature
from trainer.curvature.together import together

PARENT = Path(__file__).parents[1] / "certificates/57p"
SEEDS, DAMAGE = 8, 0.005


def timed(call: Callable[[], list[Tensor]]) -> tuple[list[Tensor], float]:
    start = time.process_time()
    return call(), time.process_time() - start


def main() -> None:
    torch.set_num_threads(1)
    parent, jobs = Checkpoint.load(PARENT), []
    for seed in range(SEEDS):
        drawn_P = torch.randn(parent.spec.params, generator=torch.Generator().manual_seed(seed))
        theta_P = parent.theta_P.float() * (1 + DAMAGE * drawn_P)
        jobs.append(partial(finish_by_curvature, parent.spec, None, theta_P, seed))
    at_once, together_s = timed(lambda: together(jobs))
    alone, alone_s = timed(lambda: [job() for job in jobs])
    same = sum(map(torch.equal, at_once, alone))
    print(f"together {together_s:.1f} s, alone {alone_s:.1f} s; the same bits: {same} of {SEEDS}")


if __name__ == "__main__":
    main()
