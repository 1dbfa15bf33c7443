"""What docs/results.md says of luck is what its tables come to, and shares are estimated rightly."""

import csv
import importlib.util
from math import comb

import numpy as np
import pytest

from search.study.file import load_study
from search.study.trial import Configuration
from tests.test_results_page import DOCS, RESULTS

FOLDER = DOCS / "measurements"
found = importlib.util.spec_from_file_location("luck_shares", FOLDER / "luck_shares.py")
luck_shares = importlib.util.module_from_spec(found)
found.loader.exec_module(luck_shares)
EARLY = FOLDER / "luck-64-early.csv"


def crossed(vector, data, rounding, vectors=400, streams=8, roundings=2):
    """Numbers whose variance has these parts."""
    draw = np.random.default_rng(3).standard_normal
    parts = (
        (vector, (vectors, 1, 1)),
        (data, (vectors, streams, 1)),
        (rounding, (vectors, streams, roundings)),
    )
    return sum(variance**0.5 * draw(shape) for variance, shape in parts)


@pytest.mark.parametrize("parts", [(0.6, 0.3, 0.1), (0.0, 0.5, 0.5), (0.3, 0.0, 0.7), (1.0, 0.0, 0.0)])
def test_shares_are_those_that_made_the_numbers(parts):
    got = luck_shares.shares(crossed(*parts))
    assert [got[name] for name in ("vector", "data", "rounding")] == pytest.approx(list(parts), abs=0.06)


def test_without_a_vectors_part_p_is_no_small_number():
    generator = np.random.default_rng(1)
    assert luck_shares.p_of_vector(crossed(0.0, 0.5, 0.5, vectors=40), generator) > 0.01
    assert luck_shares.p_of_vector(crossed(0.8, 0.1, 0.1, vectors=40), generator) < 0.001


SAID = {"odd": "odd code", "left": "left the plateau", "basin": "in the basin"}


@pytest.mark.parametrize("name", SAID)
def test_the_pages_shares_are_those_of_the_seed_table(name):
    x_VDR = luck_shares.read(EARLY, 6_000, ["as-built", "contracted"])[name]
    assert x_VDR.shape == (64, 2, 2)
    line = next(
        line for line in RESULTS.splitlines() if line.startswith(f"| {SAID[name]} ") and "/ 256" in line
    )
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
    assert cells[0] == f"{int(x_VDR.sum())} / 256"
    shares = luck_shares.shares(x_VDR)
    expected = [f"{100 * shares[n]:.0f} %" for n in ("vector", "data", "rounding")]
    assert [cell.partition(" (")[0] for cell in cells[1:]] == expected
    all_four = luck_shares.read(EARLY, 6_000, ["as-built"])[name]
    assert all_four.shape == (64, 4, 1)
    assert f"{int(all_four.sum())} / 256)" in RESULTS
    assert f"{100 * luck_shares.shares(all_four)['vector']:.0f} %" in RESULTS


def test_the_second_rounding_changed_every_seed():
    with EARLY.open() as opened:
        rows = [r for r in csv.DictReader(opened) if r["step"] == "6000"]
    losses = {(r["rounding"], r["init_seed"], r["data_seed"]): r["loss"] for r in rows}
    both = [key[1:] for key in losses if key[0] == "contracted"]
    assert len(both) == 128
    assert all(losses["contracted", *key] != losses["as-built", *key] for key in both)


def mcnemar(only_one, only_other):
    """Exact, two-sided."""
    n, least = only_one + only_other, min(only_one, only_other)
    return min(1.0, 2 * sum(comb(n, k) for k in range(least + 1)) / 2**n)


def test_the_carry_schedules_comparison_is_that_of_its_seeds():
    with (FOLDER / "kinds-57p.csv").open() as opened:
        rows = list(csv.DictReader(opened))
    (base, recipe), (_, other) = load_study("57p-kinds").listed()
    keys = [Configuration(base, r).key for r in (recipe, other)]
    grokked = [
        {r["init_seed"] for r in rows if r["configuration"] == k and r["outcome"] == "grokked"} for k in keys
    ]
    seeds = [{int(r["init_seed"]) for r in rows if r["configuration"] == k} for k in keys]
    assert seeds == [set(range(410_001, 410_049))] * 2
    only = len(grokked[1] - grokked[0]), len(grokked[0] - grokked[1])
    assert f"{only[0]} with the first alone and {only[1]} with the second alone" in RESULTS
    assert f"McNemar's exact p = {mcnemar(*only):.3f}" in RESULTS
    for key, won, said in zip(keys, grokked, ("150,000", "116,000"), strict=True):
        steps = sum(int(r["steps"]) for r in rows if r["configuration"] == key) / len(won)
        assert f"{round(steps, -3):,.0f}" == said and said in RESULTS
