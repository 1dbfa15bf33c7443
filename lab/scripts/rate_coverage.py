"""Coverage of the intervals of grok rates in simulated searches whose true rates are known.

    python lab/scripts/rate_coverage.py [STUDIES] > lab/scripts/rate_coverage.json

A search has 26 configurations of the same seeds with rates from 0.02 to 0.9 (or all in a narrow range), a rule
that calls some winners and most losers, and a spared tenth. How well a seed does in one configuration is correlated
with how it does in the others. Printed: the share of intervals that hold the truth, averaged and in the worst case, and
their width, each configuration's and of all pooled. All are computed by the product's functions, from rows of seeds.

Late: the rule calls no winners of 25 configurations and many of the 26th, which learns late. The share is of its
interval alone.

Axes: C configurations, S seeds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from search.stats.counting import FEWEST_SEEDS, GrokRate, PooledRate
from search.stats.record import SeedRecord

CALLED_LOSERS, BLOCK = 0.7, 10
RATES = np.linspace(0.02, 0.9, 26)
POOLED = (0.02, 0.05, 0.1, 0.2, 0.5, 0.9)
"""Mean rates of pooled configurations, each of which has from half of it to one and a half."""
LATE = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Rates of the configuration that learns late."""
ALIKE = 0.5


def outcomes(
    rng: Any, rates_C: np.ndarray, seeds: int, alike: float, called_winners: Any, by_seed: bool = False
) -> Any:
    """Return which seeds would grok, which a rule calls and which it spares [C, S] (bool).

    called_winners: share that the rule calls, of all configurations or of each [C, 1]. by_seed: the spared seeds are
    the same in all configurations, as in a list, and not drawn of pairs, as in a search.
    """
    from scipy.special import ndtri

    shape = len(rates_C), seeds
    luck = np.sqrt(alike) * rng.standard_normal((1, seeds)) + np.sqrt(1 - alike) * rng.standard_normal(shape)
    wins = luck < ndtri(rates_C)[:, None]
    called = rng.random(shape) < np.where(wins, called_winners, CALLED_LOSERS)
    drawn = seeds if by_seed else wins.size
    spared = np.arange(BLOCK) == rng.integers(BLOCK, size=(-(-drawn // BLOCK), 1))
    spared = spared.ravel()[:drawn]
    return wins, called, np.broadcast_to(spared, shape) if by_seed else spared.reshape(shape)


def rows_of(wins: Any, called: Any, spared: Any) -> list[list[SeedRecord]]:
    """Return the rows of each configuration's seeds, as the ledger has them."""

    def row(c: int, s: int) -> SeedRecord:
        is_ended = called[c, s] and not spared[c, s]
        outcome = "screened" if is_ended else "grokked" if wins[c, s] else "failed"
        screen = "token 0.5 at 1000" if called[c, s] else None
        return SeedRecord(configuration=str(c), init_seed=s, data_seed=s, outcome=outcome, screen=screen)

    return [[row(c, s) for s in range(wins.shape[1])] for c in range(len(wins))]


def coverage(
    studies: int, rates_C: np.ndarray, seeds: int, alike: float, called_winners: float | None, by_seed: bool = False
) -> dict[str, Any]:
    """Return shares of intervals that hold the truth, and mean widths. called_winners: None without a rule."""
    rng = np.random.default_rng(0)
    held, widths, pooled, pooled_widths = [], [], [], []
    for _ in range(studies):
        wins, called, spared = outcomes(rng, rates_C, seeds, alike, called_winners or 0.0, by_seed)
        rows = rows_of(wins, called & (called_winners is not None), spared)
        each = np.array([GrokRate.of(own).interval for own in rows])
        held.append((each[:, 0] <= rates_C) & (rates_C <= each[:, 1]))
        widths.append(each[:, 1] - each[:, 0])
        if seeds >= FEWEST_SEEDS and (both := PooledRate.of(row for own in rows for row in own).interval):
            pooled.append(both[0] <= rates_C.mean() <= both[1])
            pooled_widths.append(both[1] - both[0])
    by_rate_C = np.mean(held, axis=0)
    row: dict[str, Any] = {
        "seeds": seeds, "alike": alike, "called_winners": called_winners, "rate": float(rates_C.mean()),
        "by_seed": by_seed, "mean": float(by_rate_C.mean()), "least": float(by_rate_C.min()),
        "at_rate": float(rates_C[by_rate_C.argmin()]), "width": float(np.mean(widths)),
    }  # fmt: skip
    if pooled:
        row |= {"pooled": float(np.mean(pooled)), "pooled_width": float(np.mean(pooled_widths))}
    return row


def late(studies: int, rate: float, seeds: int, called_winners: float) -> dict[str, Any]:
    """Return how often the interval of one configuration holds its rate, of which alone the rule calls winners."""
    rng = np.random.default_rng(0)
    rates_C = np.append(RATES[1:], rate)
    called_C1 = np.where(np.arange(len(rates_C)) == len(rates_C) - 1, called_winners, 0.0)[:, None]
    ends = []
    for _ in range(studies):
        rows = rows_of(*outcomes(rng, rates_C, seeds, ALIKE, called_C1))
        ends.append(GrokRate.of(rows[-1]).interval)
    low, high = np.array(ends).T
    held = float(((low <= rate) & (rate <= high)).mean())
    width = float((high - low).mean())
    return {"seeds": seeds, "called_winners": called_winners, "rate": rate, "held": held, "width": width}


def near(mean: float) -> np.ndarray:
    return np.clip(mean * np.linspace(0.5, 1.5, len(RATES)), 0.005, 0.985)


def table(studies: int) -> Iterator[dict[str, Any]]:
    for rate, seeds, called_winners in product(LATE, (16, 32, 64), (0.3, 0.6, 0.9)):
        yield {"rates": "late"} | late(studies, rate, seeds, called_winners)
    for seeds, called_winners in product((8, 16, 32, 64), (None, 0.0, 0.1, 0.3)):
        yield {"rates": "spread"} | coverage(studies, RATES, seeds, ALIKE, called_winners)
    for seeds, alike, mean in product((10, 16, 32), (0.0, 0.5, 0.95), POOLED):
        for called_winners, by_seed in ((None, False), (0.1, False), (0.1, True)):
            yield {"rates": "near"} | coverage(studies // 2, near(mean), seeds, alike, called_winners, by_seed)


if __name__ == "__main__":
    rows = []
    for row in table(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000):
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    print(json.dumps(rows, indent=1))
