"""Intervals hold the truth in simulated searches: common seeds, a stopping rule, a spared tenth."""

from dataclasses import replace

import numpy as np
import pytest

from lab.scripts.rate_coverage import RATES, coverage, late, near
from search.stats.counting import PooledRate
from search.stats.intervals import clustered, mid_p
from search.stats.record import SeedRecord


@pytest.mark.parametrize("n", [2, 3, 5, 8, 13, 32])
def test_the_interval_of_a_share_holds_the_truth_at_every_rate(n):
    from scipy.stats import binom

    rates = np.linspace(0.02, 0.9, 89)
    low, high = np.array([mid_p(k, n) for k in range(n + 1)]).T[:, :, None]
    held = (binom.pmf(np.arange(n + 1)[:, None], n, rates) * ((low <= rates) & (rates <= high))).sum(0)
    assert held.mean() >= 0.94 and held.min() >= 0.91


@pytest.mark.parametrize("called_winners", [0.0, 0.3])
def test_configurations_of_a_search_with_a_rule(called_winners):
    row = coverage(60, RATES, 16, 0.5, called_winners)
    assert row["mean"] >= 0.94 and row["least"] >= 0.85  # of 60
    assert 0.6 < row["width"] < 0.8


@pytest.mark.parametrize(("seeds", "called_winners"), [(16, 0.9), (32, 0.6), (64, 0.3)])
def test_a_recipe_that_learns_late_is_not_bounded_by_those_that_learn_early(seeds, called_winners):
    """Of its winners the rule calls many, of those of 25 others none."""
    row = late(20, 0.7, seeds, called_winners)
    assert row["held"] >= 0.93 and row["width"] < 0.96


@pytest.mark.parametrize("alike", [0.0, 0.95])
def test_pooled_configurations(alike):
    row = coverage(150, near(0.1), 16, alike, None)
    assert row["pooled"] >= 0.9  # of 150; as independent tries half of them would, of seeds that are alike
    assert (row["pooled_width"] < 0.1) == (alike == 0.0)


def test_a_share_of_clusters_is_worth_between_clusters_and_tries():
    assert clustered([0] * 12, [26] * 12) == mid_p(0, 12)
    all_alike = clustered([26] * 3 + [0] * 9, [26] * 12)
    assert all_alike[0] < mid_p(3, 12)[0] and all_alike[1] > mid_p(3, 12)[1]
    low, high = clustered([13, 12, 14] * 4, [26] * 12)
    assert mid_p(156, 312) == pytest.approx((low, high))


def test_few_seeds_are_not_pooled():
    rows = [
        SeedRecord(configuration=str(c), init_seed=s, data_seed=s, outcome="grokked" if s < 3 else "failed")
        for c in range(26) for s in range(8)
    ]  # fmt: skip
    assert str(PooledRate.of(rows)) == (
        "78 of 208 runs grokked; 8 seeds × 26 configurations (too few seeds to pool); "
        "3 of 8 seeds grokked in some configuration"
    )
    more = [replace(r, init_seed=r.init_seed + 8, data_seed=r.data_seed + 8) for r in rows]
    low, high = PooledRate.of(rows + more).interval
    assert low < 0.2 and high > 0.6, "six lucky seeds of 16, and not 156 runs of 416"
