"""Intervals and tests of shares: numbers in, numbers out. All intervals are of 95 %.

One share has its mid-P interval, one of tries in clusters Korn and Graubard's. Those of two arms: reports/ratios.py.
SciPy has the rest; it is imported where it is needed, as it takes longer to load than most commands take.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

Interval = tuple[float, float]
LEVEL = 0.05
FEWEST_PLACES = 3  # clusters with a success, for the variance between clusters to count
WORTH = 0.4  # independent successes that a cluster stands for where few clusters have any
TOLERANCE = 1e-6  # of the end of an exact interval


@lru_cache(65_536)
def mid_p(k: float, n: float) -> Interval:
    """Return the mid-P interval of `k` successes in `n` (Lancaster, JASA 56, 1961); (0, 1) for n = 0.

    Clopper and Pearson's, with half the chance of the observed count. Both may be fractions: `k` for an expected
    number of successes, `n` for an effective number of tries.
    """
    from scipy.special import betainc

    if n <= 0:
        return 0.0, 1.0

    def chance(share: float) -> float:
        """Return the chance of more than k, and half of that of k."""
        more = betainc(k + 1, n - k, share) if k < n else 0.0
        as_many_or_more = betainc(k, n - k + 1, share) if k > 0 else 1.0
        return (more + as_many_or_more) / 2

    low = 0.0 if k <= 0 else crossing(lambda share: LEVEL / 2 - chance(share), 0.0, 1.0)
    high = 1.0 if k >= n else crossing(lambda share: 1 - LEVEL / 2 - chance(share), 0.0, 1.0)
    return low, high


def crossing(excess: Callable[[float], float], low: float, high: float, tolerance: float = TOLERANCE) -> float:
    """Return where `excess` falls to 0, by bisection."""
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


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
