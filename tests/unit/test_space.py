"""Search spaces: lengths, grids. What is refused is in tests/bad_studies.py."""

import math

import pytest

from model import preset
from search.study.file import parse_study
from search.study.space import fixed, points, resolve
from tests.bad_studies import GOOD
from trainer import Recipe

FADE = "recipe.fade_end: {int: [1000, 40000], after: recipe.fade_start}"
BASE = fixed(preset("57p"), Recipe())


def study_of(*fields, more=""):
    return parse_study(GOOD + "space:\n" + "".join(f"  {field}\n" for field in fields) + more, "test")


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


# Ends


TEN = ["lr", "lr_floor", "clip", "weight_decay", "wd_drop_token", "wd_drop_exact", "wd_drop_exact_final",
       "mixed_lengths", "carry_mix", "fade_token"]  # fmt: skip


@pytest.mark.parametrize("condition", ["", ", when: {recipe.optimiser: lion}"])
def test_an_end_is_possible_by_whichever_of_many_fields(condition):
    """A smooth decay needs a drop below 1, and ten fields change before that one does."""
    ends = (f"recipe.{name}: {{float: [0.1, 0.2]}}" for name in TEN)
    first = ("recipe.wd_drop: {choice: [1.0, 0.5]}", "recipe.optimiser: {choice: [adamw, lion]}")
    study = study_of(*first, *ends, f"recipe.wd_schedule: {{choice: [constant, smooth]{condition}}}")
    assert len(study.space) == 13


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
