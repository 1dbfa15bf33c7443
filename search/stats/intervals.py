"""Intervals and tests of shares: numbers in, numbers out. All intervals are of 95 %.

Independent seeds are compared by Newcombe's interval (search/stats/counting.py), the same seeds in two arms by
McNemar's test and Tango's interval. SciPy has the rest; it is imported where it is needed, as it takes longer to
load than most commands take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, lgamma, log2, nan, sqrt
from typing import Any

Interval = tuple[float, float]
Z_95 = 1.959963984540054
LEVEL = 0.05
GRID = 50  # nuisance shares at which the chance of an outcome is evaluated
EXACT_PAIRS = 300  # up to this many pairs Tango's interval is exact, beyond it is asymptotic
TOLERANCE = 1e-6  # of the end of an exact interval
STEP, STEPS = 1e-3, 32  # spacing and number of the differences searched beyond the end for another crossing


def wilson(k: float, n: int) -> Interval:
    """Return the Wilson score interval of `k` successes in `n` (Wilson, JASA 22, 1927); (0, 1) for n = 0.

    `k` may be a fraction, for an expected number of successes, which SciPy's does not take.
    """
    if n == 0:
        return 0.0, 1.0
    p, z2 = k / n, Z_95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low = 0.0 if k == 0 else max(0.0, centre - half)
    high = 1.0 if k == n else min(1.0, centre + half)
    return low, high


def exact_low(k: float, n: int, level: float = LEVEL / 2) -> float:
    """Return the lower Clopper-Pearson bound of `k` successes in `n` (Biometrika 26, 1934), at a one-sided `level`."""
    from scipy.special import betaincinv

    return float(betaincinv(k, n - k + 1, level)) if 0 < k <= n else 0.0


def exact_high(k: float, n: int, level: float = LEVEL / 2) -> float:
    """Return the upper Clopper-Pearson bound. In both bounds `k` may be a fraction, as in `wilson`."""
    from scipy.special import betaincinv

    return float(betaincinv(k + 1, n - k, 1 - level)) if k < n else 1.0


def stopped(k: float, latest: int, earliest: int, missed: float = 0.0) -> Interval:
    """Return the exact interval of a share that was sampled, in a fixed order, until the `k`-th success.

    The k-th success came at try `latest` or before, and at try `earliest` or after: they differ where the
    outcomes of earlier tries are unknown. `missed`: successes that may have been overlooked.
    The number of tries is negative binomial: n or fewer were enough if n tries have k successes, and n or more
    were needed if n - 1 tries have fewer.
    """
    before = earliest - 1
    return exact_low(k, latest), exact_high(min(k - 1 + missed, before), before) if before else 1.0


@dataclass(frozen=True)
class Paired:
    """Number of seeds by success in two arms: in both, in the first alone, in the second alone, in neither."""

    both: int
    first: int
    second: int
    neither: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[bool, bool]]) -> Paired:
        """Count the successes of each seed in the first and in the second arm."""
        return cls(*(sum(pair == kind for pair in pairs) for kind in _KINDS))

    @property
    def n(self) -> int:
        return self.both + self.first + self.second + self.neither

    @property
    def difference(self) -> float:
        """Share of the first arm less that of the second; NaN without pairs."""
        return (self.first - self.second) / self.n if self.n else nan

    @property
    def p(self) -> float:
        """McNemar's exact two-sided p: do seeds that one arm alone has fall as often to either?"""
        return mcnemar(self.first, self.second)

    @property
    def interval(self) -> Interval:
        """Exact interval of the difference."""
        return paired_interval(self.first, self.second, self.n)

    @property
    def association(self) -> float:
        """Fisher's exact one-sided p: do more seeds succeed in both arms than by chance?"""
        from scipy.stats import fisher_exact

        table = [[self.both, self.first], [self.second, self.neither]]
        return float(fisher_exact(table, alternative="greater").pvalue)

    @property
    def power(self) -> float:
        """Power of McNemar's test, had the first arm no success at all and the second its own share."""
        return power(self.n, (self.both + self.second) / self.n if self.n else 0.0)


_KINDS = ((True, True), (True, False), (False, True), (False, False))


def mcnemar(first: int, second: int) -> float:
    """Return McNemar's exact two-sided p (Psychometrika 12, 1947) of the pairs that differ; 1 if there are none."""
    from scipy.stats import binomtest

    return float(binomtest(first, first + second).pvalue) if first + second else 1.0


def power(n: int, share: float, level: float = LEVEL) -> float:
    """Return the chance that McNemar's exact test with `n` pairs tells `share` from a share of 0."""
    from scipy.stats import binom

    fewest = ceil(log2(2 / level))  # pairs that differ, all one way, for p <= level
    return float(binom.sf(fewest - 1, n, share))


def discoveries(ps: Sequence[float], rate: float = LEVEL) -> list[bool]:
    """Return which of many tests to believe, at a false discovery `rate`.

    Benjamini and Hochberg, Journal of the Royal Statistical Society B 57, 289-300 (1995).
    """
    from scipy.stats import false_discovery_control

    return [bool(p <= rate) for p in false_discovery_control(ps)] if ps else []


# Tango's interval


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
    excess = _exact_excess(first, second, n) if exact else _normal_excess(first, second, n)
    if observed >= end or excess(end) > 0:
        return 1.0
    crossing = _crossing(excess, observed, end)
    while exact:  # outcomes leave the tail one by one as the difference grows: its chance may rise again
        beyond = [delta for i in range(1, STEPS + 1) if (delta := crossing + i * STEP) < end]
        if not (higher := [delta for delta in beyond if excess(delta) > 0]):
            break
        crossing = _crossing(excess, higher[-1], min(higher[-1] + STEP, end))
    return crossing


def _crossing(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return where `excess` falls to 0, by bisection."""
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def _normal_excess(first: int, second: int, n: int) -> Callable[[float], float]:
    return lambda delta: _score(first, second, n, delta) + Z_95


def _exact_excess(first: int, second: int, n: int) -> Callable[[float], float]:
    """Return the chance of a score as low as the observed one, less 2.5 %, as a function of the difference.

    Axes: O outcomes (pairs of counts).
    """
    import numpy as np

    first_O, second_O = np.array([(i, j) for i in range(n + 1) for j in range(n + 1 - i)]).T
    logs = np.array([lgamma(k + 1) for k in range(n + 1)])
    ways_O = logs[n] - logs[first_O] - logs[second_O] - logs[n - first_O - second_O]

    def excess(delta: float) -> float:
        tail_O = _score(first_O, second_O, n, delta) <= _score(first, second, n, delta) + 1e-9
        return _largest_chance(first_O[tail_O], second_O[tail_O], ways_O[tail_O], n, delta) - LEVEL / 2

    return excess


def _score(first: Any, second: Any, n: int, delta: float) -> Any:
    """Return Tango's score of counts (numbers or arrays) under a difference `delta`, about standard normal.

    Absolute values guard against rounding below 0.
    """
    b = (2 * n - first + second) * delta - first - second
    c = -second * delta * (1 - delta)
    share = (abs(b * b - 8 * n * c) ** 0.5 - b) / (4 * n)
    variance = n * (2 * share + delta * (1 - delta))
    return (first - second - n * delta) / (abs(variance) + 1e-12) ** 0.5


def _largest_chance(first_O: Any, second_O: Any, ways_O: Any, n: int, delta: float) -> float:
    """Return the chance of some outcomes, at the share of `second` for which it is largest."""
    import numpy as np

    def log(share: Any) -> Any:
        return np.log(np.maximum(share, 1e-300))  # 0 ** 0 is 1

    share = np.linspace(max(0.0, -delta), (1 - delta) / 2, GRID)[:, None]
    neither_O = n - first_O - second_O
    logs = (
        ways_O + first_O * log(share + delta) + second_O * log(share) + neither_O * log(1 - delta - 2 * share)
    )
    return float(np.exp(logs).sum(1).max())
