"""The same seeds in two arms: the difference of their shares, with Tango's exact interval, and Fisher's test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import nan
from typing import Any

import numpy as np
from scipy.stats import fisher_exact

from reports.ratios import EXACT_PAIRS, GRID, Paired, chance_beyond_limit
from search.stats.intervals import Interval, crossing

STEP, STEPS = 1e-3, 32  # spacing and number of the differences searched beyond the end for another crossing


@dataclass(frozen=True)
class PairedArms(Paired):
    """Counts of seeds, and the difference of the two arms' shares."""

    @property
    def difference(self) -> float:
        """Share of the first arm less that of the second; NaN without pairs."""
        return (self.first - self.second) / self.n if self.n else nan

    @property
    def interval(self) -> Interval:
        """Exact interval of the difference."""
        return paired_interval(self.first, self.second, self.n)

    @property
    def association(self) -> float:
        """Fisher's exact one-sided p: do more seeds succeed in both arms than by chance?"""
        table = [[self.both, self.first], [self.second, self.neither]]
        return float(fisher_exact(table, alternative="greater").pvalue)


@lru_cache(4_096)
def paired_interval(first: int, second: int, n: int) -> Interval:
    """Return the interval of the difference of two shares of the same `n`, from the pairs that differ.

    Evidence is Tango's score (Statistics in Medicine 17, 891-908, 1998). Its tail chance is summed over all
    outcomes of n pairs, at the share of differing pairs that makes it largest, so that the interval covers 95 %
    or more at any n. McNemar's own interval is conditional on the number of differing pairs: without any it is
    a point. Beyond EXACT_PAIRS the score is taken as normal, as Tango does: the sums would take seconds, and
    agree to a few tenths of a point.
    """
    if n == 0:
        return -1.0, 1.0
    return -_largest_difference(second, first, n), _largest_difference(first, second, n)


def _largest_difference(first: int, second: int, n: int) -> float:
    """Return the largest difference under which a score as low as the observed one has a chance of 2.5 %."""
    observed, end = (first - second) / n, 1 - 1e-9
    exact = n <= EXACT_PAIRS
    excess = chance_beyond_limit(first, second, n, _score, _shares_of_difference, exact)
    if observed >= end or excess(end) > 0:
        return 1.0
    largest = crossing(excess, observed, end)
    while exact:  # outcomes leave the tail one by one as the difference grows: its chance may rise again
        beyond = [delta for i in range(1, STEPS + 1) if (delta := largest + i * STEP) < end]
        if not (higher := [delta for delta in beyond if excess(delta) > 0]):
            break
        largest = crossing(excess, higher[-1], min(higher[-1] + STEP, end))
    return largest


def _score(first: Any, second: Any, n: int, delta: float) -> Any:
    """Return Tango's score of counts (numbers or arrays) under a difference `delta`, about standard normal.

    Absolute values guard against rounding below 0.
    """
    b = (2 * n - first + second) * delta - first - second
    c = -second * delta * (1 - delta)
    share = (abs(b * b - 8 * n * c) ** 0.5 - b) / (4 * n)
    variance = n * (2 * share + delta * (1 - delta))
    return (first - second - n * delta) / (abs(variance) + 1e-12) ** 0.5


def _shares_of_difference(delta: float) -> tuple[Any, Any]:
    second = np.linspace(max(0.0, -delta), (1 - delta) / 2, GRID)[:, None]
    return second + delta, second
