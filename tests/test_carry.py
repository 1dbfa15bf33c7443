"""The carry schedule: shares of carry problems over time, by kind, and how many columns they use."""

import math

import pytest
import torch

from model import preset
from tests.banks import assert_same, finish, make, pair
from trainer.data.problems import words
from trainer.engine import native
from trainer.engine.native import EngineBackend
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


def test_late_re_injection_is_the_published_fade_with_two_points_more():
    faded = Recipe(carry_shares=((15_000, 0.8), (45_000, 0.0), (50_000, 0.0), (52_000, 0.4)))
    steps = [0, 15_000, 30_000, 45_000, 49_000]
    assert shares_at(steps, faded)[0] == pytest.approx(shares_at(steps, Recipe())[0])
    assert shares_at([51_000, 52_000, 59_999], faded)[0] == pytest.approx([0.2, 0.4, 0.4])


def test_it_is_constant_before_its_first_point_and_one_point_is_a_constant():
    assert shares_at([0, 50, 100], Recipe(carry_shares=((100, 0.3),)))[0] == pytest.approx([0.3] * 3)
    assert shares_at([0, 99], Recipe(carry_shares=((100, 0.3), (200, 0.1))))[0] == pytest.approx([0.3] * 2)


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


def is_chain(a):
    return torch.tensor([set(str(n)) == {"9"} for n in a.tolist()])


def columns(a):
    return torch.tensor([len(str(n)) for n in a.tolist()])


@pytest.mark.parametrize("kind", range(4))
def test_a_kind_alone_is_that_kind_of_the_published_stream(kind):
    """All problems of one kind: they are what the published sampler makes of the same words."""
    only = tuple(float(k == kind) for k in range(4))
    a, b = drawn(Recipe(carry_shares=((0, *only),), curriculum=()), 7)
    every_a, every_b = drawn(Recipe(carry_mix=1.0, curriculum=()), 7)
    mine = (words(torch.tensor([5]), torch.tensor([7]), len(a), 4)[2][0] & 3) == kind
    assert torch.equal(a[mine], every_a[mine]) and torch.equal(b[mine], every_b[mine])
    assert not torch.equal(a[~mine], every_a[~mine])


def test_shares_of_kinds_are_what_they_say():
    a, b = drawn(Recipe(carry_shares=((0, 0.0, 0.3, 0.1, 0.0),), curriculum=()), 3)
    chains = (is_chain(a) & (b <= 1_000)).double().mean()
    place = torch.tensor([len(str(n).rstrip("0")) == 1 and n > 0 for n in b.tolist()]) & ~is_chain(a)
    assert float(chains) == pytest.approx(0.3, abs=0.015) and float(place.double().mean()) == pytest.approx(
        0.1, abs=0.015
    )


def test_a_carry_problem_uses_as_many_columns_as_it_is_given():
    chains = {"carry_shares": ((0, 0.0, 1.0, 0.0, 0.0),), "curriculum": ()}
    counts = torch.bincount(columns(drawn(Recipe(**chains, carry_lengths=((0, 4, 6),)), 3)[0]), minlength=11)
    assert int(counts[4:7].sum()) == int(counts.sum()) and int(counts[4:7].min()) > 6_300


def test_ordinary_problems_do_not_see_the_lengths():
    plain = Recipe(carry_mix=0.5, mixed_lengths=0.5)
    short = Recipe(carry_mix=0.5, mixed_lengths=0.5, carry_lengths=((0, 1, 1),))
    (a, _), (c, _) = drawn(plain, 9_000), drawn(short, 9_000)
    which = (words(torch.tensor([5]), torch.tensor([9_000]), len(a), 4)[2][0] >> 32) & 0xFFFFFFFF
    carry = which.double() * 2.0**-32 < 0.5
    assert torch.equal(a[~carry], c[~carry]) and not torch.equal(a[carry], c[carry])
    assert int(columns(c[carry]).max()) <= 2


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


def lesson_of(programs, state, hyper):
    """What the engine's tape asks for at a step."""
    given = {**hyper, **state}
    numbers = [
        given[n].flatten() if n in given else torch.zeros(math.prod(s)) for n, s in programs.shapes.items()
    ]
    _, mix, mixed, single, chain, place, *whole = native.run(
        programs.tapes[0], torch.cat([t.float() for t in numbers]).numpy()
    ).tolist()
    data_seed, at = int(state["data_seed"]), int(state["step"])
    digits, by_kind, fewest, most = map(int, whole)
    return native.Lesson.some(
        data_seed=data_seed, step=at, carry_mix=mix, mixed_lengths=mixed, single=single, chain=chain, place=place,
        digits=digits, by_kind=by_kind, fewest=fewest, most=most,
    )  # fmt: skip


def test_the_engine_and_torch_make_the_same_lessons():
    """Whole schedules, as a bank would meet them: through the tape on one side, eagerly on the other."""
    recipes = [
        Recipe(batch=64),
        Recipe(batch=64, carry_shares=RISE, carry_lengths=LENGTHS),
        Recipe(batch=64, carry_shares=KINDS, mixed_lengths=0.3),
    ]
    programs = EngineBackend(preset("57p"), recipes[0])
    for recipe in recipes:
        hyper = hyper_of([recipe])
        for at in (0, 150, 250, 999, 4_000, 30_000):
            state = {
                "data_seed": torch.tensor([3]),
                "step": torch.tensor([at]),
                "mix_scale": torch.tensor([0.7]),
            }
            expected = step.tokens_of(preset("57p"), *step.draw(state, hyper, 64, 1))[0, 0]
            assert torch.equal(programs.tokens(lesson_of(programs, state, hyper)), expected)


def test_seeds_of_different_schedules_share_a_bank():
    how = [{}, {"carry_shares": ((0, 0.1), (5, 0.9))}, {"carry_shares": KINDS}, {"carry_lengths": LENGTHS}]
    together = finish(make([pair(3, **changes) for changes in how]))
    thetas = []
    for n, changes in enumerate(how):
        alone = finish(make([pair(3, **changes)]))
        assert_same(together.result(n), alone.result(0))
        thetas.append(alone.result(0).theta_P)
    assert len({tuple(t.tolist()) for t in thetas}) == len(how)


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


def test_a_schedule_survives_plain_values():
    recipe = Recipe(carry_shares=[[0, 0.1], [9, 1]], carry_lengths=[[0, 1, 10]])
    assert Recipe(**recipe.as_dict()) == recipe and hash(recipe) == hash(Recipe(**recipe.as_dict()))
    assert recipe.as_dict()["carry_shares"] == [[0, 0.1], [9, 1]]
