"""forgeformer: its states and its sums."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from lab import forged
from lab.forged import CORRECTED, LITERAL, PUBLISHED, STATES

BY_HAND = """
x1      0 3 1 | 0 7 -1 | 0 4 1 | 0 6 -1 | 0 0 1
q1      0 0 10 | 0 0 -10 | 0 0 10 | 0 0 -10 | 0 0 10
k1      0 0 -10 | 0 0 10 | 0 0 -10 | 0 0 10 | 0 0 -10
v1      6 0 0 | 14 0 0 | 8 0 0 | 12 0 0 | 0 0 0
kq1     -100 100 -100 100 -100 | 100 -100 100 -100 100 | -100 100 -100 100 -100 | 100 -100 100 -100 100 | -100 100 -100 100 -100
attn1   0 1/2 0 1/2 0 | 1/3 0 1/3 0 1/3 | 0 1/2 0 1/2 0 | 1/3 0 1/3 0 1/3 | 0 1/2 0 1/2 0
x2      13 3 1 | 14/3 7 -1 | 13 4 1 | 14/3 6 -1 | 13 0 1
q2      0 0 10 | 0 0 -10 | 0 0 10 | 0 0 -10 | 0 0 10
k2      0 0 10 | 0 0 -10 | 0 0 10 | 0 0 -10 | 0 0 10
v2      0 9 0 | 0 21 0 | 0 12 0 | 0 18 0 | 0 0 0
kq2     100 -100 100 -100 100 | -100 100 -100 100 -100 | 100 -100 100 -100 100 | -100 100 -100 100 -100 | 100 -100 100 -100 100
attn2   1/3 0 1/3 0 1/3 | 0 1/2 0 1/2 0 | 1/3 0 1/3 0 1/3 | 0 1/2 0 1/2 0 | 1/3 0 1/3 0 1/3
output  13 10 1 | 14/3 26.5 -1 | 13 11 1 | 14/3 25.5 -1 | 13 7 1
"""  # noqa: E501


def test_37_and_46_by_hand():
    trace = forged.forge(37, 46)
    lines = [line.split(maxsplit=1) for line in BY_HAND.strip().splitlines()]
    assert {name for name, _ in lines} == set(STATES) == set(trace.states)
    for name, text in lines:
        expected = [[float(Fraction(number)) for number in row.split()] for row in text.split("|")]
        np.testing.assert_allclose(trace.states[name].numpy(), expected, rtol=0, atol=1e-12, err_msg=name)
    assert (trace.units_sum, trace.tens_sum, trace.carry, trace.answer) == (13, 7, 1, 83) and trace.correct


@pytest.mark.parametrize(("forging", "nonzero", "off"), [(PUBLISHED, 6, 0), (CORRECTED, 7, 0), (LITERAL, 6, -20)])
def test_all_sums_and_what_a_forging_costs(forging, nonzero, off):
    """The end token's id taken for a digit makes every sum 20 short."""
    a, b = forged.every_pair()
    assert len(a) == 9_801 and {*a.tolist()} == {*b.tolist()} == {*range(1, 100)}
    ids = torch.stack([a // 10, a % 10, b // 10, b % 10, torch.full_like(a, forged.EOS)], dim=-1)
    answers = forged.read_out(forged.forward(ids, forging)["output"])["answer"]
    assert torch.equal(answers, a + b + off)
    assert forged.count_correct(forging) == (9_801 if off == 0 else 0)
    assert (forging.family, forging.params, forging.nonzero) == ("forged", 54, nonzero)
    assert forged.forging(forging.name) is forging and hash(forging) == hash(replace(forging))
