"""Does a brief training of a set of ties say what a whole one comes to?

Sets that curvature proposes from a certificate are trained for 3,000 steps, and again for fewer, from the
same θ on the same data. Shown: Spearman's ρ of the losses at the ends, and where those five stand that do
best after 3,000 steps, as they were proposed and after each brief training (0 is first).

    python lab/2026-11-23-descents/brief.py lab/certificates/11p values 40
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from model.tied import Ties
from search.compress.descend import Descent, Settings
from search.compress.journal import Kept
from trainer import Bank, Pair, Recipe, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.recipe.ramp import tie_ramp_defaults

DATA, WHOLE, BRIEF, BEST = 7, 3_000, (300, 600, 1_000), 5


def losses(descent: Descent, parent: Kept, sets: list[Ties], steps: int) -> Tensor:
    """The loss of each set at the end of so many steps, half of them ramp."""
    recipe = Recipe(**tie_ramp_defaults(steps) | {"eval_every": steps // 2})
    pairs = [Pair(recipe, Seed(0, DATA), tuple(parent.theta), ties) for ties in sets]
    bank = Bank(descent.base, pairs, slots=16, futility=None)
    while bank.advance():
        pass
    return torch.stack([bank.result(n).curve_EM[-1, 2] for n in range(len(pairs))])


def places(values: Tensor) -> Tensor:
    return values.argsort().argsort().double()


def main(checkpoint: str, reach: str, count: str) -> None:
    torch.set_num_threads(1)
    loaded = Checkpoint.load(Path(checkpoint))
    with tempfile.TemporaryDirectory() as folder:
        descent = Descent(loaded.spec, loaded.theta_P, Settings(reach=reach), Path(folder))
    parent = descent.journal.kept[0]
    descent.journal.several = 2
    sets = descent.propose(parent, int(count))
    whole = losses(descent, parent, sets, WHOLE)
    best = whole.argsort()[:BEST]
    print(f"{len(sets)} sets; the best {BEST} after {WHOLE} steps were proposed at {best.tolist()}")
    for steps in BRIEF:
        brief = losses(descent, parent, sets, steps)
        rho = float(torch.corrcoef(torch.stack([places(brief), places(whole)]))[0, 1])
        print(f"after {steps} steps: rho {rho:.3f}, they stand at {places(brief)[best].int().tolist()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
