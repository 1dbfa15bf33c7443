"""What the published scripts do, for comparison: one seed, eager PyTorch, problems made one at a time.

The plain model of `model.submissions`, torch.optim.AdamW, Python's random numbers and a Python loop over
the problems of a batch: written after the training loop that the 57p paper describes (section 3). The same
loop serves every family; only its module and its sequences differ.
"""

from __future__ import annotations

import importlib
import random
import time

import torch
from torch.nn import functional as F

from benchmarks.ceilings import synchronize
from model import Spec
from model.families.low_rank import LowRank
from model.families.low_rank import spec as low_rank
from model.families.rope import Rope
from model.families.split_subspace import SplitSubspace
from trainer import Recipe


def problem(rng: random.Random, digits: int, carry_mix: float) -> tuple[int, int]:
    """One training problem, by the definitions of `trainer.data.problems.sample`."""
    if rng.random() >= carry_mix:
        return rng.randrange(10**digits), rng.randrange(10**digits)
    n, kind = rng.randint(1, digits), rng.randrange(4)
    if kind == 0:
        column, a, b = rng.randrange(n), 0, 0
        for i in range(n):
            low, high = (5, 9) if i == column else (0, 4)
            a, b = a + rng.randint(low, high) * 10**i, b + rng.randint(low, high) * 10**i
        return a, b
    if kind == 1:
        return 10**n - 1, rng.randint(1, 10 ** min(n, 3))
    if kind == 2:
        return rng.randint(10 ** (n - 1), 10**n - 1), rng.randint(1, 9) * 10 ** rng.randrange(n)
    return 10**n - rng.randint(1, 10), rng.randint(1, 20)


def sequence(spec: Spec, a: int, b: int) -> list[int]:
    """All tokens of one problem, as `spec.sequence` orders them.

    Raises ValueError for a family whose sequences are not written here.
    """
    x, y, z = ([n // 10**i % 10 for i in range(count)] for n, count in ((a, 10), (b, 10), (a + b, 11)))
    if isinstance(spec, SplitSubspace):
        plus, equals, end = (10, 11, 12) if spec.vocabulary == 14 else (0, 0, 0)
        return [*x, plus, *y, equals, *z, *([] if spec.no_eos else [end])]
    if isinstance(spec, LowRank):
        eos = [] if spec.no_eos else [low_rank.EOS]
        return [*x[::-1], low_rank.PLUS, *y[::-1], low_rank.EQUALS, *z, *eos]
    if isinstance(spec, Rope):
        return [0, *x, 0, 0, *y, 0, *z]
    raise ValueError(f"no baseline is written for the {spec.family} family")


def steps_per_s(spec: Spec, seconds: float, batch: int = Recipe().batch, device: str = "cpu") -> float:
    """Training steps a second of one seed, problems included.

    Raises ValueError for a family whose published script is not written here.
    """
    from adders.export import weights  # here: what only reads this module needs no plug-in

    recipe, rng = Recipe(), random.Random(777)
    template = importlib.import_module(f"model.submissions.{spec.family}")
    model = template.Adder(spec.as_dict(), weights(spec, spec.initial(777))).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    done, start = -3, time.perf_counter()  # three steps to warm up
    while done < 1 or time.perf_counter() - start < seconds:
        if done == 0:
            synchronize(device)
            start = time.perf_counter()
        tokens = torch.tensor([sequence(spec, *problem(rng, 10, 0.8)) for _ in range(batch)], device=device)
        logits = model(tokens[:, :-1])[:, spec.prompt - 1 :]
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, spec.prompt :].reshape(-1))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimiser.step()
        done += 1
    synchronize(device)
    return done / (time.perf_counter() - start)
