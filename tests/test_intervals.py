"""Intervals and tests against published values, against SciPy, and by counting out what they promise."""

from math import comb

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from search.stats import intervals
from search.stats.intervals import (
    Paired,
    discoveries,
    exact_high,
    exact_low,
    mcnemar,
    paired_interval,
    power,
    stopped,
)


@pytest.mark.parametrize(("k", "n"), [(0, 10), (1, 24), (2, 48), (10, 10), (35, 160)])
def test_exact_intervals_are_scipys(k, n):
    known = scipy.stats.binomtest(k, n).proportion_ci(method="exact")
    assert (exact_low(k, n), exact_high(k, n)) == pytest.approx((known.low, known.high), abs=1e-9)


@pytest.mark.parametrize(("one", "other"), [(0, 0), (5, 0), (6, 0), (8, 1), (3, 9), (20, 20)])
def test_mcnemars_test_is_scipys_binomial_test(one, other):
    known = scipy.stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert mcnemar(one, other) == pytest.approx(known)


def test_pairs_are_counted_by_which_arm_had_them():
    pairs = [(True, True), (True, False), (True, False), (False, True), (False, False)]
    found = Paired.of(pairs)
    assert found == Paired(both=1, one=2, other=1, neither=1)
    assert (found.n, found.difference, found.p) == (5, 1 / 5, 1.0)


def test_nothing_in_common_says_nothing():
    assert Paired.of([]).interval == (-1.0, 1.0) and Paired.of([]).power == 0.0


def test_a_paired_interval_excludes_0_where_many_pairs_differ_one_way():
    assert paired_interval(14, 0, 50)[0] > 0.15 and paired_interval(14, 0, 50)[1] < 0.45
    assert paired_interval(8, 0, 64)[0] > 0 > paired_interval(3, 1, 64)[0]


def test_no_pair_that_differs_is_no_proof_that_none_ever_does():
    low, high = paired_interval(0, 0, 48)
    assert low == -high and 0.05 < high < 0.1


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6))
def test_a_paired_interval_holds_what_was_seen_and_turns_with_the_arms(one, other, rest):
    n = one + other + rest
    low, high = paired_interval(one, other, n)
    assert low <= (one - other) / n <= high if n else (low, high) == (-1, 1)
    assert paired_interval(other, one, n) == pytest.approx((-high, -low))


def test_the_interval_ends_where_no_difference_beyond_is_as_likely():
    """Of 3 and 20 of 64 pairs the chance of a score as low falls to 2.5 % three times: the last counts."""
    excess, (_, high) = intervals._summed(3, 20, 64), paired_interval(3, 20, 64)
    beyond = [high + k * 0.002 for k in range(1, 200)]
    assert excess(-0.1225) < 0 < excess(high - 1e-4) and high == pytest.approx(-0.112, abs=1e-3)
    assert max(map(excess, beyond)) < 0


@pytest.mark.parametrize(
    ("p_one", "p_other"), [(0.05, 0.05), (0.2, 0.05), (0.5, 0.1), (0.02, 0.0), (0.3, 0.3)]
)
def test_a_paired_interval_covers_what_it_says(p_one, p_other):
    """Counted over every outcome of 12 pairs: the chance that the true difference is in the interval."""
    n, covered = 12, 0.0
    for one in range(n + 1):
        for other in range(n + 1 - one):
            low, high = paired_interval(one, other, n)
            ways = comb(n, one) * comb(n - one, other)
            chance = ways * p_one**one * p_other**other * (1 - p_one - p_other) ** (n - one - other)
            covered += chance * (low <= p_one - p_other <= high)
    assert covered + 1e-4 >= 0.95


def test_48_seeds_have_8_per_cent_power_against_none_where_6_in_100_grok():
    assert power(48, 3 / 48) == pytest.approx(0.078, abs=0.005)
    assert power(64, 0.22) > 0.95 and power(5, 1.0) == 0.0 and power(6, 1.0) == 1.0


@pytest.mark.parametrize(("n", "share"), [(16, 0.4), (64, 0.0), (300, 0.02), (10_000, 0.001)])
def test_power_is_scipys_chance_of_six_or_more(n, share):
    assert mcnemar(6, 0) <= 0.05 < mcnemar(5, 0)
    assert power(n, share) == pytest.approx(scipy.stats.binom.sf(5, n, share), abs=1e-12)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("wanted", [1, 2])
def test_stopping_at_a_success_is_covered(share, wanted):
    """Counted over every number of tries to 400: Wilson's interval of k in n would not do."""
    covered = 0.0
    for n in range(wanted, 400):
        chance = comb(n - 1, wanted - 1) * share**wanted * (1 - share) ** (n - wanted)
        low, high = stopped(wanted, n, n)
        covered += chance * (low <= share <= high)
    assert covered >= 0.95 - 1e-6


def test_what_is_not_known_widens_the_interval_of_a_stopped_study():
    low, high = stopped(1, 20, 20)
    assert stopped(1, 30, 20)[0] < low and stopped(1, 20, 10)[1] > high
    assert stopped(1, 20, 20, more=2.0)[1] > high
    assert stopped(1, 1, 1) == (exact_low(1, 1), 1.0)


def test_same_seeds_in_both_arms_are_told_from_chance():
    assert Paired(5, 0, 0, 27).association < 1e-4
    assert Paired(1, 4, 4, 23).association == pytest.approx(
        scipy.stats.fisher_exact([[1, 4], [4, 23]], alternative="greater").pvalue
    )


def test_false_discoveries_are_limited():
    """The example of Benjamini and Hochberg 1995, section 3.2: of 15 tests the first four."""
    ps = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
          0.6528, 0.7590, 1.0000]  # fmt: skip
    assert discoveries(ps) == [True] * 4 + [False] * 11
    assert discoveries(ps[::-1]) == [False] * 11 + [True] * 4
    assert discoveries([]) == [] and discoveries([0.9]) == [False]


@pytest.mark.parametrize(("one", "other"), [(0, 0), (1, 0), (5, 3), (60, 60), (105, 4), (250, 10), (300, 0)])
def test_of_many_pairs_the_interval_is_the_score_s_and_takes_no_time(one, other, monkeypatch):
    """Where the sums end both say the same to half a point; those of a million pairs would fit nowhere."""
    summed = paired_interval(one, other, intervals.SUMMED)
    monkeypatch.setattr(intervals, "SUMMED", 0)
    paired_interval.cache_clear()
    assert paired_interval(one, other, 300) == pytest.approx(summed, abs=0.005)
    low, high = paired_interval(3_000 * one, 3_000 * other, 1_000_000)
    assert low <= 3_000 * (one - other) / 1_000_000 <= high < low + 0.006
    paired_interval.cache_clear()
