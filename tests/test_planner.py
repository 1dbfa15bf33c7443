"""What to train next: rounds, trials, resuming, and proposals in a real ledger."""

import pytest

from search.errors import UserError
from search.run import estimate
from search.study.file import parse_study
from search.study.trial import Configuration
from tests.planners import (
    FEW,
    IMPOSSIBLE,
    ROUNDS,
    SEARCH,
    SWEEP,
    drain,
    finish,
    numbers,
    only,
    planner_of,
    rows_of,
    states,
)
from trainer import Outcome

GROKKED = {"outcome": Outcome.GROKKED, "grok_step": 500}

# ---- a sweep


def test_seeds_are_packed(home):
    planner = planner_of(SWEEP, home)
    trials = drain(planner)
    assert numbers(trials) == [[1, 2], [3, 4], [5]]
    assert len({t.key for t in trials}) == 3 and len({only(t) for t in trials}) == 1
    assert not planner.is_done
    assert planner.complete_trial(trials[1], rows_of(trials[1])) == []
    assert planner.next() is None
    assert planner.complete_trial(trials[0], rows_of(trials[0])) == []
    assert planner.complete_trial(trials[2], rows_of(trials[2])) == [only(trials[0])]
    assert planner.is_done and planner.next() is None


def test_no_round_waits_for_the_one_before(home):
    """Whoever asks for work gets of the next round, as long as there is one."""
    planner = planner_of(ROUNDS, home)
    assert numbers([planner.next() for _ in range(3)]) == [[1, 2], [3, 4], [5]]
    second = drain(planner)
    assert numbers(second) == [[6, 7], [8, 9], [10, 11], [12]]


def test_rounds_end_at_the_limit(home):
    trials, ended = finish(planner_of(ROUNDS, home))
    assert [n for trial in numbers(trials) for n in trial] == list(range(1, 13)) and len(ended) == 1


@pytest.mark.parametrize(("grokked", "rounds"), [(0, 2), (1, 2), (2, 1), (3, 1)])
def test_rounds_follow_while_too_few_grokked(grokked, rounds, home):
    planner = planner_of(ROUNDS.replace("max_seeds: 12", "max_seeds: 10"), home)
    for trial in [planner.next() for _ in range(3)]:
        rows = rows_of(trial)
        for row in rows:
            row["outcome"] = Outcome.GROKKED if row["init_seed"] <= grokked else Outcome.FAILED
        planner.complete_trial(trial, rows)
    trials = drain(planner)
    assert planner.run.grokked == grokked and planner.run.enough == (grokked >= 2)
    assert numbers(trials) == ([[6, 7], [8, 9], [10]] if rounds == 2 else [])
    assert planner.is_done == (rounds == 1)


@pytest.mark.parametrize("is_confirmation", [False, True])
def test_seeds_that_confirm_do_not_count_towards_the_end_of_the_search(is_confirmation, home):
    """One grokked of the two that are asked for; and two more, which a confirmation had."""
    text = ROUNDS + "confirm: {seeds: [91, 92]}\n"
    first = drain(planner_of(SWEEP, home))
    rows = [r for t in first for r in rows_of(t)]
    rows[0] |= GROKKED
    more = [r | {"init_seed": n, "data_seed": n, **GROKKED, "confirmation": is_confirmation}
            for r, n in zip(rows, (91, 92), strict=False)]  # fmt: skip
    planner = planner_of(text, home, rows + more)
    assert (planner.run.grokked, planner.run.enough) == ((1, False) if is_confirmation else (3, True))
    assert numbers(drain(planner)) == ([[6, 7], [8, 9], [10], [11, 12]] if is_confirmation else [])


@pytest.mark.parametrize("outcome", [Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP])
def test_final_pairs_are_not_trained_again(outcome, home):
    trials = drain(planner_of(SWEEP, home))
    again = planner_of(SWEEP, home, rows_of(trials[0], outcome) + rows_of(trials[2], outcome))
    assert numbers(drain(again)) == [[3], [4]], "one for each core"
    every = [row for t in trials for row in rows_of(t, outcome)]
    done = planner_of(SWEEP, home, every)
    assert done.is_done and done.complete_before == [only(trials[0])]


@pytest.mark.parametrize("outcome", [Outcome.CENSORED, Outcome.RUNNING, Outcome.QUEUED])
def test_pairs_that_were_interrupted_are_trained_again(outcome, home):
    trials = drain(planner_of(SWEEP, home))
    again = planner_of(SWEEP, home, rows_of(trials[0], outcome) + rows_of(trials[1]))
    found = drain(again)
    assert numbers(found) == [[1, 2], [5]]
    assert found[0].key == trials[0].key, "its bank's state is found under the trial's key"


def test_a_study_with_a_higher_limit_goes_on(home):
    trials, _ = finish(planner_of(SWEEP, home))
    rows = [row for t in trials for row in rows_of(t)]
    assert numbers(drain(planner_of(ROUNDS, home, rows))) == [[6, 7], [8, 9], [10], [11, 12]]


def test_another_recipe_is_another_configuration(home):
    trials, _ = finish(planner_of(SWEEP, home))
    rows = [row for t in trials for row in rows_of(t)]
    changed = SWEEP.replace("steps: 1000", "steps: 2000")
    assert numbers(drain(planner_of(changed, home, rows))) == [[1, 2], [3, 4], [5]]


# ---- a search


def test_every_proposal_gets_its_seeds_and_an_objective(home):
    planner = planner_of(SEARCH, home)
    trials, ended = finish(planner)
    assert len(ended) == 4 and len({c.key for c in ended}) == 4
    for configuration in ended:
        mine = [s.init_seed for t in trials for c, s in t.work if c == configuration]
        assert mine == [1, 2, 3]
        assert 3 <= configuration.spec.query_dim <= 5 and 0.001 <= configuration.recipe.lr <= 0.1
    found = planner.search.proposals.trials()
    assert states(planner) == ["COMPLETE"] * 4
    assert all(t.values[0] == pytest.approx(0.5 / 5, rel=0.01) for t in found)
    assert [t.values[1] for t in found] == [c.spec.params for c in ended]


def test_only_so_many_configurations_are_open_at_once(home):
    planner = planner_of(SEARCH, home, ahead=2)
    trials = drain(planner)
    assert len({c for t in trials for c in t.configurations}) == 2
    for trial in trials[:2]:
        planner.complete_trial(trial, rows_of(trial))
    assert len({c for t in drain(planner) for c in t.configurations}) == 1


def test_no_proposals_follow_once_enough_grokked(home):
    text = SEARCH + "until: {grokked: 3}\n"
    planner = planner_of(text, home, ahead=2)
    one, *others = drain(planner)
    rows = rows_of(one, Outcome.GROKKED)
    for trial in others[:1]:
        rows += rows_of(trial, Outcome.GROKKED)
    planner.complete_trial(one, rows)
    assert planner.run.enough and {c for t in others for c in t.configurations} != {only(one)}
    again = planner_of(text, home, rows)
    assert again.is_done and again.next() is None, "what was proposed and not begun is left"


def test_proposals_of_a_dead_driver_are_taken_up_again(home):
    dead = planner_of(SEARCH, home)
    asked = list(dict.fromkeys(c for t in drain(dead) for c in t.configurations))
    assert len(asked) == 2 and states(dead) == ["RUNNING"] * 2
    del dead
    again = planner_of(SEARCH, home)
    trials, ended = finish(again)
    assert set(asked) < set(ended) and len(ended) == 4
    assert trials[0].configurations[0] == asked[0], "they come first"
    assert states(again) == ["COMPLETE"] * 4


def test_a_proposal_is_noted_once(home):
    """A driver whose database went away before it answered notes it again."""
    planner = planner_of(SEARCH, home)
    planner.next()
    ledger = planner.search.proposals.ledger
    before = ledger.list_proposals("search")
    (configuration, *_) = planner.search.proposals.proposed()
    assert before[0]["configuration"] == configuration.key and before[0]["numbers"]["recipe.lr"] > 0
    ledger.create_proposal("search", 0, configuration, before[0]["numbers"])
    assert ledger.list_proposals("search") == before and len(ledger.list_configurations("search")) == len(
        before
    )
    with pytest.raises(UserError, match="proposal 0 was just taken by another driver"):
        ledger.create_proposal("search", 0, None, before[0]["numbers"])


def test_a_finished_search_is_done(home):
    trials, _ = finish(planner_of(SEARCH, home))
    rows = [r for t in trials for r in rows_of(t)]
    again = planner_of(SEARCH, home, rows)
    assert again.is_done and again.next() is None
    with pytest.raises(UserError, match="model or recipe: not what it was begun with; give the study a new"):
        planner_of(SEARCH.replace("steps: 1000", "steps: 2000"), home, rows)
    more = SEARCH.replace("configurations: 4", "configurations: 5")
    assert len(finish(planner_of(more, home, rows))[1]) == 1


def test_repeated_proposals_share_a_result(home):
    """Six proposals of two possible values: two configurations, each trained once."""
    planner = planner_of(FEW, home, ahead=3)
    trials, ended = finish(planner)
    assert len({t.key for t in trials}) == len(trials) and sum(len(t.work) for t in trials) == 6
    assert {c.recipe.hold for c in ended} <= {1, 2}
    assert states(planner) == ["COMPLETE"] * 6


def test_a_configuration_with_censored_seeds_stays_open_for_the_next_run(home):
    text = SEARCH.replace("configurations: 4", "configurations: 1")
    first = planner_of(text, home)
    one, other = drain(first)
    first.complete_trial(one, rows_of(one, Outcome.CENSORED))
    assert len(first.complete_trial(other, rows_of(other))) == 1 and first.is_done
    assert states(first) == ["RUNNING"]

    again = planner_of(text, home, rows_of(one, Outcome.CENSORED) + rows_of(other))
    assert numbers(finish(again)[0]) == [[1], [2]]
    assert states(again) == ["COMPLETE"]


def test_impossible_combinations_are_dropped(home):
    """eval_every must divide steps: of the draws here one does, the others are told as failed."""
    planner = planner_of(IMPOSSIBLE, home)
    _, ended = finish(planner)
    drawn = {t.params["recipe.steps"]: t.state.name for t in planner.search.proposals.trials()}
    possible = {steps for steps in drawn if steps % 1000 == 0}
    assert {c.recipe.steps for c in ended} == possible and 0 < len(possible) < len(drawn)
    assert {s for s in drawn if drawn[s] == "COMPLETE"} == possible
    assert set(drawn.values()) == {"COMPLETE", "FAIL"}


def test_a_wider_space_is_an_edited_file(home):
    trials, _ = finish(planner_of(FEW, home))
    rows = [r for t in trials for r in rows_of(t)]
    wider = FEW.replace("[1, 2]", "[1, 2, 3]").replace("configurations: 6", "configurations: 12")
    again = planner_of(wider, home, rows)
    new, _ = finish(again)
    assert {only(t).recipe.hold for t in new} == {3}, "what is recorded is not trained again"
    assert states(again) == ["COMPLETE"] * 12
    assert again.is_done and planner_of(wider, home, rows + [r for t in new for r in rows_of(t)]).is_done


# ---- keys and plans


def test_configurations_have_stable_keys(home):
    (one, *_) = drain(planner_of(SWEEP, home))
    (same, *_) = drain(planner_of(SWEEP, home))
    assert one.key == same.key and only(one).key == only(same).key
    assert numbers([one]) == [[1, 2]]


def test_a_plan_subtracts_only_its_own_seeds(home):
    study = parse_study(SWEEP, "sweep.yaml")
    trials, _ = finish(planner_of(SWEEP, home))
    rows = [r for trial in trials for r in rows_of(trial)]
    (seeds,) = study.rounds()
    listed = [Configuration(*c) for c in study.listed()]
    assert estimate._seeds_to_train(study, listed, seeds, rows) == {listed[0]: 0} and len(rows) == 5
    edited = parse_study(SWEEP.replace("steps: 1000", "steps: 1000, lr: 0.01"), "sweep.yaml")
    assert list(
        estimate._seeds_to_train(edited, [Configuration(*c) for c in edited.listed()], seeds, rows).values()
    ) == [5]
