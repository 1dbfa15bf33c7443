"""What to train next: no slot is idle, nothing needless is trained, workers end together, nothing is lost."""

import pytest

from model import preset
from search.run.packing import Capacity
from search.run.planner import Planner
from search.run.study_run import PlannedPair
from search.study.file import parse_study
from search.study.trial import Configuration
from tests.planners import ONLY, SEARCH, SWEEP, end, finish, hear, numbers, planner_of, row_of, taken
from trainer import Outcome, Seed

UNTIL = """
name: until
model: 57p
recipe: {steps: 1000}
seeds: {first: 1, count: 4}
resources: {slots: 2}
until: {grokked: 1, max_seeds: 12}
"""
RECIPES = ONLY + "space: {recipe.lr: {float: [0.001, 0.1]}}\nsampler: {name: random, configurations: 8}\n"
SPECS = SWEEP.replace("model: 57p\n", "") + "configurations: [{model: 57p}, {model: 67p}, {model: 74p}]\n"


# ---- free slots take what is next


def test_a_slot_that_falls_free_takes_a_seed_of_the_next_round(home):
    planner = planner_of(UNTIL, home)
    first, second = taken(planner, "a"), taken(planner, "b")
    assert (numbers(first), numbers(second)) == ([1, 2], [3, 4]) and planner.banks["a"].slots == 2
    assert end(planner, "a", first[:1]) == [], "its next round is planned"
    assert numbers(taken(planner, "a")) == [5] and taken(planner, "a") == []


def test_of_many_slots_an_eighth_is_in_reserve(home):
    planner = planner_of(SWEEP.replace("count: 5", "count: 64").replace("slots: 2", "slots: 16"), home, ahead=1)
    assert len(taken(planner)) == 18 and taken(planner) == []


def test_a_file_may_bound_what_a_bank_has(home):
    text = SWEEP.replace("slots: 2", "slots: 4, seeds_per_trial: 3")
    assert len(taken(planner_of(text, home, ahead=1))) == 3


def test_a_search_asks_for_the_next_proposal_when_slots_are_free(home):
    """Only a quarter of all proposals are open at one time."""
    planner = planner_of(RECIPES.replace("slots: 2", "slots: 8"), home, ahead=1)
    first = taken(planner)
    assert len({pair.configuration for pair in first}) == 2
    assert end(planner, "a", first[:2]) == [] and taken(planner) == [], "a quarter of eight, and both are open"
    assert len(end(planner, "a", first[2:3])) == 1
    assert len(taken(planner)) == 3


def test_an_idle_worker_takes_what_nobody_trains(home):
    """And one whose process keeps what it has of a GPU takes nothing but its own kind."""
    planner = planner_of(SPECS, home)
    a, b = taken(planner, "a"), taken(planner, "b")

    def spec(worker):
        return planner.banks[worker].kind.program[0]

    assert [spec(worker) for worker in "ab"] == [preset("57p"), preset("67p")]
    end(planner, "a", a)
    while pairs := list(planner.take("a", may_switch=False).values()):
        assert spec("a") == preset("57p")
        end(planner, "a", pairs)
    assert planner.queued_seeds == 8 and len(taken(planner, "a")) == 2 and spec("a") == preset("74p")
    end(planner, "b", b)
    assert len(taken(planner, "b")) == 2 and spec("b") == preset("67p")


# ---- what is not needed


def test_a_worker_is_told_of_what_nobody_needs(home):
    """Once a seed was perfect; what waits is forgotten at once. It comes again if that seed is lost."""
    planner = planner_of(UNTIL, home)
    first, second = taken(planner, "a"), taken(planner, "b")
    assert planner.needless("b") == []
    hear(planner, "a", grokked=[1])
    assert len(planner.needless("b")) == 2 and planner.queued_seeds == 0
    planner.give_back("a", has_failed=True)
    end(planner, "b", second, [row_of(p, Outcome.CENSORED) for p in second])
    assert not planner.needless("b")
    assert numbers([*taken(planner, "c"), *taken(planner, "d")]) == numbers(first), "they are shared"
    for worker in "cd":
        end(planner, worker, list(planner.banks[worker].pairs.values()))
    trained, _ = finish(planner)
    assert {3, 4} <= {n for pairs in trained for n in numbers(pairs)}


def test_enough_is_counted_on_the_searchs_seeds(home):
    """Not on those of the confirmation, or a study would seem to have more than it asked for."""
    confirm = "confirm: {configurations: 1, seeds: {first: 101, count: 2}}\n"
    text = UNTIL.replace("grokked: 1", "grokked: 2") + confirm
    planner = planner_of(text, home, ahead=1)
    rows = []
    while not (pairs := taken(planner))[0].confirmation:
        ended = [row_of(p, Outcome.GROKKED if p.seed.init_seed == 1 else Outcome.FAILED) for p in pairs]
        end(planner, "a", pairs, ended)
        rows += ended
    assert numbers(pairs) == [101, 102]
    hear(planner, "a", grokked=[101, 102])
    assert planner.study_run.grokked == 1 and not planner.needless("a")
    fresh = [row_of(pair, Outcome.GROKKED) for pair in pairs]
    end(planner, "a", pairs, fresh)
    for again in (planner, planner_of(text, home, rows + fresh)):
        assert again.study_run.grokked == 1 and not again.study_run.enough and again.is_done


# ---- workers end together


@pytest.mark.parametrize(("seeds", "workers"), [(64, 2), (20, 2), (5, 2), (37, 4), (3, 8)])
def test_towards_the_end_what_is_left_is_shared_evenly(seeds, workers, home):
    """One seed ends at a time, of the worker that has most; its slot is taken while anything waits."""
    text = SWEEP.replace("count: 5", f"count: {seeds}").replace("resources: {slots: 2}\n", "")
    planner = planner_of(text, home, ahead=workers)
    for name in range(workers):
        taken(planner, str(name))
    ended = 0
    while not planner.is_done:
        has = {name: len(bank.pairs) for name, bank in planner.banks.items()}
        assert planner.queued_seeds or max(has.values()) - min(has.values()) <= 1 + 16 // 8, has
        name = max(has, key=lambda name: has[name])
        end(planner, name, [next(iter(planner.banks[name].pairs.values()))])
        taken(planner, name)
        ended += 1
    assert ended == seeds and len(planner.banks) == min(workers, seeds)


# ---- workers that die


def test_what_a_dead_worker_had_is_trained_by_another_and_given_up_in_the_end(home):
    """Pairs that may have killed it train among themselves, so that they cost no others."""
    planner = planner_of(SWEEP + "faults: {max_failures: 2}\n", home)
    first = taken(planner, "a")
    for attempt in (1, 2):
        assert planner.give_back("a", has_failed=True) == [] and planner.queued_seeds == 5
        kinds = {kind.is_suspect: numbers(queue) for kind, queue in planner.waiting.items()}
        assert kinds == {False: [3, 4, 5], True: [1, 2]}
        assert numbers(taken(planner, "b")) == [3, 4], "what waited longest goes first"
        assert taken(planner, "a") == first and {pair.failures for pair in first} == {attempt}
        assert planner.give_back("b", has_failed=False) == []
        assert numbers(next(iter(planner.waiting.values()))) == [3, 4, 5], "b has not failed, so they are no suspects"
    assert planner.give_back("a", has_failed=True) == first
    assert planner.complete(first, [row_of(pair, Outcome.CENSORED) for pair in first]) == []
    trained, complete = finish(planner)
    assert [numbers(pairs) for pairs in trained] == [[3, 4], [5]] and len(complete) == 1


# ---- proposals that wait for one another


class Waiting:
    """A proposal, after which the next one waits for its outcome."""

    exhausted = False

    def __init__(self, study, earlier=()):
        self.left, self.earlier, self.told = [Configuration(*study.listed[0])], list(earlier), []

    def proposed(self):
        return self.earlier

    def ask(self):
        return self.left.pop() if self.left else None

    def tell(self, configuration, rows):
        self.told.append(rows)


def test_a_study_ends_if_its_next_proposal_waits_for_a_seed_that_was_given_up():
    study = parse_study(SEARCH + "faults: {max_failures: 0}\n", "test")
    planner = Planner(study, [], Waiting(study), numbered=["two", "earlier"])
    planner.capacity = Capacity(2)
    while pairs := taken(planner):
        (state,) = planner.study_run.states.values()
        assert state.number == 2 and not planner.is_done
        assert planner.give_back("a", has_failed=True) == pairs
        planner.complete(pairs, [row_of(pair, Outcome.CENSORED) for pair in pairs])
    assert planner.is_done and planner.search.proposals.told == []


def test_a_seed_that_the_file_asks_for_no_more_keeps_no_proposal_open():
    study = parse_study(SEARCH.replace("count: 3", "count: 1"), "test")
    configuration = Configuration(*study.listed[0])
    ended, left = (row_of(PlannedPair(configuration, Seed.of(n)), o) for n, o in ((1, "failed"), (2, "censored")))
    source = Waiting(study, [configuration])
    Planner(study, [ended, left], source)
    assert source.told == [[ended]]
