"""The hand-built adder: its derivation makes the certificate's numbers, and it attends as derived.

What it adds: verification and proof of that certificate (test_certificates.py).
"""

import math

import torch

from lab import forged_adder as forged
from lab import forged_numbers
from lab.forged_adder import EQUALS
from lab.forged_numbers import attention, attention_form
from tests import CERTIFICATES
from trainer.checkpoints.checkpoint import Checkpoint

SPEC, THETA = forged_numbers.forged_adder()
FIRST = SPEC.prompt - 1


def test_34_numbers_are_the_certificates():
    certificate = Checkpoint.load(CERTIFICATES / "34p-by-hand")
    assert certificate.spec == SPEC and torch.equal(certificate.theta_P, THETA)
    assert SPEC.layout.budget() == {"arc": 3, "form": 9, "out_A": 2, "fc1": 10, "head": 10}


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
