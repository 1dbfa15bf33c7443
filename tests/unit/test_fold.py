"""Folds of presets. That the answers stay the same is in tests/contract."""

import pytest

from model import preset
from model.fold import fold
from tests.specs import some_theta

FOLDED = """
    242p 203, 226p 187, 214p 175, 203p 167, 187p 167, 170p 160, 141p 118, 133p 107, 100p 76, 90p 66,
    80p 66, 78p 64, 75p 61, 74p 60, 72p 61, 71p 60, 70p 56, 67p 56, 64p 56, 61p 56, 57p 46, 54p 46, 47p 46,
    46p 46,
    777p 756, 763p 756, 582p 579, 456p 453, 311p 288, 262p 236,
    62p 54, 52p 46, 95p 78, 58p 50, 58p-kv 55, 49p 48, 44p 42, 36p 36
"""
"""What an arc leaves unread of 62: a column of keys, two norm weights, a row of the MLP's second layer."""


@pytest.mark.parametrize(("name", "count"), [pair.split() for pair in FOLDED.split(",")])
def test_what_remains(name, count):
    folded = fold(preset(name), some_theta(preset(name))[0])
    assert folded.spec.params == len(folded.theta_P) == int(count)


@pytest.mark.parametrize("first", [0.0, 1e-42, 1e-38])
def test_what_cannot_be_divided_by_stays(first):
    """The output's row begins with 0, as at the start, or with next to nothing: a quotient would overflow."""
    spec = preset("57p")
    tensors = {name: t[0].clone() for name, t in spec.layout.split(some_theta(spec)).items()}
    tensors["out_B"][0, 0] = first
    folded = fold(spec, spec.layout.join(tensors))
    assert folded.spec == preset("47p") and folded.theta_P.isfinite().all()
