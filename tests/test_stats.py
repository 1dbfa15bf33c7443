"""Grok rates and their intervals, against SciPy's."""

import pytest

from search.stats import GrokRate, wilson
from trainer import Outcome

# As SciPy 1.17 prints them: binomtest(k, n).proportion_ci(method="wilson")
KNOWN = {
    (0, 10): (0.0, 0.277533),
    (1, 24): (0.007393, 0.202418),
    (2, 48): (0.011502, 0.139757),
    (3, 16): (0.065916, 0.430089),
    (10, 10): (0.722467, 1.0),
}


@pytest.mark.parametrize(("k", "n"), KNOWN)
def test_wilson_intervals_are_the_known_ones(k, n):
    assert wilson(k, n) == pytest.approx(KNOWN[k, n], abs=1e-6)


def test_wilson_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    for n in (1, 2, 16, 1000):
        for k in {0, 1, n // 2, n - 1, n}:
            interval = stats.binomtest(k, n).proportion_ci(method="wilson")
            assert wilson(k, n) == pytest.approx((interval.low, interval.high), abs=1e-12)


def test_nothing_counted_says_nothing():
    assert wilson(0, 0) == (0.0, 1.0)
    assert str(GrokRate.of([])) == "0 of 0 grokked: 0.0% (95 % interval 0.0% to 100.0%)"


def test_only_censored_seeds_and_those_under_way_leave_n():
    rate = GrokRate.of([*Outcome, Outcome.CENSORED, Outcome.FAILED])
    counted = (Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP, Outcome.FAILED)
    assert rate == GrokRate.of(counted) == GrokRate(1, 5)
    assert rate.rate == 0.2
    assert GrokRate.of(o.value for o in Outcome) == GrokRate(1, 4)


def test_given_up_seeds_count_as_failures():
    outcomes = [Outcome.GROKKED] * 2 + [Outcome.GIVEN_UP] * 46
    assert GrokRate.of(outcomes).interval == wilson(2, 48)
