"""Intervals and tests of shares: numbers in, numbers out. All intervals are of 95 %.

One share has its mid-P interval, one of tries in clusters Korn and Graubard's.
The same seeds in two arms are compared by McNemar's test, and the ratio of their shares by Nam and Blackwelder's
interval. SciPy has the rest; it is imported where it is needed, as it takes longer to load than most commands take.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, inf, lgamma, log
from typing import Any, Self

Interval = tuple[float, float]
Z_95 = 1.959963984540054
LEVEL = 0.05
GRID = 50  # nuisance shares at which the chance of an outcome is evaluated
FEWEST_PLACES = 3  # clusters with a success, for the variance between clusters to count
WORTH = 0.4  # independent successes that a cluster stands for where few clusters have any
EXACT_PAIRS = 300  # up to this many pairs an interval of two arms is exact, beyond it is asymptotic
TOLERANCE = 1e-6  # of the end of an exact interval
RATIO_TOLERANCE, RATIO_STEP = 5e-4, 0.03  # of the logarithm of a ratio's end, and of the search for it


@lru_cache(65_536)
def mid_p(k: float, n: float) -> Interval:
    """Return the mid-P interval of `k` successes in `n` (Lancaster, JASA 56, 1961); (0, 1) for n = 0.

    Clopper and Pearson's, with half the chance of the observed count. Both may be fractions: `k` for an expected
    number of successes, `n` for an effective number of tries.
    """
    from scipy.special import betainc

    if n <= 0:
        return 0.0, 1.0

    def excess(tail: float) -> Callable[[float], float]:
        def beyond(share: float) -> float:
            more = betainc(k + 1, n - k, share) if k < n else 0.0
            as_many_or_more = betainc(k, n - k + 1, share) if k > 0 else 1.0
            # The mean of both is the chance of more than k, and half of that of k.
            return tail - (more + as_many_or_more) / 2

        return beyond

    low = 0.0 if k <= 0 else crossing(excess(LEVEL / 2), 0.0, 1.0)
    high = 1.0 if k >= n else crossing(excess(1 - LEVEL / 2), 0.0, 1.0)
    return low, high


def clustered(k_S: Sequence[float], n_S: Sequence[int]) -> Interval:
    """Return the interval of a share of tries that come in two clusters or more: `k_S` successes of `n_S` tries.

    Korn and Graubard's (Survey Methodology 24, 193-201, 1998): the interval of as many independent tries as have the
    observed variance between clusters, and fewer where few clusters make that variance uncertain. Where fewer than
    half of the clusters have a success (or a failure), it counts as at most WORTH independent ones per such cluster;
    where one or two have, there are at most as many independent tries as clusters. WORTH is the greatest value with
    which simulated intervals hold the truth in 92 % or more (docs/statistics.md).
    """
    from scipy.stats import t

    clusters = len(n_S)
    n = sum(n_S)
    share = sum(k_S) / n
    residuals = (k - share * m for k, m in zip(k_S, n_S, strict=True))
    variance = clusters / (clusters - 1) * sum(r * r for r in residuals) / n**2

    # Korn and Graubard's factor: the variance has few degrees of freedom, those of the clusters.
    few = (t.isf(LEVEL / 2, n - 1) / t.isf(LEVEL / 2, clusters - 1)) ** 2
    effective = share * (1 - share) / variance * few if variance else float(n)

    with_success = sum(k > 0 for k in k_S)
    with_failure = sum(k < m for k, m in zip(k_S, n_S, strict=True))
    # Successes and failures alike: an interval of the one is the other's, turned over.
    for part, places in ((share, with_success), (1 - share, with_failure)):
        if places < FEWEST_PLACES:
            effective = min(effective, clusters)
        elif places < clusters / 2:
            effective = min(effective, max(WORTH * places / part, clusters))

    # At least about one try per cluster, as tries of one cluster cannot be more alike than equal; at most all tries.
    effective = min(max(effective, clusters - 1), n)
    return mid_p(share * effective, effective)


def exact_low(k: float, n: int, level: float = LEVEL / 2) -> float:
    """Return the lower Clopper-Pearson bound of `k` successes in `n` (Biometrika 26, 1934), at a one-sided `level`."""
    from scipy.special import betaincinv

    return float(betaincinv(k, n - k + 1, level)) if 0 < k <= n else 0.0


def exact_high(k: float, n: int, level: float = LEVEL / 2) -> float:
    """Return the upper Clopper-Pearson bound. In both bounds `k` may be a fraction, as in `mid_p`."""
    from scipy.special import betaincinv

    return float(betaincinv(k + 1, n - k, 1 - level)) if k < n else 1.0


def stopped(k: float, latest: int, earliest: int, missed: float = 0.0) -> Interval:
    """Return the exact interval of a share that was sampled, in a fixed order, until the `k`-th success.

    The k-th success came at try `latest` or before, and at try `earliest` or after: they differ where the
    outcomes of earlier tries are unknown. `missed`: successes that may have been overlooked.
    The number of tries is negative binomial: n or fewer were enough if n tries have k successes, and n or more
    were needed if n - 1 tries have fewer.
    """
    low = exact_low(k, latest)
    before = earliest - 1
    if not before:  # the first try may have been enough: nothing bounds the share
        return low, 1.0
    return low, exact_high(min(k - 1 + missed, before), before)


@dataclass(frozen=True)
class Paired:
    """Number of seeds by success in two arms: in both, in the first alone, in the second alone, in neither."""

    both: int
    first: int
    second: int
    neither: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[bool, bool]]) -> Self:
        """Count the successes of each seed in the first and in the second arm."""
        return cls(*(sum(pair == kind for pair in pairs) for kind in _BOTH_TO_NEITHER))

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
        firsts, seconds = self.both + self.first, self.both + self.second
        return firsts / seconds if seconds else None

    @property
    def ratio_interval(self) -> Interval:
        return ratio_interval(self.both, self.first, self.second)


_BOTH_TO_NEITHER = ((True, True), (True, False), (False, True), (False, False))


def mcnemar(first: int, second: int) -> float:
    """Return McNemar's exact two-sided p (Psychometrika 12, 1947) of the pairs that differ; 1 if there are none."""
    from scipy.stats import binomtest

    return float(binomtest(first, first + second).pvalue) if first + second else 1.0


def power(n: int, share: float, other: float = 0.0, level: float = LEVEL) -> float:
    """Return the chance that McNemar's exact two-sided test with `n` pairs tells `share` from `other`.

    Arms are independent. The sum is over the number D of pairs that differ, which is binomial.
    """
    import numpy as np
    from scipy.stats import binom

    first = share * (1 - other)
    second = other * (1 - share)
    differ = first + second
    if not differ:
        return 0.0

    pairs_D = np.arange(n + 1)
    fewer_D = binom.ppf(level / 2, pairs_D, 0.5)  # the most pairs one way, so that p <= level
    fewer_D -= 2 * binom.cdf(fewer_D, pairs_D, 0.5) > level  # ppf may be one too many: it is the first to reach it

    one_way = first / differ
    few_D = binom.cdf(fewer_D, pairs_D, one_way)
    many_D = binom.sf(pairs_D - fewer_D - 1, pairs_D, one_way)
    rejected_D = few_D + many_D
    return float(binom.pmf(pairs_D, n, differ) @ rejected_D)


def discoveries(ps: Sequence[float], rate: float = LEVEL) -> list[bool]:
    """Return which of many tests to believe, at a false discovery `rate`.

    Benjamini and Hochberg, Journal of the Royal Statistical Society B 57, 289-300 (1995).
    """
    from scipy.stats import false_discovery_control

    return [bool(p <= rate) for p in false_discovery_control(ps)] if ps else []


# Intervals of two arms


def ratio_of_intervals(
    share: float, ends: Interval, other: float, other_ends: Interval, correlation: float
) -> Interval:
    """Return the interval of `share` over `other`, from an interval of each and the correlation of their estimates.

    By the method of variance estimates recovery (Donner and Zou, Statistical Methods in Medical Research 21, 347-359,
    2012). An end is as far from the ratio as the ends of both shares on its side are from them. How often it holds the
    truth: docs/statistics.md.
    """

    def end(near: float, far: float, way: int) -> float:
        """Return the end of the ratio at which `share` is `near` and `other` is `far`. way: -1 for the lower end."""
        middle = share * other - correlation * (share - near) * (far - other)
        spread = middle**2 - near * far * (2 * share - near) * (2 * other - far)
        scale = far * (2 * other - far)
        if not scale:
            return inf
        return (middle + way * max(spread, 0.0) ** 0.5) / scale + 0.0  # no -0.0

    # A ratio is least where its numerator is at its low end and its denominator at its high one.
    low, high = ends
    other_low, other_high = other_ends
    return end(low, other_high, -1), end(high, other_low, 1)


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

    def excess_of(exact: bool) -> Callable[[float], float]:
        by_ratio = chance_beyond_limit(first, second, n, _ratio_score, _shares_of_ratio, exact)
        return lambda log_ratio: by_ratio(exp(log_ratio))

    high = log(max(both + first, 0.5) / (both + second))
    turns = [(False, 1.0)]
    if n <= EXACT_PAIRS:
        turns.append((True, RATIO_STEP))
    for exact, step in turns:
        excess = excess_of(exact)
        # Looks five steps ahead: above a ratio that is ruled out there may be one that is not.
        while excess(high + 5 * step) > 0:
            high += step
        high += 5 * step

        while excess(high - step) <= 0:
            high -= step
        high = crossing(excess, high - step, high, RATIO_TOLERANCE)
    return exp(high)


def crossing(excess: Callable[[float], float], low: float, high: float, tolerance: float = TOLERANCE) -> float:
    """Return where `excess` falls to 0, by bisection."""
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


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
    ones, others = n - second, n - first  # successes of the two arms
    # The likeliest share of `second` solves a * share ** 2 + b * share + c = 0.
    a = n * (1 + ratio)
    b = others * ratio * ratio - ones - 2 * second
    c = second * (1 - ratio)
    discriminant = abs(b * b - 4 * a * c)  # rounding may leave it or the variance just below 0
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
