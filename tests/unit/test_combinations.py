"""Every combination of some constraints as a study, in an order that can be stopped early."""

from itertools import combinations

import numpy as np
import pytest

from search.stats.factorial import nested_fractions
from search.study.file import load_study, parse_study
from tests.planners import finish, planner_of

STRENGTHS = """
    2 4 2, 4 8 3, 5 8 2, 5 16 3, 6 8 2, 7 8 2, 7 64 3, 8 16 3, 9 16 2, 9 32 3, 9 128 4, 9 256 7,
    10 16 2, 10 32 3, 10 256 5
"""
"""Factors, runs, and strength of the best fractions that are known for so few runs: resolution less 1."""
COMBINED = "name: x\nmodel: {}\nseeds: [1]\ncombine: [{}]\n"


def specs_of(text):
    return [spec for spec, _ in parse_study(text, "").listed]


@pytest.mark.parametrize("factors", range(1, 11))
def test_all_runs_come_once_and_the_first_changes_nothing(factors):
    runs = nested_fractions(factors)
    assert sorted(runs) == list(range(2**factors)) and runs[0] == 0


@pytest.mark.parametrize(("factors", "size", "strength"), [[*map(int, best.split())] for best in STRENGTHS.split(",")])
def test_a_leading_block_is_balanced_in_every_few_factors(factors, size, strength):
    levels = np.array([[run >> j & 1 for j in range(factors)] for run in nested_fractions(factors)[:size]])
    for some in combinations(range(factors), strength):
        _, counts = np.unique(levels[:, some], axis=0, return_counts=True)
        assert len(counts) == 2**strength and len(set(counts)) == 1, some


ATLASES = {"atlas": (320, 34, {16: "mains", 128: "pairs"}), "atlas-170p": (32, 10, {8: "mains", 32: "pairs"})}
"""Models, pairs of constraints that are told apart, and what is estimated from so many models on."""


@pytest.mark.parametrize("name", ATLASES)
def test_an_atlas_that_is_stopped_early_has_estimated_main_effects_first(name):
    """Though some combinations are the same model: of those each is trained once."""
    count, told_apart, blocks = ATLASES[name]
    study = load_study(name)
    specs = [spec for spec, _ in study.listed]
    assert len(specs) == len({spec.trained() for spec in specs}) == study.planned == count
    names = [constraint.partition("=")[0] for constraint in study.combine]
    levels = np.array([[n in spec.applied() for n in names] for spec in specs]) - 0.5
    pairs = [
        levels[:, a] * levels[:, b]
        for a, b in combinations(range(len(names)), 2)
        if len(np.unique(levels[:, (a, b)], axis=0)) == 4
    ]
    columns = {"mains": np.column_stack([np.ones(count), levels])}
    columns["pairs"] = np.column_stack([columns["mains"], *pairs])
    assert len(pairs) == told_apart
    for size, effects in blocks.items():
        rank = np.linalg.matrix_rank(columns[effects][:size])
        assert rank == columns[effects].shape[1] > np.linalg.matrix_rank(columns[effects][: size // 2])


def test_combinations_have_what_a_constraint_needs_and_not_what_it_excludes():
    changed = {"rank1_out", "rank2_out", "linear_correction", "plain_spiral", "frozen_spiral"}
    specs = specs_of(COMBINED.format("170p", "rank1_out, frozen_spiral"))
    assert [sorted(changed & spec.applied().keys()) for spec in specs] == [
        ["linear_correction", "rank2_out"],
        ["linear_correction", "rank1_out"],
        ["frozen_spiral", "plain_spiral", "rank2_out"],
        ["frozen_spiral", "plain_spiral", "rank1_out"],
    ]


@pytest.mark.parametrize(
    ("start", "ending"), [("", ""), ("start: {study: y, best: 3}", "; 18 with each θ to start from")]
)
def test_a_plan_says_how_many_combinations_are_trained(start, ending):
    study = parse_study(f"name: x\nmodel: 57p\nseeds: [1]\ncombine: [tie_fc2_head, one_unit, no_eos]\n{start}", "")
    said = "6, of 8 combinations; the others are impossible or equal to one of these"
    assert study.kind.describe_count(None) == said + ending


def test_of_combinations_that_read_theta_alike_the_nearest_to_the_model_is_trained():
    for model, ties in (("57p", True), ("{preset: 57p, tie_vo: false}", False)):
        specs = specs_of(COMBINED.format(model, "tie_vo, direct_forms"))
        assert [spec.tie_vo for spec in specs if spec.direct_forms] == [ties]


def test_combinations_are_trained_in_the_order_of_the_design(home):
    text = COMBINED.format("57p", "tie_vo, shared_norm, no_ffn_bias, tie_fc2_head")
    trained, _ = finish(planner_of(text, home))
    assert [pair.configuration.spec for pairs in trained for pair in pairs] == specs_of(text)
