"""Coverage of the intervals of grok rates in simulated searches whose true rates are known.

    python lab/scripts/rate_coverage.py [STUDIES] > lab/scripts/rate_coverage.json

A search has 26 configurations of the same seeds with rates from 0.02 to 0.9 (or all in a narrow range), a rule
that calls some winners and most losers, and a spared tenth. How well a seed does in one configuration is correlated
with how it does in the others. Printed: the share of intervals that hold the truth, averaged and in the worst case, and
their width, each configuration's and of all pooled. Both are computed by the product's functions.

Axes: C configurations, S seeds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from search.stats.counting import FEWEST_SEEDS, Evidence, GrokRate
from search.stats.intervals import LEVEL, clustered, exact_high

CALLED_LOSERS, BLOCK = 0.7, 10
RATES = np.linspace(0.02, 0.9, 26)
POOLED = (0.02, 0.05, 0.1, 0.2, 0.5, 0.9)
"""Mean rates of pooled configurations, each of which has from half of it to one and a half."""


def outcomes(rng: Any, rates_C: np.ndarray, seeds: int, alike: float, called_winners: float) -> Any:
    """Return which seeds would grok, which a rule calls and which it spares [C, S] (bool)."""
    from scipy.special import ndtri

    shape = len(rates_C), seeds
    luck = np.sqrt(alike) * rng.standard_normal((1, seeds)) + np.sqrt(1 - alike) * rng.standard_normal(shape)
    wins = luck < ndtri(rates_C)[:, None]
    called = rng.random(shape) < np.where(wins, called_winners, CALLED_LOSERS)
    blocks = -(-wins.size // BLOCK)
    spared = np.arange(BLOCK) == rng.integers(BLOCK, size=(blocks, 1))
    return wins, called, spared.ravel()[: wins.size].reshape(shape)


def intervals(wins: Any, called: Any, spared: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the intervals of configurations [C, 2], and that of all pooled [2]; None for too few seeds."""
    ended, ran_on = called & ~spared, called & spared
    wrong, grokked = ran_on & wins, wins & ~ended
    evidence = Evidence(int(ran_on.sum()), int(wrong.sum()), int(ended.sum()), int((wins & ~called).sum()))
    rates = []
    for n, k, own, bad in zip(ended.sum(1), grokked.sum(1), ran_on.sum(1), wrong.sum(1), strict=True):
        by_own = n * exact_high(int(bad), int(own), LEVEL)
        missed = float(min(by_own, evidence.missed(int(n), int(k))))
        rates.append(GrokRate(int(k), wins.shape[1], int(n), missed))
    each = np.array([rate.interval for rate in rates])
    if wins.shape[1] < FEWEST_SEEDS:
        return each, None
    tries = [len(wins)] * wins.shape[1]
    share = sum(rate.missed for rate in rates) / max(ended.sum(), 1)
    low, _ = clustered(grokked.sum(0).tolist(), tries)
    return each, np.array([low, clustered((grokked.sum(0) + share * ended.sum(0)).tolist(), tries)[1]])


def coverage(
    studies: int, rates_C: np.ndarray, seeds: int, alike: float, called_winners: float | None
) -> dict[str, Any]:
    """Return shares of intervals that hold the truth, and mean widths. called_winners: None without a rule."""
    rng = np.random.default_rng(0)
    held, widths, pooled, pooled_widths = [], [], [], []
    for _ in range(studies):
        wins, called, spared = outcomes(rng, rates_C, seeds, alike, called_winners or 0.0)
        each, both = intervals(wins, called & (called_winners is not None), spared)
        held.append((each[:, 0] <= rates_C) & (rates_C <= each[:, 1]))
        widths.append(each[:, 1] - each[:, 0])
        if both is not None:
            pooled.append(both[0] <= rates_C.mean() <= both[1])
            pooled_widths.append(both[1] - both[0])
    by_rate_C = np.mean(held, axis=0)
    row: dict[str, Any] = {
        "seeds": seeds, "alike": alike, "called_winners": called_winners, "rate": float(rates_C.mean()),
        "mean": float(by_rate_C.mean()), "least": float(by_rate_C.min()),
        "at_rate": float(rates_C[by_rate_C.argmin()]), "width": float(np.mean(widths)),
    }  # fmt: skip
    if pooled:
        row |= {"pooled": float(np.mean(pooled)), "pooled_width": float(np.mean(pooled_widths))}
    return row


def near(mean: float) -> np.ndarray:
    return np.clip(mean * np.linspace(0.5, 1.5, len(RATES)), 0.005, 0.985)


def table(studies: int) -> Iterator[dict[str, Any]]:
    for seeds, called_winners in product((8, 16, 32, 64), (None, 0.0, 0.1, 0.3)):
        yield {"rates": "spread"} | coverage(studies, RATES, seeds, 0.5, called_winners)
    for seeds, alike, mean in product((10, 16, 32), (0.0, 0.5, 0.95), POOLED):
        for called_winners in (None, 0.1):
            yield {"rates": "near"} | coverage(studies // 2, near(mean), seeds, alike, called_winners)


if __name__ == "__main__":
    rows = []
    for row in table(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000):
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    print(json.dumps(rows, indent=1))
