"""Two arms: McNemar's test of the seeds that both had, the ratio of two shares with its interval, many tests at once.

Of the same seeds the interval of the ratio is Nam and Blackwelder's. SciPy is imported where it is needed, as in
search/stats/intervals.py.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, lgamma, log
from typing import Any, Self

from search.stats.intervals import LEVEL, Interval, crossing

Z_95 = 1.959963984540054
GRID = 50
"""Nuisance shares at which the chance of an outcome is evaluated."""
EXACT_PAIRS = 300
"""Up to this many pairs an interval is exact, beyond it is asymptotic."""
RATIO_TOLERANCE = 5e-4
"""Of the logarithm of a ratio's end."""
RATIO_STEP = 0.03
"""Of the search for that end, by exact chances."""


@dataclass(frozen=True)
class Paired:
    """Number of seeds by success in two arms: in both, in the first alone, in the second alone, in neither."""

    both: int
    first: int
    second: int
    neither: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[bool, bool]]) -> Self:
        """Count pairs of successes, each of one seed in the first and in the second arm."""
        counts = Counter(pairs)
        return cls(counts[True, True], counts[True, False], counts[False, True], counts[False, False])

    @property
    def n(self) -> int:
        return self.both + self.first + self.second + self.neither

    @property
    def p(self) -> float:
        """McNemar's exact two-sided p: do seeds that one arm alone has fall as often to either?"""
        return mcnemar(self.first, self.second)

    @property
    def ratio(self) -> float | None:
        """Share of the first arm over that of the second; None where the second has no success."""
        seconds = self.both + self.second
        return (self.both + self.first) / seconds if seconds else None

    @property
    def ratio_interval(self) -> Interval:
        return ratio_interval(self.both, self.first, self.second)


def times(ratio: float | None) -> str:
    """Return a ratio as text."""
    return "×–" if ratio is None else f"×{ratio:.2f}"


def ends_text(interval: Interval | None, between: str) -> str:
    """Return the ends of a ratio's interval as text; empty if there is none."""
    return between.join("∞" if end == inf else f"{end:.2f}" for end in interval or ())


def mcnemar(first: int, second: int) -> float:
    """Return McNemar's exact two-sided p (Psychometrika 12, 1947) of the pairs that differ; 1 if there are none."""
    from scipy.stats import binomtest

    n = first + second
    return float(binomtest(first, n).pvalue) if n else 1.0


def discoveries(ps: Sequence[float], rate: float = LEVEL) -> list[bool]:
    """Return which of many tests to believe, at a false discovery `rate`.

    Benjamini and Hochberg, Journal of the Royal Statistical Society B 57, 289-300 (1995).
    """
    from scipy.stats import false_discovery_control

    return [bool(p <= rate) for p in false_discovery_control(ps)] if ps else []


def ratio_of_intervals(
    share: float, ends: Interval, other: float, other_ends: Interval, correlation: float
) -> Interval:
    """Return the interval of `share` over `other`, from an interval of each and the correlation of their estimates.

    By the method of variance estimates recovery (Donner and Zou, Statistical Methods in Medical Research 21, 347-359,
    2012). An end is as far from the ratio as the ends of both shares on its side are from them. How often it holds the
    truth: docs/statistics.md.
    """

    def larger(near: float, far: float) -> float:
        """Return the larger root of an end's quadratic, times its leading coefficient."""
        middle = share * other - correlation * (share - near) * (far - other)
        spread = middle**2 - near * far * (2 * share - near) * (2 * other - far)
        return float(middle + max(spread, 0.0) ** 0.5)

    # A ratio is least where its numerator is at its low end and its denominator at its high one.
    low, high = ends
    other_low, other_high = other_ends
    lower, upper = larger(low, other_high), larger(high, other_low)
    # The smaller root, by the product of both: it is finite also where the leading coefficient is 0.
    scale = other_low * (2 * other - other_low)
    least = low * (2 * share - low) / lower if lower else 0.0
    return least + 0.0, upper / scale if scale else inf  # no -0.0


# From the pairs that differ


@lru_cache(4_096)
def ratio_interval(both: int, first: int, second: int) -> Interval:
    """Return the interval of the ratio of two shares of the same n, from the pairs with a success.

    Evidence is the score of Nam and Blackwelder (Statistics in Medicine 21, 689-699, 2002). Pairs without a
    success say nothing about a ratio. Given the number of the others, the tail chance is summed over all their
    outcomes, at the nuisance share that makes it largest, so that the interval covers 95 % or more; beyond
    EXACT_PAIRS the score is taken as normal. Without a success in the first arm the interval begins at 0,
    without one in the second it ends at infinity; without any it is both.
    """
    inverse = _largest_ratio(both, second, first)  # with the arms exchanged
    low = 1 / inverse if inverse else inf
    return low, _largest_ratio(both, first, second)


def _largest_ratio(both: int, first: int, second: int) -> float:
    """Return the upper end of the interval: the largest ratio that is not ruled out.

    A ratio is ruled out if a score as low as the observed one has a chance below 2.5 % under it. Steps go down from a
    ratio that is surely too large, until one is not ruled out; then the end is bisected. Bisection alone could miss it:
    exact chances jump as the ratio grows, so that ratios between two that are ruled out need not be. The first turn is
    by normal chances, which come near the end, and the second by exact ones, up to EXACT_PAIRS pairs.
    """
    n = both + first + second
    if both + second == 0:
        return inf

    high = log(max(both + first, 0.5) / (both + second))
    turns = [(False, 1.0)]
    if n <= EXACT_PAIRS:
        turns.append((True, RATIO_STEP))
    for exact, step in turns:
        chance = chance_beyond_limit(first, second, n, _ratio_score, _shares_of_ratio, exact)
        high = _last_not_ruled_out(chance, high, step)
    return exp(high)


def _last_not_ruled_out(excess_of_ratio: Callable[[float], float], high: float, step: float) -> float:
    """Return the logarithm of the largest ratio at which the excess is above 0. high: the logarithm to begin at."""

    def excess(log_ratio: float) -> float:
        return excess_of_ratio(exp(log_ratio))

    # Looks five steps ahead: above a ratio that is ruled out there may be one that is not.
    while excess(high + 5 * step) > 0:
        high += step
    high += 5 * step

    while excess(high - step) <= 0:
        high -= step
    return crossing(excess, high - step, high, RATIO_TOLERANCE)


def chance_beyond_limit(
    first: int,
    second: int,
    n: int,
    score: Callable[..., Any],
    shares: Callable[[float], tuple[Any, Any]],
    exact: bool,
) -> Callable[[float], float]:
    """Return, as a function of the parameter, the chance of a score as low as the observed one, less 2.5 %.

    shares: returns the shares of `first` and of `second` [nuisance, 1] that the parameter allows.
    If not `exact` it is the score plus its normal quantile, which has the same sign.
    Axes: O outcomes (pairs of counts).
    """
    if not exact:
        return lambda value: float(score(first, second, n, value)) + Z_95
    import numpy as np

    # All pairs of counts, of pairs that the first and that the second arm alone won.
    outcomes = [(i, j) for i in range(n + 1) for j in range(n + 1 - i)]
    first_O, second_O = np.array(outcomes).T
    neither_O = n - first_O - second_O
    # In logarithms: factorials of 300 are no floats.
    log_factorials = np.array([lgamma(k + 1) for k in range(n + 1)])
    ways_O = log_factorials[n] - log_factorials[first_O] - log_factorials[second_O] - log_factorials[neither_O]

    def log_of(share: Any) -> Any:
        return np.log(np.maximum(share, 1e-300))  # 0 ** 0 is 1

    def excess(value: float) -> float:
        observed = score(first, second, n, value)
        in_tail_O = score(first_O, second_O, n, value) <= observed + 1e-9  # equal scores differ by rounding
        p, q = shares(value)
        log_firsts = first_O[in_tail_O] * log_of(p)
        log_seconds = second_O[in_tail_O] * log_of(q)
        log_neither = neither_O[in_tail_O] * log_of(1 - p - q)
        log_chances = ways_O[in_tail_O] + log_firsts + log_seconds + log_neither
        return float(np.exp(log_chances).sum(1).max()) - LEVEL / 2

    return excess


def _ratio_score(first: Any, second: Any, n: int, ratio: float) -> Any:
    """Return the score of counts (numbers or arrays) of `n` pairs with a success under a ratio of shares."""
    # Successes of the two arms.
    ones = n - second
    others = n - first
    # The likeliest share of `second` solves a * share ** 2 + b * share + c = 0.
    a = n * (1 + ratio)
    b = others * ratio * ratio - ones - 2 * second
    c = second * (1 - ratio)
    # Rounding may leave the discriminant or the variance just below 0.
    discriminant = abs(b * b - 4 * a * c)
    share = (discriminant**0.5 - b) / (2 * a)
    variance = n * (share * (1 + ratio) + ratio - 1)
    return (ones - ratio * others) / (abs(variance) + 1e-12) ** 0.5


def _shares_of_ratio(ratio: float) -> tuple[Any, Any]:
    """Return the shares of `first` and of `second` that a ratio allows: none below 0, both together 1 at most."""
    import numpy as np

    least = max(0.0, 1 - ratio)
    greatest = 1 / (1 + ratio)
    second = np.linspace(least, greatest, GRID)[:, None]
    return (second + ratio - 1) / ratio, second
