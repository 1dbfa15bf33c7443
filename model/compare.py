"""Two models on the same problems: do they answer alike, and how far are their logits apart?

Axes: B problem, T position, A answer position, V vocabulary, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model import decode
from model.spec import Spec

CHUNK = 20_000  # pairs at once
ANSWERS = decode.DIGITS + 1


@dataclass(frozen=True)
class Comparison:
    """Two models on the same problems. Logits are those of the ten digits at the eleven answers."""

    pairs: int
    different_answers: int
    right: int
    """How many of the pairs the second model adds rightly."""
    largest_logit_difference: float
    largest_logit: float


@torch.no_grad()
def compare(
    one: tuple[Spec, Tensor], other: tuple[Spec, Tensor], pairs: Sequence[tuple[int, int]]
) -> Comparison:
    """Both models, spec and θ [P], on pairs of integers up to ten digits.

    Fed with the true digits, a model that is right at every answer decodes just those; only where one of the
    two is not is it decoded token by token.
    """
    different, right, difference, largest = 0, 0, 0.0, 0.0
    for start in range(0, len(pairs), CHUNK):
        a, b = (list(column) for column in zip(*pairs[start : start + CHUNK], strict=True))
        (logits, good), (other_logits, other_good) = (_taught(*model, a, b) for model in (one, other))
        difference = max(difference, float((logits - other_logits).abs().max()))
        largest = max(largest, float(logits.abs().max()))
        unsure = (~(good & other_good)).nonzero().flatten().tolist()
        left, right_ = ([a[i] for i in unsure], [b[i] for i in unsure])
        decoded, other_decoded = (decode.add(*model, left, right_) for model in (one, other))
        different += sum(x != y for x, y in zip(decoded, other_decoded, strict=True))
        right += (
            len(a)
            - len(unsure)
            + sum(x + y == z for x, y, z in zip(left, right_, other_decoded, strict=True))
        )
    return Comparison(len(pairs), different, right, difference, largest)


def _taught(spec: Spec, theta_P: Tensor, a: list[int], b: list[int]) -> tuple[Tensor, Tensor]:
    """Digit logits [A, V, B] after the true digits, and whether all answers are right [B]."""
    numbers = [torch.tensor(n, dtype=torch.int64) for n in (a, b)]
    x, y = (decode.columns(n, decode.DIGITS) for n in numbers)
    z = decode.columns(numbers[0] + numbers[1], ANSWERS)
    tokens_TB = torch.stack(spec.sequence(x, y, z)[: spec.prompt + spec.decoded - 1])
    logits = spec.forward(theta_P[None], tokens_TB[None], first=spec.prompt - 1)
    stacked_VAB = torch.stack([v[0].expand(spec.decoded, len(a)) for v in logits])
    choice_AB = stacked_VAB.argmax(0)
    ends_B = (choice_AB[ANSWERS:] >= decode.DIGITS).all(0)
    is_right_B = (choice_AB[:ANSWERS] == torch.stack(z)).all(0) & ends_B
    return stacked_VAB[: decode.DIGITS, :ANSWERS].transpose(0, 1), is_right_B
