"""Which seeds no stopping rule ends: one of each ten pairs, in the order in which they are planned."""

import pytest

from search.run.spared import Draw
from search.study.file import parse_study
from tests.planners import SEARCH, SWEEP, finish, planner_of, row_of, taken
from trainer import Outcome, Seed

LARGE = SEARCH.replace("count: 3", "count: 8").replace("configurations: 4", "configurations: 20")
ARMS = SWEEP.replace("count: 5", "count: 20") + "toggle: [tie_vo, shared_norm]\n"


def spared(planner):
    """Configuration's key and seed of each pair of a plan that no rule ends, and all pairs in order."""
    pairs = [pair for pairs in finish(planner)[0] for pair in pairs]
    assert all(pair.seed == planner.pair_of(pair).seed for pair in pairs)
    return {(p.configuration.key, p.seed) for p in pairs if planner.pair_of(p).spared}, pairs


def test_a_search_spares_one_of_each_ten_pairs(home):
    planner = planner_of(LARGE, home)
    found, _ = spared(planner)
    in_order = [(key, Seed.of(n)) for key in planner.study_run.states for n in range(1, 9)]
    assert [len(found.intersection(in_order[n : n + 10])) for n in range(0, 160, 10)] == [1] * 16
    assert len({seed for _, seed in found}) > 3, "not the same seeds in each configuration"


def test_arms_of_a_list_spare_the_same_seeds(home):
    found, pairs = spared(planner_of(ARMS, home))
    seeds_of = {p.configuration.key: {s for key, s in found if key == p.configuration.key} for p in pairs}
    (seeds,) = {frozenset(seeds) for seeds in seeds_of.values()}
    assert len(seeds_of) == 3 and [sum(n <= s.init_seed < n + 10 for s in seeds) for n in (1, 11)] == [1, 1]


CONFIRMED = "\nconfirm: {configurations: 2, seeds: {first: 90001, count: 20}%s}\n"


@pytest.mark.parametrize("text", [LARGE, ARMS])
@pytest.mark.parametrize(("asked", "count"), [("", 20), (", hopeless: off", 20), (", hopeless: on", 2)])
def test_no_rule_ends_a_confirmation_unless_the_file_says_so(text, asked, count, home):
    study = parse_study(text + CONFIRMED % asked, "test")
    found = [Draw(study).is_spared(0, seed, confirmation=True) for seed in study.confirm_seeds]
    assert sum(found) == count


def test_neither_workers_nor_interruptions_change_the_draw(home):
    """However many seeds a bank has, and from a plan that goes on."""
    found, pairs = spared(planner_of(LARGE, home))
    wide, _ = spared(planner_of(LARGE.replace("slots: 2", "slots: 7"), home, ahead=3))
    assert found == wide
    begun = [row_of(pair, Outcome.CENSORED) for pair in pairs[5:9]]
    later = planner_of(LARGE, home, begun)
    assert {(p.configuration.key, p.seed) for p in taken(later) if later.pair_of(p).spared} <= found
