"""What curvature makes of a θ has the same bits on every kind of CPU."""

import hashlib

import numpy as np
import pytest
import torch

from adders.curvature import arithmetic, minimise
from adders.curvature.pool import Cost
from model import preset
from model.tied import project
from tests import needs_compiler
from tests.unit.test_native import KINDS, digest_on

pytestmark = needs_compiler


def digest_of(name):
    """Of what this process makes of a net that has not been trained, and of numbers."""
    spec = preset(name)
    made = [*finished(spec, spec.initial(777)), *computed()]
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in made)).hexdigest()


def finished(spec, theta_P):
    """What curvature makes of a θ, by both methods, and the numbers of ties nearest to that."""
    with pytest.MonkeyPatch.context() as patch:
        for name, number in {"FRESH": 64, "MOST_ERRORS": 16, "ITERATIONS": 12}.items():
            patch.setattr(minimise, name, number)
        task = minimise.Task(spec, 1, 0, Cost(), searched=32)
        lower_P = minimise.lbfgs(task, theta_P)
        lowest_P = minimise.levenberg_marquardt(task, lower_P)
    threes = tuple(1 + n // 3 for n in range(spec.params))
    return [lower_P, lowest_P, project(threes, lowest_P[None].float())]


def computed():
    """What the arithmetic of curvature makes of numbers, in float64, where θ is rounded to float32."""
    rows = np.random.default_rng(1).standard_normal((57, 1_001))
    square = arithmetic.gram(rows)
    solution = arithmetic.solve(square, rows[:, 0])
    sums = np.array([arithmetic.dot(row, rows[0]) for row in rows])
    return map(torch.from_numpy, (square, solution, sums, arithmetic.exp(-np.abs(rows))))


@pytest.mark.full
@pytest.mark.parametrize("name", ["57p", "170p", "456p", "763p"])
def test_every_kind_of_cpu_makes_the_same_bits(name):
    if len(KINDS) == 1:
        pytest.skip("this CPU is of one kind only")
    found = {kind: digest_on(kind, name, module="tests.adders.test_curvature") for kind in KINDS[:-1]}
    assert set(found.values()) == {digest_of(name)}, found
