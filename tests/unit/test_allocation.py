"""The objective; seeds go to what is open, the best are confirmed on fresh ones; simulated studies gain."""

from dataclasses import replace

import pytest

from search.run.allocation import ConfigurationScore, objective, select_for_confirmation
from search.stats.counting import GrokRate
from tests.planners import finish, numbers, planner_of, row_of, rows_of, taken
from tests.searches import row
from trainer import Outcome, Recipe


def standing(grokked, n, params):
    return ConfigurationScore(GrokRate(grokked, n), params, grokked / (n + 2))


FOUND = {
    "a": standing(8, 16, 50), "b": standing(6, 16, 60), "c": standing(12, 16, 70), "d": standing(0, 16, 40),
    "e": standing(12, 16, 80), "f": standing(1, 16, 55),
}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "by_size", "expected"),
    [
        (FOUND, False, "ceabf"),  # the rate alone: of equals the first key, and none without a success
        (FOUND, True, "caebf"),  # the front, then that of the others
        (dict.fromkeys("yxz", FOUND["e"]), True, "xyz"),  # equal points are on a front together
        (dict.fromkeys("yxz", FOUND["e"]), False, "xyz"),
    ],
)
def test_the_best_are_chosen_by_what_is_sought_until_there_are_enough(found, by_size, expected):
    for count in range(1, 9):
        for order in (found, dict(reversed(found.items()))):
            assert "".join(select_for_confirmation(order, count, by_size)) == expected[:count]


STUDY = """
name: allotted
model: 57p
recipe: {steps: 1000}
configurations: [{recipe: {lr: 0.01}}, {recipe: {lr: 0.02}}, {recipe: {lr: 0.04}}]
seeds: {first: 1, count: 8}
allocation: {threshold: 0.3, most: 24}
confirm: {configurations: 1, seeds: {first: 101, count: 8}}
"""
RATES = {0.01: 0, 0.02: 3, 0.04: 8}
"""How many of each eight seeds grok, by their learning rate."""


def run(planner, rates, key=lambda c: c.recipe.lr):
    """Run a plan to its end. Seeds grok by their learning rate, or another key: the first so many of each eight.

    Returns the pairs in the order in which they were trained, and their rows.
    """

    def outcome_of(pair):
        return Outcome.GROKKED if pair.seed.init_seed % 8 < rates[key(pair.configuration)] else Outcome.FAILED

    trained, _ = finish(planner, outcome_of)
    return [pair for pairs in trained for pair in pairs], rows_of(trained, outcome_of)


def by_lr(pairs):
    found = {}
    for pair in pairs:
        found.setdefault((pair.configuration.recipe.lr, pair.confirmation), []).append(pair.seed.init_seed)
    return found


def test_open_configurations_get_more_and_the_best_is_confirmed(home):
    pairs, rows = run(planner_of(STUDY, home, ahead=1), RATES)
    found = by_lr(pairs)
    assert found[0.01, False] == list(range(1, 17)), "0 of 8 may be 30 %, 0 of 16 may not"
    assert found[0.02, False] == list(range(1, 25)), "3 of 8 are neither surely more than 30 % nor less"
    assert found[0.04, False] == list(range(1, 17)), "8 of 8 are, but 3 of 8 might be as good"
    assert {k: v for k, v in found.items() if k[1]} == {(0.04, True): list(range(101, 109))}
    assert [p.confirmation for p in pairs] == sorted(p.confirmation for p in pairs), "at the end"
    again = planner_of(STUDY, home, rows)
    assert again.is_done and not again.take("a")


SIZES = """
name: sizes
model: 57p
recipe: {steps: 1000}
space: {model.tie_vo: {choice: [on, off]}, recipe.lr: {choice: [0.02, 0.04]}}
sampler: {name: grid, objectives: %s}
seeds: {first: 1, count: 8}
confirm: {configurations: 2, seeds: {first: 101, count: 8}}
"""


@pytest.mark.parametrize(
    ("objectives", "confirmed"),
    [("[grok_rate]", {(0.04, 67), (0.02, 67)}), ("[grok_rate, params]", {(0.04, 67), (0.04, 57)})],
)
def test_sizes_matter_only_where_the_search_seeks_few_parameters(objectives, confirmed, home):
    def of(configuration):
        return configuration.recipe.lr, configuration.spec.params

    rates = {(0.04, 67): 8, (0.02, 67): 7, (0.04, 57): 3, (0.02, 57): 1}
    pairs, _ = run(planner_of(SIZES % objectives, home, ahead=1), rates, of)
    assert {of(pair.configuration) for pair in pairs if pair.confirmation} == confirmed


def test_a_budget_bounds_the_search_and_not_the_confirmation(home):
    text = STUDY.replace("most: 24", "most: 24, budget: 32")
    _, rows = run(planner_of(text, home, ahead=1), {0.01: 1, 0.02: 3, 0.04: 2})
    assert sum(not r["confirmation"] for r in rows) == 32 and sum(r["confirmation"] for r in rows) == 8


def test_what_was_chosen_for_confirmation_stays_chosen(home):
    """However bad its fresh seeds are: the choice is the search's alone."""
    _, rows = run(planner_of(STUDY, home, ahead=1), RATES)
    fresh = [replace(r, outcome=Outcome.FAILED) if r.confirmation else r for r in rows]
    assert planner_of(STUDY, home, fresh).is_done
    half = [r for r in fresh if not r["confirmation"] or r["init_seed"] < 104]
    rest = taken(planner_of(STUDY, home, half, ahead=1))
    assert numbers(rest) == list(range(104, 109)) and all(pair.confirmation for pair in rest)


def test_after_an_extension_a_new_best_is_confirmed_beside_the_earlier_one(home):
    more = STUDY.replace("allocation: {threshold: 0.3, most: 24}\n", "")
    two = more.replace(", {recipe: {lr: 0.04}}", "")
    _, rows = run(planner_of(two, home, ahead=1), RATES)
    added = by_lr(run(planner_of(more, home, rows, ahead=1), RATES)[0])
    assert added == {(0.04, False): list(range(1, 9)), (0.04, True): list(range(101, 109))}


def test_a_configuration_of_which_a_seed_failed_waits_for_the_next_run(home):
    """A failure is no verdict: it draws no more seeds, and the next run trains the same again."""
    planner = planner_of(STUDY + "faults: {max_failures: 0}\n", home, ahead=1)
    failed, rows = [], []
    while pairs := taken(planner):
        lost = planner.give_back("a", has_failed=True)
        assert lost == pairs
        rows += [row_of(pair, Outcome.CENSORED) for pair in lost]
        planner.complete(lost, rows[-len(lost) :])
        failed += lost
    assert len(failed) == 24 and planner.is_done
    again = taken(planner_of(STUDY, home, rows, ahead=1))
    assert [pair.key for pair in again] == [pair.key for pair in failed[: len(again)]]


# The objective

RECIPE = Recipe(steps=1000)


def test_the_objective_is_the_posterior_mean():
    """A prior of Beta(t, 2 - t), where t is all but the mean token accuracy."""
    rows = [row(Outcome.GROKKED, 1.0, 1000)] * 3 + [row(token=0.2)] * 7
    assert objective(rows, RECIPE) == pytest.approx((3 + 0.44) / (10 + 2), abs=1e-3)
    assert objective([], RECIPE) == 0
