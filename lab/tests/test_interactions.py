"""Which constraints go together: effects of simulated studies are found, and null ones are not."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit, xlogy

from lab.interactions.model import interactions, lattices, some
from lab.interactions.text import sentences
from lab.tests.lattices import outcomes, rates, recorded
from reports.logistic import fit
from search.study.file import load_study, parse_study
from tests.commands import call, done

WIDE, SEEDS = load_study("atlas-170p"), 32
NONE_GROKKED = np.zeros((WIDE.planned, SEEDS), dtype=bool)
EFFECTS = {
    ("shared_norm",): -0.8, ("rank1_out",): 0.5, ("no_ffn_bias",): -0.2, ("shared_norm", "tie_vo"): -1.2,
    ("rank1_out", "frozen_spiral"): 0.6,
}  # fmt: skip


@pytest.fixture(scope="module")
def empty():
    """All combinations of five constraints at the width of 170p, and seeds of which none grokked."""
    (lattice,) = lattices(*recorded(WIDE, NONE_GROKKED))
    return lattice


def model_of(lattice, grokked_CS, first=None):
    """The model of these outcomes in the order of the study's list, or of its first few combinations."""
    listed = {spec: grokked_S for (spec, _), grokked_S in zip(WIDE.listed, grokked_CS, strict=True)}
    arms = tuple(
        replace(arm, seeds={(n, n): bool(grokked) for n, grokked in enumerate(listed[arm.spec])}, with_finished={})
        for arm in lattice.arms
    )
    kept = slice(first)
    return interactions(replace(lattice, arms=arms[kept], levels=lattice.levels[kept]))


def truth(effect, effects):
    return effects.get(effect.constraints, effects.get(effect.constraints[::-1], 0.0))


# Estimates


def test_estimates_maximise_the_likelihood_under_jeffreys_prior():
    rng = np.random.default_rng(0)
    design = np.column_stack([np.ones(8), rng.normal(size=(8, 2))])
    outcomes_CS = (rng.random((8, 6)) < 0.3).astype(float)
    outcomes_CS[0] = 0  # a cell without any
    successes = outcomes_CS.sum(1)

    def loss(beta):
        share = expit(design @ beta)
        information = design.T @ (design * (6 * share * (1 - share))[:, None])
        likelihood = xlogy(successes, share) + xlogy(6 - successes, 1 - share)
        return -likelihood.sum() - 0.5 * np.linalg.slogdet(information)[1]

    found = [c.estimate for c in fit(design, outcomes_CS)]
    assert np.allclose(found, minimize(loss, np.zeros(3), tol=1e-12).x, atol=1e-4)


def test_the_error_is_that_of_seeds_and_not_of_outcomes():
    """Seeds that have the same outcome in all ten cells are worth one outcome each; without any success the
    cluster-robust error would vanish.
    """
    same = np.tile([1.0] * 6 + [0.0] * 14, (10, 1))
    (mean,) = fit(np.ones((10, 1)), same)
    share = expit(mean.estimate)
    assert share == pytest.approx(60.5 / 201) and mean.freedom == 19
    # 20 / 19 times the sum of squares of the seeds' scores, over the squared information; Firth's part is small
    assert mean.error == pytest.approx(np.sqrt(20 / 19 * 20 * 0.3 * 0.7) * 10 / (200 * 0.3 * 0.7), rel=0.01)
    (nothing,) = fit(np.ones((10, 1)), np.zeros((10, 20)))
    assert nothing.error > 1 and nothing.estimate == pytest.approx(np.log(0.5 / 200.5))


@pytest.mark.parametrize(("mean", "alike", "group"), [(-3.5, 0.1, 0), (-0.5, 0.5, 1)])
def test_intervals_hold_the_truth(empty, mean, alike, group):
    """Where most cells have no success, and where a seed's luck is the same in all combinations that have a
    constraint, and in all that have not.
    """
    rng, held, n = np.random.default_rng(1), 0, 0
    rate_C = rates(WIDE, mean, EFFECTS)
    groups_C = [group * spec.shared_norm for spec, _ in WIDE.listed]
    for _ in range(40):
        model = model_of(empty, outcomes(rate_C, SEEDS, rng, alike, groups_C))
        for effect in [*model.effects, *model.pairs]:
            if (c := effect.coefficient) and (not group or "shared_norm" in effect.constraints[:1]):
                low, high = c.interval
                held, n = held + (low <= truth(effect, EFFECTS) <= high), n + 1
    assert n >= 200 and held / n >= 0.93
    assert held < n, "intervals so wide say nothing"


def test_an_injected_pair_is_reported_and_null_ones_are_not(empty):
    rng, found, false, reported = np.random.default_rng(2), 0, 0, 0
    for _ in range(30):
        model = model_of(empty, outcomes(rates(WIDE, 0.0, EFFECTS), SEEDS, rng, alike=0.1))
        verdicts = {pair.constraints: pair.verdict for pair in model.pairs}
        found += verdicts["shared_norm", "tie_vo"] == "worse than the sum"
        reported += sum(verdict != "open" for verdict in verdicts.values())
        false += sum(verdict != "open" for term, verdict in verdicts.items() if term not in EFFECTS)
    assert found >= 25 and false / reported <= 0.07
    nothing = [model_of(empty, outcomes(rates(WIDE, 0.0, {}), SEEDS, rng, alike=0.1)) for _ in range(30)]
    assert sum(any(pair.is_discovery for pair in model.pairs) for model in nothing) <= 3


# What cannot be estimated


def test_a_study_that_is_stopped_early_says_what_cannot_be_estimated(empty):
    grokked_CS = outcomes(rates(WIDE, 0.0, EFFECTS), SEEDS, np.random.default_rng(3))
    first = model_of(empty, grokked_CS, first=8)
    levels_CF = np.array(first.lattice.levels) - 0.5
    alone = fit(np.column_stack([np.ones(8), levels_CF]), first.lattice.outcomes())[1:]
    assert [effect.coefficient for effect in first.effects] == alone and not first.has_pairs
    assert {pair.verdict for pair in first.pairs} == {"not estimable"}
    assert all(effect.mixed_with for effect in first.effects), "of resolution 3"
    half, whole = model_of(empty, grokked_CS, first=16), model_of(empty, grokked_CS)
    assert sum(pair.verdict == "not estimable" for pair in half.pairs) == 6
    assert not any(effect.mixed_with for effect in (*whole.effects, *whole.pairs))
    assert all(effect.coefficient for effect in (*whole.effects, *whole.pairs))
    assert some("abcde") == "a, b and 3 more" and some("abc") == "a, b, c"
    (line,) = [text for text in sentences(first) if "add up" in text]
    assert line.startswith("shared_norm, rank1_out, no_ffn_bias, tie_vo, frozen_spiral: right only if")


def test_a_constraint_with_which_nothing_groks_has_an_effect_and_no_pairs(empty):
    rate_C = rates(WIDE, 0.0, {})
    rate_C[[spec.tie_vo for spec, _ in WIDE.listed]] = 0
    model = model_of(empty, outcomes(rate_C, SEEDS, np.random.default_rng(4)))
    effect = next(effect for effect in model.effects if effect.name == "tie_vo")
    assert effect.verdict == "costs" and effect.coefficient.interval[1] < -3
    reasons = {pair.reason for pair in model.pairs if "tie_vo" in pair.constraints}
    assert reasons == {"no seed grokked with tie_vo"}
    assert all(pair.coefficient for pair in model.pairs if "tie_vo" not in pair.constraints)


# Which records are combinations


@pytest.mark.parametrize(
    ("text", "size", "missing"),
    [
        ("toggle: [tie_vo, shared_norm]", 3, "no combination is without shared_norm and tie_vo"),
        ("toggle: [tie_vo, shared_norm, qk_dim=4]", 4, "no combination is without shared_norm and tie_vo"),
        ("configurations: [{model: 57p}, {model: {tie_vo: false}}, {model: {tie_vo: false, no_eos: true}}]", 3,
         "no combination has tie_vo and no_eos"),
    ],
)  # fmt: skip
def test_any_study_that_lists_combinations_has_a_model(text, size, missing):
    study = parse_study(f"name: some\nmodel: 57p\nseeds: [1]\n{text}\n", "")
    (lattice,) = lattices(*recorded(study, outcomes(np.full(study.planned, 0.5), 8, np.random.default_rng(0))))
    assert len(lattice.arms) == size
    model = interactions(lattice)
    assert all(effect.coefficient for effect in model.effects)
    assert missing in [pair.reason for pair in model.pairs]


# The picture, the page and the command


@pytest.fixture
def files(here):
    """Files of the first 16 combinations and of their seeds."""
    grokked_CS = outcomes(rates(WIDE, 0.0, EFFECTS), SEEDS, np.random.default_rng(3))
    rows, seeds = recorded(WIDE, grokked_CS, first=16)
    tuples = [name for name, value in rows[0].items() if isinstance(value, list | tuple)]
    frame = pd.DataFrame(rows).assign(**{n: json.dumps(rows[0][n]) for n in tuples})
    frame.to_parquet("some.parquet", index=False)
    pd.DataFrame(seeds).assign(budget=1).to_csv("seeds.csv", index=False)
    return "some.parquet", "seeds.csv"


def test_every_format_has_a_row_an_effect_and_a_pair(files):
    rows = json.loads(call("table", *files, "--interactions", "--format", "json").stdout)
    assert [row["with_constraint"] is None for row in rows] == [True] * 5 + [False] * 10
    assert {row["study"] for row in rows} == {"atlas-170p"}
    norm = rows[0]
    assert norm["constraint"] == "shared_norm" and norm["verdict"] == "costs"
    assert 0 < norm["odds_ratio_low"] < norm["odds_ratio"] < norm["odds_ratio_high"] < 1
    assert norm["n_with"] == norm["n_without"] == 8 * SEEDS
    open_pairs = [row for row in rows[5:] if row["reason"] is None]
    assert len(open_pairs) == 4 and all(row["odds_ratio"] is None for row in rows[5:] if row["reason"])
    read = list(csv.DictReader(io.StringIO(call("table", *files, "--interactions", "--format", "csv").stdout)))
    assert [row["constraint"] for row in read] == [row["constraint"] for row in rows]


def test_the_page_says_in_words_which_pairs_are_more_than_the_sum(files):
    text = call("table", *files, "--interactions").stdout
    assert "16 combinations of 5 constraints, 170 to 120 parameters, study atlas-170p" in text
    assert "- shared_norm with tie_vo: worse than the sum. The odds are " in text
    assert "6 pairs cannot be estimated from these combinations" in text
    assert "cannot be told from" in text and "frozen_spiral in study atlas-170p: with it change" in text
    said = call("table", *files, "--interactions", "-o", "page.md").stdout
    assert said == "page.md: 15 effects and pairs\n"
    done("table", *files, "--interactions", "-o", "lattice.svg")
    assert b"<svg" in Path("lattice.svg").read_bytes()
