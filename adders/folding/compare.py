"""Comparison of two models on the same problems: their answers and their logits.

Axes: B problem, T position, A answer position, V vocabulary, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model import decode
from model.spec import Spec
from model.tasks import in_columns

FIRST_CHUNK = 250
"""Pairs at once at first, so that a model that is wrong is found out before many are decoded."""
CHUNK = 20_000
"""Pairs at once at most."""
MOST_UNSURE = 250
"""Pairs that are decoded token by token before a comparison ends: a model that is wrong would take minutes."""


@dataclass(frozen=True)
class Comparison:
    """Result of `compare`. Logits are those of the digits at the answers that count."""

    pairs: int
    """Pairs that were compared: fewer of a model that gets many wrong."""
    different_answers: int
    right: int
    """Pairs that the second model answers rightly."""
    largest_logit_difference: float
    largest_logit: float


@torch.no_grad()
def compare(
    first: tuple[Spec, Tensor],
    second: tuple[Spec, Tensor],
    pairs: Sequence[tuple[int, int]],
) -> Comparison:
    """Compare two models of one task, spec and θ [P], on pairs of integers.

    A model that is right at every answer when fed the true digits decodes exactly those. Pairs on which either
    model is not are decoded token by token; after MOST_UNSURE of them the rest is left out.
    """
    task = first[0].task
    compared = decoded = different = correct = 0
    difference = largest = 0.0
    size = FIRST_CHUNK
    while compared < len(pairs) and decoded < MOST_UNSURE:
        chunk = pairs[compared : compared + size]
        a, b = (list(column) for column in zip(*chunk, strict=True))
        logits, is_right = _teacher_forced(*first, a, b)
        logits_2, is_right_2 = _teacher_forced(*second, a, b)
        difference = max(difference, float((logits - logits_2).abs().max()))
        largest = max(largest, float(logits.abs().max()))

        # both models are right on all others
        unsure = (~(is_right & is_right_2)).nonzero().flatten().tolist()
        x = [a[i] for i in unsure]
        y = [b[i] for i in unsure]
        sums, _ = decode.answers(*first, x, y)
        sums_2, _ = decode.answers(*second, x, y)
        correct += len(a) - len(unsure)
        for m, n, one, other in zip(x, y, sums, sums_2, strict=True):
            different += one != other
            correct += task.value(m, n) == other
        compared += len(a)
        decoded += len(unsure)
        size = min(2 * size, CHUNK)
    return Comparison(compared, different, correct, difference, largest)


def _teacher_forced(spec: Spec, theta_P: Tensor, a: list[int], b: list[int]) -> tuple[Tensor, Tensor]:
    """Return the digit logits [A, V, B] after the true answer's digits, and where all answers are right [B]."""
    task = in_columns(spec.task)
    numbers = task.operands(*(torch.tensor(n, dtype=torch.int64) for n in (a, b)))
    z = task.answer(*numbers)
    length = spec.prompt + spec.decoded - 1
    tokens_TB = torch.stack(spec.sequence(*numbers, z)[:length])
    logits = spec.forward(theta_P[None], tokens_TB[None], first=spec.prompt - 1)
    stacked_VAB = torch.stack([v[0].expand(spec.decoded, len(a)) for v in logits])

    # right at every digit, and no digit after them
    choice_AB = stacked_VAB.argmax(0)
    ends_B = (choice_AB[task.answers :] >= task.base).all(0)
    is_right_B = (choice_AB[: task.answers] == torch.stack(z)).all(0) & ends_B
    digits_VAB = stacked_VAB[: task.base, : task.answers]
    return digits_VAB.transpose(0, 1), is_right_B
