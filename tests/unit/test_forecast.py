"""What `--dry-run` says will train is what trains: a planner in memory, studies and changes of them at random."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from search.run.estimate import estimate
from search.run.packing import Capacity
from search.run.planner import plan
from search.store.home import Home
from search.study.file import parse_study
from tests.planners import end, row_of, taken
from tests.searches import Memory
from trainer import Outcome

SAID = re.compile(
    r"([\d,]+) recorded, (at most )?([\d,]+) to train(?:, ([\d,]+) fresh ones to confirm)?$", re.MULTILINE
)
BEGIN = {
    "name": "x", "model": "57p", "resources": {"slots": 2},
    "recipe": {"steps": 1_000, "hold": 0, "curriculum": [], "fade_start": 100, "fade_end": 200, "warmup": 100},
}  # fmt: skip


def dry_run(study, ledger):
    """The numbers that a plan has: recorded, to train, whether at most so many, to be confirmed; and its text."""
    rows = [replace(row, seed_steps_per_s=None) for row in ledger.recorded]
    text = estimate(study, Home("home"), rows, ledger)
    recorded, is_bound, search, confirmation = SAID.search(text).groups()
    search, recorded, confirmation = (n and int(n.replace(",", "")) for n in (search, recorded, confirmation))
    return recorded, search, bool(is_bound), confirmation, text


def run(study, ledger, grokked=lambda configuration, seed: False, rounds=1_000):
    """Train what a worker takes so many times. Returns how many seeds were trained to search and to confirm."""
    planner, trained = plan(study, ledger), {False: 0, True: 0}
    planner.capacity = Capacity(2)
    for _ in range(rounds):
        if not (pairs := taken(planner)):
            assert planner.is_done
            break
        won = [grokked(pair.configuration, pair.seed.init_seed) for pair in pairs]
        rows = [row_of(p, Outcome.GROKKED if g else Outcome.FAILED) for p, g in zip(pairs, won, strict=True)]
        ledger.recorded += rows
        end(planner, "a", pairs, rows)
        for pair in pairs:
            trained[pair.confirmation] += 1
    return trained[False], trained[True]


def study_of(*changes):
    fields = dict(BEGIN)
    for change in changes:
        fields |= change
    return parse_study(json.dumps(fields), "x")


# Studies at random

SEEDS = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True)
LISTS = st.lists(st.sampled_from([0.01, 0.02, 0.03]), min_size=1, max_size=3, unique=True).map(
    lambda rates: {"configurations": [{"recipe": {"lr": rate}} for rate in rates]}
)
RATES, DECAYS = {"recipe.lr": {"choice": [0.01, 0.02, 0.03]}}, {"recipe.weight_decay": {"float": [0.001, 0.1]}}
SIZES = {"model.qk_dim": {"int": [3, 4]}}
FADES = {"recipe.fade_end": {"choice": [150, 400]}, "recipe.fade_start": {"choice": [100, 300]}}
"""Of four pairs one is impossible."""
SPACES = st.lists(st.sampled_from([RATES, DECAYS, SIZES, FADES]), min_size=1, max_size=2, unique_by=str)


@st.composite
def searches(draw):
    space = {path: field for fields in draw(SPACES) for path, field in fields.items()}
    names = ["random", "qmc", "tpe", "nsga2"] + ["grid"] * ("recipe.weight_decay" not in space)
    name, count = draw(st.sampled_from(names)), draw(st.integers(1, 8))
    return {"space": space, "sampler": {"name": name, "configurations": count}}


@st.composite
def changed_studies(draw):
    """A study, as it is begun and as it goes on."""
    base, versions = draw(LISTS | searches()), []
    for _ in range(2):
        seeds = draw(SEEDS)
        kind, grokked = draw(st.sampled_from(["once", "once", "until", "allocation"])), draw(st.integers(1, 3))
        most = len(seeds) + 3
        rules = {"until": {"grokked": grokked, "max_seeds": most}, "allocation": {"most": most}}
        more = {kind: rules[kind]} if kind in rules else {}
        if draw(st.booleans()):
            more["confirm"] = {"configurations": draw(st.integers(1, 2)), "seeds": {"first": 1_001, "count": 2}}
        versions.append(study_of(base, {"seeds": seeds}, more))
        if "sampler" in base:
            base["sampler"] = base["sampler"] | {"configurations": draw(st.integers(1, 8))}
        else:
            base = {"configurations": base["configurations"][: draw(st.integers(1, 3))]}
    return versions


ANY = given(versions=changed_studies(), rounds=st.integers(0, 12), every=st.integers(1, 5))


SEARCH = {"space": {"recipe.lr": {"float": [0.001, 0.1]}}, "sampler": {"name": "random", "configurations": 4}}
FEWER = {"seeds": [2, 3, 4], "sampler": {"name": "random", "configurations": 2}}
CONFIRMED = {"confirm": {"configurations": 1, "seeds": {"first": 1_001, "count": 5}}}
ENOUGH = study_of({"seeds": [1, 2, 3, 4], "until": {"grokked": 1, "max_seeds": 8}})


@example(versions=(study_of(SEARCH, {"seeds": [1]}), study_of(SEARCH, FEWER)), rounds=9, every=5)
@example(versions=(study_of({"seeds": [1, 2, 3]}), study_of({"seeds": [1, 2, 3]}, CONFIRMED)), rounds=9, every=2)
@example(versions=(ENOUGH, ENOUGH), rounds=1, every=1)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@ANY
def test_what_a_dry_run_says_will_train_is_what_trains(versions, rounds, every, here):
    check(versions, rounds, every)


@pytest.mark.full
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@ANY
def test_what_many_dry_runs_say_will_train_is_what_trains(versions, rounds, every, here):
    check(versions, rounds, every)


def check(versions, rounds, every):
    """Train some rounds of the study as it begins, plan the study as it goes on, train that, and compare."""

    def grokked(configuration, seed):
        return (seed + int(configuration.key[:4], 16)) % every == 0

    (begun, study), ledger = versions, Memory()
    run(begun, ledger, grokked, rounds)
    before = len(ledger.recorded)
    recorded, search, is_bound, confirmation, text = dry_run(study, ledger)
    assert len(ledger.recorded) == before and recorded <= before
    searched, confirmed = run(study, ledger, grokked)
    if study.allocation or study.until.grokked:  # further rounds go by results, and are said by a line of their own
        assert (searched > 0) == (search > 0) or is_bound, text
    elif is_bound:
        assert searched <= search, text
    else:
        assert searched == search, text
    most = study.confirm.configurations * len(study.confirm_seeds) if study.confirm else 0
    assert confirmed <= most and (confirmation is None or confirmed == confirmation), text
    if not search:
        assert confirmed == (confirmation or 0), text
    assert dry_run(study, ledger)[1:4] == (0, False, None), "all is trained"


# By name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("random", "  configurations  3, of 12 proposals by random\n"),
        ("qmc", "  configurations  3, of 12 proposals by qmc\n"),
        ("tpe", "  configurations  up to 3, of 12 proposals by tpe\n"),
        ("grid", "  configurations  3, proposed by grid\n"),
    ],
)
def test_a_space_with_three_values_has_at_most_three_configurations(name, said):
    study = study_of({"space": RATES, "sampler": {"name": name, "configurations": 12}, "seeds": [1, 2]})
    recorded, to_train, is_bound, _, text = dry_run(study, ledger := Memory())
    assert said in text and (recorded, to_train, is_bound) == (0, 6, name == "tpe")
    assert run(study, ledger)[0] <= 6


def test_a_large_search_is_not_drawn_to_be_planned():
    study = study_of(SEARCH, {"sampler": {"name": "random", "configurations": 5_000}, "seeds": [1]})
    assert dry_run(study, Memory())[1:3] == (5_000, False)
