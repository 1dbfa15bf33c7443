"""Ratios of shares in two arms, against stored values, and by summing what their intervals promise to cover."""

from itertools import product
from math import factorial, inf, prod, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import ratios
from reports.ratios import ratio_interval, ratio_of_intervals

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
    monkeypatch.setattr(ratios, "EXACT_PAIRS", 0)
    ratio_interval.cache_clear()
    assert ratio_interval(1, 1, 7) == pytest.approx((0.065, 0.907), abs=6e-4)
    assert ratio_interval(40, 30, 50) == pytest.approx(exact, rel=0.02)
    ratio_interval.cache_clear()


def test_a_ratio_of_two_intervals_is_fiellers_where_they_are_symmetric():
    """Fieller's ends solve (p - R q)² = (a² - 2 R r a b + R² b²) for half widths a and b."""
    p, a, q, b = 0.5, 0.1, 0.4, 0.05
    for r in (-0.5, 0.0, 0.8):
        ends = ratio_of_intervals(p, (p - a, p + a), q, (q - b, q + b), r)
        roots = np.roots([q * q - b * b, 2 * (r * a * b - p * q), p * p - a * a])
        assert ends == pytest.approx(sorted(roots.real))
    assert ratio_of_intervals(0.0, (0.0, 0.1), 0.4, (0.3, 0.5), 0.0)[0] == 0
    at_twice, beyond = (ratio_of_intervals(0.4, (0.3, 0.5), 0.25, (0.2, high), 0.3)[0] for high in (0.5, 0.501))
    assert at_twice == pytest.approx(beyond, rel=0.01)
    low, high = ratio_of_intervals(0.4, (0.3, 0.5), 0.0, (0.0, 0.1), 0.0)
    assert (low, high) == (pytest.approx(1 / ratio_of_intervals(0.0, (0.0, 0.1), 0.4, (0.3, 0.5), 0.0)[1]), inf)
