"""Does a brief training of a set of ties say what a whole one comes to?

Sets that curvature proposes from a certificate are trained for 3,000 steps, and again for fewer, from the
same θ on the same data. Shown: Spearman's ρ of the losses at the ends, and where those five stand that do
best after 3,000 steps, as they were proposed and after each brief training (0 is first).

    python lab/2026-11-23-descents/brief.py lab/certificates/11p global 40
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from compress.candidates import TieCandidate
from compress.local import LocalDescent, Settings
from compress.ties import tie_ramp_defaults
from model.spec import Spec
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint

DATA, WHOLE, BRIEF, BEST = 7, 3_000, (300, 600, 1_000), 5


def losses(base: Spec, theta: tuple[float, ...], sets: list[TieCandidate], steps: int) -> Tensor:
    """The loss of each set at the end of so many steps, half of them ramp."""
    recipe = Recipe(**tie_ramp_defaults(steps) | {"eval_every": steps // 2})
    pairs = [Pair(recipe, Seed(0, DATA), theta, candidate.ties) for candidate in sets]
    bank = Bank(base, pairs, slots=16)
    while bank.advance():
        pass
    return torch.stack([bank.result(n).curve_EM[-1, 2] for n in range(len(pairs))])


def places(values: Tensor) -> Tensor:
    return values.argsort().argsort().double()


def main(checkpoint: str, scope: str, count: str) -> None:
    torch.set_num_threads(1)
    loaded = Checkpoint.load(Path(checkpoint))
    with tempfile.TemporaryDirectory() as folder:
        local = LocalDescent(loaded.spec, [loaded.theta_P], Settings(scope=scope), Path(folder))
    local.descent.progress.batch_size = 2
    base, (theta,) = local.base, local.descent.smallest.thetas
    sets = local.descent.propose(int(count))
    whole = losses(base, theta, sets, WHOLE)
    best = whole.argsort()[:BEST]
    print(f"{len(sets)} sets; the best {BEST} after {WHOLE} steps were proposed at {best.tolist()}")
    for steps in BRIEF:
        brief = losses(base, theta, sets, steps)
        rho = float(torch.corrcoef(torch.stack([places(brief), places(whole)]))[0, 1])
        print(f"after {steps} steps: rho {rho:.3f}, they stand at {places(brief)[best].int().tolist()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
