"""Intervals and tests of shares, against stored values, against SciPy, and by summing what they promise to cover."""

from math import comb

import pytest
from scipy.stats import binomtest

from search.stats.intervals import LEVEL, exact_high, exact_low, mid_p, power, stopped

# Successes, n: the mid-P interval, Clopper and Pearson's, the one-sided 95 % bound.
GOLDEN = """
    0    10   0.0           0.2588658333  0.0          0.308497108  0.258865551
    1    24   0.0020842552  0.1888098717  0.001054352  0.211201683  0.18289247
    2    48   0.0070462227  0.1309065819  0.005086468  0.142540973  0.125414404
    10   10   0.7411341667  1.0           0.691502892  1.0          1.0
    35   160  0.1598191261  0.2877793312  0.15734677   0.290868304  0.279358949
    4.3  48   0.0305695534  0.1970801353  0.026501361  0.207956531  0.188522641
    0    0    0.0           1.0           0.0          1.0          1.0
"""


@pytest.mark.parametrize("row", GOLDEN.strip().splitlines())
def test_intervals_of_a_share_are_the_stored_ones(row):
    k, n, *stored = map(float, row.split())
    bounds = [*mid_p(k, n), exact_low(k, n), exact_high(k, n), exact_high(k, n, LEVEL)]
    assert bounds == pytest.approx(stored, abs=1e-6)


@pytest.mark.parametrize(("share", "other", "level"), [(0.7, 0.2, 0.1), (0.5, 0.0, LEVEL), (0.1, 0.9, LEVEL / 7)])
def test_power_is_the_share_of_outcomes_that_the_test_rejects(share, other, level):
    """All outcomes of nine pairs, one by one."""
    first, second, total = share * (1 - other), other * (1 - share), 0.0
    for i in range(10):
        for j in range(10 - i):
            ways = comb(9, i) * comb(9 - i, j)
            chance = ways * first**i * second**j * (1 - first - second) ** (9 - i - j)
            p = binomtest(i, i + j).pvalue if i + j else 1.0  # McNemar's
            total += chance * (p <= level)
    assert power(9, share, other, level) == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("k", [1, 2])
def test_the_interval_for_stopping_at_a_success_covers_95_per_cent(share, k):
    covered = 0.0
    for n in range(k, round(20 / share)):  # the rest is less than 1e-7
        low, high = stopped(k, n, n)
        covered += comb(n - 1, k - 1) * share**k * (1 - share) ** (n - k) * (low <= share <= high)
    assert covered >= 0.95 - 1e-6


def test_unknown_outcomes_widen_the_interval_of_a_stopped_study():
    low, high = stopped(1, 20, 20)
    assert (low, high) == pytest.approx((0.00126509, 0.17646691), abs=1e-8)
    assert stopped(1, 30, 20)[0] < low and stopped(1, 20, 10)[1] > high
    assert stopped(1, 20, 20, missed=2.0)[1] > high and stopped(1, 1, 1)[1] == 1.0
