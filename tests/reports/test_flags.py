"""Searched flags against each other: the rate in each cell, and what two do beyond the sum of both."""

import json
from dataclasses import replace

import numpy as np
import pytest

from reports.flags import Against, flag_grids, rate_text, single_flags, write_flags
from reports.ratios import Paired
from search.stats.counting import GrokRate
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
    assert [row["n"] for row in json.loads(write_flags([], [none], "json"))] == [80] * 4


# One flag

HALVED = {False: 0.6, True: 0.3}


def one_flag(rates, seeds=40, each=1, **fields):
    """Configurations of one flag, model.tie_vo, and seeds that grok at its values' rates; fields: of both."""
    rng, configurations, recorded = np.random.default_rng(1), [], []
    luck = rng.random(seeds)  # of a seed, in all its configurations
    for value, rate in rates.items():
        for i in range(each):
            key = f"{value} {i}"
            own = {name: shared[i] if isinstance(shared, list) else shared for name, shared in fields.items()}
            row = {"study": "s", "configuration": key, "title": f"c{key}", "model.family": "f", "model.tie_vo": value}
            configurations.append(row | own)
            recorded += rows(*(GROKKED if n < rate else FAILED for n in luck), first=0, configuration=key)
    return configurations, recorded


def test_one_flag_is_answered_with_rates_and_their_ratio_on_the_same_seeds():
    (flag,) = single_flags(*one_flag({True: 0.3, False: 0.6}))
    off, on = flag.sides
    assert (flag.name, off.text, on.text) == ("tie_vo", "off", "on") and flag_grids(
        *one_flag({True: 0.3, False: 0.6})
    ) == []
    assert off.rate == GrokRate(off.rate.grokked, 40) and off.against is None
    pairs = Paired(on.rate.grokked, 0, off.rate.grokked - on.rate.grokked, 40 - off.rate.grokked)
    assert on.against == Against(pairs.ratio, pairs.ratio_interval, 40)
    said = "×{:.2f} ({:.2f} to {:.2f}), 40 seeds in both".format(pairs.ratio, *pairs.ratio_interval)
    assert on.against.interval[1] < 1 and str(on.against) == said
    text = write_flags([flag], [], "md")
    assert f"| on     | {on.rate.grokked} of 40 (" in text and f"| {on.against} | costs" in text
    first, second = json.loads(write_flags([flag], [], "json"))
    assert (first["value"], first["ratio"], second["value"], second["ratio"]) == (False, None, True, pairs.ratio)


def test_seeds_of_one_side_alone_are_not_paired():
    configurations, seeds = one_flag(HALVED)
    apart = [replace(row, init_seed=row.init_seed + 1_000) if row.configuration == "True 0" else row for row in seeds]
    (same,), (flag,) = single_flags(configurations, seeds), single_flags(configurations, apart)
    assert flag.sides[1].against.pairs == 0 and flag.sides[1].against.ratio == same.sides[1].against.ratio
    low, high = flag.sides[1].against.interval
    narrow = same.sides[1].against.interval
    assert low < narrow[0] and narrow[1] < high and 0 < low < high


def test_sides_of_several_configurations_are_pooled_and_clustered_by_seed():
    varied = {"recipe.lr": [0.001, 0.002, 0.003, 0.004, 0.005]}
    (flag,) = single_flags(*one_flag(HALVED, each=5, **varied))
    off, on = flag.sides
    assert flag.name == "tie_vo" and off.rate.n == 200 and off.rate.configurations == 5
    low, high = on.against.interval
    (one,) = single_flags(*one_flag(HALVED))
    assert 0 < low < on.against.ratio < high < 1 and high - low > 0.5 * np.diff(one.sides[1].against.interval)[0]
    (few,) = single_flags(*one_flag(HALVED, seeds=8, each=5, **varied))
    assert few.sides[1].against.interval is None and str(few.sides[1].against).startswith("×0.20 (no interval)")


def test_one_field_of_the_recipe_or_two_listed_configurations_are_a_flag():
    configurations, seeds = one_flag(HALVED)
    for row in configurations:
        row["recipe.lr"] = 0.02 if row.pop("model.tie_vo") else 0.01
    (flag,) = single_flags(configurations, seeds)
    assert (flag.name, [side.text for side in flag.sides]) == ("lr", ["0.01", "0.02"])
    configurations[0]["recipe.steps"], configurations[1]["recipe.steps"] = 100, 200
    (flag,) = single_flags(configurations, seeds)
    assert (flag.name, [side.text for side in flag.sides]) == ("configuration", ["cFalse 0", "cTrue 0"])
    configurations[0]["title"] = "\x1b[31mred"  # a file may have any text there
    assert single_flags(configurations, seeds)[0].sides[0].text == r"\x1b[31mred"
    assert single_flags(configurations[:1], seeds) == []
    assert single_flags(*one_flag(HALVED, each=2, **{"model.norm": ["a", "b"]})) == []  # two: a grid


def test_a_side_without_a_success_or_of_a_study_that_stops_at_one():
    (flag,) = single_flags(*one_flag({False: 0.0, True: 0.3}))
    assert flag.sides[1].against.ratio is None and str(flag.sides[1].against).startswith("×– (")
    assert str(flag.sides[1].against).endswith(" to ∞), 40 seeds in both")
    assert json.loads(write_flags([flag], [], "json"))[1]["ratio_high"] is None
    configurations, seeds = one_flag(HALVED)
    recorded = {"stopped": True, "grok_rate_low": 0.25, "grok_rate_high": 0.75}
    (flag,) = single_flags([row | recorded for row in configurations], seeds)
    assert flag.sides[1].against is None and flag.sides[0].rate.interval == (0.25, 0.75)
    assert "stops at a success" in write_flags([flag], [], "md")
    twice = one_flag(HALVED, each=2, **{"recipe.lr": [0.1, 0.2]})
    (flag,) = single_flags([row | recorded for row in twice[0]], twice[1])
    assert flag.sides[0].rate.interval is None
    (flag,) = single_flags(configurations, [row for row in seeds if row.configuration != "True 0"])
    assert flag.sides[1].rate is None and flag.sides[1].against is None


def test_a_list_is_a_value_of_a_field_and_a_study_that_is_named_twice_counts_once():
    configurations, seeds = one_flag(HALVED)
    for row in configurations:
        row["recipe.curriculum"] = ((3, 2_000),) if row.pop("model.tie_vo") else ()
    (flag,) = single_flags(configurations, seeds)
    assert [side.text for side in flag.sides] == ["3\N{NO-BREAK SPACE}for\N{NO-BREAK SPACE}2,000", "none"]
    assert [row["value"] for row in json.loads(write_flags([flag], [], "json"))] == [[[3, 2_000]], []]
    assert single_flags(2 * configurations, 2 * seeds) == [flag]
    twice = flag_grids(*(2 * rows for rows in seeds_of(ADDITIVE)))
    assert twice == flag_grids(*seeds_of(ADDITIVE))


@pytest.mark.parametrize(
    ("values", "name", "texts"),
    [
        ([({"name": "wide", "model": "100p"},), ({"name": "wide", "model": "67p"},)], "configuration", ["c0", "c1"]),
        ([{"a": 1}, {"a": 2}], "stages", ["{'a': 1}", "{'a': 2}"]),
    ],
)
def test_values_that_differ_are_told_apart(values, name, texts):
    configurations, seeds = one_flag(HALVED)
    for number, row in enumerate(configurations):
        row |= {"model.tie_vo": True, "recipe.stages": values[number], "title": f"c{number}"}
    (flag,) = single_flags(configurations, seeds)
    assert (flag.name, [side.text for side in flag.sides]) == (name, texts)


def test_a_rate_reads_as_none_or_all_only_where_it_is():
    texts = [rate_text(GrokRate(k, 256)) for k in (0, 1, 255, 256)]
    assert [text.partition(" (")[2].partition(",")[0] for text in texts] == ["0%", "0.4%", "99.6%", "100%"]


def test_none_is_a_value_of_a_field():
    (flag,) = single_flags(*one_flag({None: 0.6, 4.0: 0.3}))
    assert [side.text for side in flag.sides] == ["none", "4"]


def test_names_of_the_recipe_are_flags_and_its_numbers_are_none():
    two = {"recipe.optimiser": ["adamw", "lion"], "recipe.lr": [0.01, 0.02]}
    (grid,) = flag_grids(*one_flag(HALVED, each=2, **two))
    assert grid.flags == ("tie_vo", "optimiser")
    configurations, seeds = one_flag(HALVED, each=2, **two)
    (flag,) = single_flags([row | {"model.tie_vo": True} for row in configurations], seeds)
    assert flag.name == "optimiser" and [side.text for side in flag.sides] == ["adamw", "lion"]


def test_a_task_is_a_flag_by_its_own_fields():
    """Its text is a field of the model too, which says the same again."""
    shares = {0.4: "modular train=0.4", 0.6: "modular train=0.6"}

    def rows_of(each, **fields):
        configurations, seeds = one_flag({0.4: 0.3, 0.6: 0.6}, each=each, **fields)
        return [row | {"task.train": row["model.tie_vo"], "model.task": shares[row["model.tie_vo"]],
                       "model.tie_vo": True} for row in configurations], seeds  # fmt: skip

    (flag,) = single_flags(*rows_of(1))
    assert (flag.name, [side.text for side in flag.sides]) == ("train", ["0.4", "0.6"])
    assert single_flags(*rows_of(2, **{"recipe.weight_decay": [0.3, 1.0]})) == []  # both are numbers
