"""What the published scripts do, for comparison: one seed, eager PyTorch, problems made one at a time.

The plain model of `model.submissions`, torch.optim.AdamW, Python's random numbers and a Python loop over
the problems of a batch: written after the training loop that the 57p paper describes (section 3).
"""

from __future__ import annotations

import random
import time

import torch
from torch.nn import functional as F

from model import Spec
from model.export import weights
from model.submissions.split_subspace import Adder
from trainer import Recipe


def problem(rng: random.Random, digits: int, carry_mix: float) -> tuple[int, int]:
    """One training problem, by the definitions of `trainer.problems.sample`."""
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


def sequence(a: int, b: int) -> list[int]:
    """34 tokens, units first; delimiters and end are 0."""
    digits = [[n // 10**i % 10 for i in range(count)] for n, count in ((a, 10), (b, 10), (a + b, 11))]
    return [*digits[0], 0, *digits[1], 0, *digits[2], 0]


def steps_per_s(spec: Spec, seconds: float) -> float:
    """Training steps a second of one seed, problems included."""
    recipe, rng = Recipe(), random.Random(777)
    model = Adder(spec.as_dict(), weights(spec, spec.initial(777)))
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    done, start = -3, time.perf_counter()  # three steps to warm up
    while done < 1 or time.perf_counter() - start < seconds:
        if done == 0:
            start = time.perf_counter()
        tokens = torch.tensor([sequence(*problem(rng, 10, 0.8)) for _ in range(recipe.batch)])
        logits = model(tokens[:, :-1])[:, spec.prompt - 1 :]
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, spec.prompt :].reshape(-1))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimiser.step()
        done += 1
    return done / (time.perf_counter() - start)
