"""Hard examples: problems that a seed gets wrong, searched at evaluations and drawn again in training.

They come from a stream of their own, a function of (data seed, step) as the training stream is. The bank's
state has them: so an interrupted seed goes on with the same ones, and nothing depends on slot or company.

Axes: S slot, R row, B problem of a step, N problem of the pool, M error of the buffer, V token, A answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from model.counter import APART, GOLDEN, fraction, mix, words
from model.tasks import Rows, Task, in_columns

POOL = 2_048  # problems searched at an evaluation
CAPACITY = 64
OPERANDS = "errors"
"""Name in a bank's state of the errors' operands [S, 2, M] (float64)."""
COUNT = "error_count"
"""Name in a bank's state of the number of errors [S] (int64)."""


def empty_buffer(slots: int, device: torch.device | str) -> dict[str, Tensor]:
    """Return the buffers of slots that have no errors yet."""
    return {
        OPERANDS: torch.zeros(slots, 2, CAPACITY, dtype=torch.float64, device=device),
        COUNT: torch.zeros(slots, dtype=torch.int64, device=device),
    }


def are_possible(state: Mapping[str, Tensor], task: Task) -> bool:
    """True if a state has no buffers, or such as a seed can have: the engine reads by what is in them.

    task: whose problems the errors are.
    """
    if COUNT not in state:
        return True
    are_few = (state[COUNT] >= 0) & (state[COUNT] <= CAPACITY)
    if task.macros is None:  # torch alone draws its problems, whose operands may be any
        return bool(are_few.all())
    # In all places: those without an error have zeros, or errors of a seed that was in the slot before.
    operands_S2M = state[OPERANDS]
    limits_21 = torch.tensor(_limits(task))[:, None]
    are_whole = operands_S2M == operands_S2M.floor()
    are_asked = are_whole & (operands_S2M >= 0) & (operands_S2M < limits_21)
    return bool(are_few.all() and are_asked.all())


def _limits(task: Task) -> tuple[int, int]:
    """Return what the two numbers of the problems that the engine draws are below."""
    if isinstance(task, Rows):
        return task.count, 1
    first, second = in_columns(task).limits
    return first, first if second == 1 else second  # of a task of one number two are drawn


def pool_seed(data_seed_S: Tensor) -> Tensor:
    """Return the data seed of the stream that is searched for errors."""
    return mix(mix(data_seed_S * GOLDEN + APART) + APART)  # APART where `words` has STREAM (model/counter.py)


def with_errors(
    drawn: tuple[Tensor, Tensor],
    at: tuple[Tensor, Tensor],
    targeted_R: Tensor,
    operands_R2M: Tensor,
    count_R: Tensor,
) -> tuple[Tensor, Tensor]:
    """Replace a share of the drawn operands [R, B] by errors.

    at: data seed and step [R]. targeted_R: the share. operands_R2M, count_R: each row's errors, and their number.
    """
    a_RB, b_RB = drawn
    # A word of the problem's own four, and no fifth one: that would move the counter, and so all ordinary problems.
    word_a, word_b, *_ = words(*at, a_RB.shape[1], 4)
    word = mix(word_a + word_b)
    has_errors_R1 = (count_R > 0)[:, None]
    is_drawn_RB = fraction(word, 32, 32) < targeted_R.double()[:, None]
    is_error_RB = is_drawn_RB & has_errors_R1
    place_RB = torch.floor(fraction(word, 0, 31) * count_R[:, None]).to(torch.int64)
    error_a_RB = operands_R2M[:, 0].gather(1, place_RB)
    error_b_RB = operands_R2M[:, 1].gather(1, place_RB)
    a_RB = torch.where(is_error_RB, error_a_RB, a_RB)
    return a_RB, torch.where(is_error_RB, error_b_RB, b_RB)


def select_errors(a_SN: Tensor, b_SN: Tensor, wrong_SN: Tensor) -> dict[str, Tensor]:
    """Return each slot's first CAPACITY errors as a buffer, in the order of the pool."""
    missing = max(0, CAPACITY - wrong_SN.shape[1])
    if missing:  # a table of rows may have fewer problems than a buffer has places
        a_SN, b_SN, wrong_SN = (pad(t, (0, missing)) for t in (a_SN, b_SN, wrong_SN))
    # Stable, so that the errors keep the order of the pool on every device.
    order_SN = wrong_SN.int().sort(dim=1, descending=True, stable=True)[1]
    order_SM = order_SN[:, :CAPACITY]
    count_S = wrong_SN.sum(1).clamp(max=CAPACITY)
    there_SM = torch.arange(CAPACITY, device=a_SN.device) < count_S[:, None]
    operands = [torch.where(there_SM, t.gather(1, order_SM), 0.0) for t in (a_SN, b_SN)]
    return {OPERANDS: torch.stack(operands, dim=1), COUNT: count_S}


def is_right(logits_V: Sequence[Tensor], target_SAB: Tensor, answers: int) -> Tensor:
    """Mark the right columns of the answer [S, answers, B]; of equal logits the first counts."""
    if isinstance(logits_V, Tensor):
        tokens_VSAB = torch.arange(len(logits_V), device=logits_V.device)[:, None, None, None]
        best_SAB = logits_V.amax(0)
        first_SAB = torch.where(logits_V == best_SAB, tokens_VSAB, len(logits_V)).amin(0)
        return (first_SAB == target_SAB)[:, :answers]
    # By comparisons and not argmax, which promises nothing about ties.
    best = logits_V[0]
    choice = torch.zeros_like(logits_V[0])
    for v, logit in enumerate(logits_V[1:], start=1):
        choice = torch.where(logit > best, v, choice)
        best = torch.maximum(best, logit)
    return (choice == target_SAB)[:, :answers]


def is_wrong(logits_V: Sequence[Tensor], target_SAB: Tensor, answers: int) -> Tensor:
    """Mark the problems with a wrong column of the answer [S, B]."""
    return ~is_right(logits_V, target_SAB, answers).all(1)
