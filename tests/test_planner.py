"""What to train next: rounds, trials, resuming, and Optuna's proposals in a real database."""

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState

from search import texts
from search.errors import UserError
from search.home import Home
from search.plan import Configuration, Fits, Trial, trial_size
from search.planner import DONE, Planner, Proposals, objective
from search.study_file import parse_study
from trainer import Outcome, Seed

SWEEP = """
name: sweep
model: 57p
recipe: {steps: 1000}
seeds: {first: 1, count: 5}
resources: {seeds_per_trial: 2}
"""
ROUNDS = SWEEP + "until: {grokked: 2, max_seeds: 12}\n"
SEARCH = """
name: search
model: 57p
recipe: {steps: 1000}
seeds: {first: 1, count: 3}
resources: {seeds_per_trial: 2}
space: {recipe.lr: {float: [0.001, 0.1], log: true}, model.qk_dim: {int: [3, 5]}}
sampler: {name: random, configurations: 4, seed: 1}
"""
ONLY = SEARCH[: SEARCH.index("space: ")]
FEW = ONLY + "space: {recipe.hold: {choice: [1, 2]}}\nsampler: {name: tpe, configurations: 6}\n"
IMPOSSIBLE = (
    ONLY
    + """
space: {recipe.steps: {int: [1000, 2000]}}
sampler: {name: random, configurations: 20, seed: 1}
"""
)


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.create()
    return home


def planner_of(text, home, rows=(), ahead=2):
    planner = Planner(parse_study(text, "test"), list(rows), home)
    planner.fits = Fits(ahead)
    return planner


def rows_of(trial, outcome=Outcome.FAILED, token=0.5):
    """The ledger's rows of a trial whose seeds have all ended so."""
    return [
        {
            "configuration": trial.configuration.key,
            "init_seed": seed.init_seed,
            "data_seed": seed.data_seed,
            "trial": trial.key,
            "outcome": outcome,
            "best_token": token,
        }
        for seed in trial.seeds
    ]


def drain(planner):
    """Every trial that can start now, and what `next` said after them."""
    trials = []
    while not isinstance(trial := planner.next(), str | None):
        trials.append(trial)
    return trials, trial


def finish(planner, outcome=Outcome.FAILED):
    """Run a plan to its end, one trial after the other. Returns trials and ended configurations."""
    trials, ended = [], []
    while (trial := planner.next()) != DONE:
        assert trial is not None
        trials.append(trial)
        ended += planner.tell(trial, rows_of(trial, outcome))
    return trials, ended


def numbers(trials):
    return [[s.init_seed for s in t.seeds] for t in trials]


def optuna_trials(home, name="search"):
    return optuna.load_study(study_name=name, storage=f"sqlite:///{home.records_db}").trials


# ---- a sweep


def test_seeds_are_packed(home):
    planner = planner_of(SWEEP, home)
    trials, then = drain(planner)
    assert numbers(trials) == [[1, 2], [3, 4], [5]] and then is None
    assert len({t.key for t in trials}) == 3 and len({t.configuration for t in trials}) == 1
    assert not planner.is_done
    assert planner.tell(trials[1], rows_of(trials[1])) == []
    assert planner.next() is None
    assert planner.tell(trials[0], rows_of(trials[0])) == []
    assert planner.tell(trials[2], rows_of(trials[2])) == [trials[0].configuration]
    assert planner.next() == planner.next() == DONE and planner.is_done


MANY = SWEEP.replace("count: 5", "count: 70").replace("resources: {seeds_per_trial: 2}\n", "")


@pytest.mark.parametrize(
    ("seeds", "concurrent", "size"),
    [(16, 1, 16), (16, 2, 8), (17, 2, 9), (64, 2, 32), (200, 2, 64), (3, 8, 1), (1, 1, 1), (5, 0, 5)],
)
def test_a_round_is_spread_over_the_trials_that_fit(seeds, concurrent, size):
    assert trial_size(parse_study(MANY, "test"), seeds, Fits(concurrent)) == (size, min(size, 16))


def test_a_gpus_trial_has_a_thousand_slots():
    study = parse_study(MANY, "test")
    assert trial_size(study, 10_000, Fits(1, on_gpu=True)) == (4_096, 1_024)
    assert trial_size(study, 10_000, Fits(4, on_gpu=True)) == (2_500, 1_024)
    asked = parse_study(MANY + "resources: {slots: 32}\n", "test")
    assert trial_size(asked, 10_000, Fits(1, on_gpu=True)) == (128, 32)


@pytest.mark.parametrize(("concurrent", "size"), [(1, 8), (2, 8), (4, 4), (8, 2)])
def test_configurations_share_what_fits(concurrent, size):
    """Two configurations on two cores: a whole round each, not halves of both."""
    text = "name: x\nmodel: 57p\nseeds: {first: 1, count: 8}\nconfigurations: [{model: 57p}, {model: 67p}]\n"
    assert trial_size(parse_study(text, "test"), 8, Fits(concurrent)) == (size, size)


@pytest.mark.parametrize(
    ("resources", "ahead", "sizes", "slots"),
    [
        ("{}", 1, [64, 6], 16),
        ("{}", 2, [35, 35], 16),
        ("{}", 8, [9, 9, 9, 9, 9, 9, 9, 7], 9),
        ("{slots: 40}", 2, [35, 35], 35),
        ("{slots: 4, seeds_per_trial: 30}", 2, [30, 30, 10], 4),
        ("{slots: 30, seeds_per_trial: 30}", 2, [30, 30, 10], 30),
    ],
)
def test_the_trials_of_a_round_have_equal_slots(resources, ahead, sizes, slots, home):
    planner = planner_of(MANY + f"resources: {resources}\n", home, ahead=ahead)
    trials, _ = drain(planner)
    assert [len(t.seeds) for t in trials] == sizes
    assert {t.slots for t in trials} == {slots}
    assert [n for trial in numbers(trials) for n in trial] == list(range(1, 71)), "in order"


def test_rounds_are_not_cut_before_it_is_known_what_fits(home):
    planner = planner_of(MANY, home, ahead=1)
    assert not planner.is_done and planner.queued_steps == 70 * 1000
    planner.fits = Fits(4)
    trials, _ = drain(planner)
    assert [len(t.seeds) for t in trials] == [18, 18, 18, 16] and planner.queued_steps == 0
    again = planner_of(MANY, home, rows_of(trials[1]))
    assert again.queued_steps == 52 * 1000
    again.next()
    assert again.queued_steps == 34 * 1000, "those of the second 35 seeds that are left"


@pytest.mark.parametrize("ended", [[0], [1], [3], [0, 2], [1, 2, 3], []])
def test_after_an_interruption_the_trials_that_are_left_are_the_same(ended, home):
    trials, _ = drain(planner_of(MANY, home, ahead=4))
    rows = [r for i, t in enumerate(trials) for r in rows_of(t, Outcome.FAILED if i in ended else "censored")]
    again, _ = drain(planner_of(MANY, home, rows, ahead=4))
    left = [t for i, t in enumerate(trials) if i not in ended]
    assert again == left and [t.key for t in again] == [t.key for t in left]


def test_of_a_trial_with_ended_pairs_the_open_ones_are_left(home):
    """As when the study was first run with trials of another size."""
    trials, _ = drain(planner_of(MANY, home, ahead=4))
    rows = rows_of(trials[0])[:5] + rows_of(trials[1])[::2] + rows_of(trials[3])
    again, _ = drain(planner_of(MANY, home, rows, ahead=4))
    assert numbers(again) == [list(range(6, 19)), list(range(20, 37, 2)), list(range(37, 55))]
    assert {t.slots for t in again} == {16}, "as many as the whole trial would have"
    assert [t.key == whole.key for t, whole in zip(again, trials, strict=False)] == [False, False, True]


def test_the_next_round_is_cut_by_itself(home):
    text = ROUNDS.replace("resources: {seeds_per_trial: 2}\n", "")
    trials, _ = finish(planner_of(text, home, ahead=2))
    assert numbers(trials) == [[1, 2, 3], [4, 5], [6, 7, 8], [9, 10], [11], [12]]
    assert [t.slots for t in trials] == [3, 3, 3, 3, 1, 1]


def test_a_trial_comes_back_as_it_was_written(home, tmp_path):
    text = SWEEP.replace("seeds_per_trial: 2", "slots: 2, seeds_per_trial: 3") + "stop: {hopeless: off}\n"
    trial = planner_of(text, home, ahead=1).next()
    trial.write(tmp_path / "trial")
    assert Trial.read(tmp_path / "trial") == trial
    assert (trial.slots, len(trial.seeds), trial.stop.hopeless) == (2, 3, False)


def test_a_trials_key_is_that_of_its_pairs_and_slots(home):
    def key(text):
        return planner_of(text, home, ahead=1).next().key

    assert key(SWEEP) == key(SWEEP + "stop: {hopeless: off}\n"), "a resumed trial may change it"
    assert key(SWEEP) == key(SWEEP.replace("{seeds_per_trial: 2}", "{seeds_per_trial: 2, save_every: 1}"))
    assert key(SWEEP) != key(SWEEP.replace("{seeds_per_trial: 2}", "{seeds_per_trial: 2, slots: 1}"))
    assert key(SWEEP) != key(SWEEP.replace("first: 1", "first: 2"))


def test_a_round_waits_for_the_one_before(home):
    planner = planner_of(ROUNDS, home)
    first, then = drain(planner)
    assert numbers(first) == [[1, 2], [3, 4], [5]] and then is None
    for trial in first[:-1]:
        assert planner.tell(trial, rows_of(trial)) == []
        assert planner.next() is None
    planner.tell(first[-1], rows_of(first[-1]))
    assert numbers(drain(planner)[0]) == [[6, 7], [8, 9], [10]]


def test_rounds_end_at_the_limit(home):
    trials, ended = finish(planner_of(ROUNDS, home))
    assert [n for trial in numbers(trials) for n in trial] == list(range(1, 13)) and len(ended) == 1


@pytest.mark.parametrize(("grokked", "rounds"), [(0, 2), (1, 2), (2, 1), (3, 1)])
def test_rounds_follow_while_too_few_grokked(grokked, rounds, home):
    planner = planner_of(ROUNDS, home)
    for trial in drain(planner)[0]:
        rows = rows_of(trial)
        for row in rows:
            row["outcome"] = Outcome.GROKKED if row["init_seed"] <= grokked else Outcome.FAILED
        planner.tell(trial, rows)
    trials, then = drain(planner)
    assert planner.grokked == grokked and planner.enough == (grokked >= 2)
    assert numbers(trials) == ([[6, 7], [8, 9], [10]] if rounds == 2 else [])
    assert then == (None if rounds == 2 else DONE)


@pytest.mark.parametrize("outcome", [Outcome.GROKKED, Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP])
def test_final_pairs_are_not_trained_again(outcome, home):
    trials, _ = drain(planner_of(SWEEP, home))
    again = planner_of(SWEEP, home, rows_of(trials[0], outcome) + rows_of(trials[2], outcome))
    assert numbers(drain(again)[0]) == [[3, 4]]
    every = [row for t in trials for row in rows_of(t, outcome)]
    done = planner_of(SWEEP, home, every)
    assert done.next() == DONE and done.ended_before == [trials[0].configuration]


@pytest.mark.parametrize("outcome", [Outcome.CENSORED, Outcome.RUNNING, Outcome.QUEUED])
def test_pairs_that_were_interrupted_are_trained_again(outcome, home):
    trials, _ = drain(planner_of(SWEEP, home))
    again = planner_of(SWEEP, home, rows_of(trials[0], outcome) + rows_of(trials[1]))
    found = drain(again)[0]
    assert numbers(found) == [[1, 2], [5]]
    assert found[0].key == trials[0].key, "its bank's state is found under the trial's key"


def test_a_study_with_a_higher_limit_goes_on(home):
    trials, _ = finish(planner_of(SWEEP, home))
    rows = [row for t in trials for row in rows_of(t)]
    assert numbers(drain(planner_of(ROUNDS, home, rows))[0]) == [[6, 7], [8, 9], [10]]


def test_another_recipe_is_another_configuration(home):
    trials, _ = finish(planner_of(SWEEP, home))
    rows = [row for t in trials for row in rows_of(t)]
    changed = SWEEP.replace("steps: 1000", "steps: 2000")
    assert numbers(drain(planner_of(changed, home, rows))[0]) == [[1, 2], [3, 4], [5]]


# ---- a search


def test_every_proposal_gets_its_seeds_and_an_objective(home):
    trials, ended = finish(planner_of(SEARCH, home))
    assert len(ended) == 4 and len({c.key for c in ended}) == 4
    for configuration in ended:
        mine = [t for t in trials if t.configuration == configuration]
        assert numbers(mine) == [[1, 2], [3]]
        assert 3 <= configuration.spec.query_dim <= 5 and 0.001 <= configuration.recipe.lr <= 0.1
    found = optuna_trials(home)
    assert [t.state for t in found] == [TrialState.COMPLETE] * 4
    assert all(t.value == pytest.approx(0.5 / 5) for t in found)


def test_only_so_many_configurations_are_open_at_once(home):
    planner = planner_of(SEARCH, home, ahead=2)
    trials, then = drain(planner)
    assert len({t.configuration for t in trials}) == 2 and then is None
    for trial in trials[:2]:
        planner.tell(trial, rows_of(trial))
    assert len({t.configuration for t in drain(planner)[0]}) == 1


def test_no_proposals_follow_once_enough_grokked(home):
    _, ended = finish(planner_of(SEARCH + "until: {grokked: 3}\n", home, ahead=1), Outcome.GROKKED)
    assert len(ended) == 1


def test_proposals_of_a_dead_driver_are_taken_up_again(home):
    dead = planner_of(SEARCH, home)
    asked = {t.configuration.key for t in drain(dead)[0]}
    assert len(asked) == 2 and {t.state for t in optuna_trials(home)} == {TrialState.RUNNING}
    del dead
    trials, ended = finish(planner_of(SEARCH, home))
    assert asked < {c.key for c in ended} and len(ended) == 4
    assert trials[0].configuration.key in asked, "orphans come first"
    assert [t.state for t in optuna_trials(home)] == [TrialState.COMPLETE] * 4


def test_a_proposal_that_was_never_whole_is_dropped(home):
    """Its driver died between asking for a trial and drawing its values."""
    Proposals(parse_study(SEARCH, "test"), home).optuna.ask()
    _, ended = finish(planner_of(SEARCH, home))
    assert len(ended) == 3 and all(c.recipe.lr != 0.02 for c in ended)
    states = [t.state for t in optuna_trials(home)]
    assert states == [TrialState.FAIL] + [TrialState.COMPLETE] * 3


def test_a_finished_search_is_done(home):
    finish(planner_of(SEARCH, home))
    assert planner_of(SEARCH, home).is_done and planner_of(SEARCH, home).next() == DONE
    more = SEARCH.replace("configurations: 4", "configurations: 5")
    assert len(finish(planner_of(more, home))[1]) == 1


def test_repeated_proposals_share_a_result(home):
    """Six proposals of two possible values: two configurations, each trained once."""
    planner = planner_of(FEW, home, ahead=3)
    trials, ended = finish(planner)
    assert len({t.key for t in trials}) == len(trials) == 4
    assert {c.recipe.hold for c in ended} <= {1, 2}
    assert [t.state for t in optuna_trials(home)] == [TrialState.COMPLETE] * 6


def test_a_configuration_with_censored_seeds_stays_open_for_the_next_run(home):
    text = SEARCH.replace("configurations: 4", "configurations: 1")
    first = planner_of(text, home)
    one, other = drain(first)[0]
    first.tell(one, rows_of(one, Outcome.CENSORED))
    assert len(first.tell(other, rows_of(other))) == 1 and first.next() == DONE
    assert [t.state for t in optuna_trials(home)] == [TrialState.RUNNING]

    again = planner_of(text, home, rows_of(one, Outcome.CENSORED) + rows_of(other))
    assert numbers(finish(again)[0]) == [[1, 2]]
    assert [t.state for t in optuna_trials(home)] == [TrialState.COMPLETE]


def test_impossible_combinations_are_dropped(home):
    """eval_every must divide steps: of the draws here one does, the others are told as failed."""
    _, ended = finish(planner_of(IMPOSSIBLE, home))
    drawn = {t.params["recipe.steps"]: t.state for t in optuna_trials(home)}
    possible = {steps for steps in drawn if steps % 1000 == 0}
    assert {c.recipe.steps for c in ended} == possible and 0 < len(possible) < len(drawn)
    assert {s for s in drawn if drawn[s] == TrialState.COMPLETE} == possible
    assert set(drawn.values()) == {TrialState.COMPLETE, TrialState.FAIL}


def test_a_space_that_changed_under_the_same_name_is_refused(home):
    finish(planner_of(FEW, home))
    changed = FEW.replace("[1, 2]", "[1, 2, 3]").replace("configurations: 6", "configurations: 7")
    with pytest.raises(UserError, match="study search: space: not the one it was begun with"):
        planner_of(changed, home).next()
    assert not any(t.state == TrialState.RUNNING for t in optuna_trials(home))


# ---- the objective

ROWS = st.lists(
    st.fixed_dictionaries(
        {"outcome": st.sampled_from(list(Outcome)), "best_token": st.none() | st.floats(0, 1)}
    ),
    max_size=20,
)


@given(ROWS)
def test_the_objective_is_a_share(rows):
    assert 0 <= objective(rows) < 1


@given(ROWS, st.data())
def test_one_more_grokked_seed_is_better_whatever_the_tokens(rows, data):
    failed = [r for r in rows if r["outcome"] == Outcome.FAILED]
    counted = [r for r in rows if r["outcome"] not in (Outcome.QUEUED, Outcome.RUNNING, Outcome.CENSORED)]
    if not failed:
        return
    before = objective(counted)
    worse_tokens = [r | {"best_token": data.draw(st.floats(0, 1))} for r in counted]
    turned = next(i for i, r in enumerate(counted) if r["outcome"] == Outcome.FAILED)
    worse_tokens[turned] |= {"outcome": Outcome.GROKKED}
    assert objective(worse_tokens) > before


def test_tokens_break_a_tie():
    def rows(token):
        return [{"outcome": Outcome.FAILED, "best_token": token}] * 16

    assert objective(rows(0.2)) < objective(rows(0.3)) < objective(rows(1.0)) < 1 / 18


def test_seeds_under_way_do_not_count():
    final = [{"outcome": Outcome.GROKKED, "best_token": 1.0}]
    extra = [{"outcome": o, "best_token": 0.1} for o in (Outcome.CENSORED, Outcome.RUNNING, Outcome.QUEUED)]
    assert objective(final + extra) == objective(final)


def test_configurations_have_stable_keys(home):
    (one, *_), _ = drain(planner_of(SWEEP, home))
    (same, *_), _ = drain(planner_of(SWEEP, home))
    assert one.key == same.key and one.configuration.key == same.configuration.key
    assert one.seeds == (Seed.of(1), Seed.of(2))


def test_a_plan_subtracts_only_its_own_seeds(home):
    study = parse_study(SWEEP, "sweep.yaml")
    finish(planner := planner_of(SWEEP, home))
    rows = [r for key in planner.rounds for r in planner.rows_of(key)]
    (seeds,) = study.rounds()
    listed = [Configuration(*c) for c in study.listed()]
    assert texts._left(study, listed, seeds, rows) == {listed[0]: 0} and len(rows) == 5
    edited = parse_study(SWEEP.replace("steps: 1000", "steps: 1000, lr: 0.01"), "sweep.yaml")
    assert list(texts._left(edited, [Configuration(*c) for c in edited.listed()], seeds, rows).values()) == [
        5
    ]
