"""Pictures of a study, and what they are drawn from, on frames of rows made by hand."""

import struct
from math import exp, log, sqrt
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from reports.fields import fields_of
from reports.flags import flag_grids, single_flags
from reports.flags_figure import flags_figure
from reports.plots import curves_figure, png, small_multiples, time_figure, time_to_grok
from reports.plots_search import rate_against_fields
from reports.ratios import Z_95
from reports.table_figure import table_figure
from search.analysis.frames import configuration_rows, seed_rows
from search.study.schema import Study
from search.study.trial import Configuration
from tests.reports.test_flags import ADDITIVE, HALVED, one_flag, seeds_of
from tests.reports.test_table import arm, table_of, without
from tests.unit.test_counting import rows

SPACE = {
    "recipe.lr": {"float": [0.001, 0.1], "log": True},
    "recipe.fade_start": {"int": [0, 20_000]},
    "recipe.fade_end": {"int": [1_000, 30_000], "after": "recipe.fade_start"},
    "recipe.wd_drop": {"choice": [1.0, 0.1]},
    "recipe.curriculum": {"choice": [[], [[3, 2_000], [6, 5_000]]]},
}


def study_of(**changes):
    return Study.model_validate({"name": "s", "model": "57p", "seeds": {"first": 1, "count": 4}} | changes)


def seed_row(configuration, number, outcome, step=0, confirmation=False):
    """A row of the ledger. step: where it grokked, was given up or was cut off."""
    budget, grokked = configuration.recipe.steps, outcome == "grokked"
    steps, best = step or budget, 1.0 if grokked else 0.3
    facts = {
        "steps": min(step + 10_000, budget) if grokked else steps, "grok_step": step if grokked else None,
        "held": grokked, "hopeless_step": step if outcome == "given_up" else None, "core_s": steps / 10_000,
        "best_step": steps, "best_exact": best, "best_token": best, "verified": None,
    }  # fmt: skip
    (row,) = rows(outcome, first=number, configuration=configuration.key, confirmation=confirmation, **facts)
    return row


def frames(study, configurations, seeds):
    """The three frames of rows of the ledger, with straight curves of four points."""
    known = {c.key: c for c in configurations}
    runs = dict.fromkeys(known, ("1", "r"))
    records = SimpleNamespace(study="s", get_recorded_study=lambda: study, list_configurations=lambda: known,
                              list_runs=lambda: runs)  # fmt: skip
    curves = [
        {"study": "s", **{k: row[k] for k in ("configuration", "init_seed", "data_seed")}, "loss": 1.0,
         "step": int(row["steps"] * part), "exact": row["best_exact"] * part, "token": row["best_token"],
         "train_loss": 1.0}
        for row in seeds for part in (0.25, 0.5, 0.75, 1.0)
    ]  # fmt: skip
    return tuple(map(pd.DataFrame, (configuration_rows(records, seeds), seed_rows(records, seeds), curves)))


def searched(count=12, confirmed=0):
    """A study of SPACE and its frames. The higher the learning rate the more seeds grok."""
    study, seeds, configurations, recorded = study_of(space=SPACE, sampler={"configurations": count}), 8, [], []
    for i in range(count):
        start, drops, curricula = 1_000 * i, (1.0, 0.1), SPACE["recipe.curriculum"]["choice"]
        values = {"recipe.lr": 0.001 * 100 ** (i / count), "recipe.fade_start": start,
                  "recipe.fade_end": start + 2_000 + 500 * (i * 7 % count), "recipe.wd_drop": drops[i % 2],
                  "recipe.curriculum": curricula[i // 2 % 2]}  # fmt: skip
        configuration = Configuration(*study.configuration(values))
        won = round(seeds * i / (count + 1))
        configurations.append(configuration)
        recorded += [seed_row(configuration, n, "grokked", 30_000 + 1_000 * n) for n in range(won)]
        recorded += [seed_row(configuration, n, "given_up", 20_000) for n in range(won, seeds)]
        if i >= count - confirmed:
            ends = [("grokked", 40_000), ("failed", 60_000)] * (seeds // 2)
            recorded += [seed_row(configuration, 90_001 + n, *end, confirmation=True) for n, end in enumerate(ends)]
    return study, *frames(study, configurations, recorded)


def one(outcomes, **changes):
    """A study of one configuration and its frames."""
    study = study_of(**changes)
    configuration = Configuration(*study.configuration({}))
    recorded = [seed_row(configuration, i, *outcome) for i, outcome in enumerate(outcomes)]
    return study, *frames(study, [configuration], recorded)


def size(picture):
    """Width and height of a PNG in pixels."""
    assert picture.startswith(b"\x89PNG") and len(picture) > 5_000
    return struct.unpack(">II", picture[16:24])


# ---- time to grok


def test_given_up_seeds_stay_at_risk_to_the_budget_and_censored_ones_leave():
    ends = [("grokked", 30_000), ("given_up", 18_000), ("diverged", 100), ("censored", 35_000), ("grokked", 40_000)]
    _, _, seeds, _ = one([*ends, ("failed",)])
    curve = time_to_grok(seeds)
    # 30,000: 1 of 6. 40,000: 1 of the 4 still at risk, the given-up, the diverged and the failed among them.
    assert curve.at(np.array([0, 29_999, 30_000, 39_999, 40_000, 60_000])) == pytest.approx(
        [0, 0, 1 / 6, 1 / 6, 1 - 5 / 6 * 3 / 4, 1 - 5 / 6 * 3 / 4]
    )
    assert curve.marks.tolist() == [35_000] and curve.end == 60_000


def test_the_band_is_greenwoods_on_the_log_log_scale():
    _, _, seeds, _ = one([("grokked", 30_000), ("failed",), ("failed",), ("failed",)])
    curve = time_to_grok(seeds)
    survival, at_risk = 3 / 4, 4
    spread = Z_95 * sqrt(1 / (at_risk * (at_risk - 1))) / abs(log(survival))
    i = curve.steps.tolist().index(30_000)
    assert curve.low[i] == pytest.approx(1 - survival ** exp(-spread))
    assert curve.high[i] == pytest.approx(1 - survival ** exp(spread))


# ---- pictures


LONG = "decay 0.0106, fade 10,000 to 12,345, lr 0.0141, tie_vo on, ramp_start 17,500: 0 of 8"


def test_a_picture_fills_its_card_and_its_words_do_not_run_into_each_other():
    study, configurations, seeds, curves = searched()
    curves["step"] //= 3  # to 20,000
    of_fields = []
    for ends in ((0.014, 0.018), (0.001, 0.1)):
        configurations["recipe.lr"] = np.geomspace(*ends, len(configurations))
        fields = fields_of(study, configurations)
        of_fields += [rate_against_fields(some, configurations, seeds) for some in (fields, fields[:2])]
    figures = [
        *of_fields,
        small_multiples([(LONG, curves, set()), (LONG, curves, set())]),
        small_multiples([(LONG, curves, set())] * 3),
        small_multiples([("a $title$", curves, {(0, 0)}), ("b", curves, set())]),
        curves_figure(curves, {(0, 0)}, f"study s, {LONG} seeds grokked"),
        time_figure({LONG: seeds, f"{LONG} ": seeds}),
        table_figure(table_of([arm("57p", 1, 16), arm(without("57p", "tie_qk"), 0, 16)])),
        flags_figure(single_flags(*one_flag(HALVED)), []),
        flags_figure([], flag_grids(*seeds_of(ADDITIVE))),
    ]
    assert sum(axis.get_visible() for axis in figures[0].axes) == len(fields) and size(png(figures[0]))[0] > 1_200
    for figure in figures:
        assert size(png(figure))
        ticks = filter(None, (axis.yaxis.get_tightbbox() for axis in figure.axes if axis.get_visible()))
        assert min(box.x0 for box in ticks) < 0.04 * figure.bbox.width, "a white margin"
        boxes = [text.get_window_extent() for text in _words(figure)]
        assert boxes and all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in boxes)
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[i + 1 :]), _words(figure)[i]


def _words(figure):
    """Titles, names of lines, and the words along the axes that are drawn."""
    axes = [axis for axis in figure.axes if axis.get_visible()]
    texts = [text for axis in axes for text in (axis.title, axis._left_title, axis.xaxis.label)]
    for axis in axes:
        low, high = axis.get_xlim()
        texts += [t.label1 for t in axis.xaxis.get_major_ticks() if low <= t.get_loc() <= high]
        texts += axis.get_legend().get_texts() if axis.get_legend() else []
    return [t for t in [*texts, figure._suptitle] if t is not None and t.get_visible() and t.get_text()]
