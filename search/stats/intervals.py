"""Intervals and tests of shares: numbers in, numbers out.

Two kinds of comparison: of independent seeds (Newcombe), and of the same seeds in both arms (McNemar, and an
exact interval by score). All intervals are of 95 % unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, lgamma, nan, sqrt
from typing import Any

Z_95 = 1.959963984540054
LEVEL = 0.05
SHARES = 50  # at which the chance of an outcome is tried
SUMMED = 300  # pairs up to which the interval of a difference is summed over all outcomes
CLOSE = 1e-6  # of the end of such an interval
STEP, BEYOND = 1e-3, 32  # in which, and how often, another end is looked for beyond it
Interval = tuple[float, float]


def wilson(k: float, n: int) -> Interval:
    """The 95 % Wilson score interval of k successes in n (Wilson, JASA 22, 1927). (0, 1) for n = 0.

    An expected number of successes may be a fraction.
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
    """The lower end of the exact interval of k successes in n (Clopper and Pearson, Biometrika 26, 1934)."""
    from scipy.special import betaincinv

    return float(betaincinv(k, n - k + 1, level)) if 0 < k <= n else 0.0


def exact_high(k: float, n: int, level: float = LEVEL / 2) -> float:
    """The upper end. Both ends take an expected number of successes, which may be a fraction."""
    from scipy.special import betaincinv

    return float(betaincinv(k + 1, n - k, 1 - level)) if k < n else 1.0


def stopped(k: float, latest: int, earliest: int, more: float = 0.0) -> Interval:
    """The exact interval of a share where one went on, in a fixed order, until the k-th success.

    It came at the `latest`-th try at the latest and at the `earliest`-th at the earliest: they differ where
    the outcome of tries before it is not known. `more`: successes that may have been missed. The number of
    tries is negative binomial: n or fewer were enough where n tries have k successes, and n or more were
    needed where n - 1 have fewer.
    """
    before = earliest - 1
    return exact_low(k, latest), exact_high(min(k - 1 + more, before), before) if before else 1.0


@dataclass(frozen=True)
class Paired:
    """Seeds that had both arms: with success in both, in one alone, in the other alone, in neither."""

    both: int
    one: int
    other: int
    neither: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[bool, bool]]) -> Paired:
        return cls(*(sum(p == kind for p in pairs) for kind in _KINDS))

    @property
    def n(self) -> int:
        return self.both + self.one + self.other + self.neither

    @property
    def difference(self) -> float:
        """Share of one arm less that of the other."""
        return (self.one - self.other) / self.n if self.n else nan

    @property
    def p(self) -> float:
        """McNemar's exact test, two-sided: do seeds that only one arm has fall as often to either?"""
        return mcnemar(self.one, self.other)

    @property
    def interval(self) -> Interval:
        """The exact 95 % interval of the difference."""
        return paired_interval(self.one, self.other, self.n)

    @property
    def association(self) -> float:
        """Fisher's exact test, one-sided: do more seeds succeed in both arms than by chance?"""
        ones, others = self.both + self.one, self.both + self.other
        more = range(self.both, min(ones, others) + 1)
        ways = sum(comb(ones, k) * comb(self.n - ones, others - k) for k in more)
        return ways / comb(self.n, others)

    @property
    def power(self) -> float:
        """How likely the test would say so, had one arm no success at all and the other its own share."""
        return power(self.n, (self.both + self.other) / self.n if self.n else 0.0)


_KINDS = ((True, True), (True, False), (False, True), (False, False))


def mcnemar(one: int, other: int) -> float:
    """The two-sided exact p of McNemar's test (Psychometrika 12, 1947): binomial with one half."""
    m, k = one + other, min(one, other)
    return min(1.0, 2 * sum(comb(m, i) for i in range(k + 1)) / 2**m)


def power(n: int, share: float, level: float = LEVEL) -> float:
    """The chance that McNemar's exact test tells a share from none at all, with n pairs."""
    least = next(k for k in range(n + 2) if k > n or mcnemar(k, 0) <= level)
    return 1 - sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(least))


@lru_cache(4_096)
def paired_interval(one: int, other: int, n: int) -> Interval:
    """The exact 95 % interval of the difference of two shares of the same n, from the pairs that differ.

    What the data say of a difference is Tango's score (Statistics in Medicine 17, 891-908, 1998); how likely
    a score as extreme is, is summed over outcomes of n pairs, at the share of pairs that differ which makes
    it likeliest. So it covers 95 % at least at any n, where McNemar's own interval, which takes the number of
    pairs that differ as given, is a point when none does. Of more than SUMMED pairs the score is taken to be
    normal, as Tango has it: the sums would take seconds, and say the same to a few tenths of a point.
    """
    if n == 0:
        return -1.0, 1.0
    return -_highest(other, one, n), _highest(one, other, n)


def _highest(one: int, other: int, n: int) -> float:
    """The largest difference under which a score as low as the one seen has a chance of 2.5 %."""
    seen, most = (one - other) / n, 1 - 1e-9
    excess = _summed(one, other, n) if n <= SUMMED else lambda delta: _score(one, other, n, delta) + Z_95
    if seen >= most or excess(most) > 0:
        return 1.0
    found = _crossing(excess, seen, most)
    while n <= SUMMED:  # outcomes fall out one by one as the difference grows: it may rise again beyond
        steps = [delta for k in range(1, BEYOND + 1) if (delta := found + k * STEP) < most]
        if not (higher := [delta for delta in steps if excess(delta) > 0]):
            break
        found = _crossing(excess, higher[-1], min(higher[-1] + STEP, most))
    return found


def _crossing(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where it falls to 0, by halving. (scipy.optimize takes longer to load than a table takes.)"""
    while high - low > CLOSE:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def _summed(one: int, other: int, n: int) -> Callable[[float], float]:
    """By how much a score as low has more than 2.5 % under a difference, at the likeliest share."""
    import numpy as np

    one_B, other_B = np.array([(i, j) for i in range(n + 1) for j in range(n + 1 - i)]).T
    logs = np.array([lgamma(k + 1) for k in range(n + 1)])
    ways_B = logs[n] - logs[one_B] - logs[other_B] - logs[n - one_B - other_B]

    def excess(delta: float) -> float:
        as_low_B = _score(one_B, other_B, n, delta) <= _score(one, other, n, delta) + 1e-9
        kept = np.stack([one_B, other_B, ways_B])[:, as_low_B]
        return _likeliest(kept[0], kept[1], kept[2], n, delta) - LEVEL / 2

    return excess


def _score(one: Any, other: Any, n: int, delta: float) -> Any:
    """Tango's score of a difference: 0 where it is what was seen, about normal if it is the true one.

    Counts may be arrays. What cannot be below 0 is kept from it where it is rounded.
    """
    b = (2 * n - one + other) * delta - one - other
    c = -other * delta * (1 - delta)
    share = (abs(b * b - 8 * n * c) ** 0.5 - b) / (4 * n)
    variance = n * (2 * share + delta * (1 - delta))
    return (one - other - n * delta) / (abs(variance) + 1e-12) ** 0.5


def _likeliest(one: Any, other: Any, ways: Any, n: int, delta: float) -> float:
    """The chance of some outcomes, at the share of `other` for which it is largest."""
    import numpy as np

    def log(share: Any) -> Any:
        return np.log(np.maximum(share, 1e-300))  # 0 ** 0 is 1

    share = np.linspace(max(0.0, -delta), (1 - delta) / 2, SHARES)[:, None]
    neither = n - one - other
    logs = ways + one * log(share + delta) + other * log(share) + neither * log(1 - delta - 2 * share)
    return float(np.exp(logs).sum(1).max())


def discoveries(ps: Sequence[float], rate: float = LEVEL) -> list[bool]:
    """Which of many tests to believe, so that of those at most a share `rate` is expected to be false.

    Benjamini and Hochberg, Journal of the Royal Statistical Society B 57, 289-300 (1995).
    """
    ordered = sorted(ps)
    most = max((p for i, p in enumerate(ordered, 1) if p <= rate * i / len(ps)), default=-1.0)
    return [p <= most for p in ps]
