"""A search whose file has changed: what goes on, with which numbers, and what is refused."""

import re

import pytest
from optuna.trial import TrialState

from search.errors import UserError
from search.run.extension import check_extension
from search.study.space import points
from tests.homes import study_of
from tests.searches import NARROW, Memory, asked, numbers, proposals_of, reported, row, states, train
from tests.unit.test_counting import FAILED, rows


@pytest.mark.parametrize(
    "space",
    [
        NARROW.replace("[0.01, 0.02]", "[0.001, 0.1], log: true"),
        NARROW.replace("[3, 4]", "[3, 4, 5]"),
        NARROW.replace("{choice: [3, 4]}", "{int: [3, 5]}"),
        NARROW.replace("}}", "}, recipe.clip: {float: [0.5, 2]}}"),
        NARROW.replace("}}", "}, recipe.fade_end: {int: [0, 30000], after: recipe.fade_start}}"),
        NARROW.replace("}}", "}, recipe.curriculum: {choice: [[], [[3, 2000], [6, 5000]]]}}"),
    ],
)
def test_a_wider_space_goes_on_with_all_that_was_proposed(space):
    ledger = Memory()
    first = proposals_of(ledger, space=NARROW)
    told = asked(first, 6)
    open_ = first.ask()
    values = [t.values for t in first.trials()[:6]]
    again = proposals_of(ledger, count=30, space=space)
    assert reported(again) == list(dict.fromkeys(told)) and again.proposed()[-1] == open_
    assert [t.values for t in again.trials()[:6]] == values
    asked(again)
    train(again, open_, row())
    assert states(again) == [TrialState.COMPLETE] * 30
    assert {path for t in again.trials() for path in t.params} == set(again.study.space)


def test_another_start_is_refused():
    study = study_of(start={"study": "first", "best": 2})
    recorded = study.model_dump(mode="json", by_alias=True)
    check_extension(study, recorded, [])
    with pytest.raises(UserError, match="start: begun with study first, best 3, grokked True, the file has"):
        check_extension(study, recorded | {"start": recorded["start"] | {"best": 3}}, [])


def test_numbers_are_kept_as_they_were_drawn():
    """A length of floats, taken off again, would be another one."""
    ledger, length = Memory(), "recipe.fade_token_end: {float: [0, 0.3], after: recipe.fade_token}"
    space = f"space: {{recipe.fade_token: {{float: [0.1, 0.7]}}, {length}}}\n"
    first = proposals_of(ledger, "random", space=space)
    taken_off = [c.recipe.fade_token_end - c.recipe.fade_token for c in asked(first, 20)]
    drawn = [params["recipe.fade_token_end"] for params in numbers(first)]
    assert len(taken_off) == len(drawn) and taken_off != drawn
    wider = proposals_of(ledger, "random", space=space.replace("0.3]", "0.35]"))
    assert numbers(wider) == numbers(first)


def test_impossible_numbers_count_where_they_are_points_still():
    """eval_every must divide steps: of four points one makes nothing."""
    ledger = Memory()
    space = "space: {recipe.steps: {choice: [3000, 4000]}, recipe.eval_every: {choice: [1000, 750]}}\n"
    first = proposals_of(ledger, "grid", None, space)
    assert len(asked(first)) == 3 and first.exhausted and states(first).count(TrialState.FAIL) == 1
    again = proposals_of(ledger, "grid", None, space.replace("4000", "4000, 6000"))
    assert len(asked(again)) == 2
    every = {frozenset(p.items()) for p in points(again.study.space)}
    assert {frozenset(n.items()) for n in numbers(again) if n} == every


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        (NARROW.replace("[0.01, 0.02]", "[0.5, 0.6]"), "space: an earlier proposal had recipe.lr 0.01"),
        (NARROW.replace("[3, 4]", "[5]"), "space: an earlier proposal had model.qk_dim "),
        ("space: {recipe.lr: {float: [0.01, 0.02]}}\n", "space: an earlier proposal had model.qk_dim "),
        (NARROW.replace("}}", "}, recipe.clip: {float: [2, 3]}}"), "had recipe.clip 1.0, which this space has"),
        (NARROW + "recipe: {batch: 32}\n", "recipe.batch: begun with 256, the file has 32"),
        (NARROW + "model: 74p\n", "model.frozen_spiral: begun with true, the file has false"),
    ],
)
def test_a_search_whose_proposals_would_be_incomparable_is_refused(space, problem):
    ledger = Memory()
    asked(proposals_of(ledger, space=NARROW), 8)
    with pytest.raises(UserError, match=f"study x: .*{re.escape(problem)}.*; give the study a new name, or"):
        proposals_of(ledger, space=space)
    assert len(asked(proposals_of(ledger, space=NARROW))) == 16


def test_another_objective_is_told_of_what_is_known():
    ledger = Memory()
    asked(proposals_of(ledger), 3)
    again = proposals_of(ledger, more=", objectives: [grok_rate]")
    assert [len(t.values) for t in again.trials()] == [1, 1, 1]
    assert len(asked(again)) == 21


# ---- what any file may become, and may not

LISTED = {"recipe": {"steps": 60, "eval_every": 20}, "seeds": {"first": 5, "count": 4}}
SEARCHED = {"space": {"recipe.lr": {"float": [0.01, 0.02]}}}


@pytest.mark.parametrize(
    ("before", "now", "recorded", "problem"),
    [
        ({}, SEARCHED, [], "was begun as a list, the file now has a space"),
        (SEARCHED, {}, [], "was begun as a search, the file now has no space"),
        ({}, {"confirm": {"seeds": [90]}}, rows(FAILED, first=90), "confirm.seeds: 90 was a seed of the search"),
        ({}, {"seeds": [5, 90]}, rows(FAILED, first=90, confirmation=True), "seeds: 90 was used to confirm"),
        ({}, {"seeds": {"first": 1, "count": 90}}, None, ""),
        ({}, {"recipe": LISTED["recipe"] | {"steps": 120}}, None, ""),
        ({}, {"until": {"grokked": 2, "max_seeds": 16}}, None, ""),
        ({}, {"confirm": {"seeds": [91]}}, None, ""),
    ],
)
def test_a_file_may_ask_for_more_and_not_mix_what_cannot_be_compared(before, now, recorded, problem):
    known = study_of(**LISTED | before).model_dump(mode="json", by_alias=True)
    if problem:
        with pytest.raises(UserError, match=re.escape(f"study sweep: {problem}")):
            check_extension(study_of(**LISTED | now), known, recorded)
    else:
        used = rows(FAILED, first=5) + rows(FAILED, first=92, confirmation=True)
        check_extension(study_of(**LISTED | now), known, used)
        check_extension(study_of(**LISTED | now), None, [])
