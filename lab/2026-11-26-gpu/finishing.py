"""Core-seconds of finishing eight seeds of 57p by curvature, one after another.

python lab/2026-11-26-gpu/finishing.py
"""

from __future__ import annotations

import time
from pathlib import Path

import torch

from adders.curvature.minimise import finish_by_curvature
from trainer.checkpoints.checkpoint import Checkpoint

PARENT = Path(__file__).parents[1] / "certificates/57p"
SEEDS, DAMAGE = 8, 0.005


def main() -> None:
    torch.set_num_threads(1)
    parent, start = Checkpoint.load(PARENT), time.process_time()
    for seed in range(SEEDS):
        drawn_P = torch.randn(parent.spec.params, generator=torch.Generator().manual_seed(seed))
        finish_by_curvature(parent.spec, None, parent.theta_P.float() * (1 + DAMAGE * drawn_P), seed)
    print(f"{SEEDS} seeds finished in {time.process_time() - start:.1f} core-seconds")


if __name__ == "__main__":
    main()
