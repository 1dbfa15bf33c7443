"""Schedules: pure functions of a recipe and a seed's step, as their papers' formulas and torch have them."""

import math
from functools import partial

import pytest
import torch

from model.tasks import ADDITION
from tests.banks import SPEC
from tests.contract.test_optimisers import CONSTANT
from tests.unit.test_problems import KINDS, POINTS
from trainer.optimisers.l1 import strength
from trainer.recipe import Recipe
from trainer.recipe.weight_decay import scale
from trainer.step import schedule
from trainer.step.schedule import hyper_of, learning_rate

RAMPED = {"steps": 24, "eval_every": 4, "warmup": 2, "fade_start": 4, "fade_end": 8}
L1 = {"l1_lambda": 0.4, "l1_entries": ("fc1",)}


def carried(fact):
    """One fact of the carry problems' kinds."""
    return lambda steps, hyper: getattr(schedule.kinds(steps, hyper, torch.ones(len(steps))), fact)


def l1(steps, hyper):
    return strength({"step": steps}, hyper)


def decay(steps, hyper):
    """Of seeds whose evaluations have halved it."""
    return schedule.now({"step": steps, "wd_scale": torch.full((len(steps),), 0.5)}, hyper)["decay"]


def cosine(step):
    return 0.02 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - 1_000) / (59_999 - 1_000))))


DECAY = {**CONSTANT, "lr": 0.5, "weight_decay": 0.6}
DIGITS = partial(schedule.digits, task=ADDITION)
VALUES = {
    "the rate warms up and ends at its floor": (
        learning_rate, {}, {0: 2e-5, 499: 0.01, 999: 0.02, 1_000: 0.02, 59_999: 0.002}
    ),
    "a cosine between": (learning_rate, {}, {at: cosine(at) for at in (7_000, 30_500, 52_345)}),
    "a short budget only warms up": (
        learning_rate, {"steps": 500, "eval_every": 100}, {0: 2e-5, 499: 0.01}
    ),
    "carry problems fade": (
        schedule.carry_mix, {}, {0: 0.8, 15_000: 0.8, 22_500: 0.6, 30_000: 0.4, 44_999: 0.8 / 30_000, 45_000: 0}
    ),
    "carry problems by points": (
        schedule.carry_mix, POINTS,
        {0: 0.2, 2_999: 0.2, 4_500: 0.35, 6_000: 0.5, 13_000: 0.25, 20_000: 0, 59_999: 0},
    ),
    "carry problems by kind": (schedule.carry_mix, KINDS, {0: 0.6, 200: 0.7, 300: 0.8}),
    "the first kind": (carried("single"), KINDS, {0: 0.1, 200: 0.2, 300: 0.3}),
    "up to the second": (carried("chain"), KINDS, {0: 0.3, 200: 0.3, 300: 0.3}),
    "up to the third": (carried("place"), KINDS, {0: 0.6, 200: 0.5, 300: 0.4}),
    "digits without a curriculum": (DIGITS, {"curriculum": ()}, {5: 10, 35: 10}),
    "digits of four stages": (
        DIGITS, {"curriculum": ((1, 10), (2, 10), (3, 10), (4, 10))}, {5: 1, 15: 2, 25: 3, 35: 4, 45: 10}
    ),
    "digits of an empty stage": (DIGITS, {"curriculum": ((1, 0), (7, 20))}, {5: 7, 15: 7, 25: 10}),
    "the ramp of ties": (schedule.ramp, {"ramp": 10, "steps": 1_000}, {0: 0, 5: 0.5, 10: 1, 11: 1}),
    "no ramp": (schedule.ramp, {}, {0: 1, 5: 1}),
    "a ramp that begins later": (
        schedule.ramp, RAMPED | {"ramp": 4, "ramp_start": 12}, {0: 0, 11: 0, 12: 0, 14: 0.5, 16: 1, 20: 1}
    ),
    "l1 at once": (l1, L1, {0: 0.4, 5: 0.4}),
    "l1 from a step on": (l1, {**L1, "l1_start": 2}, {1: 0, 2: 0.4}),
    "l1 that rises": (l1, {**L1, "l1_start": 1, "l1_rise": 4}, {0: 0, 1: 0.1, 3: 0.3, 4: 0.4, 5: 0.4}),
    "decay that drops": (
        decay, {**DECAY, "wd_schedule": "drops", "wd_drops": ((10, 0.5), (20, 0.1))},
        {0: 0.15, 9: 0.15, 10: 0.075, 19: 0.075, 20: 0.015},
    ),
    "cyclical decay": (
        decay, {**DECAY, "wd_schedule": "cyclical", "wd_period": 8},
        {at: 0.15 * (1 + math.cos(2 * math.pi * at / 8)) / 2 for at in (0, 1, 4, 7, 8, 30)},
    ),
    "decay that warms up": (
        decay, {**DECAY, "wd_schedule": "warmup", "wd_warmup": 16}, {0: 0.15 / 16, 7: 0.075, 15: 0.15, 29: 0.15}
    ),
}  # fmt: skip
"""Name -> schedule, fields of a recipe, and its value by step."""


@pytest.mark.parametrize("name", VALUES)
def test_its_value_at_a_step(name):
    function, fields, values = VALUES[name]
    hyper = hyper_of([Recipe(**fields)] * len(values), SPEC.layout)
    got = function(torch.tensor(list(values)), hyper).tolist()
    assert got == pytest.approx(list(values.values()), rel=1e-4, abs=1e-9)


def test_smooth_decay_falls_from_the_first_threshold_on_to_its_floor():
    """MicroAdder's: base · exp(−α (step − onset)), not below base · drop², never up again."""
    recipe = Recipe(wd_schedule="smooth", wd_alpha=0.0005, wd_drop=0.5, wd_drop_exact=0.1, wd_drop_token=0.6)
    hyper, values, now = hyper_of([recipe], SPEC.layout), [], torch.ones(1)
    for exact, token in [(0.05, 0.9), (0.2, 0.5), (0.2, 0.7), (0.0, 0.0), (0.9, 0.9), (0.9, 0.9)]:
        now = scale(now, torch.tensor([exact]), torch.tensor([token]), hyper, 1_000)
        values.append(float(now))
    fall = math.exp(-0.5)
    assert values == pytest.approx([1, 1, fall, fall**2, 0.25, 0.25])
