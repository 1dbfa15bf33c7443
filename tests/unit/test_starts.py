"""Starts: initial values as part of the recipe."""

import math

import pytest
import torch

from tests.banks import SPEC
from trainer import Recipe
from trainer.recipe.starts import initial_theta

MANY = range(200)


def tensors(seed=1, **recipe):
    theta_P = initial_theta(SPEC, Recipe(**recipe), seed)
    return {name: t[0] for name, t in SPEC.layout.split(theta_P[None]).items()}


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
