"""The difference of two arms: Tango's interval against stored values, and by summing what it promises to cover."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import paired
from lab.paired import PairedArms, paired_interval
from tests import by_tier

TANGO = {  # pairs that differ one way and the other, all pairs
    (0, 0, 48): (-0.0747476, 0.0747476),
    (14, 0, 50): (0.1613211, 0.4249052),
    (3, 20, 64): (-0.4060058, -0.1120705),
    (8, 0, 64): (0.0492879, 0.2315266),
    (105, 4, 1000): (0.0827918, 0.1218967),
    (0, 0, 0): (-1.0, 1.0),
}


def test_the_difference_of_two_arms():
    pairs = PairedArms.of([(True, True), (True, False), (True, False), (False, True), (False, False)])
    assert (pairs.n, pairs.difference, pairs.interval) == (5, 1 / 5, paired_interval(2, 1, 5))
    assert PairedArms.of([]).interval == (-1.0, 1.0)
    assert PairedArms(5, 0, 0, 27).association < 1e-4 < 0.3 < PairedArms(1, 4, 4, 23).association


@pytest.mark.parametrize("counts", TANGO)
def test_paired_intervals_are_the_stored_ones(counts):
    assert paired_interval(*counts) == pytest.approx(TANGO[counts], abs=1e-6)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6))
def test_a_paired_interval_holds_the_observed_difference_and_turns_with_the_arms(first, second, rest):
    n = first + second + rest
    low, high = paired_interval(first, second, n)
    assert low <= (first - second) / n <= high if n else (low, high) == (-1, 1)
    assert paired_interval(second, first, n) == pytest.approx((-high, -low))


@pytest.mark.parametrize(("p", "q"), [(0.05, 0.05), (0.2, 0.05), (0.5, 0.1), (0.02, 0.0), (0.3, 0.3)])
def test_a_paired_interval_covers_95_per_cent(p, q):
    """The chance that the true difference is in the interval, summed over every outcome of 12 pairs."""
    n, covered = 12, 0.0
    for first in range(n + 1):
        for second in range(n + 1 - first):
            low, high = paired_interval(first, second, n)
            ways = comb(n, first) * comb(n - first, second)
            chance = ways * p**first * q**second * (1 - p - q) ** (n - first - second)
            covered += chance * (low <= p - q <= high)
    assert covered + 1e-4 >= 0.95


@pytest.mark.parametrize("differing", by_tier([(105, 4), (300, 0), (0, 0), (5, 3)], [(105, 4)]))
def test_beyond_300_pairs_the_asymptotic_interval_agrees(differing, monkeypatch):
    exact = paired_interval(*differing, paired.EXACT_PAIRS)
    monkeypatch.setattr(paired, "EXACT_PAIRS", 0)
    paired_interval.cache_clear()
    assert paired_interval(*differing, 300) == pytest.approx(exact, abs=0.005)
    paired_interval.cache_clear()
