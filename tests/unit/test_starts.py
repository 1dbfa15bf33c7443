"""Starts: initial values as part of the recipe."""

import math

import pytest
import torch

from model import preset
from search.study.file import parse_study
from search.study.trial import Configuration
from tests.banks import SPEC, assert_same, finish, make, pair
from trainer import Bank, Pair, Recipe, Seed
from trainer.recipe.starts import initial_theta

MANY = range(200)


def tensors(seed=1, spec=SPEC, **recipe):
    theta_P = initial_theta(spec, Recipe(**recipe), seed)
    return {name: t[0] for name, t in spec.layout.split(theta_P[None]).items()}


def entries(name, **recipe):
    """A tensor's entries over many seeds."""
    return torch.cat([tensors(s, **recipe)[name].flatten() for s in MANY])


@pytest.mark.parametrize("name", ["57p", "170p", "456p", "46p"])
def test_by_default_a_seed_starts_as_its_spec_says(name):
    for seed in (0, 777, 90_001):
        assert torch.equal(initial_theta(preset(name), Recipe(), seed), preset(name).initial(seed))


def test_only_tensors_that_are_named_start_otherwise():
    own, changed = tensors(), tensors(init=[["fc1", "normal", 0.5], ["head", "scaled", 2]])
    assert torch.equal(changed["head"], 2 * own["head"])
    assert not torch.equal(changed["fc1"], own["fc1"])
    for name in own.keys() - {"fc1", "head"}:
        assert torch.equal(changed[name], own[name])


def test_a_start_depends_on_its_own_seed_and_row_alone():
    one = tensors(init=[["fc1", "normal", 0.5]])
    both = tensors(init=[["fc1", "normal", 0.5], ["head", "normal", 0.5]])
    assert torch.equal(one["fc1"], both["fc1"])
    assert not torch.equal(one["fc1"], tensors(2, init=[["fc1", "normal", 0.5]])["fc1"])
    assert not torch.equal(both["fc1"].flatten(), both["head"].flatten())


def test_distributions_are_what_they_say():
    normal = entries("head", init=[["head", "normal", 0.5]])
    assert float(normal.std()) == pytest.approx(0.5, rel=0.05) and abs(float(normal.mean())) < 0.05
    flat = entries("head", init=[["head", "uniform", 0.5]])
    assert 0.49 < float(flat.abs().max()) <= 0.5 and float(flat.std()) == pytest.approx(
        0.5 / math.sqrt(3), rel=0.05
    )
    xavier = entries("fc1", init=[["fc1", "xavier", 2]])
    assert 1.9 * math.sqrt(6 / 7) < float(xavier.abs().max()) <= 2 * math.sqrt(6 / 7) + 1e-6
    kaiming = entries("fc1", init=[["fc1", "kaiming", 1]])
    assert 0.97 * math.sqrt(3 / 5) < float(kaiming.abs().max()) <= math.sqrt(3 / 5) + 1e-6
    assert torch.equal(tensors(init=[["fc1", "scaled", 0]])["fc1"], torch.zeros(2, 5))


def test_numbers_are_given_to_all_or_to_each_and_rows_add_up():
    at = tensors(init=[["arc", "at", 2.5, -0.6, 0.13], ["norm", "at", 2]])
    assert at["arc"].tolist() == pytest.approx([2.5, -0.6, 0.13]) and at["norm"].tolist() == [[2.0] * 5]
    around = tensors(init=[["arc", "at", 2.5, -0.6, 0.13], ["arc", "normal", 0.1]])
    noise = around["arc"] - at["arc"]
    assert 0 < float(noise.abs().max()) < 0.5


def test_a_bank_starts_from_it():
    rows = [["fc1", "normal", 0.5]]
    recipe = {"init": rows, "steps": 5, "eval_every": 5}
    bank = make([pair(3, **recipe)])
    assert torch.equal(bank.state["theta"][0], initial_theta(SPEC, Recipe(init=rows), 3))
    given = tuple(initial_theta(SPEC, Recipe(init=rows), 3).tolist())
    plain = pair(3, steps=5, eval_every=5)
    like = finish(make([Pair(plain.recipe, plain.seed, start=given)])).result(0)
    mine = finish(bank).result(0)
    assert torch.equal(mine.theta_P, like.theta_P) and torch.equal(mine.curve_EM, like.curve_EM)


def test_seeds_of_different_starts_share_a_bank():
    how = [{}, {"init": [["fc1", "xavier", 0.5]]}, {"init": [["head", "scaled", 3]]}]
    together = finish(make([pair(3, **changes) for changes in how]))
    for n, changes in enumerate(how):
        assert_same(together.result(n), finish(make([pair(3, **changes)])).result(0))


def test_the_most_promising_of_several_vectors_starts():
    """By the probe, of vectors of which the first is the seed's own; more of them only add."""
    found = [
        initial_theta(SPEC, Recipe(best_of=n, best_by="odd"), 5) if n > 1 else SPEC.initial(5)
        for n in (1, 4, 64)
    ]
    promise = [float(SPEC.probes()["odd"](SPEC, t[None].double())) for t in found]
    assert promise[0] <= promise[1] <= promise[2] and promise[0] < promise[2] > 0.9
    again = initial_theta(SPEC, Recipe(best_of=64, best_by="odd"), 5)
    assert torch.equal(again, found[2]) and not torch.equal(
        again, initial_theta(SPEC, Recipe(best_of=64, best_by="odd"), 6)
    )


def test_where_all_vectors_promise_the_same_a_seed_starts_from_its_own():
    """The stride of the arc is a constant at step 0."""
    assert torch.equal(initial_theta(SPEC, Recipe(best_of=9, best_by="stride"), 3), SPEC.initial(3))


def test_vectors_are_drawn_as_init_says():
    rows = [["head", "normal", 0.01]]
    theta_P = initial_theta(SPEC, Recipe(best_of=9, best_by="odd", init=rows), 3)
    head = SPEC.layout.split(theta_P[None])["head"]
    assert float(head.abs().max()) < 0.1


def test_a_study_says_it_beside_its_seeds(tmp_path):
    text = "name: x\nmodel: 57p\nrecipe: {steps: 2000}\nseeds: {first: 1, count: 2, best_of: 8, by: odd}"
    (spec, recipe) = parse_study(text, "").listed()[0]
    assert (spec, recipe) == (SPEC, Recipe(steps=2000, best_of=8, best_by="odd"))
    listed = text + "\nconfigurations: [{recipe: {lr: 0.1}}]"
    assert parse_study(listed, "").listed() == [(SPEC, Recipe(steps=2000, lr=0.1, best_of=8, best_by="odd"))]
    plain = parse_study(text.replace(", best_of: 8, by: odd", ""), "").listed()[0][1]
    assert Configuration(SPEC, recipe).key != Configuration(SPEC, plain).key


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"init": 3}, "init must be a list"),
        ({"init": [["fc1", "normal"]]}, "init must be rows .tensor, how, numbers."),
        ({"init": [["fc1", 3, 3]]}, "init must be rows"),
        ({"init": [["fc1", "normal", math.nan]]}, "init must be rows"),
        ({"init": [["fc1", "normal", "wide"]]}, "init must be rows"),
        ({"init": [["fc1", "gauss", 1]]}, "unknown 'gauss'"),
        ({"init": [["fc1", "xaveir", 1]]}, "did you mean xavier"),
        ({"init": [["fc1", "normal", -1]]}, "one number of 0 or more"),
        ({"init": [["fc1", "normal", 1, 2]]}, "one number of 0 or more"),
        ({"init": [["fc1", "normal", 1]] * 65}, "at most 64 rows"),
        ({"best_of": 8}, "best_of must go with best_by"),
        ({"best_by": "odd"}, "best_of must go with best_by"),
        ({"best_of": 0}, "best_of must be from 1"),
    ],
)
def test_an_impossible_start_is_one_clear_line(options, says):
    with pytest.raises(ValueError, match=says) as caught:
        Recipe(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"init": [["fc3", "normal", 1]]}, "unknown 'fc3'; did you mean fc1"),
        ({"init": [["arc", "at", 1, 2]]}, "1 or 3 numbers where arc starts at some, got 2"),
        ({"init": [["arc", "xavier", 1]]}, "of a matrix to draw by xavier, and arc is none"),
        ({"best_of": 8, "best_by": "ood"}, "unknown 'ood'; did you mean odd"),
    ],
)
def test_a_start_that_the_model_cannot_have_is_one_clear_line(how, says):
    with pytest.raises(ValueError, match=says):
        Bank(SPEC, [Pair(Recipe(**how), Seed.of(1))])


def test_a_start_survives_plain_values():
    recipe = Recipe(init=[["fc1", "normal", 1], ["arc", "at", 1, 2, 3]])
    assert Recipe(**recipe.as_dict()) == recipe and hash(recipe) == hash(Recipe(**recipe.as_dict()))
    assert recipe.as_dict()["init"] == [["fc1", "normal", 1], ["arc", "at", 1, 2, 3]]
