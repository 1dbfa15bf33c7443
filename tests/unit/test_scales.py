"""The table of constraints as a study: its cells, their arms, and the seeds of each scale."""

import pytest

from search.run import estimate
from search.run.forecast import forecast
from search.study.file import parse_study
from search.study.trial import Configuration
from tests.planners import finish, planner_of, rows_of

TABLE = """
name: table
recipe: {steps: 2000, init: [[equals, at, 3.4, -1.1, 0.9]]}
constraints: [tie_vo, qk_dim=4, tie_fc2_head]
scales:
  57p: {seeds: 5, rate: 0.5, bases: {free: {constraints: [tie_vo], recipe: {init: []}, rate: 0.25}}}
  67p: {seeds: 3, rate: 0.6}
  170p: {recipe: {init: [], lr: 0.01}, rate: 0.4}
seeds: {first: 11, count: 4}
"""


def asked(text, home, rows=()):
    """Seeds that a plan asks for, by configuration key."""
    trained, _ = finish(planner_of(text, home, rows))
    seeds = {}
    for pair in (pair for pairs in trained for pair in pairs):
        seeds.setdefault(pair.configuration.key, []).append(pair.seed.init_seed)
    return {key: sorted(numbers) for key, numbers in seeds.items()}


def test_cells_have_two_arms_that_differ_in_one_constraint():
    design = parse_study(TABLE, "").kind.design
    assert [(c.scale, c.constraint, c.base_name, c.seeds, c.rate) for c in design.cells] == [
        ("57p", "tie_vo", "free", 5, 0.25), ("57p", "qk_dim=4", "", 5, 0.5), ("57p", "tie_fc2_head", "", 5, 0.5),
        ("67p", "tie_vo", "", 3, 0.6), ("67p", "qk_dim=4", "", 3, 0.6), ("67p", "tie_fc2_head", "", 3, 0.6),
        ("170p", "tie_vo", "", 4, 0.4), ("170p", "tie_fc2_head", "", 4, 0.4),
    ]  # fmt: skip
    assert design.skipped == {"qk_dim=4": {"170p": "it would take no parameter away"}}
    for cell in design.cells:
        name = cell.constraint.partition("=")[0]
        (spec, recipe), (toggled, same) = cell.base, cell.toggled
        assert recipe == same and (name in spec.applied()) != (name in toggled.applied())
        assert recipe.init == () if cell.base_name or cell.scale == "170p" else recipe.init


def test_each_scale_has_its_seeds_and_equal_arms_are_trained_once(home):
    study = parse_study(TABLE, "")
    cells = {(c.scale, c.constraint): c for c in study.kind.design.cells}
    assert cells["57p", "tie_fc2_head"].toggled == cells["67p", "qk_dim=4"].base, "57p without it is 67p"
    seeds = asked(TABLE, home)
    assert seeds[Configuration(*cells["67p", "qk_dim=4"].base).key] == [11, 12, 13, 14, 15], "the more of both"
    assert seeds[Configuration(*cells["67p", "qk_dim=4"].toggled).key] == [11, 12, 13]
    assert seeds[Configuration(*cells["170p", "tie_vo"].base).key] == [11, 12, 13, 14], "seeds.count"
    assert sum(map(len, seeds.values())) == sum(study.kind.design.seeds.values()) == 43
    assert f"seeds           43, {2000:,} steps" in estimate.estimate(study, home)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("seeds: 3", "seeds: 5", [[14, 15]] * 2),
        ("qk_dim=4, ", "qk_dim=4, shared_norm, ", [[11, 12, 13], [11, 12, 13, 14], [11, 12, 13, 14, 15]]),
        ("170p:", "74p: {seeds: 2, rate: 0.4}\n  170p:", [[11, 12]] * 4),
        ("count: 4", "count: 6", [[15, 16]] * 3),
        ("rate: 0.6", "rate: 0.3", []),
        ("seeds: 5", "seeds: 2", []),
    ],
)
def test_an_edited_file_asks_for_exactly_what_is_missing(before, after, expected, home):
    rows = rows_of(finish(planner_of(TABLE, home, ahead=99))[0])
    edited = TABLE.replace(before, after)
    assert edited != TABLE and len(rows) == 43
    assert sorted(asked(edited, home, rows).values()) == expected
    study = parse_study(edited, "")
    assert sorted(forecast(study, rows).search.values()) == sorted(map(len, expected))


def test_an_arm_is_named_by_what_its_scale_varies():
    """Recipes of scales differ; an arm's own differs from another of its preset at most."""
    study = parse_study(TABLE, "test")
    listed = {study.kind.name_of(Configuration(*c)) for c in study.listed}
    assert {"57p, init equals/at/3.4/-1.1/0.9", "57p, init none", "67p", "170p"} <= listed
