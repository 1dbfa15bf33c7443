"""The carry schedule: shares of carry problems over time, by kind, and how many columns they use."""

import math

import pytest
import torch

from trainer.recipe import Recipe
from trainer.step import schedule, step
from trainer.step.schedule import hyper_of

RISE = ((0, 0.2), (3_000, 0.2), (6_000, 0.5), (20_000, 0.0))
KINDS = ((100, 0.1, 0.2, 0.3, 0.0), (300, 0.3, 0.0, 0.1, 0.4))
LENGTHS = ((0, 1, 2), (1_000, 4, 10))


def shares_at(steps, recipe):
    """Share of carry problems, and those up to each of the first three kinds, at some steps."""
    hyper = hyper_of([recipe] * len(steps))
    at = torch.tensor(steps)
    kinds = schedule.kinds(at, hyper, torch.ones(len(steps)))
    return schedule.carry_mix(at, hyper).tolist(), kinds


def test_a_share_rises_and_falls_linearly_between_its_points():
    steps = [0, 2_999, 3_000, 4_500, 6_000, 13_000, 20_000, 59_999]
    expected = [0.2, 0.2, 0.2, 0.35, 0.5, 0.25, 0.0, 0.0]
    share, kinds = shares_at(steps, Recipe(carry_shares=RISE))
    assert share == pytest.approx(expected) and share[-2:] == [0.0, 0.0]
    assert not kinds.by_kind.any()


def test_each_kind_has_a_share_of_its_own():
    share, kinds = shares_at([0, 200, 300], Recipe(carry_shares=KINDS))
    assert share == pytest.approx([0.6, 0.7, 0.8])
    for found, expected in zip(kinds[1:4], [(0.1, 0.2, 0.3), (0.3, 0.3, 0.3), (0.6, 0.5, 0.4)], strict=True):
        assert found.tolist() == pytest.approx(list(expected))
    assert kinds.by_kind.all()


def test_lengths_go_from_point_to_point_and_never_beyond_the_curriculum():
    recipe = Recipe(carry_lengths=LENGTHS, curriculum=((3, 600),))
    _, kinds = shares_at([0, 500, 600, 1_000, 2_000], recipe)
    assert kinds.fewest.tolist() == [1, 2, 2, 4, 4]
    assert kinds.most.tolist() == [2, 3, 6, 10, 10]
    late = Recipe(carry_lengths=((0, 7, 9),), curriculum=((3, 10),))
    assert [n.tolist() for n in shares_at([0, 10], late)[1][-2:]] == [[3, 7], [3, 9]]


def drawn(recipe, at, batch=20_000):
    """One row of problems as a bank draws them, with the kind of each that `recipe` makes a carry problem."""
    state = {"data_seed": torch.tensor([5]), "step": torch.tensor([at]), "mix_scale": torch.ones(1)}
    a, b = step.draw(state, hyper_of([recipe]), batch, 1)
    return a[0, 0].long(), b[0, 0].long()


def columns(a):
    return torch.tensor([len(str(n)) for n in a.tolist()])


SAID_OTHERWISE = [
    (
        {"carry_mix": 0.8, "fade_start": 15_000, "fade_end": 45_000},
        {"carry_shares": ((15_000, 0.8), (45_000, 0.0))},
    ),
    ({}, {"carry_lengths": ((0, 1, 10),)}),
]


@pytest.mark.parametrize(("one", "other"), SAID_OTHERWISE)
@pytest.mark.parametrize("at", [0, 6_000, 20_000, 50_000])
def test_the_published_schedule_said_as_points_makes_the_same_problems(one, other, at):
    found = [drawn(Recipe(**how), at, 2_000) for how in (one, other)]
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"carry_shares": ((0, 0.1),) * 6}, "at most 5 points"),
        ({"carry_shares": ((0, 0.1, 0.2),)}, "must be points .step, share. or"),
        ({"carry_shares": ((0, 0.1), (5, 0.1, 0.1, 0.1, 0.1))}, "points of one form"),
        ({"carry_shares": ((5, 0.1), (5, 0.2))}, "in rising order of steps"),
        ({"carry_shares": ((0.5, 0.1),)}, "whole steps"),
        ({"carry_shares": ((-1, 0.1),)}, "whole steps of 0 or more"),
        ({"carry_shares": ((0, 1.1),)}, "sum to at most 1"),
        ({"carry_shares": ((0, 0.5, 0.5, 0.5, 0.0),)}, "sum to at most 1"),
        ({"carry_shares": ((0, -0.1),)}, "must be fractions"),
        ({"carry_shares": ((0, math.nan),)}, "must be points"),
        ({"carry_shares": ((0, True),)}, "must be points"),
        ({"carry_shares": 3}, "carry_shares must be a list"),
        ({"carry_lengths": ((0, 3, 2),)}, "1 to 10, fewest first"),
        ({"carry_lengths": ((0, 0, 2),)}, "1 to 10, fewest first"),
        ({"carry_lengths": ((0, 1, 11),)}, "1 to 10, fewest first"),
        ({"carry_lengths": ((0, 1),)}, "must be points .step, fewest, most."),
    ],
)
def test_an_impossible_schedule_is_one_clear_line(options, says):
    with pytest.raises(ValueError, match=says) as caught:
        Recipe(**options)
    assert "\n" not in str(caught.value)
