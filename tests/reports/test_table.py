"""The constraint table: its rule, cells, rows and columns, from rows of configurations made by hand."""

import json
from dataclasses import replace
from math import inf

import pytest

from model import preset, preset_name
from model.tasks import make_task
from reports import verdicts
from reports.ratios import Paired, ratio_interval
from reports.table import _scales, constraint_table
from reports.verdicts import Answer, Effect
from search.errors import UserError
from search.stats.counting import GrokRate
from search.stats.record import SeedRecord
from search.study.trial import Configuration
from tests import needs_plugins
from tests.scenarios import studies
from trainer import Recipe

RECIPE = Recipe()
OTHER = Recipe(steps=120_000, fade_start=10_000, fade_end=80_000, curriculum=((3, 1_000),))
FINISHING = Recipe(finish_above=0.5)
STAGED = Recipe(**studies.STAGED["recipe"], stages=tuple(studies.STAGES))


def arm(spec, grokked=0, seeds=4, *, recipe=RECIPE, study="constraints", **changes):
    """A row of a configuration, as search.analysis.frames has it."""
    spec = preset(spec) if isinstance(spec, str) else spec
    configuration, rate = Configuration(spec, recipe), GrokRate(grokked, seeds)
    key, (low, high) = configuration.key, rate.interval
    return {
        "study": study, "configuration": key, "title": configuration.title, "experiment_id": "7",
        "run_id": f"{study}-{key}", "rung": preset_name(spec), "params": spec.params, "seeds": seeds,
        "grokked": grokked, "given_up": 0, "wrongly": rate.missed, "grok_rate": rate.rate,
        "grok_rate_low": low, "grok_rate_high": high, "best_exact": 1.0 if grokked else 0.25,
        "verified": min(grokked, 3),
        **{f"model.{k}": v for k, v in spec.as_dict().items()},
        **{f"recipe.{k}": v for k, v in recipe.as_dict().items()},
        "recipe.curriculum": recipe.curriculum, **changes,
    }  # fmt: skip


def without(name, constraint):
    return preset(name).without(constraint)


def seeds_of(rows, finished=()):
    """Rows of the seeds behind `arm`s: 1, 2, ... of each, the first of them grokked; curvature took `finished`."""
    return [
        SeedRecord(
            study=row["study"],
            configuration=row["configuration"],
            init_seed=n,
            data_seed=n,
            outcome="grokked" if n <= row["grokked"] else "failed",
            grok_step=row["recipe.steps"] if n in finished else 46_000,
            verified=10_010 if n <= row["verified"] else 10_009,
        )
        for row in rows
        for n in range(1, row["seeds"] + 1)
    ]  # fmt: skip


def table_of(rows, **options):
    return constraint_table(rows, seeds=seeds_of(rows), **options)


def cell_of(rows, constraint="tie_vo", scale="57p", **options):
    return table_of(rows, **options).cells[constraint, scale]


# The rule


@pytest.mark.parametrize(
    ("verified", "grokked", "n", "rate", "expected"),
    [
        (1, 1, 1, 0.0, Answer.YES),  # one is enough, whatever the rate without it
        (0, 1, 99, 0.9, Answer.OPEN),  # not right on all 10,010
        (0, 0, 12, 0.5, Answer.NO),  # six were to be expected
        (0, 0, 11, 0.5, Answer.OPEN),
        (0, 0, 500, 0.0, Answer.OPEN),  # nothing groks there
    ],
)
def test_a_constraint_trains_if_a_seed_is_verified(verified, grokked, n, rate, expected):
    assert verdicts.trains(verified, grokked, n, rate) == expected


@pytest.mark.parametrize(
    ("interval", "cost", "keeps_half"),
    [
        ((0.1, 0.49), Effect.COSTS, Answer.NO),
        ((0.3, 0.9), Effect.COSTS, Answer.OPEN),
        ((0.6, 0.9), Effect.COSTS, Answer.YES),
        ((0.6, 1.1), Effect.OPEN, Answer.YES),
        ((1.1, inf), Effect.HELPS, Answer.YES),
        ((0, inf), Effect.OPEN, Answer.OPEN),
        (None, Effect.OPEN, Answer.OPEN),
    ],
)
def test_cost_and_half_are_said_by_the_interval_of_the_ratio(interval, cost, keeps_half):
    assert (verdicts.cost(interval), verdicts.keeps_half(interval)) == (cost, keeps_half)


# Cells


def test_a_cell_compares_the_seeds_that_both_arms_had():
    rows = [arm("57p", 30, 128), arm(without("57p", "tie_vo"), 10, 100, best_exact=0.5)]
    cell = cell_of(rows)
    assert cell.paired == Paired(10, 20, 0, 70) and cell.interval == ratio_interval(10, 20, 0)
    assert (cell.trains, cell.cost, cell.keeps_half, cell.agreement) == ("yes", "helps", "yes", "agrees")
    values, (low, high) = cell.as_dict(), cell.interval
    assert {n: values[n] for n in ("n_with", "grokked_with", "rate_without", "ratio", "ratio_low", "ratio_high")} == {
        "n_with": 128, "grokked_with": 30, "rate_without": 0.1, "ratio": 3.0, "ratio_low": low, "ratio_high": high
    }  # fmt: skip
    assert (values["params_saved"], values["verified_with"], values["paper_words"]) == (10, 3, "Works")


def test_a_preset_without_the_constraint_is_the_arm_without():
    cell = cell_of([arm("74p", 8, 40), arm(preset("74p").constrained("qk_dim", 4), 0, 40)], "qk_dim=4", "74p")
    assert (cell.with_it.grokked, cell.without.grokked, cell.saves) == (0, 8, 3)
    assert (cell.trains, cell.cost, cell.keeps_half, cell.as_dict()["ratio"]) == ("no", "costs", "open", 0.0)
    turned = cell_of([arm("57p", 8, 40), arm(without("57p", "tie_vo"), 0, 40)]).as_dict()
    assert (turned["ratio"], turned["ratio_high"], turned["cost"]) == (None, None, "helps")


def test_without_common_seeds_a_cost_is_open():
    rows = [arm("57p", 9, 48), arm(without("57p", "tie_vo"), 0, 48)]
    assert constraint_table(rows).cells["tie_vo", "57p"].cost == "open"
    shifted = [replace(r, data_seed=99 + r.data_seed) for r in seeds_of(rows[:1])] + seeds_of(rows[1:])
    cell = constraint_table(rows, seeds=shifted).cells["tie_vo", "57p"]
    assert (cell.paired, cell.trains, cell.cost) == (None, "yes", "open")
    stopped = [{**row, "stopped": True} for row in rows]
    assert cell_of(stopped).paired is None, "it stopped at a success"


def test_a_rate_that_stopped_at_a_success_promises_the_least_that_it_may_be():
    rows = [arm("57p", 0, 12), arm(without("57p", "tie_vo"), 12, 12)]
    answers = [cell_of(rows).trains]
    for low in (0.2, 0.5, None):
        rows[1] |= {"stopped": True, "grok_rate_low": low}
        answers.append(cell_of(rows).trains)
    assert answers == ["no", "open", "no", "open"]


def test_seeds_that_curvature_finished_are_counted_apart():
    partner = without("57p", "tie_vo")
    rows = [arm("57p", 12, 40, recipe=FINISHING), arm(partner, 12, 40, recipe=FINISHING)]
    seeds = seeds_of(rows[:1], finished=(9, 10, 11, 12)) + seeds_of(rows[1:], finished=(12,))
    cell = constraint_table(rows, seeds=seeds).cells["tie_vo", "57p"]
    values = cell.as_dict()
    assert cell.paired == Paired(8, 0, 3, 29) and (values["grokked_with"], values["grokked_without"]) == (8, 11)
    assert (values["grokked_with_finished"], values["grokked_without_finished"]) == (12, 12)
    assert (values["ratio"], values["ratio_finished"]) == (8 / 11, 1.0)
    assert (values["ratio_finished_low"], values["ratio_finished_high"]) == ratio_interval(12, 0, 0)
    alone = constraint_table(rows, seeds=seeds_of(rows, finished=range(1, 13))).cells["tie_vo", "57p"]
    assert (alone.trains, alone.as_dict()["grokked_with"]) == ("open", 0), "what training did is not verified"
    with pytest.raises(UserError, match="with finish_above the records of its seeds are needed too"):
        constraint_table(rows)


def test_a_verified_seed_of_any_study_shows_that_it_trains():
    partner = without("57p", "tie_vo")
    rows = [arm("57p", 0, 48), arm(partner, 12, 48)]
    assert cell_of(rows).trains == "no"
    other = arm("57p", 1, 5, recipe=OTHER, study="other")
    cell = cell_of([*rows, other])
    assert (cell.trains, cell.seen_in, cell.with_it.study, cell.cost) == ("yes", "other", "constraints", "costs")
    assert cell_of([*rows, {**other, "verified": 0}]).trains == "open", "it grokked, and was not verified"


def test_rows_and_columns_can_be_asked_for():
    rows = [arm("57p", 3, 64), arm(without("57p", "tie_vo")), arm(without("57p", "rank1_out"))]
    table = constraint_table(rows, ["qk_dim=4", "tie_vo", "unit_out", "tie_qkv=shareA"], ["57p", "170p"])
    assert table.constraints == ("tie_vo", "qk_dim=4", "tie_qkv=shareA", "unit_out")
    assert table.scales == ("170p", "57p")
    assert {cell.as_dict()["n_with"] for (_, scale), cell in table.cells.items() if scale == "170p"} == {0}


def test_of_models_that_are_no_presets_the_one_with_most_partners_is_the_scale():
    wide = replace(preset("67p"), hidden=8)
    partners = [wide.without("tie_vo"), wide.without("shared_norm")]
    table = table_of([arm("57p", 3, 64), arm(partners[0], 2), arm(wide, 1), arm(partners[1])])
    name = preset_name(wide)
    assert table.scales == (name,) and {"tie_vo", "shared_norm"} <= set(table.constraints)
    cell = table.cells["tie_vo", name]
    assert (cell.with_it.grokked, cell.without.grokked, cell.params, cell.saves) == (1, 2, 127, 10)
    subtracting = [replace(spec, task=make_task("subtraction")) for spec in (wide, partners[0])]
    assert len(table_of([arm(wide), arm(partners[0]), *map(arm, subtracting)]).scales) == 2


class Walked:
    """A spec as `_scales` sees it, whose place in a set is chosen."""

    def __init__(self, name, place):
        self.name, self.place = name, place

    def __hash__(self):
        return self.place

    def applied(self):
        return {}


@pytest.mark.parametrize("places", [(1, 2), (2, 1)])
def test_of_models_with_as_many_partners_the_first_is_the_scale(places):
    """Whatever places the two, b and c, have in a set."""
    a, d, e = (Walked(name, place) for name, place in zip("ade", (0, 3, 4), strict=True))
    b, c = (Walked(name, place) for name, place in zip("bc", places, strict=True))
    partners = {outer: {"tie": b, "norm": c} for outer in (a, d, e)}
    partners |= {inner: {"tie": a, "norm": d, "out": e} for inner in (b, c)}
    assert [spec.name for spec in _scales(partners, ())] == ["b"]


MODULE = {
    "model.family": "module", "model.module": "net.py:Net", "model.digest": "12", "model.task": "parity",
    "model.constraints": '{"tied": false}', "model.args.width": 8.0,
}  # fmt: skip


def rows_of_a_module(**changes):
    arms = (arm("57p"), arm(without("57p", "tie_vo")))
    own = ({name: value for name, value in row.items() if not name.startswith("model.")} for row in arms)
    return [row | MODULE | {"model.args.tied": tied} | changes for row, tied in zip(own, (False, True), strict=True)]


@needs_plugins
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.module", "net.py:\x1b[31mNet"), ("model.digest", "\n# a"), ("model.constraints", '{"a b": 1}'),
        ("model.constraints", "[1]"), ("model.constraints", "{"), ("model.args.width", {"a": 1}),
        ("model.constraints", "[" * 9_999), ("recipe.curriculum", "[" * 9_999),
        ("model.args.width", "\x1b[31m"), ("model.args.a\nb", 1), ("model.task", "\x07"),
    ],
)  # fmt: skip
def test_a_strangers_row_of_a_module_is_compared_or_refused_in_one_line(name, value):
    (scale,) = table_of(rows_of_a_module()).scales
    assert scale == "57 parameters (Net)"
    with pytest.raises(UserError, match=r"^configuration ") as error:
        table_of(rows_of_a_module(**{name: value}))
    assert str(error.value).isprintable()
    assert table_of(rows_of_a_module(scale="\x1b[31mred")).scales == (scale,)


@needs_plugins
def test_a_module_of_addition_is_the_same_whether_or_not_its_row_says_so():
    rows = [row for task in ("addition", None) for row in rows_of_a_module(study=str(task), **{"model.task": task})]
    (cell,) = table_of(rows).cells.values()
    assert {arm.study for arm in cell.arms} == {"addition", "None"}


@pytest.mark.parametrize(
    "change",
    [
        {"recipe.teacher": "100p f4d9"}, {"recipe.start": "57p 1234"}, {"model.family": "tied"},
        {"recipe.stages": [studies.STAGES[0] | {"longer": {"teacher": "100p f4d9"}}]},
    ],
)  # fmt: skip
def test_what_did_not_train_from_random_values_is_left_out(change):
    rows = [arm("57p", 3, 64), arm(without("57p", "tie_vo"), 3, 64)]
    cell = cell_of([*rows, arm("57p", 9, 99, study="derived", recipe=OTHER, **change)])
    assert [a.study for a in cell.arms] == ["constraints"]


@pytest.mark.parametrize("form", [tuple, json.dumps], ids=["frame", "file"])
def test_a_configuration_of_several_stages_is_beside_the_others(form):
    staged = arm("57p", 3, 4, recipe=STAGED, study="staged")
    staged["recipe.stages"] = form(staged["recipe.stages"])
    cell = cell_of([arm("57p", 0, 48), arm(without("57p", "tie_vo"), 12, 48), staged])
    assert (cell.trains, [a.study for a in cell.arms]) == ("yes", ["constraints", "staged"])


@pytest.mark.parametrize("rows", [[], [arm("57p", 3, 64)], [arm("57p", 3, 64), arm("74p")]])
def test_without_pairs_there_is_no_table(rows):
    nouns = "recorded configuration" if len(rows) == 1 else "recorded configurations"
    with pytest.raises(UserError, match=f"of {len(rows)} {nouns} no two .* `toggle: \\[tie_vo\\]` in a study file"):
        constraint_table(rows)
