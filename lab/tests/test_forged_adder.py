"""The hand-built adder: it is as small as it says, adds what it says, by the weights that it says."""

import math
from itertools import product

import torch

from lab import forged_adder as forged
from lab import forged_numbers
from lab.forged_adder import EQUALS, MIDDLE, STRIDE
from lab.forged_numbers import attention, attention_form
from model import verify
from model.adderboard import failures, uniform_pairs
from model.decode import columns

SPEC, THETA = forged_numbers.forged_adder()
FIRST = SPEC.prompt - 1


def every_case():
    """A pair for each answer digit, sum of its column, sum of the one before and carry into that.

    The other columns, read with small positive weights, are 0 or 9.
    """
    for k in range(11):
        totals, previous = (range(19) if k < 10 else [0]), (range(19) if k else [0])
        for total, before, carry, loud in product(totals, previous, (0, 1) if k > 1 else [0], (0, 1)):
            sums = [18 * loud] * 10
            sums[k : k + 1] = [total] * (k < 10)
            if k:
                sums[k - 1] = before
            if k > 1:  # 10 and 18 carry, 0 and 8 do not, whatever comes from below
                sums[k - 2] = 10 * carry + 8 * loud
            a = sum(min(9, s) * 10**i for i, s in enumerate(sums))
            yield a, sum(s * 10**i for i, s in enumerate(sums)) - a


def answers(pairs):
    """Logits [11, B, 10] where the answer so far is right, and the right digits [11, B]."""
    a, b = (torch.tensor(n) for n in zip(*pairs, strict=True))
    z = columns(a + b, 11)
    tokens_TB = torch.stack(SPEC.sequence(columns(a, 10), columns(b, 10), z))
    logits = SPEC.forward(THETA[None], tokens_TB[None, :-1], first=FIRST)
    return torch.stack([v[0, :11] for v in logits], dim=-1), torch.stack(z)


def readings(logits):
    """The digit that logits point at, as a real number: where on the arc the head's output lies."""
    angle = (torch.arange(10, dtype=torch.float64) - MIDDLE) * STRIDE
    arc = torch.stack([angle.cos(), angle.sin()], dim=1)
    across, along = torch.linalg.lstsq(arc, logits.double().reshape(-1, 10).T).solution
    return (torch.atan2(along, across) / STRIDE + MIDDLE).view(logits.shape[:-1])


def test_34_numbers_are_officially_right():
    assert SPEC.layout.budget() == {"arc": 3, "form": 9, "out_A": 2, "fc1": 10, "head": 10}
    result = verify(SPEC, THETA)
    assert (result.correct, result.total, result.params) == (10_010, 10_010, 34)


def test_every_case_of_two_columns_and_a_carry():
    pairs = list(every_case())
    assert len(pairs) == 2 * (19 + 19**2 + 8 * 19**2 * 2 + 19 * 2)
    assert failures(SPEC, THETA, pairs) == []


def test_margins():
    """A digit is read at most 0.3 from its place, and wins by 3e-6 of the largest logit."""
    logits, right = answers([*every_case(), *uniform_pairs(20_260_102, 5_000)])
    assert (readings(logits) - right).abs().max() < 0.3
    won = logits.gather(-1, right[..., None])
    others = logits.scatter(-1, right[..., None], -math.inf)
    assert ((won - others.amax(-1, keepdim=True)) / logits.abs().amax(-1, keepdim=True)).min() > 3e-6


# Attention


def test_the_model_attends_as_derived():
    """At the 11 answer positions on 33 tokens, from θ, token by token, in float32."""
    part = {name: t[0] for name, t in SPEC.layout.split(THETA[None]).items()}
    spiral = forged_numbers.points()[0].float()
    position = torch.cat([spiral[:10], torch.zeros(1, 3), spiral, spiral[:10], torch.zeros(1, 3)])
    normed = position / ((part["arc"][0] ** 2 + (position**2).sum(1, keepdim=True)) / 5 + 1e-5).sqrt()
    scores = normed[FIRST:32] @ part["form"] @ normed[:33].T
    masked = scores.masked_fill(torch.ones(11, 33, dtype=torch.bool).triu(FIRST + 1), -math.inf)
    derived = attention(attention_form()).float().roll(1, 0)  # EQUALS reads first
    place = [*range(10), forged.PLUS, *range(10), EQUALS, *range(10)]
    for reader, last in enumerate(range(FIRST, 32)):
        expected = derived[reader, place[: last + 1]]
        torch.testing.assert_close(masked.softmax(1)[reader, : last + 1], expected, atol=2e-4, rtol=1e-2)
