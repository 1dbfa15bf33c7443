"""Folds: what remains of published rungs. That the answers stay the same is in test_families.py."""

import pytest
import torch

from model import add, preset
from model.adderboard import uniform_pairs
from model.fold import fold
from tests.specs import some_theta

FOLDED = """
    242p 203, 226p 187, 214p 175, 203p 167, 187p 167, 170p 160, 141p 118, 133p 107, 100p 76, 90p 66,
    80p 66, 78p 64, 75p 61, 74p 60, 72p 61, 71p 60, 70p 56, 67p 56, 64p 56, 61p 56, 57p 46, 54p 46, 47p 46,
    46p 46,
    777p 756, 763p 756, 582p 579, 456p 453, 311p 288, 262p 236
"""


@pytest.mark.parametrize(("name", "count"), [pair.split() for pair in FOLDED.split(",")])
def test_what_remains(name, count):
    folded = fold(preset(name), some_theta(preset(name))[0])
    assert folded.spec.params == len(folded.theta_P) == int(count)


@pytest.mark.parametrize("name", ["311p", "262p"])
def test_at_width_4_nothing_but_the_position_table_is_worth_a_factorisation(name):
    expected = {"pos_rank": preset(name).pos_rank, "tie_qkv": "kv", "rms_norm": True, "no_eos": True}
    assert fold(preset(name), preset(name).initial(0)).spec.applied() == expected


@pytest.mark.parametrize("name", ["57p", "54p", "47p"])
def test_57p_becomes_46p(name):
    assert fold(preset(name), preset(name).initial(0) + 1).spec == preset("46p")


@pytest.mark.parametrize("first", [0.0, 1e-42, 1e-38])
def test_what_cannot_be_divided_by_stays(first):
    """The output's row begins with 0, as at the start, or with next to nothing: a quotient would overflow."""
    spec = preset("57p")
    tensors = {name: t[0].clone() for name, t in spec.layout.split(some_theta(spec)).items()}
    tensors["out_B"][0, 0] = first
    folded = fold(spec, spec.layout.join(tensors))
    assert folded.spec == preset("47p") and folded.theta_P.isfinite().all()


def test_an_untrained_output_stays_silent():
    assert fold(preset("57p"), preset("57p").initial(0)).spec == preset("47p")


@pytest.mark.parametrize("name", ["57p", "262p"])
def test_in_single_precision_the_answers_are_the_same(name):
    spec, pairs = preset(name), uniform_pairs(1, 40)
    theta_P = some_theta(spec)[0]
    folded = fold(spec, theta_P)
    a, b = zip(*pairs, strict=True)
    assert folded.theta_P.dtype == torch.float32
    assert add(folded.spec, folded.theta_P, a, b) == add(spec, theta_P, a, b)
