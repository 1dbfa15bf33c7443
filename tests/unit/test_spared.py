"""Which seeds no stopping rule ends: one of each ten pairs, in the order in which they are planned."""

import json

import pytest

from search.run.extension import as_begun
from search.run.spared import spared_of
from search.study.file import parse_study, recorded_study
from search.study.trial import Configuration, Trial
from tests.planners import SEARCH, SWEEP, planner_of, rows_of
from trainer import Seed

LARGE = SEARCH.replace("count: 3", "count: 8").replace("configurations: 4", "configurations: 20")
ARMS = SWEEP.replace("count: 5", "count: 20") + "toggle: [tie_vo, shared_norm]\n"


def trained(planner):
    """Every trial of a plan in order, each of which fails at once."""
    while trial := planner.next():
        yield trial
        planner.complete_trial(trial, rows_of(trial))


def test_a_search_spares_one_of_each_ten_pairs(home):
    planner = planner_of(LARGE, home)
    trials = list(trained(planner))
    spared = set().union(*(t.spared for t in trials))
    in_order = [(key, Seed.of(n)) for key in planner.study_run.states for n in range(1, 9)]
    assert [len(spared.intersection(in_order[n : n + 10])) for n in range(0, 160, 10)] == [1] * 16
    assert len({seed for _, seed in spared}) > 3, "not the same seeds in each configuration"
    assert {(p.seed, p.spared) for t in trials for p in t.pairs} >= {(s, True) for _, s in spared}


def test_arms_of_a_list_spare_the_same_seeds(home):
    trials = list(trained(planner_of(ARMS, home)))
    spared = set().union(*(t.spared for t in trials))
    seeds_of = {c.key: {s for key, s in spared if key == c.key} for t in trials for c in t.configurations}
    (seeds,) = {frozenset(seeds) for seeds in seeds_of.values()}
    assert len(seeds_of) == 3 and [sum(n <= s.init_seed < n + 10 for s in seeds) for n in (1, 11)] == [1, 1]


CONFIRMED = "\nconfirm: {configurations: 2, seeds: {first: 90001, count: 20}%s}\n"


@pytest.mark.parametrize("text", [LARGE, ARMS, LARGE + "stop: {spare: hash}"])
@pytest.mark.parametrize(("asked", "spared"), [("", 20), (", hopeless: off", 20), (", hopeless: on", 2)])
def test_no_rule_ends_a_confirmation_unless_the_file_says_so(text, asked, spared, home):
    study = parse_study(text + CONFIRMED % asked, "test")
    (configuration,) = {Configuration(*c) for c in study.listed[:1]}
    work = [(configuration, seed) for seed in study.confirm_seeds]
    found = spared_of(study, [configuration.key], work, confirmation=True)
    if found is None:  # each seed's number says it
        assert asked == ", hopeless: on" and study.spares == "hash"
    else:
        assert len(found) == spared


def test_neither_trials_nor_interruptions_change_the_draw(home):
    study = parse_study(LARGE, "test")
    planner = planner_of(LARGE, home)
    whole = list(trained(planner))
    work, keys = [pair for t in whole for pair in t.work], list(planner.study_run.states)
    again = spared_of(study, keys, reversed(work))
    assert again == set().union(*(t.spared for t in whole)) and again != spared_of(study, keys[::-1], work)


def test_a_trial_carries_its_draw_and_those_of_before_have_none(home, tmp_path):
    trial = planner_of(LARGE, home).next()
    trial.write(tmp_path)
    assert Trial.read(tmp_path) == trial and trial.spared is not None
    file = tmp_path / "trial.json"
    before = json.loads(file.read_text())
    del before["spared"], before["stop"]["spare"]
    file.write_text(json.dumps(before))
    read = Trial.read(tmp_path)
    assert read.spared is None and read.stop.spare == "hash" and read.pairs[0].spared is None


@pytest.mark.parametrize("by_name", [False, True])
def test_what_was_begun_before_keeps_its_draw_and_objectives(by_name, home):
    study = parse_study(SEARCH, "test")
    assert (study.spares, list(study.sampler.directions)) == ("pairs", ["grok_rate"])
    definition = study.model_dump(mode="json", by_alias=True)
    again = recorded_study(json.dumps(definition), "x") if by_name else as_begun(study, definition)
    assert (again.spares, list(again.sampler.directions)) == ("pairs", ["grok_rate"])
    del definition["stop"]["spare"]
    before = recorded_study(json.dumps(definition), "x") if by_name else as_begun(study, definition)
    assert (before.spares, list(before.sampler.directions)) == ("hash", ["grok_rate", "params"])
    following = as_begun(study, before.model_dump(mode="json", by_alias=True))
    assert (following.spares, list(following.sampler.directions)) == ("hash", ["grok_rate", "params"])
    assert spared_of(before, [], [(None, Seed.of(1))]) is None
