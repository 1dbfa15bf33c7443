"""Optuna's side of a search: what is proposed, told and taken up again, and whether samplers beat chance."""

from __future__ import annotations

import math
import re
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.trial import TrialState

from docs.measurements import sampling
from search.errors import UserError
from search.home import Home
from search.ledger import Row
from search.plan import Configuration
from search.proposals import Proposals, objective
from search.space import points
from search.study_file import parse_study
from tests.bad_studies import GOOD
from trainer import Outcome, Recipe

SAMPLERS = ("tpe", "nsga2", "qmc", "random", "grid")
SPACE = """
space:
  recipe.wd_drop_exact: {float: [0.1, 0.5], step: 0.1, when: {recipe.wd_drop: 0.1}}
  recipe.wd_drop: {choice: [1.0, 0.1]}
  recipe.fade_end: {int: [1000, 9000], after: recipe.fade_start, step: 4000}
  recipe.curriculum: {choice: [[], [[3, 2000], [6, 5000]]]}
  model.qk_dim: {choice: [3, 4]}
"""  # a grid of 72
LINE = "space: {recipe.lr: {float: [0, 1]}, recipe.clip: {float: [0, 1]}}\n"


def proposals_of(
    storage: BaseStorage, name: str = "tpe", count: int | None = 24, space: str = SPACE, more: str = ""
) -> Proposals:
    given = f"sampler: {{name: {name}, configurations: {'null' if count is None else count}{more}}}\n"
    home = SimpleNamespace(records_url=storage)
    return Proposals(parse_study(GOOD + space + given, "test"), cast(Home, home))


def row(outcome: Outcome = Outcome.FAILED, token: float | None = 0.5, step: int | None = None) -> Row:
    return {"outcome": outcome, "best_token": token, "grok_step": step}


def asked(proposals: Proposals, most: int = 1_000) -> list[Configuration]:
    """Ask and tell, at most so often."""
    found: list[Configuration] = []
    while len(found) < most and (configuration := proposals.ask()) is not None:
        found.append(configuration)
        proposals.tell(configuration, [row(token=configuration.recipe.lr % 1)])
    return found


def numbers(proposals: Proposals) -> list[dict[str, Any]]:
    return [t.params for t in proposals.optuna.get_trials(deepcopy=False)]


# What is proposed


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_knows_lists_lengths_and_conditions(name: str) -> None:
    proposals = proposals_of(InMemoryStorage(), name)
    found = asked(proposals)
    assert len(found) == 24 and proposals.exhausted and proposals.ask() is None
    assert {t.state for t in proposals.optuna.trials} == {TrialState.COMPLETE}
    for configuration, sampled in zip(found, numbers(proposals), strict=True):
        recipe = configuration.recipe
        assert ("recipe.wd_drop_exact" in sampled) == (recipe.wd_drop == 0.1)
        assert recipe.wd_drop_exact in ((0.1, 0.2, 0.3, 0.4, 0.5) if recipe.wd_drop == 0.1 else (0.02,))
        assert recipe.fade_end == 15_000 + sampled["recipe.fade_end"] and recipe.fade_end % 4_000 == 0
        assert sampled["recipe.curriculum"] == str([list(stage) for stage in recipe.curriculum])
    assert {c.recipe.curriculum for c in found} == {(), ((3, 2000), (6, 5000))}
    assert len({c.recipe.wd_drop_exact for c in found}) > 2


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_search_goes_on_half_way_and_does_not_begin_again(name: str) -> None:
    storage = InMemoryStorage()
    space = SPACE if name == "grid" else LINE
    first = asked(proposals_of(storage, name, space=space), 10)
    open_ = proposals_of(storage, name, space=space).ask()
    again = proposals_of(storage, name, space=space)
    rest = asked(again)
    assert again.told() == list(dict.fromkeys((*first, *rest)))
    assert rest[0] == open_ and len(rest) == 14, "what a dead driver asked for comes first"
    assert not set(first).issuperset(rest[1:])
    assert name == "nsga2" or len({*first, *rest}) == 24, "a child may be its parent again"
    assert all(t.state == TrialState.COMPLETE for t in again.optuna.trials)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_proposal_that_was_never_whole_is_replaced(name: str) -> None:
    """Its driver died between asking for a trial and drawing its values."""
    storage = InMemoryStorage()
    proposals_of(storage, name).optuna.ask()
    proposals = proposals_of(storage, name)
    assert len(asked(proposals)) == 24
    assert [t.state for t in proposals.optuna.trials] == [TrialState.FAIL] + [TrialState.COMPLETE] * 24


@pytest.mark.parametrize("breaks", [(), (1,), (5, 40, 20)])
def test_a_grid_is_gone_through_once(breaks: tuple[int, ...]) -> None:
    storage = InMemoryStorage()
    for most in (*breaks, 1_000):
        asked(proposals_of(storage, "grid", None), most)
    last = proposals_of(storage, "grid", None)
    every = {frozenset(p.items()) for p in points(last.study.space)}
    assert last.exhausted and last.planned == 72 == len(numbers(last))
    assert {frozenset(n.items()) for n in numbers(last)} == every


def test_a_part_of_a_grid_is_spread_over_it() -> None:
    proposals = proposals_of(InMemoryStorage(), "grid", 20)
    found = asked(proposals)
    assert len({c.key for c in found}) == 20
    assert {c.spec.as_dict()["qk_dim"] for c in found} == {3, 4}
    assert {c.recipe.wd_drop for c in found} == {0.1, 1.0}


@pytest.mark.parametrize("breaks", [(), (1,), (7, 3)])
def test_qmc_is_one_sequence_however_often_it_is_interrupted(breaks: tuple[int, ...]) -> None:
    """Of sixteen points of Sobol's sequence, each sixteenth of each axis has one."""
    storage = InMemoryStorage()
    for most in (*breaks, 16):
        asked(proposals_of(storage, "qmc", 16, LINE), most)
    found = numbers(proposals_of(storage, "qmc", 16, LINE))
    for path in ("recipe.lr", "recipe.clip"):
        assert sorted(int(16 * n[path]) for n in found) == list(range(16))


def test_a_sampler_may_change_between_runs() -> None:
    storage = InMemoryStorage()
    asked(proposals_of(storage, "random", 10))
    assert len(asked(proposals_of(storage, "tpe", 24))) == 14


def test_what_is_told_late_can_be_a_parent() -> None:
    """Of a generation's last proposals the best is told when the next has begun."""
    proposals = proposals_of(InMemoryStorage(), "nsga2", 40, LINE)
    first = [proposals.ask() for _ in range(16)]
    (*early, late) = [c for c in first if c is not None]
    for configuration in early:
        proposals.tell(configuration, [row()])
    asked(proposals, 1)
    proposals.tell(late, [row(Outcome.GROKKED, 1.0, 100)])
    asked(proposals, 20)
    sampler: Any = proposals.optuna.sampler
    assert late.recipe.lr in [
        t.params["recipe.lr"] for t in sampler.get_parent_population(proposals.optuna, 2)
    ]


# What is told


def test_one_objective_or_two() -> None:
    one, two, turned = (
        proposals_of(InMemoryStorage(), space=space, more=more)
        for space, more in ((LINE, ""), (SPACE, ""), (SPACE, ", objectives: [params, grok_rate]"))
    )
    for proposals in (one, two, turned):
        configuration = proposals.ask()
        assert configuration
        proposals.tell(configuration, [row()])
    assert one.optuna.trials[0].values == [objective([row()], Recipe())]
    params = one.study.spec().params
    assert two.optuna.trials[0].values[1] in (params, params + 6)
    assert turned.optuna.trials[0].values == two.optuna.trials[0].values[::-1]
    assert [d.name for d in turned.optuna.directions] == ["MINIMIZE", "MAXIMIZE"]


# A file that changed (search/extension.py)

NARROW = "space: {recipe.lr: {float: [0.01, 0.02]}, model.qk_dim: {choice: [3, 4]}}\n"


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
def test_a_wider_space_goes_on_with_all_that_was_proposed(space: str) -> None:
    storage = InMemoryStorage()
    first = proposals_of(storage, space=NARROW)
    told = asked(first, 6)
    open_ = first.ask()
    values = [t.values for t in first.optuna.trials[:6]]
    for _ in range(2):  # and once more by the same file
        again = proposals_of(storage, count=30, space=space)
        assert again.told() == list(dict.fromkeys(told))
        assert [t.values for t in again.optuna.trials[:6]] == values
    found = asked(again)
    assert found[0] == open_ and len(again.optuna.trials) == 30
    assert {t.state for t in again.optuna.trials} == {TrialState.COMPLETE}
    fields = {path for t in again.optuna.trials for path in t.params}
    assert fields == set(again.study.space)


def test_a_copy_that_was_cut_off_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, wider = InMemoryStorage(), NARROW.replace("[3, 4]", "[3, 4, 5]")
    asked(proposals_of(storage, space=NARROW), 5)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(optuna.Study, "set_user_attr", dies)
        with pytest.raises(KeyboardInterrupt):
            proposals_of(storage, space=wider)
    again = proposals_of(storage, space=wider)
    assert len(again.told()) == 5 and len(again.optuna.trials) == 5
    assert len(asked(again)) == 19


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        (NARROW.replace("[0.01, 0.02]", "[0.5, 0.6]"), "space: an earlier proposal had recipe.lr 0.01"),
        (NARROW.replace("[3, 4]", "[5]"), "space: an earlier proposal had model.qk_dim "),
        ("space: {recipe.lr: {float: [0.01, 0.02]}}\n", "space: an earlier proposal had model.qk_dim "),
        (
            NARROW.replace("}}", "}, recipe.clip: {float: [2, 3]}}"),
            "had recipe.clip 1.0, which this space has",
        ),
        (NARROW + "recipe: {batch: 32}\n", "model or recipe: not what it was begun with"),
    ],
)
def test_a_search_whose_proposals_would_be_incomparable_is_refused(space: str, problem: str) -> None:
    storage = InMemoryStorage()
    asked(proposals_of(storage, space=NARROW), 8)
    with pytest.raises(UserError, match=f"study x: .*{re.escape(problem)}.*; give the study a new name, or"):
        proposals_of(storage, space=space)
    assert len(asked(proposals_of(storage, space=NARROW))) == 16


def test_another_objective_is_told_of_what_is_known() -> None:
    storage = InMemoryStorage()
    asked(proposals_of(storage), 3)
    again = proposals_of(storage, more=", objectives: [grok_rate]")
    assert [len(t.values) for t in again.optuna.trials] == [1, 1, 1]
    assert len(asked(again)) == 21


def test_what_crashed_is_closed_and_proposed_again_by_the_next_run() -> None:
    storage = InMemoryStorage()
    first = proposals_of(storage, count=4, space=LINE)
    asked(first, 2)
    crashed = first.ask()
    assert crashed is not None
    first.tell(crashed, [row(), row(Outcome.CENSORED)])
    assert [t.state for t in first.optuna.trials][2] == TrialState.RUNNING
    first.give_up()
    assert TrialState.RUNNING not in {t.state for t in first.optuna.trials}
    again = proposals_of(storage, count=4, space=LINE)
    assert asked(again)[0] == crashed and len(again.told()) == 4
    states = [t.state for t in again.optuna.trials]
    assert (states.count(TrialState.COMPLETE), states.count(TrialState.FAIL)) == (4, 1)
    assert asked(proposals_of(storage, count=4, space=LINE)) == []


# The objective

RECIPE = Recipe(steps=1000)
ROWS = st.lists(
    st.builds(
        row,
        st.sampled_from([o for o in Outcome if o != Outcome.GROKKED]),
        st.none() | st.just(math.nan) | st.floats(0, 1),
    )
    | st.builds(row, st.just(Outcome.GROKKED), st.floats(0, 1), st.integers(0, 1000)),
    max_size=20,
)


@given(ROWS)
def test_the_objective_is_a_share(rows: list[Row]) -> None:
    assert 0 <= objective(rows, RECIPE) < 1


@given(ROWS, st.data())
def test_one_more_grokked_seed_is_better_whatever_else(rows: list[Row], data: st.DataObject) -> None:
    counted = [r for r in rows if r["outcome"] not in (Outcome.QUEUED, Outcome.RUNNING, Outcome.CENSORED)]
    failed = [i for i, r in enumerate(counted) if r["outcome"] != Outcome.GROKKED]
    if not failed:
        return
    worse = [r | {"best_token": data.draw(st.floats(0, 1))} for r in counted]
    worse = [r | {"grok_step": 1000} if r["outcome"] == Outcome.GROKKED else r for r in worse]
    worse[failed[0]] |= {"outcome": Outcome.GROKKED, "grok_step": 1000}
    assert objective(worse, RECIPE) > objective(counted, RECIPE)


def test_token_accuracy_breaks_a_tie_and_then_the_grok_step() -> None:
    def of(grokked: int, token: float, step: int) -> float:
        rows = [row(Outcome.GROKKED, 1.0, step)] * grokked + [row(token=token)] * (16 - grokked)
        return objective(rows, RECIPE)

    in_order = [of(0, 0, 0), of(0, 0.2, 0), of(0, 1, 0), of(1, 0, 1000), of(1, 0.5, 1000), of(1, 0.5, 900),
                of(1, 0.5, 100), of(1, 0.502, 1000), of(1, 1, 100), of(2, 0, 1000)]  # fmt: skip
    assert in_order == sorted(in_order) and len(set(in_order)) == len(in_order)
    assert of(0, 0.3, 0) == of(0, 0.3, 900) and of(0, 1, 0) < 1 / 18


def test_the_objective_is_the_posterior_mean() -> None:
    """A prior of Beta(t, 2 - t), where t is all but the mean token accuracy."""
    rows = [row(Outcome.GROKKED, 1.0, 1000)] * 3 + [row(token=0.2)] * 7
    assert objective(rows, RECIPE) == pytest.approx((3 + 0.44) / (10 + 2), abs=1e-3)
    assert objective([], RECIPE) == 0


def test_seeds_under_way_do_not_count() -> None:
    final = [row(Outcome.GROKKED, 1.0, 5)]
    extra = [row(o, 0.1) for o in (Outcome.CENSORED, Outcome.RUNNING, Outcome.QUEUED)]
    assert objective(final + extra, RECIPE) == objective(final, RECIPE)


# Evidence

measure = cache(sampling.measure)


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_samplers_find_what_was_planted_more_often_than_chance(name: str) -> None:
    """A recipe within 80 % of the best rate, among 60 proposals, in 20 repetitions."""
    found, chance = (sum(n is not None for n in measure(s)["found"]) for s in (name, "random"))
    assert found > chance


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_samplers_cover_more_of_the_front_than_chance(name: str) -> None:
    """Architectures of two objectives: more of the area below the front in most of 20 repetitions."""
    pairs = zip(measure(name)["covered"], measure("random")["covered"], strict=True)
    assert sum(mine > chance for mine, chance in pairs) > 10


def test_the_benchmark_is_right_about_what_can_be_found() -> None:
    assert sampling.found_after([0.1, 0.39, 0.4, 0.5]) == 3 and sampling.found_after([0.3]) is None
    assert sampling.covered([(3, 0.5), (2, 0.25), (9, 1.0)], 4) == 0.25 + 0.5 + 0.5
    best = sampling.possible(sampling.PROBLEMS["architecture"])
    assert len(best) == 256 and max(rate for _, rate in best) > 0.85
