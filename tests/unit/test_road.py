"""Roads: one seed through several trainings (trainer/road)."""

import dataclasses
import json

import pytest

from model import preset
from trainer import Pair, Recipe, Seed
from trainer.recipe.outcomes import Outcome
from trainer.road import Into, Keep, Road, RoadBank, Stage

SHORT = Recipe(steps=200, eval_every=100, hold=0, lr=0.01, warmup=10)
RAMP = dataclasses.replace(SHORT, ramp=100)
LONG = dataclasses.replace(RAMP, steps=300)
OFTEN = dataclasses.replace(RAMP, eval_every=50)
WIDE = dataclasses.replace(preset("67p"), hidden=4)
TO_57 = Road(WIDE, (
    Stage("wide", SHORT, longer=SHORT, enough=0.0),
    Stage("two", RAMP, Keep("units", 2), tries=2, longer=LONG, longer_tries=3, enough=0.0),
    Stage("tied", RAMP, Into(preset("57p")), tries=2, enough=0.0),
))  # fmt: skip


def pairs(*seeds):
    return [Pair(RAMP, Seed.of(seed)) for seed in seeds]


def finished(bank):
    while bank.advance():
        pass
    return [bank.result(n) for n in range(len(bank.pairs))]


def facts(result):
    return (result.outcome, result.steps, result.best_exact, result.theta_P.tolist(), result.curve_EM.tolist())


@pytest.fixture(scope="module")
def alone():
    return {seed: facts(finished(RoadBank(TO_57, pairs(seed)))[0]) for seed in (3, 4, 5)}


def test_a_seed_goes_all_the_way(alone):
    outcome, steps, _, theta_P, curve = alone[3]
    assert outcome == Outcome.FAILED
    assert len(theta_P) == 57
    # wide and again; two pairs of units, then three in more steps; two orders of the units
    assert steps == 200 + 200 + 2 * 200 + 3 * 300 + 2 * 200
    assert len(curve) in (6, 7, 8, 9)  # of the nets that were handed on
    assert alone[3] != alone[4]


def test_neighbours_and_slots_change_nothing(alone):
    bank = RoadBank(TO_57, pairs(3, 4), slots=3)
    for _ in range(3):
        bank.advance()
    bank.add(pairs(5))
    together = finished(bank)
    assert [facts(result) for result in together] == [alone[3], alone[4], alone[5]]


@pytest.mark.parametrize("calls", [1, 6, 12])
def test_saved_anywhere_it_goes_on_to_the_same_bits(alone, calls):
    bank = RoadBank(TO_57, pairs(3, 4))
    for _ in range(calls):
        bank.advance()
    states = bank.save_all([0, 1])
    other = RoadBank(TO_57, pairs(4, 5, 3))
    assert other.restore_all({0: states[1], 2: states[0]}) == [0, 2]
    assert other.newest()[2]["step"] == bank.newest()[0]["step"]
    assert [facts(result) for result in finished(other)] == [alone[4], alone[5], alone[3]]


def test_what_is_damaged_or_anothers_is_not_used():
    bank = RoadBank(TO_57, pairs(3, 4))
    bank.advance()
    own, others = bank.save_all([0, 1])
    narrower = dataclasses.replace(TO_57, stages=TO_57.stages[:2])
    assert not bank.restore(0, others)
    assert not bank.restore(0, own[:-1] + b"x")
    assert not bank.restore(0, b"")
    assert not RoadBank(narrower, pairs(3)).restore(0, own)
    assert bank.restore(0, own)


def test_a_seed_that_is_not_good_enough_is_lost_where_it_stands():
    strict = dataclasses.replace(TO_57, stages=(dataclasses.replace(TO_57.stages[0], enough=0.95), *TO_57.stages[1:]))
    (result,) = finished(RoadBank(strict, pairs(3)))
    assert result.outcome == Outcome.FAILED
    assert (result.steps, len(result.theta_P), result.best_exact) == (400, 0, 0.0)
    assert len(result.curve_EM) == 4


def test_ended_from_outside_it_keeps_its_steps():
    bank = RoadBank(TO_57, pairs(3, 4))
    bank.advance()
    bank.end([1])
    assert [row["outcome"] for row in bank.newest()] == ["running", "censored"]
    assert bank.newest()[1]["step"] == 100
    bank.remove([1])
    assert finished(bank)[0].steps == 2100


@pytest.mark.parametrize(
    "stages, words",
    [
        ((), "at least one stage"),
        ((Stage("wide", RAMP),), "stage wide: a ramp needs something to narrow to"),
        ((Stage("two", SHORT, Keep("units", 2)),), "stage two: a net is narrowed by a ramp"),
        (
            (Stage("wide", SHORT), Stage("two", dataclasses.replace(RAMP, eval_every=50), Keep("units", 2))),
            "eval_every",
        ),
        ((Stage("two", RAMP, Keep("heads", 2)),), "no 'heads'"),
        ((Stage("wide", SHORT), Stage("tied", RAMP, Into(preset("57p")))), "with ties|must have shape"),
    ],
)
def test_stages_that_do_not_follow_one_another(stages, words):
    with pytest.raises(ValueError, match=words):
        Road(WIDE, stages)


def test_plain_values_say_all_of_a_road():
    values = json.loads(json.dumps(TO_57.as_dict()))
    assert Road.of_dict(values) == TO_57
