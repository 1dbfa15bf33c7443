"""`diagnose`, given what it cannot work on."""

import time

import pytest
import torch

from model import PRESETS, make_spec
from tests.commands import fails_with_one
from tests.unit.test_hostile import checkpoint

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("spec", "theta", "why"),
    [
        (make_spec(family="low_rank", width=16, ffn=64), 1.0, "has 3,920 numbers; a Hessian is computed of 1,024"),
        (PRESETS["57p"], 3e38, "derivatives at this θ are not finite"),
    ],
    ids=["many numbers", "large numbers"],
)
def test_a_diagnosis_that_would_take_long(spec, theta, why):
    path, begun = checkpoint("bad", spec, theta=torch.full((spec.params,), theta)), time.process_time()
    assert why in fails_with_one(2, "diagnose", path)
    assert time.process_time() - begun < 10
