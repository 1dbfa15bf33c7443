"""A recipe is groups of fields put together: its keys stay, and what cannot be is one line that names the field."""

import base64
import math
import re

import pytest

from model import preset
from tests.banks import make, pair
from tests.commands import refusal
from trainer import Recipe
from trainer.recipe.teacher import Teacher


def test_a_recipe_survives_plain_values():
    rows = [["fc1", "normal", 1], ["arc", "at", 1, 2, 3]]
    recipe = Recipe(lr=1, curriculum=[[2, 50]], init=rows)
    assert Recipe(**recipe.as_dict()) == recipe and hash(recipe) == hash(Recipe(**recipe.as_dict()))
    assert recipe.as_dict()["curriculum"] == [[2, 50]] and recipe.lr == 1.0
    assert recipe.as_dict()["init"] == rows


# Errors, each of one line

OTHER = Teacher(preset("456p"), tuple(preset("456p").initial(1).tolist())).word
NESTED = "0" * 12 + ":" + base64.b64encode(b"[" * 100_000 + b"\n").decode()
RAMP = {"steps": 24, "eval_every": 4, "fade_start": 4, "fade_end": 8, "ramp_start": 12, "ramp": 4}
REFUSED = [
    # numbers
    ({"steps": 1_500}, "eval_every must divide steps"),
    ({"lr": math.nan}, "lr must be .*nan"),
    ({"steps": 20_000_000, "eval_every": 2_000}, "steps must be .*16777216"),  # the engine counts in float32
    ({"wd_schedule": "odd"}, "^wd_schedule must be .*, got 'odd'$"),
    # lists
    ({"curriculum": ((11, 5),)}, "curriculum must be pairs"),
    ({"carry_shares": ((0, 0.1), (5, 0.1, 0.1, 0.1, 0.1))}, "points of one form"),
    ({"carry_shares": ((0, 0.5, 0.5, 0.5, 0.0),)}, "sum to at most 1"),
    ({"init": [["fc1", "xaveir", 1]]}, "unknown 'xaveir'; did you mean xavier"),
    # combinations
    ({"grokfast_alpha": 0.5}, "^grokfast_alpha=0.5 needs grokfast_lambda$"),
    ({"l1_lambda": 0.1}, "l1_lambda=0.1 needs l1_entries"),
    ({"freeze": ((0, "arc"),), "ramp": 5}, "freeze excludes ramp"),
    ({"freeze": ((0, "arc"),), "recycle_every": 2_000, "recycle_unless": [["token", 1]]}, "excludes recycle_every"),
    (RAMP | {"ramp_start": 22}, r"ramp_start must leave the ramp its steps, got 22 \+ 4 > 24"),
    ({"distill_alpha": 0.5}, "distill_alpha=0.5 needs teacher"),
    ({"teacher": "a" * 2_000_000, "distill_alpha": 0.5}, "^teacher must be .* fewer than 196,608 numbers, got 2,0"),
    ({"teacher": NESTED, "distill_alpha": 0.5}, "^teacher must be a checkpoint.s folder"),
    ({"recycle_every": 2_000}, "recycle_every=2000 needs recycle_unless"),
    ({"recycle_every": 2_000, "recycle_unless": [["odd", "high"]]}, "recycle_unless must be pairs"),
    ({"again_at": 4_000}, "again_at=4000 needs again_unless"),
    ({"again_at": 30_000, "again_most": 2, "again_unless": [["token", 1]]}, "leave steps for the last try"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "says"), REFUSED)
def test_what_no_recipe_can_be_is_one_line(fields, says):
    assert re.search(says, refusal(ValueError, Recipe, **fields))


REFUSED_BY_A_BANK = [
    ({"teacher": "somewhere", "distill_alpha": 0.5}, "must be a checkpoint's folder, or .*, got 'somewhere'"),
    ({"teacher": OTHER, "distill_alpha": 0.5}, "^teacher must have 57p's sequence of tokens, which 456p .* has not"),
    ({"ramp": 5}, "ramp=5 needs ties"),
    (RAMP | {"recycle_every": 4, "recycle_unless": [["token", 1]]}, "^recycle_every does not go with ramp$"),
    (
        {"recycle_every": 5, "recycle_from": 15, "recycle_until": 10, "recycle_unless": [["token", 1]]},
        "^recycle_until must not be before recycle_from, got 10 and 15$",
    ),
    (
        {"wd_schedule": "cyclical", "wd_period": 1, "steps": 20_000},
        "^wd_schedule=cyclical takes at most 15,900 cycles, got steps=20000 and wd_period=1$",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "says"), REFUSED_BY_A_BANK)
def test_what_a_model_cannot_have_is_one_line(fields, says):
    assert re.search(says, refusal(ValueError, lambda: make([pair(1, **fields)])))


@pytest.mark.parametrize("fields", [{"batch": 64}, {"eval_every": 1}, {"targeted": 0.5}, {"optimiser": "sgd"}])
def test_what_shapes_the_program_must_agree(fields):
    with pytest.raises(ValueError, match="agree in batch, eval_every, optimiser"):
        make([pair(1), pair(2, **fields)])
