"""Search spaces: order, lengths, grids, and what is refused at which key path."""

import math

import pytest

from model import preset
from search.errors import UserError
from search.study.file import parse_study
from search.study.space import fixed, order, points, resolve
from tests.bad_studies import GOOD
from tests.commands import says
from trainer import Recipe

FADE = "recipe.fade_end: {int: [1000, 40000], after: recipe.fade_start}"
HOLD = "recipe.hold: {choice: [1, 2]}"
BASE = fixed(preset("57p"), Recipe())


def study_of(*fields, more=""):
    return parse_study(GOOD + "space:\n" + "".join(f"  {field}\n" for field in fields) + more, "test")


def refused(*fields, more=""):
    with pytest.raises(UserError) as error:
        study_of(*fields, more=more)
    return str(error.value).removeprefix("test: ")


# Order


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (("recipe.lr: {float: [0, 1]}", "recipe.clip: {float: [0, 1]}"), "lr clip"),
        ((FADE, "recipe.lr: {float: [0, 1]}"), "fade_end lr"),
        ((FADE, "recipe.lr: {float: [0, 1]}", "recipe.fade_start: {int: [0, 9]}"), "lr fade_start fade_end"),
    ],
)
def test_a_field_follows_those_that_it_depends_on(fields, expected):
    assert order(study_of(*fields).space) == [f"recipe.{name}" for name in expected.split()]


def test_optimisers_wrappers_and_their_lists_are_searched():
    study = study_of(
        "recipe.optimiser: {choice: [adamw, lion, sgd]}",
        "recipe.grokfast_lambda: {float: [0.5, 5]}",
        "recipe.lr_factors: {choice: [[], [[norm, 3], [arc, 0.5]]]}",
    )
    numbers = {
        "recipe.optimiser": "sgd", "recipe.grokfast_lambda": 2.0,
        "recipe.lr_factors": '[["norm", 3], ["arc", 0.5]]',
    }  # fmt: skip
    recipe = study.configuration(resolve(study.space, numbers, BASE))[1]
    assert recipe.lr_factors == (("norm", 3.0), ("arc", 0.5))
    assert recipe.program() == (256, 1_000, "sgd", "", "grokfast_lambda", "lr_factors")
    plain = {"recipe.optimiser": "lion", "recipe.grokfast_lambda": 1.0, "recipe.lr_factors": "[]"}
    values = resolve(study.space, plain, BASE)
    assert study.configuration(values)[1] == Recipe(optimiser="lion", grokfast_lambda=1)
    assert refused("recipe.lr_factors: {choice: [[[norn, 3]]]}").startswith(
        "space.recipe.lr_factors: must be of tensors of θ"
    )
    with pytest.raises(ValueError, match=r"^numbers of \['recipe.lr'\], not of "):
        resolve(study.space, {"recipe.lr": 1.0}, BASE)


# Lengths


@pytest.mark.parametrize(
    ("fields", "numbers", "path", "expected"),
    [
        ((FADE, "recipe.fade_start: {int: [0, 20000]}"), {"fade_start": 20_000, "fade_end": 1_000}, "fade_end", 21_000),
        ((FADE,), {"fade_end": 1_000}, "fade_end", 16_000),
        (
            ("recipe.fade_token_end: {float: [0, 0.1], after: recipe.fade_token}",
             "recipe.fade_token: {float: [0.1, 0.5]}"),
            {"fade_token": 0.5, "fade_token_end": 0.1}, "fade_token_end", 0.6,
        ),
        (
            (FADE, "recipe.fade_start: {int: [0, 9], after: recipe.warmup}", "recipe.warmup: {int: [0, 9]}"),
            {"warmup": 1, "fade_start": 2, "fade_end": 1_000}, "fade_end", 1_003,
        ),
    ],
    ids=["of a searched field", "of a fixed field", "of a float", "of a length"],
)  # fmt: skip
def test_a_length_is_added_to_the_value_before_it(fields, numbers, path, expected):
    values = resolve(study_of(*fields).space, {f"recipe.{n}": v for n, v in numbers.items()}, BASE)
    assert values[f"recipe.{path}"] == expected and type(values[f"recipe.{path}"]) is type(expected)


# Grids


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (("recipe.hold: {choice: [1, 5]}",), 2),
        (("recipe.hold: {int: [1, 5]}", "recipe.warmup: {int: [0, 10], step: 4}"), 5 * 3),
        (("recipe.lr: {float: [0.1, 0.3], step: 0.1}", "recipe.hold: {int: [1, 2]}"), 3 * 2),
    ],
)
def test_a_grid_has_every_point_once(fields, expected):
    study = study_of(*fields, more="sampler: {name: grid}\n")
    found = points(study.space)
    assert len(found) == len({frozenset(p.items()) for p in found}) == expected == study.planned


def test_the_values_of_a_float_are_as_they_are_written():
    distribution = study_of("recipe.lr: {float: [0.1, 0.75], step: 0.1}").space["recipe.lr"]
    assert list(distribution.values()) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert distribution.ends() == (0.1, 0.7) and distribution.decoded(0.1 + 2 * 0.1) == 0.3
    assert distribution.has(0.3) and not distribution.has(0.35) and not distribution.has("0.3")
    assert not distribution.has(math.inf) and not distribution.has(0.8)


# What is refused

FADE_END = "recipe.fade_end: {int: [0, 9], after: recipe."
REFUSED = {
    (FADE_END + "fade_strat}",):
        "fade_end.after: unknown field 'recipe.fade_strat'; did you mean recipe.fade_start*",
    (FADE_END + "curriculum}",): "fade_end.after: recipe.curriculum is not a number",
    ("recipe.fade_end: {choice: [1, 2], after: recipe.fade_start}",): "fade_end: after goes with float or int",
    (FADE_END + "fade_end}",): "fade_end.after: depends on itself (recipe.fade_end -> recipe.fade_end)",
    (FADE, "recipe.fade_start: {int: [0, 9], after: recipe.warmup}",
     "recipe.warmup: {int: [1, 2], after: recipe.hold}", "recipe.hold: {int: [1, 2], after: recipe.warmup}"):
        "warmup.after: depends on itself (recipe.warmup -> recipe.hold -> recipe.warmup)",
    ("recipe.fade_end: {int: [0, 2147483647], after: recipe.fade_start}",):
        "fade_end: must be finite and at most 2147483647, got 2147498647",
    ("recipe.lr: {choice: [0.1, 0.2]}", FADE, "recipe.hold: {choice: [-1]}"): "hold: must be *",
    ("recipe.hold: {int: [1, 5], step: 5}",): "hold: step must be at most the distance of the bounds, got 5",
}  # fmt: skip


@pytest.mark.parametrize("fields", REFUSED, ids=lambda fields: fields[-1][:60])
def test_what_makes_no_space_is_refused_at_its_key_path(fields):
    assert says(refused(*fields), f"space.recipe.{REFUSED[fields]}")


GRID = "{name: grid}"
SAMPLERS = [
    ("recipe.lr: {float: [0, 1]}", GRID, "space.recipe.lr: a grid needs a step *"),
    ("recipe.hold: {int: [0, 10000]}", GRID, "space: a grid has at most 10000 points, *"),
    (HOLD, "{objectives: [params]}", "sampler.objectives: must have one of grok_rate and per_*"),
    (
        HOLD,
        "{objectives: [grok_rate, per_million]}",
        "sampler.objectives: must have one of grok_rate and per_*",
    ),
]


@pytest.mark.parametrize(("field", "sampler", "expected"), SAMPLERS)
def test_what_makes_no_sampler_is_refused(field, sampler, expected):
    assert says(refused(field, more=f"sampler: {sampler}\n"), expected)
