"""Every problem of a task decoded, as this machine does: what `prove` does where there are few enough of them.

So it does of rows, of sequences, of other sums of short numbers, and of short numbers that a proof by columns leaves
undecided (prover.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from model.adderboard import AT_ONCE, Verification, judge
from model.tasks import Columns, Task

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec

MOST = 10_000_000
"""Problems that are decoded at most."""


def is_ordered(task: Columns) -> bool:
    """Return True if the first number of a problem is never the smaller one."""
    return bool(getattr(task, "ordered", False))


def count(task: Task) -> int:
    """Return how many problems a task has."""
    if not isinstance(task, Columns):
        return task.problems
    first, second = task.limits
    return first * (first + 1) // 2 if is_ordered(task) else first * second


def every(task: Task) -> Iterator[tuple[int, int]]:
    """Yield all problems of a task, as they are asked."""
    if not isinstance(task, Columns):
        yield from task.pairs()
        return
    first, second = task.limits
    for a in range(first):
        for b in range(a + 1 if is_ordered(task) else second):
            yield a, b


def decode_all(
    spec: Spec,
    theta_P: Tensor,
    *,
    limit_s: float = 600,
    counts: bool = False,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Decode all problems of a spec's task, until some are wrong or the time is up: `total` says how many.

    limit_s: seconds. counts: go on behind wrong ones. watch: gets how many are decoded, and of how many. Raises
    ValueError for a task of more than MOST.

    >>> from dataclasses import replace
    >>> from model import preset
    >>> from model.tasks import make_task
    >>> spec = replace(preset("456p"), task=make_task("subtraction base=2 digits=2"))
    >>> decode_all(spec, spec.initial(0)).total  # of all pairs with a >= b
    10
    """
    task, start = spec.task, time.monotonic()
    whole = count(task)
    if whole > MOST:
        raise ValueError(
            f"{task.title} has {whole:,} problems; prove decodes {MOST:,} at most, and by columns it decides a + b and"
            " a - b with a >= b, in families of columns"
        )
    problems, decoded, margin = every(task), 0, float("inf")
    wrong: list[tuple[int, int, int]] = []
    while asked := list(islice(problems, AT_ONCE)):
        failed, least = judge(spec, theta_P, asked)
        decoded, margin = decoded + len(asked), min(margin, least)
        wrong += failed
        watch(decoded, whole)
        if (wrong and not counts) or time.monotonic() - start > limit_s:
            break
    smallest = margin if margin < float("inf") else None
    return Verification(spec.params, decoded - len(wrong), decoded, wrong, margin=smallest)
