"""Searched flags against each other: the rate in each cell, and what two do beyond the sum of both."""

import json
from dataclasses import replace

import numpy as np

from search.analysis.flags import flag_grids, write_grids
from tests.unit.test_counting import FAILED, GROKKED, rows


def seeds_of(rates, seeds=40, each=2):
    """Configurations with two flags, and seeds that grok at the rate of their cell."""
    rng, configurations, recorded = np.random.default_rng(0), [], []
    for (tie, norm), rate in rates.items():
        for i in range(each):
            key = f"{tie} {norm} {i}"
            configurations.append({"study": "s", "configuration": key, "model.family": "f", "model.tie_vo": tie,
                                   "model.shared_norm": norm, "model.width": 3, "wrongly": 0.0})  # fmt: skip
            ended = [GROKKED if rng.random() < rate else FAILED for _ in range(seeds)]
            recorded += rows(*ended, first=0, configuration=key)
    return configurations, recorded


ADDITIVE = {(False, False): 0.5, (True, False): 0.27, (False, True): 0.27, (True, True): 0.12}  # odds × 0.37 each


def test_each_cell_has_its_rate_and_a_pair_is_compared_with_the_sum():
    (grid,) = flag_grids(*seeds_of(ADDITIVE))
    assert grid.flags == ("tie_vo", "shared_norm") and grid.values == ((False, True), (False, True))
    assert {cell: rate.n for cell, rate in grid.cells.items()} == dict.fromkeys(ADDITIVE, 80)
    low, high = grid.interaction.interval
    assert low < 0 < high
    (grid,) = flag_grids(*seeds_of(ADDITIVE | {(True, True): 0.9}))
    assert grid.interaction.interval[0] > 0 and grid.beyond.startswith("odds × ")
    head, off, _ = grid.lines()
    assert head == ["tie_vo", "shared_norm off", "shared_norm on"]
    rate = grid.cells[False, False]
    assert off[1].startswith(f"{rate.grokked} of 80 ({rate.rate:.0%}, ")
    configurations, seeds = seeds_of(ADDITIVE)
    fresh = [replace(row, init_seed=1_000 + row.init_seed, confirmation=True) for row in seeds]
    assert flag_grids(configurations, [*seeds, *fresh])[0].cells[False, False] == rate


def test_what_cannot_be_estimated_says_why():
    (few,) = flag_grids(*seeds_of(ADDITIVE, seeds=8))
    assert few.beyond == "not estimable: too few seeds to pool" and few.cells[True, True].interval is None
    (empty,) = flag_grids(*seeds_of({k: v for k, v in ADDITIVE.items() if k != (True, True)}))
    assert empty.beyond == "not estimable: an empty cell" and empty.lines()[2][2] == "–"
    (none,) = flag_grids(*seeds_of(ADDITIVE | {(True, False): 0.0, (True, True): 0.0}))
    assert none.beyond == "not estimable: all or none grokked at a value of one"
    assert [row["n"] for row in json.loads(write_grids([none], "json"))] == [80] * 4
