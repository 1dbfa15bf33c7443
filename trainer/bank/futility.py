"""The rule that gives up seeds which will not grok, and how often it is wrong.

Grokking is a jump after a long plateau, so ranks among seeds say nothing. But most losers show early what
they are: they stay at the token accuracy of a model that has learnt next to nothing (0.2), where no winner
was seen for long once it had met ten-digit numbers. The numbers below come from complete recorded runs;
`python -m benchmarks.stopping` replays the rule over them and tunes it (docs/performance.md, "Stopping").

Axes: R row (a seed at one of its evaluations).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING

from trainer.recipe import Seed

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = 10


@dataclass(frozen=True)
class FutilityRule:
    """When to give a seed up. `checkpoints`: (progress, exact, token), progress as `progress_of` counts it.

    At or past `progress` a seed is hopeless if its best exact match so far is below `exact` and its best
    token accuracy so far below `token` (fractions of the 5,000 selection problems and their digits).
    """

    checkpoints: tuple[tuple[float, float, float], ...]

    def is_futile(self, progress_R: Tensor, exact_R: Tensor, token_R: Tensor) -> Tensor:
        """Whether each row is hopeless [R] (bool), from its progress and its best measures so far."""
        import torch  # here alone: the constants below are for whoever counts seeds

        hopeless_R = torch.zeros_like(progress_R, dtype=torch.bool)
        for progress, exact, token in self.checkpoints:
            hopeless_R |= (progress_R >= progress) & (exact_R < exact) & (token_R < token)
        return hopeless_R


FUTILITY_RULE = FutilityRule(
    checkpoints=((0.3, 0.01, 0.2), (0.4, 0.01, 0.25), (0.7, 0.01, 0.7), (0.8, 0.2, 0.9))
)
"""Tuned on 396 complete runs of 10 studies (47 to 133 parameters, two families) with 20 winners. Of 288 runs
recorded afterwards, with 38 winners, it killed none and saved 28 % of the seed-steps; of all 620, with 55
winners, none and 30 %; of 256 of 57p-faded, with 20 winners, one (docs/performance.md, "Stopping")."""

FALSE_KILLS_UPPER = 0.0088
"""Of the seeds given up, the share that would have grokked is at most this (one-sided 95 %,
Clopper-Pearson): it was 0 of 341, each given up by a rule that was not tuned on its study."""

MEASURED = frozenset({
    "79ee5e16e73c", "b2f348b401a8", "7d8086baafd9", "45c7327c9e6f", "d0a2d4507fcd", "b0e0f708d7bf",
    "7d87ad8c4e56", "84647a82b105", "fe870ed1d9f8", "77ad7fcfe7b0", "00cb06c0e127", "8cc816e07fd5",
    "9232932a2953",
})  # fmt: skip
"""Keys of the configurations by which that was measured (docs/performance.md, "Stopping"). It says nothing of
others: what the rule kills there their own spared seeds say alone (search/stats/counting.py)."""


def full_length_from(curriculum: Sequence[Sequence[int]]) -> int:
    """The step from which a seed meets ten-digit numbers, from a recipe's pairs [digits, steps].

    What it scores on the selection problems before, all of ten digits, says little of it.
    """
    ends = [sum(steps for _, steps in curriculum[: n + 1]) for n in range(len(curriculum))]
    return max((end for (digits, _), end in zip(curriculum, ends, strict=True) if digits < DIGITS), default=0)


def progress_of(step_R: Tensor, taught_R: Tensor, steps_R: Tensor) -> Tensor:
    """The share of the budget `steps_R` after `taught_R` that is spent at `step_R` [R]; 0 or less before.

    In float64, so that an evaluation made exactly at a checkpoint counts as there.
    """
    return (step_R - taught_R).double() / (steps_R - taught_R).clamp(min=1).double()


def is_control(seed: Seed) -> bool:
    """Whether a seed runs on though the rule would give it up, so that every study measures the rule anew.

    A random tenth, fixed once by the seed's numbers.
    """
    text = f"spared {seed.init_seed} {seed.data_seed}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 10 == 0


def upper(k: int, n: int) -> float:
    """The one-sided 95 % upper bound of k successes in n (Clopper and Pearson, Biometrika 26, 1934).

    It is the probability at which k or fewer have a chance of 5 %; 1 for n = 0.
    """
    if k >= n:
        return 1.0

    def tail(p: float) -> float:
        return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))

    return bisect(lambda p: tail(p) > 0.05)


def bisect(below: Callable[[float], bool]) -> float:
    """Where in 0..1 `below` turns false, to 2^-50 and rounded up."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return high
