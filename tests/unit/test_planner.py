"""What to train next: no slot is idle, nothing needless is trained, cores end together."""

from search.run.forecast import forecast
from search.study.file import parse_study
from tests.planners import ONLY, SWEEP, drain, hear, numbers, planner_of, rows_of, said_of
from trainer import Outcome

UNTIL = """
name: until
model: 57p
recipe: {steps: 1000}
seeds: {first: 1, count: 4}
until: {grokked: 1, max_seeds: 12}
"""
RECIPES = (
    ONLY.replace("resources: {seeds_per_trial: 2}\n", "")
    + "space: {recipe.lr: {float: [0.001, 0.1]}}\nsampler: {name: random, configurations: 8}\n"
)


# ---- free slots take what is next


def test_free_slots_take_seeds_of_the_next_round(home):
    planner = planner_of(UNTIL, home)
    first, second = planner.next(), planner.next()
    assert numbers([first, second]) == [[1, 2], [3, 4]]
    hear(planner, first, said_of(first, ended=[1]))
    more = planner.next(first)
    assert numbers([more]) == [[5, 6]] and more.slots == first.slots == 2
    assert planner.study_run.open_seeds([first, more]) == 3
    assert planner.complete_trial(first, rows_of(first)) == [], "its next round is in training"


def test_a_search_asks_for_the_next_proposal_when_slots_are_free(home):
    """Before a trial has ended; but only a quarter of all proposals are open at one time."""
    planner = planner_of(RECIPES, home, ahead=1)
    first = planner.next()
    assert len(first.configurations) == 2
    assert planner.next(first) is None, "a quarter of eight"
    hear(planner, first, said_of(first, ended=[1, 2]))
    assert planner.next(first) is None, "both are still open"
    assert len(planner.complete_trial(first, rows_of(first))) == 2
    assert len(planner.next(first).configurations) == 2


# ---- what is not needed


def test_a_study_that_has_enough_trains_nothing_more(home):
    """Neither what was cut nor what is left of its first round; with a higher `until` both."""
    planner = planner_of(UNTIL, home)
    first, second = planner.next(), planner.next()
    first.write(home.trial("until", first.key))
    second.write(home.trial("until", second.key))
    rows = rows_of(first, Outcome.GROKKED)[:1] + rows_of(second, Outcome.CENSORED)
    again = planner_of(UNTIL, home, rows)
    assert again.is_done and again.next() is None
    study = parse_study(UNTIL, "until.yaml")
    known = forecast(study, rows)
    assert (known.search.total(), known.recorded, known.asked) == (0, 1, len(study.first_seeds))
    more = planner_of(UNTIL.replace("grokked: 1", "grokked: 2"), home, rows)
    assert sorted(n for t in numbers(drain(more)) for n in t)[:3] == [2, 3, 4]


def test_enough_is_counted_on_the_searchs_seeds(home):
    """Not on those of the confirmation, or a study would seem to have more than it asked for."""
    confirm = "confirm: {configurations: 1, seeds: {first: 101, count: 2}}\n"
    text = UNTIL.replace("grokked: 1", "grokked: 2") + confirm
    planner = planner_of(text, home, ahead=1)
    rows = []
    for trial in (planner.next(), planner.next(), planner.next()):
        ended = rows_of(trial)
        if ended[0]["init_seed"] == 1:
            ended[0] |= {"outcome": Outcome.GROKKED, "grok_step": 500}
        planner.complete_trial(trial, ended)
        rows += ended
    confirming = planner.next()
    assert confirming.confirmation and numbers([confirming]) == [[101, 102]]
    hear(planner, confirming, said_of(confirming, grokked=[101, 102]))
    assert planner.study_run.grokked == 1
    fresh = rows_of(confirming, Outcome.GROKKED)
    planner.complete_trial(confirming, fresh)
    for again in (planner, planner_of(text, home, rows + fresh)):
        assert again.study_run.grokked == 1 and not again.study_run.enough and again.is_done


# ---- cores end together


def test_towards_the_end_trials_become_smaller(home):
    """Two cores ask in turn: each for a share of what is left, and never for less than two of 16 slots."""
    text = SWEEP.replace("count: 5", "count: 64").replace("resources: {seeds_per_trial: 2}\n", "")
    planner = planner_of(text, home)
    workers = [planner.next(), planner.next()]
    sizes = [len(t.work) for t in workers]
    while trial := planner.next(workers[len(sizes) % 2]):
        sizes.append(len(trial.work))
    assert sizes == [16, 16, 8, 6, 5, 4, 3, 2, 2, 2] and sum(sizes) == 64
