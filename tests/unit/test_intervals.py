"""Intervals and tests of shares, against stored values, against SciPy, and by summing what they promise to cover."""

from itertools import product
from math import comb, factorial, inf, prod, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.stats import intervals
from search.stats.intervals import (
    LEVEL,
    exact_high,
    exact_low,
    mcnemar,
    mid_p,
    power,
    ratio_interval,
    ratio_of_intervals,
    stopped,
)

GOLDEN = {  # successes, n: the mid-P interval, Clopper and Pearson's, the one-sided 95 % bound
    (0, 10): (0.0, 0.2588658333, 0.0, 0.308497108, 0.258865551),
    (1, 24): (0.0020842552, 0.1888098717, 0.001054352, 0.211201683, 0.18289247),
    (2, 48): (0.0070462227, 0.1309065819, 0.005086468, 0.142540973, 0.125414404),
    (10, 10): (0.7411341667, 1.0, 0.691502892, 1.0, 1.0),
    (35, 160): (0.1598191261, 0.2877793312, 0.15734677, 0.290868304, 0.279358949),
    (4.3, 48): (0.0305695534, 0.1970801353, 0.026501361, 0.207956531, 0.188522641),
    (0, 0): (0.0, 1.0, 0.0, 1.0, 1.0),
}


@pytest.mark.parametrize(("k", "n"), GOLDEN)
def test_intervals_of_a_share_are_the_stored_ones(k, n):
    bounds = (*mid_p(k, n), exact_low(k, n), exact_high(k, n), exact_high(k, n, LEVEL))
    assert bounds == pytest.approx(GOLDEN[k, n], abs=1e-6)


@pytest.mark.parametrize(("share", "other", "level"), [(0.7, 0.2, 0.1), (0.5, 0.0, LEVEL), (0.1, 0.9, LEVEL / 7)])
def test_power_is_the_share_of_outcomes_that_the_test_rejects(share, other, level):
    """All outcomes of nine pairs, one by one."""
    first, second, total = share * (1 - other), other * (1 - share), 0.0
    for i in range(10):
        for j in range(10 - i):
            ways = comb(9, i) * comb(9 - i, j)
            chance = ways * first**i * second**j * (1 - first - second) ** (9 - i - j)
            total += chance * (mcnemar(i, j) <= level)
    assert power(9, share, other, level) == pytest.approx(total, abs=1e-12)


RATIOS = {  # successes in both arms, in the first alone, in the second alone; summed by another program
    (20, 1, 11): (0.4778, 0.8777),
    (2, 1, 9): (0.0576, 0.7825),
    (10, 4, 20): (0.2725, 0.7779),
    (30, 20, 40): (0.5398, 0.9451),
}


@pytest.mark.parametrize("counts", RATIOS)
def test_intervals_of_a_ratio_are_the_stored_ones(counts):
    assert ratio_interval(*counts) == pytest.approx(RATIOS[counts], rel=4e-3)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_the_interval_of_a_ratio_holds_it_and_turns_with_the_arms(both, first, second):
    low, high = ratio_interval(both, first, second)
    assert low * (both + second) <= both + first
    assert both + first <= high * (both + second) if both + second else high == inf
    turned = ratio_interval(both, second, first)
    assert turned == pytest.approx((1 / high if high else inf, 1 / low if low else inf))


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.2, 0.4), (0.05, 0.1), (0.02, 0.9), (0.9, 0.75)])
@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_the_interval_of_a_ratio_covers_95_per_cent(p, q, correlation):
    """The chance that the true ratio is in the interval, summed over every outcome of 9 pairs."""
    n, covered = 9, 0.0
    both = min(p * q + correlation * sqrt(p * (1 - p) * q * (1 - q)), p, q)
    shares = (both, p - both, q - both, 1 - p - q + both)
    for counts in product(range(n + 1), repeat=3):
        if (rest := n - sum(counts)) >= 0:
            low, high = ratio_interval(*counts)
            ways = factorial(n) / prod(map(factorial, (*counts, rest)))
            chance = ways * prod(s**k for s, k in zip(shares, (*counts, rest), strict=True))
            covered += chance * (low <= p / q <= high)
    assert covered >= 0.95


def test_beyond_300_pairs_the_asymptotic_ratio_agrees(monkeypatch):
    """And is the published one of an example with few pairs (Fagerland, Lydersen and Laake 2014)."""
    exact = ratio_interval(40, 30, 50)
    monkeypatch.setattr(intervals, "EXACT_PAIRS", 0)
    ratio_interval.cache_clear()
    assert ratio_interval(1, 1, 7) == pytest.approx((0.065, 0.907), abs=6e-4)
    assert ratio_interval(40, 30, 50) == pytest.approx(exact, rel=0.02)
    ratio_interval.cache_clear()


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("k", [1, 2])
def test_the_interval_for_stopping_at_a_success_covers_95_per_cent(share, k):
    covered = 0.0
    for n in range(k, 400):
        low, high = stopped(k, n, n)
        covered += comb(n - 1, k - 1) * share**k * (1 - share) ** (n - k) * (low <= share <= high)
    assert covered >= 0.95 - 1e-6


def test_unknown_outcomes_widen_the_interval_of_a_stopped_study():
    low, high = stopped(1, 20, 20)
    assert (low, high) == pytest.approx((0.00126509, 0.17646691), abs=1e-8)
    assert stopped(1, 30, 20)[0] < low and stopped(1, 20, 10)[1] > high
    assert stopped(1, 20, 20, missed=2.0)[1] > high and stopped(1, 1, 1)[1] == 1.0


def test_a_ratio_of_two_intervals_is_fiellers_where_they_are_symmetric():
    """Fieller's ends solve (p - R q)² = (a² - 2 R r a b + R² b²) for half widths a and b."""
    p, a, q, b = 0.5, 0.1, 0.4, 0.05
    for r in (-0.5, 0.0, 0.8):
        ends = ratio_of_intervals(p, (p - a, p + a), q, (q - b, q + b), r)
        roots = np.roots([q * q - b * b, 2 * (r * a * b - p * q), p * p - a * a])
        assert ends == pytest.approx(sorted(roots.real))
    assert ratio_of_intervals(0.0, (0.0, 0.1), 0.4, (0.3, 0.5), 0.0)[0] == 0
    low, high = ratio_of_intervals(0.4, (0.3, 0.5), 0.0, (0.0, 0.1), 0.0)
    assert (low, high) == (pytest.approx(1 / ratio_of_intervals(0.0, (0.0, 0.1), 0.4, (0.3, 0.5), 0.0)[1]), inf)
