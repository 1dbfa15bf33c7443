"""The Pareto front: few parameters, a high rate."""

from __future__ import annotations

from collections.abc import Sequence


def pareto(params: Sequence[int], rates: Sequence[float]) -> list[bool]:
    """True where no other has as few or fewer parameters and a rate as high or higher, one strictly better.

    Equals are on the front together.
    """
    order = sorted(range(len(params)), key=lambda i: (params[i], -rates[i]))
    on_front = [False] * len(params)
    best: tuple[float, float] = (float("-inf"), float("inf"))  # highest rate so far, and its parameters
    for i in order:
        if rates[i] > best[0]:
            best = (rates[i], params[i])
        on_front[i] = (rates[i], params[i]) == best
    return on_front
