"""Greedy decoding, outside the model: append the likeliest token, ask again.

The loop knows nothing of the task; `answers` writes the prompt and reads the digits.

Axes: B problem, T position, V vocabulary, P parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from model.tasks import only_addition

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec


def greedy(next_logits: Callable[[Tensor], Tensor], prompt_TB: Tensor, steps: int) -> Tensor:
    """Return the prompt's continuation by `steps` tokens [steps, B].

    next_logits: tokens so far [T, B] -> logits [V, B] of the next token.
    prompt_TB: the first tokens of each problem.
    """
    import torch

    tokens_TB = prompt_TB
    for _ in range(steps):
        likeliest_B = next_logits(tokens_TB).argmax(0).to(tokens_TB.dtype)
        tokens_TB = torch.cat([tokens_TB, likeliest_B[None]])
    return tokens_TB[len(prompt_TB) :]


def add(spec: Spec, theta_P: Tensor, a: Sequence[int], b: Sequence[int]) -> list[int]:
    """Return the sums that the model decodes for pairs of integers from 0 to 9,999,999,999.

    theta_P: one seed's θ. a, b: the operands, as many of each.
    Raises ValueError for operands that are not integers, are out of range or have no partner.

    >>> from model import preset
    >>> spec = preset("57p")
    >>> len(add(spec, spec.initial(0), [12, 3], [30, 4]))  # of a seed that has not learned
    2
    """
    only_addition(spec.task, "add")
    sums, _ = answers(spec, theta_P, a, b)
    return sums


def answers(spec: Spec, theta_P: Tensor, a: Sequence[int], b: Sequence[int]) -> tuple[list[int], Tensor]:
    """Return what the model answers to pairs of numbers in its task, and the margin [B] of each answer.

    A margin is how far a digit's logit is from the next, at least: in float32 logits, as rounded on this machine.
    Raises ValueError as `add` does.
    """
    import torch

    task = spec.task
    task.check_pairs(a, b)
    a_B = torch.tensor(a, dtype=torch.int64)
    b_B = torch.tensor(b, dtype=torch.int64)
    prompt_TB = torch.stack(spec.prompt_of(a_B, b_B))
    margins_AB: list[Tensor] = []

    def next_logits(tokens_TB: Tensor) -> Tensor:
        """Return the logits of the next token, and keep how far the likeliest is ahead."""
        last = len(tokens_TB) - 1
        logits = spec.forward(theta_P[None], tokens_TB[None], first=last)
        logits_VB = torch.stack([v[0, 0] for v in logits])
        largest, second = logits_VB.topk(2, dim=0).values
        margins_AB.append(largest - second)
        return logits_VB

    with torch.no_grad():
        answer_AB = greedy(next_logits, prompt_TB, spec.decoded)
    # A token behind the answer, which a vocabulary may have to end it, is no digit.
    least_B = torch.stack(margins_AB[: task.answers]).amin(0)
    return spec.read_answer(answer_AB).tolist(), least_B
