"""Starts: initial values as part of the recipe."""

import math

import pytest
import torch

from search.study.file import parse_study
from search.study.trial import Configuration
from tests.banks import SPEC, finish, make, pair
from trainer import Pair, Recipe
from trainer.recipe.starts import initial_theta

MANY = range(200)


def tensors(seed=1, spec=SPEC, **recipe):
    theta_P = initial_theta(spec, Recipe(**recipe), seed)
    return {name: t[0] for name, t in spec.layout.split(theta_P[None]).items()}


def entries(name, **recipe):
    """A tensor's entries over many seeds."""
    return torch.cat([tensors(s, **recipe)[name].flatten() for s in MANY])


def test_a_start_depends_on_its_own_tensor_seed_and_row_alone():
    normal, plain = [["fc1", "normal", 0.5]], tensors()
    changed = tensors(init=[*normal, ["head", "scaled", 2]])
    assert torch.equal(changed["head"], 2 * plain["head"])
    assert torch.equal(changed["fc1"], tensors(init=normal)["fc1"])
    assert not torch.equal(changed["fc1"], tensors(2, init=normal)["fc1"])
    for name in plain.keys() - {"fc1", "head"}:
        assert torch.equal(changed[name], plain[name])
    both = tensors(init=[*normal, ["head", "normal", 0.5]])
    assert not torch.equal(both["fc1"].flatten(), both["head"].flatten())


@pytest.mark.parametrize(
    ("tensor", "how", "number", "bound", "spread"),
    [
        ("head", "normal", 0.5, None, 0.5),
        ("head", "uniform", 0.5, 0.5, 0.5 / math.sqrt(3)),
        ("fc1", "xavier", 2, 2 * math.sqrt(6 / 7), 2 * math.sqrt(2 / 7)),
        ("fc1", "kaiming", 1, math.sqrt(3 / 5), math.sqrt(1 / 5)),
    ],
)
def test_distributions_are_as_named(tensor, how, number, bound, spread):
    values = entries(tensor, init=[[tensor, how, number]])
    assert float(values.std()) == pytest.approx(spread, rel=0.05) and abs(float(values.mean())) < 0.05
    assert bound is None or 0.95 * bound < float(values.abs().max()) <= bound + 1e-6


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


def test_a_study_says_it_beside_its_seeds(tmp_path):
    text = "name: x\nmodel: 57p\nrecipe: {steps: 2000}\nseeds: {first: 1, count: 2, best_of: 8, by: odd}"
    (spec, recipe) = parse_study(text, "").listed[0]
    assert (spec, recipe) == (SPEC, Recipe(steps=2000, best_of=8, best_by="odd"))
    listed = text + "\nconfigurations: [{recipe: {lr: 0.1}}]"
    assert parse_study(listed, "").listed == [(SPEC, Recipe(steps=2000, lr=0.1, best_of=8, best_by="odd"))]
    plain = parse_study(text.replace(", best_of: 8, by: odd", ""), "").listed[0][1]
    assert Configuration(SPEC, recipe).key != Configuration(SPEC, plain).key
