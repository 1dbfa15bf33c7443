import math

import pytest
import torch

from trainer.recipe import Recipe
from trainer.step import schedule


def at(function, steps, *recipes):
    """A schedule at some steps of one recipe, or of as many recipes as there are steps."""
    recipes = recipes or (Recipe(),)
    recipes = recipes * len(steps) if len(recipes) == 1 else recipes
    return function(torch.tensor(steps), schedule.hyper_of(recipes)).tolist()


def test_learning_rate_warms_up_linearly_and_ends_at_its_floor():
    steps = [0, 499, 999, 1_000, 59_999]
    expected = [0.02 / 1_000, 0.01, 0.02, 0.02, 0.002]
    assert at(schedule.learning_rate, steps) == pytest.approx(expected, rel=1e-5)


def test_learning_rate_follows_a_cosine_between():
    for step in (7_000, 30_500, 52_345):
        progress = (step - 1_000) / (59_999 - 1_000)
        expected = 0.02 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))
        assert at(schedule.learning_rate, [step]) == pytest.approx([expected], rel=1e-5)


def test_a_budget_shorter_than_the_warm_up_only_warms_up():
    recipe = Recipe(steps=500, eval_every=100)
    assert at(schedule.learning_rate, [0, 499], recipe) == pytest.approx([2e-5, 0.01])


def test_carry_mix_fades_linearly_between_its_endpoints():
    steps = [0, 14_999, 15_000, 22_500, 30_000, 44_999, 45_000, 59_999]
    expected = [0.8, 0.8, 0.8, 0.6, 0.4, 0.8 / 30_000, 0.0, 0.0]
    assert at(schedule.carry_mix, steps) == pytest.approx(expected, rel=1e-4, abs=1e-12)


@pytest.mark.parametrize(
    ("curriculum", "expected"),
    [
        ((), [10, 10, 10, 10]),
        (((2, 10),), [2, 10, 10, 10]),
        (((1, 10), (2, 10), (3, 10), (4, 10)), [1, 2, 3, 4]),
        (((1, 0), (7, 20)), [7, 7, 10, 10]),
    ],
)
def test_digits_of_other_curricula(curriculum, expected):
    assert at(schedule.digits, [5, 15, 25, 35], Recipe(curriculum=curriculum)) == expected


def test_each_slot_follows_its_own_recipe():
    recipes = (
        Recipe(lr=0.1, warmup=0, carry_mix=0.5, curriculum=()),
        Recipe(lr=0.2, warmup=10, carry_mix=0.0, curriculum=((4, 100),)),
        Recipe(lr=0.3, warmup=100, steps=1_000, fade_start=0, fade_end=10),
    )
    for function in (schedule.learning_rate, schedule.carry_mix, schedule.digits):
        together = at(function, [5, 6, 7], *recipes)
        assert together == [at(function, [s], r)[0] for s, r in zip([5, 6, 7], recipes, strict=True)]
        assert len(set(together)) > 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"steps": 1_500}, "eval_every must divide steps"),
        ({"carry_mix": 1.1}, "carry_mix must be from 0 to 1"),
        ({"lr": math.nan}, "lr must be .*nan"),
        ({"lr": -0.1}, "lr must be .*-0.1"),
        ({"lr": "fast"}, "lr must be a number"),
        ({"batch": 0}, "batch must be from 1"),
        ({"batch": True}, "batch must be an integer"),
        ({"fade_end": 10}, "fade_end must be fade_start or more"),
        ({"curriculum": ((11, 5),)}, "curriculum must be pairs"),
        ({"curriculum": ((3, 5, 6),)}, "curriculum must be pairs"),
        ({"curriculum": ((3, 5),) * 5}, "at most 4 stages"),
    ],
)
def test_a_recipe_names_the_field_that_is_wrong(options, says):
    with pytest.raises(ValueError, match=says):
        Recipe(**options)


def test_a_recipe_survives_plain_values():
    recipe = Recipe(lr=1, curriculum=[[2, 50]])
    assert Recipe(**recipe.as_dict()) == recipe
    assert recipe.as_dict()["curriculum"] == [[2, 50]] and recipe.lr == 1.0
