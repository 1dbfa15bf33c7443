"""Optuna's side of a search: what is proposed, told and made again of the ledger; do samplers beat chance?"""

import re
import shlex
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from search.kinds.proposals import Proposals
from search.run.allocation import objective
from search.study.file import parse_study
from search.study.space import Distribution
from tests.bad_studies import GOOD
from tests.commands import call, done, fails_with_one
from tests.homes import begin_study, drive, empty_home, quickly, records_of, study_of
from tests.searches import (
    IMPOSSIBLE,
    LINE,
    NESTED,
    SPACE,
    TASKS,
    Memory,
    asked,
    numbers,
    proposals_of,
    reported,
    row,
    states,
    train,
)
from trainer import Outcome, Recipe

SAMPLERS = ("tpe", "nsga2", "qmc", "random", "grid")
INTERRUPTED = dict.fromkeys(SAMPLERS, (1, 7, 12)) | {"nsga2": (1, 8, 12)}
"""Proposals after which a driver dies; within a generation of nsga2, of four here, parents are chosen again."""


def facts_of(proposals):
    found = proposals.trials()
    return [(t.number, t.state, t.params, t.distributions, t.values, t.user_attrs) for t in found]


# What is proposed


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_knows_lists_and_lengths(name):
    proposals = proposals_of(Memory(), name)
    found = asked(proposals)
    assert len(found) == 24 and proposals.exhausted and proposals.ask() is None
    assert set(states(proposals)) == {TrialState.COMPLETE}
    for configuration, sampled in zip(found, numbers(proposals), strict=True):
        recipe = configuration.recipe
        assert recipe.mixed_lengths in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
        assert recipe.fade_end == 15_000 + sampled["recipe.fade_end"] and recipe.fade_end % 4_000 == 0
        assert sampled["recipe.curriculum"] == str([list(stage) for stage in recipe.curriculum])
    assert {c.recipe.curriculum for c in found} == {(), ((3, 2000), (6, 5000))}
    assert len({c.recipe.mixed_lengths for c in found}) > 2


@pytest.mark.parametrize(
    "space",
    [SPACE, LINE, IMPOSSIBLE, NESTED, TASKS],
    ids=["conditions", "line", "impossible", "nested conditions", "a condition on the task"],
)
def test_what_is_made_of_the_ledger_is_what_was_there(space):
    ledger, training, ended = Memory(), [], set()
    first = proposals_of(ledger, space=space)
    while (configuration := first.ask()) is not None:
        training.append(configuration)
        for early in {configuration} & ended or training[1 : len(training) - 3]:
            training.remove(early)
            ended.add(early)
            train(first, early, row(Outcome.GROKKED, 1.0, round(100 * early.recipe.lr)))
    again = proposals_of(ledger, space=space)
    assert facts_of(again) == facts_of(first) and again.exhausted
    assert [p["number"] for p in ledger.proposed] == [t.number for t in first.trials()] == list(range(24))
    assert TrialState.RUNNING in states(again) and (TrialState.FAIL in states(again)) == (space == IMPOSSIBLE)


@pytest.mark.parametrize(("name", "cuts"), INTERRUPTED.items(), ids=SAMPLERS)
def test_a_search_proposes_the_same_however_often_it_is_interrupted(name, cuts):
    space = SPACE if name == "grid" else LINE
    whole, ledger = Memory(), Memory()
    expected = asked(proposals_of(whole, name, space=space), 14)
    for cut, before in zip((*cuts, len(expected)), (0, *cuts), strict=True):
        proposed = asked(proposals_of(ledger, name, space=space), cut - before)
        assert proposed == expected[before:cut]


@pytest.mark.parametrize("name", ["random", "qmc", "grid"])
def test_what_is_drawn_by_its_number_is_the_same_whatever_is_known_by_then(name):
    space = SPACE if name == "grid" else LINE
    told, ledger = Memory(), Memory()
    expected = asked(proposals_of(told, name, space=space), 8)
    open_ = [proposals_of(ledger, name, space=space).ask() for _ in expected]  # nothing is told, each one begins anew
    assert open_ == expected
    other = asked(proposals_of(Memory(), name, space=space, more=", seed: 1"), 8)
    assert other != expected


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (NESTED, {"tie_vo on, optimiser adamw, lr", "tie_vo on, optimiser lion", "tie_vo off"}),
        (TASKS, {"task addition, clip", "task copy"}),
    ],
)
def test_a_name_has_what_is_searched_there_and_no_more(space, names):
    proposals = proposals_of(Memory(), "random", space=space)
    found = {proposals.study.kind.name_of(configuration) for configuration in asked(proposals)}
    assert {re.sub(r" [\d.]+$", "", name) for name in found} == names


def test_what_is_not_asked_is_not_null():
    field = Distribution(choice=[1, 2], when={"model.args.x": None})
    assert field.is_asked({"model.args.x": None}) and not field.is_asked({})


# What is told


def test_one_objective_or_two():
    one, two, turned = (
        proposals_of(Memory(), space=space, more=more)
        for space, more in (
            (LINE, ""),
            (SPACE, ", objectives: [grok_rate, params]"),
            (SPACE, ", objectives: [params, grok_rate]"),
        )
    )
    for proposals in (one, two, turned):
        train(proposals, proposals.ask(), row())
    assert one.trials()[0].values == [objective([row()], Recipe())]
    params = one.study.base_spec.params
    assert two.trials()[0].values[1] in (params, params + 6)
    assert turned.trials()[0].values == two.trials()[0].values[::-1]
    assert [d.name for d in turned.optuna.directions] == ["MINIMIZE", "MAXIMIZE"]


def test_a_proposal_is_told_once_and_by_more_seeds_to_the_next_run():
    ledger = Memory()
    first = proposals_of(ledger, space=LINE)
    (configuration,) = asked(first, 1)
    before = first.trials()[0].values
    train(first, configuration, row(), row(Outcome.GROKKED, 1.0, 9))
    assert first.trials()[0].values == before != proposals_of(ledger, space=LINE).trials()[0].values


@pytest.mark.parametrize("outcome", [Outcome.CENSORED, Outcome.RUNNING, None])
def test_what_has_a_seed_left_is_open_for_the_next_run(outcome):
    """One whose trial failed for good, one whose driver died, and one that no trial had begun."""
    ledger, space = Memory(), LINE.replace("space", "seeds: [1, 2]\nspace")
    study = parse_study(GOOD.replace("seeds: [1]\n", "") + space + "sampler: {configurations: 4}\n", "test")
    first = Proposals(study, ledger)
    found = [first.ask() for _ in range(3)]
    one, two, open_ = found
    for whole in (one, two):
        train(first, whole, row(), row())
    train(first, open_, row(), *([row(outcome)] if outcome else []))
    again = Proposals(study, ledger)
    assert reported(again) == [one, two] and again.proposed() == [one, two, open_]
    assert states(again)[2] == TrialState.RUNNING
    train(again, open_, row(), row(Outcome.GROKKED, 1.0, 9))
    assert states(again) == [TrialState.COMPLETE] * 3 and again.ask() and again.ask() is None


# A search for Optuna's dashboard


def test_a_search_is_written_as_a_study_of_optunas(here):
    study = study_of(
        name="fade", space={"recipe.lr": {"float": [0.01, 0.02]}, "model.tie_vo": {"choice": [True, False]}},
        sampler={"name": "random", "configurations": 3}, seeds={"first": 1, "count": 2},
    )  # fmt: skip
    with quickly():
        drive(home := empty_home(here / "adder-runs"), study, grokked=(2,))
    begin_study(home.path, study_of(name="list"))
    said = call("records", "fade", "-o", "fade.db")
    assert said.exit_code == 0 and said.stdout == "fade.db: 3 trials; optuna-dashboard sqlite:///fade.db\n", said
    copy = optuna.load_study(study_name="fade", storage="sqlite:///fade.db")
    assert copy.metric_names == ["grok_rate"] and [d.name for d in copy.directions] == ["MAXIMIZE"]
    proposals = Proposals(study, records_of(home, "fade")).trials()
    assert [(t.params, t.values, t.state) for t in copy.trials] == [(t.params, t.values, t.state) for t in proposals]
    for trial in copy.trials:
        assert trial.user_attrs["seeds"] == 2 and trial.user_attrs["grokked"] == 1
        assert trial.user_attrs["name"].startswith("lr 0.01")
    assert "is no search" in fails_with_one(2, "records", "list", "-o", "list.db")
    Path("notes.sqlite").write_text("mine")
    address = shlex.split(done("records", "fade", "-o", odd := "notes.sqlite?x%41 #é{y}.db"))[-1]
    assert len(optuna.load_study(study_name="fade", storage=address).trials) == 3
    assert Path("notes.sqlite").read_text() == "mine"
    assert sorted(path.name for path in here.iterdir()) == ["adder-runs", "fade.db", "notes.sqlite", odd]
