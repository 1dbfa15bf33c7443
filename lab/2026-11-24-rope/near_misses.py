"""What takes near misses to all: from θ at their best, more steps in several ways, or a method of finishing.

    PYTHONPATH=. python lab/2026-11-24-rope/near_misses.py steps 44p KEPT.npz ...
    PYTHONPATH=. python lab/2026-11-24-rope/near_misses.py curvature|margin 62p KEPT.npz ...

KEPT: chunks of rope-five of `lab/scripts/seeds_in_banks.py --kept`. Seeds above 0.5 exact match are tried.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from adders.curvature.minimise import finish_by_curvature
from adders.finishing.finish import MARGIN, finish
from model import preset, verify
from trainer import Bank, Pair, Recipe, Seed

LOW, STEPS, FIRST_DATA_SEED = 0.5, 20_000, 900_000
BASE: dict[str, Any] = {
    "steps": STEPS, "batch": 128, "eval_every": 1_000, "hold": 0, "lr": 0.003, "lr_floor": 0.01, "warmup": 500,
    "weight_decay": 0.0, "carry_mix": 0, "curriculum": (),
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "AdamW": {},
    "Grokfast": {"grokfast_lambda": 2},
    "decay": {"weight_decay": 0.01},
    "own errors": {"targeted": 0.5},
    "own errors, beta2": {"targeted": 0.5, "beta2": 0.95},
    "own errors, longer": {"targeted": 0.5, "beta2": 0.95, "lr": 0.005, "steps": 4 * STEPS},
}


def near_misses(files: list[str]) -> Iterator[tuple[int, float, Tensor]]:
    """Yield a chunk's near misses: seed, best exact match, θ [P] there."""
    for file in files:
        chunk = np.load(file)
        for n, seed in enumerate(chunk["init_seed"].tolist()):
            best = float(np.nanmax(chunk["curve"][n][:, 0]))
            if LOW < best < 1:
                yield seed, best, torch.from_numpy(chunk["best_theta"][n])


def main(way: str, size: str, *files: str) -> None:
    torch.set_num_threads(1)
    spec, starts = preset(size), list(near_misses(list(files)))
    if way == "steps":
        print("start", np.mean([best for _, best, _ in starts]).round(4), [best for _, best, _ in starts])
        for name, changes in WAYS.items():
            recipe = Recipe(**BASE | changes)
            pairs = [Pair(recipe, Seed(0, FIRST_DATA_SEED + n), tuple(t.tolist())) for n, _, t in starts]
            bank = Bank(spec, pairs)
            while bank.advance():
                pass
            ends = [bank.result(n).best_exact for n in range(len(starts))]
            print(name, np.mean(ends).round(4), [round(end, 4) for end in ends], flush=True)
        return
    for seed, _, theta_P in starts:
        start = time.process_time()
        if way == MARGIN:
            wrong = finish(spec, theta_P, lambda t: 10_010 - verify(spec, t).correct, [MARGIN], turns=2).wrong
        else:
            finished_P = finish_by_curvature(spec, None, theta_P, seed)
            wrong = 10_010 - verify(spec, finished_P.float()).correct
        before = 10_010 - verify(spec, theta_P).correct
        print(
            seed,
            way,
            before,
            "wrong before,",
            wrong,
            "after,",
            round(time.process_time() - start),
            "s",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
