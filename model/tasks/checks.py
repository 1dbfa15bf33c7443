"""What a task of another package must be: tried on a few of its problems, and refused in one line."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from model.doors import first_line
from model.tasks.columns import Columns
from model.tasks.task import OURS, Task, options_of

if TYPE_CHECKING:
    from torch import Tensor

TRIED, BATCH = 5_000, 512


@lru_cache(64)
def check_task(task: Task) -> None:
    """Raise ValueError for a task whose text is not read back, whose tokens are others, or that trains on what decides.

    Of ours this is known. Others are tried on the first problems that verify a net, and on those of a few steps.
    """
    if type(task).__module__.startswith(OURS):
        return
    for name, value in options_of(task).items():
        if isinstance(value, str) and any(map(str.isspace, value)):
            raise ValueError(f"{task.name}: {name} must have no spaces, got {value!r:.80}")
        if not isinstance(value, str | bool | int | float):
            raise ValueError(f"{task.name}: {name} must be a text, a number, true or false, got {value!r:.80}")
    outputs, vocabulary = task.outputs, task.vocabulary
    if not 0 < outputs <= vocabulary:
        raise ValueError(f"{task.title}: outputs must be from 1 to the vocabulary, {vocabulary}, got {outputs}")
    try:
        pairs = torch.tensor(task.pairs()[:TRIED], dtype=torch.int64)
        a, b = pairs.unbind(1)
        tokens, again = task.written(a, b), task.written(a, b)  # one that draws would be another each time
        _check_tokens(task, tokens, a)
        is_alike = all(map(torch.equal, tokens, again))
        leaked, decisive = _leaked(task)
    except ValueError:
        raise
    except Exception as error:  # another package's code may raise anything
        raise ValueError(f"{task.title} fails when it is asked: {first_line(error)}") from None
    if not is_alike:
        raise ValueError(f"{task.title}: a problem is not written twice in the same tokens")
    if leaked:
        raise ValueError(f"{task.title} trains on {leaked} of its {decisive} selection problems")


def _check_tokens(task: Task, tokens: list[Tensor], like: Tensor) -> None:
    """Raise ValueError for other tokens than the task's, or others in an answer than it can have."""
    count = task.prompt + task.answers
    if len(tokens) != count:
        raise ValueError(f"{task.title}: prompt and answers are {count} tokens, and a problem has {len(tokens)}")
    for place, token in enumerate(tokens):
        if token.dtype != torch.int64 or token.shape != like.shape:
            expected, actual = list(like.shape), list(token.shape)
            raise ValueError(f"{task.title}: token {place} must be int64 {expected}, not {token.dtype} {actual}")
        is_answer = place >= task.prompt
        most = task.outputs if is_answer else task.vocabulary
        wrong = token[(token < 0) | (token >= most)]
        if len(wrong):
            what = "of the answer " if is_answer else ""
            raise ValueError(f"{task.title}: token {place} {what}must be below {most}, got {int(wrong[0])}")


def _leaked(task: Task) -> tuple[int, int]:
    """Return how many selection problems a few steps train on, and how many there are."""
    # Columns are drawn by the recipe: too many to meet, or too few to hold any out.
    if isinstance(task, Columns):
        return 0, 0
    few = torch.arange(4)
    drawn = _prompts(task, task.sample(few, few, BATCH))
    decisive = _prompts(task, task.selection(TRIED))
    return len(decisive & drawn), len(decisive)


def _prompts(task: Task, problems: tuple[Tensor, Tensor]) -> set[tuple[int, ...]]:
    """Return the prompts of problems that were drawn. By their numbers two rows that ask the same would be apart."""
    tokens = task.written(*task.asked(*problems))
    prompts = torch.stack(tokens[: task.prompt]).flatten(1).T
    return set(map(tuple, prompts.tolist()))
