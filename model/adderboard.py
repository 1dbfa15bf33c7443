"""AdderBoard's protocol: 10 edge cases and 10,000 pairs from `random.Random(2025)`, decoded greedily.

Other tasks have their like: edge cases and pairs of their own, or all pairs where there are fewer.

Nothing here is ever used to select, stop or search; it certifies what was selected otherwise.
"""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from model.decode import answers
from model.tasks import ADDITION, Columns, Pairs

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec

DIGITS = ADDITION.digits
QUALIFIED = 0.99
AT_ONCE = 16_384
"""Problems that are decoded at once."""
# The test seeds of the 456-parameter report, section 2.1, table 3.
EXTENDED_SEEDS = (41, 100, 200, 300, 400, 500, 999, 1234, 7777, 31415)


@dataclass(frozen=True)
class Verification:
    """Result of the protocol. A failure is (a, b, decoded)."""

    params: int
    correct: int
    total: int
    failures: list[tuple[int, int, int]]
    extended: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Correct and total for each further set of problems."""
    margin: float | None = None
    """Least distance of a digit's logit to the next one over all problems that are right, in float32 logits."""

    @property
    def qualified(self) -> bool:
        return self.correct >= QUALIFIED * self.total

    @property
    def verified(self) -> bool:
        return self.correct == self.total

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "qualified": self.qualified, "verified": self.verified}


def official_pairs() -> Pairs:
    """Return the 10,010 official additions, in AdderBoard's order.

    >>> official_pairs()[6:8]
    [(1111111111, 8888888889), (1234567890, 9876543210)]
    """
    return ADDITION.pairs()


def uniform_pairs(seed: int, count: int) -> Pairs:
    """Draw pairs of integers up to ten digits, a then b, from Python's generator.

    >>> uniform_pairs(2025, 1)
    [(2395527356, 9334186774)]
    """
    return ADDITION.uniform(seed, count)


def carry_pairs(run: int, count: int, draw: str = "") -> Pairs:
    """Draw pairs whose longest run of carrying columns is exactly `run` (0 to 10) columns.

    One column generates the carry (digits sum to 10 or more), those above it pass it on (sum 9), and every
    other column sums to 8 or less. draw: a name for other pairs of the same kind than those of `verify`.
    """
    rng = random.Random(f"carry run {run} {draw}".strip())
    pairs = []
    for _ in range(count):
        start = rng.randint(0, DIGITS - run)
        a = b = 0
        for column in range(DIGITS):
            if run and column == start:
                total = rng.randint(10, 18)
            elif start < column < start + run:
                total = 9
            else:
                total = rng.randint(0, 8)
            digit = rng.randint(max(0, total - 9), min(9, total))  # so that the other one is a digit too
            a += digit * 10**column
            b += (total - digit) * 10**column
        pairs.append((a, b))
    return pairs


def failures(spec: Spec, theta_P: Tensor, pairs: Pairs) -> list[tuple[int, int, int]]:
    """Return the pairs that the model answers wrongly, each with the decoded answer."""
    wrong, _ = judge(spec, theta_P, pairs)
    return wrong


def judge(spec: Spec, theta_P: Tensor, pairs: Pairs) -> tuple[list[tuple[int, int, int]], float]:
    """Return the pairs that the model answers wrongly, and the least margin of the others; infinite where none is."""
    import torch

    wrong, least = [], math.inf
    for begin in range(0, len(pairs), AT_ONCE):
        asked = pairs[begin : begin + AT_ONCE]
        first, second = [a for a, _ in asked], [b for _, b in asked]
        decoded_B, margin_B = answers(spec, theta_P, first, second)
        right_B = spec.task.value(*torch.tensor(asked).T).tolist()
        results = zip(asked, decoded_B, right_B, margin_B.tolist(), strict=True)
        for (a, b), decoded, right, margin in results:
            # Of a wrong answer the margin says nothing.
            if decoded == right:
                least = min(least, margin)
            else:
                wrong.append((a, b, decoded))
    return wrong, least


def verify(spec: Spec, theta_P: Tensor, *, extended: bool = False) -> Verification:
    """Run AdderBoard's protocol on one seed's θ [P], or its like for the spec's task.

    extended: add ten uniform sets, and for ten-digit addition eleven strata by their longest run of carries.

    >>> from model import preset
    >>> spec = preset("57p")
    >>> verify(spec, spec.initial(0)).verified  # before training
    False
    """
    task = spec.task
    pairs = task.pairs()
    wrong, margin = judge(spec, theta_P, pairs)
    further: dict[str, Pairs] = {}
    # Uniform pairs hardly ever have a long run of carries: each length has a set of its own.
    if extended and isinstance(task, Columns):  # of rows all are asked
        for seed in EXTENDED_SEEDS:
            further[f"uniform, seed {seed}"] = task.ask(task.uniform(seed, 10_000))
        for run in range(DIGITS + 1 if task == ADDITION else 0):
            further[f"longest carry run {run}"] = carry_pairs(run, 1_000)

    sets: dict[str, tuple[int, int]] = {}
    for name, extra in further.items():
        failed, least = judge(spec, theta_P, extra)
        sets[name] = (len(extra) - len(failed), len(extra))
        margin = min(margin, least)
    correct = len(pairs) - len(wrong)
    smallest = margin if math.isfinite(margin) else None
    return Verification(spec.params, correct, len(pairs), wrong, sets, smallest)
