"""The constraint table from rows whose verdicts are known."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from model import PRESETS, preset, preset_name
from search.analysis.table import Verdict, constraint_table, verdict
from search.errors import UserError
from search.stats.counting import GrokRate, difference
from search.stats.intervals import Paired
from search.study.trial import Configuration
from trainer import Recipe

RECIPE = Recipe()
OTHER = Recipe(steps=120_000, fade_start=10_000, fade_end=80_000, curriculum=((3, 1_000),))


def arm(spec, grokked=0, seeds=0, *, recipe=RECIPE, study="constraints", given_up=0, **others):
    """A row of a configuration, as search.analysis.frames has it."""
    spec = preset(spec) if isinstance(spec, str) else spec
    configuration, rate = Configuration(spec, recipe), GrokRate(grokked, seeds, given_up, 0.1 * given_up)
    key = configuration.key
    return {
        "study": study, "configuration": key, "title": configuration.title, "experiment_id": "7",
        "run_id": f"{study}-{key}", "rung": preset_name(spec), "params": spec.params, "seeds": seeds,
        "grokked": grokked, "failed": seeds - grokked - given_up, "diverged": 0, "given_up": given_up,
        "censored": 0, "wrongly": rate.missed, "grok_rate": rate.rate, "grok_rate_low": rate.interval[0],
        "grok_rate_high": rate.interval[1], "best_exact": 1.0 if grokked else 0.25,
        "median_grok_step": 46_000.0 if grokked else float("nan"), "held": 0, "verified": 0,
        "verify_tried": min(grokked, 3), "best_seed": "777" if seeds else "",
        "confirmation_grokked": 0, "confirmation_seeds": 0, "confirmation_given_up": 0,
        **{f"model.{k}": v for k, v in spec.as_dict().items()},
        **{f"recipe.{k}": v for k, v in recipe.as_dict().items()},
        "recipe.curriculum": recipe.curriculum, **others,
    }  # fmt: skip


def cell_of(table, constraint, scale):
    (found,) = (c for c in table.cells if (c.constraint, c.scale.label) == (constraint, scale))
    return found


def without(name, constraint):
    return preset(name).without(constraint)


def seeds_of(rows):
    """Rows of the seeds behind `arm`s: 1, 2, ... of each, of which the first grokked."""
    return [
        {"study": row["study"], "configuration": row["configuration"], "init_seed": n, "data_seed": n,
         "outcome": "grokked" if n <= row["grokked"] else "failed", "held": False, "steps": 1, "budget": 1,
         "grok_step": None, "hopeless_step": None, "best_token": 0.0}
        for row in rows
        for n in range(1, row["seeds"] + 1)
    ]  # fmt: skip


def table_of(rows):
    return constraint_table(rows, seeds=seeds_of(rows))


# The verdict


@pytest.mark.parametrize(
    ("both", "one", "other", "neither", "expected"),
    [
        (0, 0, 6, 42, Verdict.FAILS),  # 6 one way: p = 0.03
        (0, 0, 5, 43, Verdict.CANNOT_TELL),  # 0.06
        (2, 1, 9, 36, Verdict.FAILS),  # p = 0.02: some grok with it, and far fewer
        (0, 6, 0, 42, Verdict.HELPS),
        (10, 0, 0, 38, Verdict.WORKS),
        (6, 4, 4, 34, Verdict.WORKS),
        (3, 0, 0, 45, Verdict.CANNOT_TELL),  # 3 of 48: had it been fatal, p < 5 % in 8 % of such comparisons
        (0, 3, 0, 45, Verdict.CANNOT_TELL),
        (0, 0, 0, 500, Verdict.CANNOT_TELL),  # nothing groks there
    ],
)
def test_a_verdict_comes_from_the_same_seeds_in_both_arms(both, one, other, neither, expected):
    paired = Paired(both, one, other, neither)
    assert verdict(GrokRate(both + one, paired.n), paired) == expected


def test_a_constraint_that_nothing_survives_fails_and_one_success_is_not_enough_to_work():
    """With 48 seeds of which 3 grok without it, neither can be told; with 12 both can."""
    few, many = ([arm("57p", k, 48), arm(without("57p", "tie_vo"), 3, 48)] for k in (0, 1))
    said = [cell_of(table_of(rows), "tie_vo", "57p").verdict for rows in (few, many)]
    assert said == [Verdict.CANNOT_TELL] * 2
    few, many = ([arm("57p", k, 48), arm(without("57p", "tie_vo"), 12, 48)] for k in (0, 9))
    assert [cell_of(table_of(r), "tie_vo", "57p").verdict for r in (few, many)] == [
        Verdict.FAILS,
        Verdict.WORKS,
    ]


def test_without_seeds_in_common_no_verdict_is_reached():
    assert verdict(GrokRate(0, 0), None) == Verdict.NOT_TESTED
    assert verdict(GrokRate(9, 9), None) == verdict(GrokRate(9, 9), Paired(0, 0, 0, 0)) == Verdict.CANNOT_TELL
    rows = [arm("57p", 9, 48), arm(without("57p", "tie_vo"), 0, 48)]
    assert cell_of(constraint_table(rows), "tie_vo", "57p").verdict == Verdict.CANNOT_TELL
    apart = [{**r, "init_seed": r["init_seed"] + 48 * (r["configuration"] == rows[0]["configuration"])}
             for r in seeds_of(rows)]  # fmt: skip
    assert cell_of(constraint_table(rows, seeds=apart), "tie_vo", "57p").verdict == Verdict.CANNOT_TELL


# Cells


def test_a_cell_says_what_its_arms_found():
    rows = [
        arm("57p", 4, 64, verified=1, verify_tried=3, best_exact=1.0),
        arm(without("57p", "tie_vo"), 0, 36, given_up=10, best_exact=0.5),
    ]
    cell = cell_of(table_of(rows), "tie_vo", "57p")
    assert (cell.verdict, cell.says, cell.saves, cell.also) == (Verdict.CANNOT_TELL, "cannot tell", 10, "")
    assert cell.with_it.rate == GrokRate(4, 64) and cell.without.rate == GrokRate(0, 36, 10, 1.0)
    assert cell.paired == Paired(0, 4, 0, 32)
    assert (cell.with_it.verified, cell.with_it.decoded, cell.with_it.median_grok_step) == (1, 3, 46_000)
    assert (cell.without.best_exact, cell.without.median_grok_step) == (0.5, None)
    assert cell.with_it.page == f"#/experiments/7/runs/{rows[0]['run_id']}"
    assert cell.difference == (4 / 64, *difference(GrokRate(4, 64), GrokRate(0, 36, 10, 1.0)))


@pytest.mark.parametrize(
    ("verified", "seeds", "says"),
    [(1, 12, "works, verified"), (0, 12, "works, not verified"), (2, 0, "helps, verified")],
)
def test_what_works_is_verified_or_not(verified, seeds, says):
    rows = [arm("57p", 12, 48, verified=verified), arm(without("57p", "tie_vo"), seeds, 48)]
    assert cell_of(table_of(rows), "tie_vo", "57p").says == says


def test_a_base_that_lacks_the_constraint_is_the_arm_without():
    table = table_of([arm("74p", 8, 40), arm(preset("74p").constrained("qk_dim", 4), 0, 40)])
    cell = cell_of(table, "qk_dim=4", "74p")
    assert (cell.with_it.rate, cell.without.rate) == (GrokRate(0, 40), GrokRate(8, 40))
    assert (cell.verdict, cell.saves, cell.says) == (Verdict.FAILS, 3, "fails")


def test_a_base_that_is_another_ones_partner_appears_as_both():
    table = constraint_table([arm("67p", 2, 64), arm("57p", 3, 128)])
    assert [s.label for s in table.scales] == ["67p", "57p"] and table.constraints == ("tie_fc2_head",)
    for cell in table.cells:
        assert (cell.with_it.rate, cell.without.rate) == (GrokRate(3, 128), GrokRate(2, 64))


def test_nothing_is_tested_where_only_one_arm_is_there():
    rows = [arm("74p", 3, 40), arm(without("74p", "tie_vo"), 1, 40)]
    rows += [arm("170p", 0, 9), arm(preset("170p").constrained("frozen_spiral"), 0, 9)]
    table = constraint_table(rows)
    assert table.constraints == ("tie_vo", "frozen_spiral")
    assert [c.verdict for c in table.cells] == [
        Verdict.NOT_TESTED, Verdict.CANNOT_TELL, Verdict.CANNOT_TELL, Verdict.NOT_TESTED,
    ]  # fmt: skip
    missing = cell_of(table, "tie_vo", "170p")
    assert (missing.with_it, missing.difference, missing.saves) == (None, None, None)
    assert missing.without.rate == GrokRate(0, 9)


def test_what_a_base_has_counts_even_without_its_partner():
    """At 57p the constraint of 74p's pair is applied too, against nothing."""
    rows = [arm("74p"), arm(without("74p", "tie_vo"), 1, 9), arm("57p", 3, 128), arm("67p")]
    cell = cell_of(constraint_table(rows), "tie_vo", "57p")
    assert (cell.says, cell.without, cell.difference) == ("cannot tell", None, None)


def test_what_a_constraint_needs_and_excludes_is_said():
    table = constraint_table([arm("170p", 0, 9), arm(preset("170p").constrained("frozen_spiral"), 0, 9)])
    cell = cell_of(table, "frozen_spiral", "170p")
    assert cell.also == "with it also plain_spiral; without it also linear_correction" and cell.saves == 6


def test_a_width_that_the_heads_have_anyway_is_no_pair():
    """At 170p heads are three wide: qk_dim=3 is the same model."""
    rows = [arm("170p"), arm(preset("170p").constrained("qk_dim", 2), 0, 9)]
    rows += [arm("74p"), arm(preset("74p").constrained("qk_dim", 3), 0, 9)]
    table = constraint_table(rows)
    assert table.constraints == ("qk_dim=2", "qk_dim=3")
    assert cell_of(table, "qk_dim=3", "170p").with_it is None
    assert cell_of(table, "qk_dim=2", "170p").saves == 8


def test_another_width_is_another_row():
    rows = [arm("67p", 1, 9), arm(without("67p", "qk_dim"), 0, 9)]
    rows += [arm("74p"), arm(preset("74p").constrained("qk_dim", 3), 0, 9)]
    cell = cell_of(constraint_table(rows), "qk_dim=3", "67p")
    assert (cell.with_it, cell.without, cell.verdict) == (None, None, Verdict.NOT_TESTED)


def test_recipes_are_never_mixed():
    with pytest.raises(UserError):
        constraint_table([arm("57p", 3, 64), arm(without("57p", "tie_vo"), recipe=OTHER)])


@pytest.mark.parametrize("through", [list, lambda rows: pd.DataFrame(rows).to_dict("records")])
def test_families_share_a_table(through):
    """With two families in a frame integers are floats, and fields of the other family are missing."""
    rows = [arm("57p", 3, 64), arm(without("57p", "qk_dim"), 1, 9)]
    rows += [arm("512p", 1, 20, recipe=OTHER), arm("491p", 0, 4, recipe=OTHER)]
    table = constraint_table(through(rows))
    assert [s.label for s in table.scales] == ["512p", "491p", "57p"]
    assert table.constraints == ("qk_dim=4", "rms_norm")
    assert cell_of(table, "rms_norm", "512p").saves == 21
    assert cell_of(table, "rms_norm", "57p").without is None


# Rows and columns


def test_rows_are_in_the_papers_order_and_then_in_the_registrys():
    names = ["tie_fc2_head", "frozen_plus", "circular", "shared_norm", "qk_dim", "no_ffn_bias"]
    rows = [arm("57p", 3, 64), *(arm(without("57p", name)) for name in names)]
    expected = ("shared_norm", "no_ffn_bias", "qk_dim=4", "tie_fc2_head", "circular", "frozen_plus")
    assert constraint_table(rows).constraints == expected
    assert constraint_table(rows[::-1]).constraints == expected


def test_a_rung_with_two_recipes_has_two_columns():
    rows = [arm(s, recipe=r) for r in (RECIPE, OTHER) for s in ("57p", without("57p", "tie_vo"))]
    rows += [arm(without("57p", "rank1_out"), recipe=OTHER), arm("54p", recipe=OTHER)]
    for order in (rows, rows[::-1]):
        table = constraint_table(order)
        assert [s.label for s in table.scales] == ["57p", "57p (2)", "54p"]
        assert [s.base.recipe for s in table.scales] == [OTHER, RECIPE, OTHER]


def test_rows_and_columns_can_be_asked_for():
    rows = [arm("57p", 3, 64), arm(without("57p", "tie_vo"))]
    table = constraint_table(rows, ["qk_dim=4", "tie_vo", "unit_out", "tie_qkv=shareA"], ["57p", "170p"])
    assert table.constraints == ("tie_vo", "qk_dim=4", "tie_qkv=shareA", "unit_out")
    assert [(s.label, s.params, s.base is None) for s in table.scales] == [
        ("170p", 170, True), ("57p", 57, False),
    ]  # fmt: skip
    assert {c.verdict for c in table.cells if c.scale.label == "170p"} == {Verdict.NOT_TESTED}


@pytest.mark.parametrize(
    ("constraint", "scale", "says"),
    [
        ("tie_ov", "57p", "unknown constraint 'tie_ov'; did you mean tie_vo*"),
        ("qk_dim=four", "57p", "'qk_dim=four' is no constraint with a value that it can have"),
        ("qk_dim", "57p", "'qk_dim' is no constraint with a value that it can have"),
        ("tie_vo=1", "57p", "'tie_vo=1' is no constraint with a value that it can have"),
        ("tie_vo", "58p", "unknown scale '58p'; did you mean *"),
    ],
)
def test_what_is_asked_for_must_exist(constraint, scale, says):
    rows = [arm("57p", 3, 64), arm(without("57p", "tie_vo"))]
    with pytest.raises(UserError) as error:
        constraint_table(rows, [constraint], [scale])
    assert str(error.value).startswith(says.rstrip("*"))


# Several studies


def test_a_configuration_of_several_studies_is_read_from_the_one_that_compares_most():
    pair = without("57p", "tie_vo")
    rows = [
        arm("57p", 3, 64, study="b"),
        arm("57p", 9, 99, study="c"),
        arm("57p", 1, 48, study="a"),
        arm(pair, study="a"),
    ]
    for order in (rows, rows[::-1]):
        table = constraint_table(order)
        cell = cell_of(table, "tie_vo", "57p")
        assert (cell.with_it.study, cell.with_it.rate) == ("a", GrokRate(1, 48)) and table.pooled
    apart = constraint_table([*rows[:2], arm(pair, study="d")])
    assert cell_of(apart, "tie_vo", "57p").with_it.study == "c", "of equals the one with the most seeds"
    assert not constraint_table([rows[0], arm(pair)]).pooled


# Reading frames


@pytest.mark.parametrize(
    "written",
    [
        json.dumps,
        lambda stages: [list(s) for s in stages],
        lambda stages: np.array(stages),
        lambda stages: np.array([np.array(s) for s in stages], dtype=object),
    ],
    ids=["JSON", "lists", "array", "array of arrays"],
)
def test_a_curriculum_is_read_however_it_is_kept(written):
    rows = [arm("57p", 3, 64), arm(without("57p", "tie_vo"))]
    changed = [{**row, "recipe.curriculum": written(RECIPE.curriculum)} for row in rows]
    table = constraint_table(changed)
    assert table == constraint_table(rows)
    assert table.scales[0].base.recipe == RECIPE


@pytest.mark.parametrize("written", [json.dumps, list, tuple], ids=["JSON", "list", "tuple"])
def test_names_are_read_however_they_are_kept_and_a_teacher_leaves_the_rest(written):
    """A list of names has letters for entries, and of a teacher a frame has the title alone."""
    named = replace(
        RECIPE, l1_lambda=0.1, l1_entries=("q_proj", "fc1[1,0]"), freeze=((2_000, "arc", "phase"),)
    )
    rows = [arm("57p", 3, 64, recipe=named), arm(without("57p", "tie_vo"), recipe=named)]
    kept = [{**r, "recipe.l1_entries": written(r["recipe.l1_entries"])} for r in rows]
    taught = {**arm("67p"), "recipe.teacher": "100p f4d9637e4072", "configuration": "taught"}
    table = constraint_table([*kept, taught])
    assert [s.base.recipe for s in table.scales] == [named]


def test_every_rung_comes_back():
    table = constraint_table([arm(name, recipe=OTHER) for name in PRESETS])
    assert all((s.base.spec, s.base.recipe) == (PRESETS[s.rung], OTHER) for s in table.scales)
    pairs = {("90p", "shared_norm"), ("80p", "tie_vo"), ("75p", "frozen_plus"), ("512p", "ffn_rank=3")}
    assert all(cell_of(table, c, s).with_it.spec == PRESETS[s] for s, c in pairs)


@pytest.mark.parametrize("rows", [[], [arm("57p", 3, 64), arm("74p")]], ids=["empty", "no pair"])
def test_without_pairs_there_is_no_table(rows):
    with pytest.raises(UserError) as error:
        constraint_table(rows)
    text = str(error.value)
    assert text.startswith(
        f"none of {len(rows)} recorded configurations is a published rung that has a partner"
    )
    assert text.endswith("adder-search run constraints trains such pairs")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model.family": "transformer"}, "unknown family 'transformer'"),
        ({"model.tie_vo": 1.5, "model.tie_ov": True}, "unknown constraint 'tie_ov'"),
        ({"recipe.steps": 0}, "steps must be 1 or more"),
        ({"recipe.curriculum": "3, 2000"}, "Extra data"),
    ],
)
def test_rows_that_cannot_be_read_name_their_configuration(change, says):
    row = arm("57p", 3, 64)
    with pytest.raises(UserError, match=f"configuration {row['configuration']}: {says}"):
        constraint_table([{**row, **change}])


def test_another_frame_is_no_frame_of_configurations():
    with pytest.raises(UserError, match="no frame of configurations: it has no column experiment_id, run_id"):
        constraint_table([{k: v for k, v in arm("57p").items() if k not in ("run_id", "experiment_id")}])
