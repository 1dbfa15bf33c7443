"""Coverage of the interval of the ratio of two rates of several configurations each, as `table` has it of one flag.

    python lab/scripts/flag_coverage.py [STUDIES]

A study has a flag on in some configurations and off in as many, all on the same seeds, with rates from half of their
side's to one and a half. How well a seed does in one configuration is correlated with how it does in the others.
Printed, as a table: the share of intervals that hold the true ratio, on average over rates and at the worst ones.

Axes: C configurations, S seeds.
"""

from __future__ import annotations

import sys
from itertools import product

import numpy as np

from lab.scripts.rate_coverage import outcomes, rows_of
from reports.flags import _against

MEANS = (0.05, 0.2, 0.5)
EACH = (4, 12)
SEEDS, ALIKE = (16, 32), (0.0, 0.5, 0.95)


def coverage(studies: int, means: tuple[float, float], each: int, seeds: int, alike: float) -> float:
    """Return the share of intervals that hold the true ratio of two sides' mean rates."""
    spread = np.linspace(0.5, 1.5, each)
    rates_C = np.concatenate([mean * spread for mean in means])
    draws = np.random.default_rng(0)
    held = 0
    for _ in range(studies):
        wins, called, spared = outcomes(draws, rates_C, seeds, alike, 0.0)
        rows = rows_of(wins, np.zeros_like(called), spared)
        on, off = ([row for own in side for row in own] for side in (rows[:each], rows[each:]))
        interval = _against(on, off).interval
        assert interval is not None, "several configurations have an interval from ten seeds on"
        held += interval[0] <= means[0] / means[1] <= interval[1]
    return held / studies


def main(studies: str = "200") -> None:
    print("| configurations a side | seeds | correlation | mean | least, at rates |\n|---|---|---|---|---|")
    for each, seeds, alike in product(EACH, SEEDS, ALIKE):
        shares = {means: coverage(int(studies), means, each, seeds, alike) for means in product(MEANS, MEANS)}
        worst = min(shares, key=lambda means: shares[means])
        mean = sum(shares.values()) / len(shares)
        print(f"| {each} | {seeds} | {alike:g} | {mean:.3f} | {shares[worst]:.3f} at {worst[0]:g} and {worst[1]:g} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
