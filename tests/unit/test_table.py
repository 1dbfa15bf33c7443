"""The constraint table: its verdicts, cells, rows and columns, from rows of configurations made by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from model import PRESETS, make_spec, preset, preset_name
from search.analysis.table import constraint_table
from search.analysis.verdicts import Agreement, Claim, Verdict, agreement, published, verdict
from search.errors import UserError
from search.stats.counting import GrokRate, difference
from search.stats.intervals import Paired, paired_interval, wilson
from search.study.trial import Configuration
from trainer import Recipe

RECIPE = Recipe()
OTHER = Recipe(steps=120_000, fade_start=10_000, fade_end=80_000, curriculum=((3, 1_000),))


def arm(spec, grokked=0, seeds=0, *, recipe=RECIPE, study="constraints", given_up=0, **changes):
    """A row of a configuration, as search.analysis.frames has it."""
    spec = preset(spec) if isinstance(spec, str) else spec
    configuration, rate = Configuration(spec, recipe), GrokRate(grokked, seeds, given_up, 0.1 * given_up)
    key, (low, high) = configuration.key, rate.interval
    return {
        "study": study, "configuration": key, "title": configuration.title, "experiment_id": "7",
        "run_id": f"{study}-{key}", "rung": preset_name(spec), "params": spec.params, "seeds": seeds,
        "grokked": grokked, "given_up": given_up, "wrongly": rate.missed, "grok_rate": rate.rate,
        "grok_rate_low": low, "grok_rate_high": high, "best_exact": 1.0 if grokked else 0.25,
        "median_grok_step": 46_000.0 if grokked else float("nan"), "verified": 0,
        "verify_tried": min(grokked, 3),
        **{f"model.{k}": v for k, v in spec.as_dict().items()},
        **{f"recipe.{k}": v for k, v in recipe.as_dict().items()},
        "recipe.curriculum": recipe.curriculum, **changes,
    }  # fmt: skip


def without(name, constraint):
    return preset(name).without(constraint)


def seeds_of(rows):
    """Rows of the seeds behind `arm`s: 1, 2, ... of each, the first of them grokked."""
    return [
        {"study": row["study"], "configuration": row["configuration"], "init_seed": n, "data_seed": n,
         "outcome": "grokked" if n <= row["grokked"] else "failed", "held": False, "steps": 1, "budget": 1,
         "grok_step": None, "hopeless_step": None, "best_token": 0.0}
        for row in rows
        for n in range(1, row["seeds"] + 1)
    ]  # fmt: skip


def table_of(rows):
    return constraint_table(rows, seeds=seeds_of(rows))


def cell_of(table, constraint, scale):
    (cell,) = (c for c in table.cells if (c.constraint, c.scale.label) == (constraint, scale))
    return cell


# Verdicts


@pytest.mark.parametrize(
    ("both", "first", "second", "neither", "expected"),
    [
        (0, 0, 6, 42, Verdict.FAILS),  # 6 one way: p = 0.03
        (0, 0, 5, 43, Verdict.CANNOT_TELL),  # 0.06
        (2, 1, 9, 36, Verdict.FAILS),  # some grok with it, and far fewer
        (0, 6, 0, 42, Verdict.HELPS),
        (10, 0, 0, 38, Verdict.WORKS),
        (6, 4, 4, 34, Verdict.WORKS),
        (3, 0, 0, 45, Verdict.CANNOT_TELL),  # had it been fatal, p < 5 % in 8 % of such comparisons
        (0, 0, 0, 500, Verdict.CANNOT_TELL),  # nothing groks there
    ],
)
def test_a_verdict_comes_from_the_same_seeds_in_both_arms(both, first, second, neither, expected):
    paired = Paired(both, first, second, neither)
    assert verdict(GrokRate(both + first, paired.n), paired) == expected


def test_without_seeds_in_common_no_verdict_is_reached():
    assert verdict(GrokRate(0, 0), None) == Verdict.NOT_TESTED
    assert verdict(GrokRate(9, 9), None) == verdict(GrokRate(9, 9), Paired(0, 0, 0, 0)) == Verdict.CANNOT_TELL
    rows = [arm("57p", 9, 48), arm(without("57p", "tie_vo"), 0, 48)]
    assert cell_of(table_of(rows), "tie_vo", "57p").verdict == Verdict.HELPS
    assert cell_of(constraint_table(rows), "tie_vo", "57p").verdict == Verdict.CANNOT_TELL
    shift = {rows[0]["configuration"]: 48, rows[1]["configuration"]: 0}
    apart = [{**r, "init_seed": r["init_seed"] + shift[r["configuration"]]} for r in seeds_of(rows)]
    assert cell_of(constraint_table(rows, seeds=apart), "tie_vo", "57p").verdict == Verdict.CANNOT_TELL


def test_the_published_table():
    """28 cells: 4 fail at 170p, 17 work, 7 claim nothing. All constraints exist at all scales."""
    verdicts = [claim.verdict for claim in published().values()]
    assert [verdicts.count(v) for v in ("fails", "works", "")] == [4, 17, 7] and len(verdicts) == 28
    assert published()["no_ffn_bias", "170p"] == Claim("Required for convergence", "fails")
    for constraint, scale in published():
        assert constraint.partition("=")[0] in make_spec(**preset(scale).as_dict()).constraints()


@pytest.mark.parametrize(
    ("ours", "claim", "expected"),
    [
        (Verdict.WORKS, "works", Agreement.AGREES),
        (Verdict.HELPS, "works", Agreement.AGREES),
        (Verdict.FAILS, "works", Agreement.CONTRADICTS),
        (Verdict.FAILS, "fails", Agreement.AGREES),
        (Verdict.HELPS, "fails", Agreement.CONTRADICTS),
        (Verdict.CANNOT_TELL, "works", Agreement.OPEN),
        (Verdict.NOT_TESTED, "fails", Agreement.OPEN),
        (Verdict.WORKS, "", Agreement.NO_CLAIM),
    ],
)
def test_agreement_with_the_paper(ours, claim, expected):
    assert agreement(ours, Claim("words", claim)) == expected


# Cells


def test_a_cell_compares_its_arms():
    rows = [
        arm("57p", 4, 64, verified=1, verify_tried=3, best_exact=1.0),
        arm(without("57p", "tie_vo"), 0, 36, given_up=10, best_exact=0.5),
    ]
    cell = cell_of(table_of(rows), "tie_vo", "57p")
    assert (cell.verdict, cell.summary, cell.saves, cell.also) == (Verdict.CANNOT_TELL, "cannot tell", 10, "")
    assert cell.with_it.rate == GrokRate(4, 64) and cell.without.rate == GrokRate(0, 36, 10, 1.0)
    assert cell.paired == Paired(0, 4, 0, 32)
    assert (cell.with_it.verified, cell.with_it.decoded, cell.with_it.median_grok_step) == (1, 3, 46_000)
    assert (cell.without.best_exact, cell.without.median_grok_step) == (0.5, None)
    assert cell.with_it.page == f"#/experiments/7/runs/{rows[0]['run_id']}"
    assert cell.difference == (4 / 64, *difference(GrokRate(4, 64), GrokRate(0, 36, 10, 1.0)))


def test_tidy_rows_are_the_cells():
    rows = [arm("57p", 9, 64, verified=1), arm(without("57p", "tie_vo"), 0, 36), arm("67p", 1, 9)]
    tidy = table_of(rows).tidy(paper=True)
    (row,) = (r for r in tidy if (r["constraint"], r["scale"]) == ("tie_vo", "57p"))
    assert (row["verdict"], row["with_verified"], row["params"], row["params_saved"]) == ("helps", 1, 57, 10)
    assert (row["pairs"], row["only_with"], row["only_without"]) == (36, 9, 0)
    assert row["p"] == pytest.approx(2 / 2**9) and row["paired_difference"] == 9 / 36 and row["power"] == 0
    assert (row["paired_low"], row["paired_high"]) == paired_interval(9, 0, 36)
    assert (row["with_grokked"], row["with_seeds"], row["without_seeds"]) == (9, 64, 36)
    assert (row["with_low"], row["with_high"]) == wilson(9, 64)
    assert (row["published"], row["agreement"]) == ("Works", "agrees")
    assert len(tidy) == 4 and "published" not in table_of(rows).tidy()[0]


@pytest.mark.parametrize(
    ("verified", "seeds", "summary"),
    [(1, 12, "works, verified"), (0, 12, "works, not verified"), (2, 0, "helps, verified")],
)
def test_a_constraint_that_works_is_verified_or_not(verified, seeds, summary):
    rows = [arm("57p", 12, 48, verified=verified), arm(without("57p", "tie_vo"), seeds, 48)]
    assert cell_of(table_of(rows), "tie_vo", "57p").summary == summary


def test_a_base_that_lacks_the_constraint_is_the_arm_without():
    cell = cell_of(
        table_of([arm("74p", 8, 40), arm(preset("74p").constrained("qk_dim", 4), 0, 40)]), "qk_dim=4", "74p"
    )
    assert (cell.with_it.rate, cell.without.rate) == (GrokRate(0, 40), GrokRate(8, 40))
    assert (cell.verdict, cell.saves) == (Verdict.FAILS, 3)


def test_a_base_that_is_anothers_partner_appears_as_both():
    table = constraint_table([arm("67p", 2, 64), arm("57p", 3, 128)])
    assert [s.label for s in table.scales] == ["67p", "57p"] and table.constraints == ("tie_fc2_head",)
    for cell in table.cells:
        assert (cell.with_it.rate, cell.without.rate) == (GrokRate(3, 128), GrokRate(2, 64))


def test_a_base_is_in_every_row_even_without_a_partner():
    rows = [arm("74p", 3, 40), arm(without("74p", "tie_vo"), 1, 40)]
    rows += [arm("170p", 0, 9), arm(preset("170p").constrained("frozen_spiral"), 0, 9)]
    table = constraint_table(rows)
    assert table.constraints == ("tie_vo", "frozen_spiral")
    assert [c.verdict for c in table.cells] == [
        Verdict.NOT_TESTED, Verdict.CANNOT_TELL, Verdict.CANNOT_TELL, Verdict.NOT_TESTED,
    ]  # fmt: skip
    untested = cell_of(table, "tie_vo", "170p")
    assert (untested.with_it, untested.difference, untested.saves) == (None, None, None)
    assert untested.without.rate == GrokRate(0, 9)
    assert cell_of(table, "frozen_spiral", "74p").without.rate == GrokRate(3, 40)
    also = "with it also plain_spiral; without it also linear_correction"
    assert (cell_of(table, "frozen_spiral", "170p").also, cell_of(table, "frozen_spiral", "170p").saves) == (
        also,
        6,
    )


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


@pytest.mark.parametrize("step", [1, -1])
def test_rows_are_in_the_papers_order_and_then_in_the_registrys(step):
    names = ["tie_fc2_head", "frozen_plus", "circular", "shared_norm", "qk_dim", "no_ffn_bias"]
    rows = [arm("57p", 3, 64), *(arm(without("57p", name)) for name in names)]
    expected = ("shared_norm", "no_ffn_bias", "qk_dim=4", "tie_fc2_head", "circular", "frozen_plus")
    assert constraint_table(rows[::step]).constraints == expected


@pytest.mark.parametrize("step", [1, -1])
def test_a_preset_with_two_recipes_has_two_columns(step):
    rows = [arm(s, recipe=r) for r in (RECIPE, OTHER) for s in ("57p", without("57p", "tie_vo"))]
    rows += [arm(without("57p", "rank1_out"), recipe=OTHER), arm("54p", recipe=OTHER)]
    table = constraint_table(rows[::step])
    assert [s.label for s in table.scales] == ["57p", "57p (2)", "54p"]
    assert [s.base.recipe for s in table.scales] == [OTHER, RECIPE, OTHER]
    assert {
        c.published.words for c in table.cells if c.constraint == "tie_vo" and c.scale.preset == "57p"
    } == {"Works"}


def test_rows_and_columns_can_be_asked_for():
    rows = [arm("57p", 3, 64), arm(without("57p", "tie_vo"))]
    table = constraint_table(rows, ["qk_dim=4", "tie_vo", "unit_out", "tie_qkv=shareA"], ["57p", "170p"])
    assert table.constraints == ("tie_vo", "qk_dim=4", "tie_qkv=shareA", "unit_out")
    assert [(s.label, s.params, s.base is None) for s in table.scales] == [
        ("170p", 170, True),
        ("57p", 57, False),
    ]
    assert {c.verdict for c in table.cells if c.scale.label == "170p"} == {Verdict.NOT_TESTED}


@pytest.mark.parametrize(
    ("constraint", "scale", "message"),
    [
        ("tie_ov", "57p", "unknown constraint 'tie_ov'; did you mean tie_vo"),
        ("qk_dim=four", "57p", "'qk_dim=four' is no constraint with a value that it can have"),
        ("tie_vo=1", "57p", "'tie_vo=1' is no constraint with a value that it can have"),
        ("tie_vo", "58p", "unknown scale '58p'; did you mean "),
    ],
)
def test_unknown_rows_and_columns_are_refused(constraint, scale, message):
    with pytest.raises(UserError) as error:
        constraint_table([arm("57p", 3, 64), arm(without("57p", "tie_vo"))], [constraint], [scale])
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("step", [1, -1])
def test_a_configuration_of_several_studies_is_read_from_the_one_that_compares_most(step):
    partner = without("57p", "tie_vo")
    rows = [arm("57p", 3, 64, study="b"), arm("57p", 9, 99, study="c"), arm("57p", 1, 48, study="a")]
    table = constraint_table([*rows, arm(partner, study="a")][::step])
    cell = cell_of(table, "tie_vo", "57p")
    assert (cell.with_it.study, cell.with_it.rate) == ("a", GrokRate(1, 48)) and table.has_repeats
    apart = constraint_table([*rows[:2], arm(partner, study="d")])
    assert cell_of(apart, "tie_vo", "57p").with_it.study == "c", "of equals the one with the most seeds"


def test_the_same_records_make_the_same_table():
    rows = [arm("57p", 4, 64), *(arm(without("57p", n), 1, 9) for n in ("tie_vo", "rank1_out"))]
    renamed = replace(preset("57p"), equals_index=3.0)  # nothing reads it: the same preset under another key
    rows += [arm(renamed), arm(renamed.without("tie_vo"))]
    table = constraint_table(rows)
    assert table == constraint_table(rows[::-1]) and not table.has_repeats
    assert [s.label for s in table.scales] == ["57p", "57p (2)"]


# Reading frames


@pytest.mark.parametrize(
    "stored",
    [json.dumps, np.array, lambda stages: np.array([np.array(s) for s in stages], dtype=object)],
    ids=["JSON", "array", "array of arrays"],
)
def test_lists_are_read_however_a_file_stores_them(stored):
    """A list of names has letters for entries, which are no stages; of a teacher a frame has the title alone."""
    recipe = replace(
        RECIPE, l1_lambda=0.1, l1_entries=("q_proj", "fc1[1,0]"), freeze=((2_000, "arc", "phase"),)
    )
    rows = [arm("57p", 3, 64, recipe=recipe), arm(without("57p", "tie_vo"), recipe=recipe)]
    changed = [{**r, "recipe.curriculum": stored(RECIPE.curriculum)} for r in rows]
    taught = {**arm("67p"), "recipe.teacher": "100p f4d9637e4072", "configuration": "taught"}
    table = constraint_table([*changed, taught])
    assert [s.base.recipe for s in table.scales] == [recipe]


def test_every_preset_is_read_back():
    table = constraint_table([arm(name, recipe=OTHER) for name in PRESETS])
    assert all((s.base.spec, s.base.recipe) == (PRESETS[s.preset], OTHER) for s in table.scales)
    pairs = {("90p", "shared_norm"), ("80p", "tie_vo"), ("75p", "frozen_plus"), ("512p", "ffn_rank=3")}
    assert all(cell_of(table, c, s).with_it.spec == PRESETS[s] for s, c in pairs)


@pytest.mark.parametrize("rows", [[], [arm("57p", 3, 64), arm("74p")]], ids=["empty", "no pair"])
def test_without_pairs_there_is_no_table(rows):
    with pytest.raises(
        UserError, match=f"none of {len(rows)} recorded .* adder-search run constraints trains such pairs"
    ):
        constraint_table(rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.family": "transformer"}, "unknown family 'transformer'"),
        ({"model.tie_vo": 1.5, "model.tie_ov": True}, "unknown constraint 'tie_ov'"),
        ({"recipe.steps": 0}, "steps must be 1 or more"),
        ({"recipe.curriculum": "3, 2000"}, "Extra data"),
    ],
)
def test_unreadable_rows_name_their_configuration(change, message):
    row = arm("57p", 3, 64)
    with pytest.raises(UserError, match=f"configuration {row['configuration']}: {message}"):
        constraint_table([{**row, **change}])


def test_frames_of_something_else_are_refused():
    with pytest.raises(UserError, match="no frame of configurations: it has no column experiment_id, run_id"):
        constraint_table([{k: v for k, v in arm("57p").items() if k not in ("run_id", "experiment_id")}])
