"""Count how many of a million fresh additions a checkpoint gets right: pairs that nothing was chosen by.

PYTHONPATH=. python lab/scripts/fresh_pairs.py CHECKPOINT ... [--seed 20261123] [--count 1000000]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from model.adderboard import uniform_pairs
from model.decode import add
from trainer.checkpoints.checkpoint import Checkpoint

AT_ONCE = 50_000


def right(folder: Path, seed: int, count: int) -> int:
    """Return how many of `count` uniform pairs of ten digits a checkpoint gets right."""
    checkpoint, pairs = Checkpoint.load(folder), uniform_pairs(seed, count)
    correct = 0
    for first in range(0, count, AT_ONCE):
        a, b = zip(*pairs[first : first + AT_ONCE], strict=True)
        answers = add(checkpoint.spec, checkpoint.theta_P, a, b)
        correct += sum(z == x + y for x, y, z in zip(a, b, answers, strict=True))
    return correct


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--seed", type=int, default=20_261_123)
    parser.add_argument("--count", type=int, default=1_000_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for folder in args.folders:
        print(f"{folder.name}: {right(folder, args.seed, args.count):,} of {args.count:,}", flush=True)


if __name__ == "__main__":
    main()
