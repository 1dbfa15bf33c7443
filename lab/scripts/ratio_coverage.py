"""Coverage of two intervals of the ratio of paired rates: the exact one of the table, and Bonett and Price's.

    python lab/scripts/ratio_coverage.py N ...

For N seeds in both arms, rates from 0.02 to 0.9 in each and correlations 0, 0.2 and 0.5: the chance that the interval
has the true ratio in it, summed over all outcomes. Bonett and Price's: hybrid Wilson interval, Statistics in
Medicine 25, 3039-3047 (2006). Ours is inverted from its test at the true ratio; N = 32 takes a minute, 136 ten.

Axes: O outcomes, G nuisance shares.
"""

from __future__ import annotations

import sys
from itertools import product
from math import lgamma

import numpy as np

from reports.ratios import Z_95, _ratio_score, _shares_of_ratio
from search.stats.intervals import LEVEL

RATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.41, 0.52, 0.62, 0.75, 0.9)
CORRELATIONS = (0.0, 0.2, 0.5)


def log(share):
    return np.log(np.maximum(share, 1e-300))


def ways(n, *counts_O):
    logs = np.array([lgamma(k + 1) for k in range(n + 1)])
    return logs[n] - sum(logs[c] for c in (*counts_O, n - sum(counts_O)))


def accepted(n, ratio):
    """Return for each outcome of n pairs with a success if the exact test accepts a ratio, from both sides."""
    first_O, second_O = np.array([(i, j) for i in range(n + 1) for j in range(n + 1 - i)]).T
    if n == 0:
        return first_O, second_O, np.array([True])
    score_O = _ratio_score(first_O, second_O, n, ratio)
    order = np.argsort(score_O, kind="stable")
    first_O, second_O, score_O = first_O[order], second_O[order], score_O[order]
    p_G1, q_G1 = _shares_of_ratio(ratio)
    both_O = n - first_O - second_O
    chance_GO = np.exp(
        ways(n, first_O, second_O) + first_O * log(p_G1) + second_O * log(q_G1) + both_O * log(1 - p_G1 - q_G1)
    )
    below = chance_GO.cumsum(1).max(0)[np.searchsorted(score_O, score_O + 1e-9, side="right") - 1]
    above = chance_GO[:, ::-1].cumsum(1)[:, ::-1].max(0)[np.searchsorted(score_O, score_O - 1e-9)]
    return first_O, second_O, (below > LEVEL / 2) & (above > LEVEL / 2)


def wilson(k_O, n_O, z_O):
    p, z2 = k_O / n_O, z_O**2
    centre, half = (p + z2 / (2 * n_O)), z_O * np.sqrt(p * (1 - p) / n_O + z2 / (4 * n_O * n_O))
    return np.where(k_O == 0, 0, (centre - half) / (1 + z2 / n_O)), (centre + half) / (1 + z2 / n_O)


def hybrid(both_O, first_O, second_O):
    """Return Bonett and Price's ends."""
    n_O, ones_O, others_O = both_O + first_O + second_O, both_O + first_O, both_O + second_O
    spread = np.sqrt((first_O + second_O + 2) / ((ones_O + 1) * (others_O + 1)))
    spreads = [np.sqrt((1 - (x + 1) / (n_O + 2)) / (x + 1)) for x in (ones_O, others_O)]
    z_O, some_O = Z_95 * spread / sum(spreads), np.maximum(n_O, 1)
    (low, high), (other_low, other_high) = wilson(ones_O, some_O, z_O), wilson(others_O, some_O, z_O)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(ones_O == 0, 0, low / other_high), np.where(others_O == 0, np.inf, high / other_low)


def coverage(n):
    """Yield p, q, correlation and the coverage of both intervals."""
    by_ratio = {}
    for p, q in product(RATES, RATES):
        by_ratio.setdefault(p / q, []).append((p, q))
    for ratio, pairs in by_ratio.items():
        tested = [(m, *accepted(m, ratio)) for m in range(n + 1)]
        some_O = np.concatenate([np.full(len(first), m) for m, first, _, _ in tested])
        first_O, second_O, ours_O = (np.concatenate([part[i] for part in tested]) for i in (1, 2, 3))
        both_O = some_O - first_O - second_O
        low_O, high_O = hybrid(both_O, first_O, second_O)
        hybrid_O = (low_O <= ratio) & (ratio <= high_O)
        ways_O = ways(n, both_O, first_O, second_O)
        for (p, q), correlation in product(pairs, CORRELATIONS):
            both = min(p * q + correlation * (p * (1 - p) * q * (1 - q)) ** 0.5, 0.999 * min(p, q))
            if (neither := 1 - p - q + both) > 0:
                logs = both_O * log(both) + first_O * log(p - both) + second_O * log(q - both)
                chance_O = np.exp(ways_O + logs + (n - some_O) * log(neither))
                yield p, q, correlation, chance_O[ours_O].sum(), chance_O[hybrid_O].sum()


def main():
    print("| seeds | interval | mean | least | at rates, correlation |\n|---|---|---|---|---|")
    for n in map(int, sys.argv[1:]):
        rows = list(coverage(n))
        for i, name in ((3, "exact score"), (4, "Bonett and Price")):
            least = min(rows, key=lambda row: row[i])
            where = f"{least[0]}, {least[1]}, {least[2]}"
            print(
                f"| {n} | {name} | {np.mean([r[i] for r in rows]):.3f} | {least[i]:.3f} | {where} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
