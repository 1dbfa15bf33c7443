"""ARM has x86-64's bits: engine and kernels compiled for its 64-bit chips, and run by QEMU."""

import platform
from fractions import Fraction

import numpy as np
import pytest

from model import preset
from model.tied import constrained
from tests.arm import COMPILER, MACHINE, assert_same_there, near_the_smallest, needs_arm
from tests.banks import SPEC
from trainer import Bank, Pair, Recipe, Seed

pytestmark = needs_arm
TIES = constrained(SPEC, ["norm[0,1] = norm[0,0]", "fc1[1,4] = -fc1[0,0]"])


def assert_same_bits(spec, seeds, steps, folder, optimise, ties=None, factor=1.0, **fields):
    recipe = Recipe(steps=1_000, warmup=20, mixed_lengths=0.2, curriculum=((3, 20),), **fields)
    bank = Bank(spec, [Pair(recipe, Seed.of(n), ties=ties) for n in seeds])
    slots = bank.backend.slots_of(bank.state, bank.hyper)
    slots.rows[0, bank.backend.places["theta"]] *= np.float32(factor)
    here = assert_same_there(bank.backend, slots, steps, folder, optimise)
    assert np.isnan(here.rows).any() == (factor > 1)


@pytest.mark.usefixtures("few_selection_problems")
@pytest.mark.parametrize("how", [{"ties": TIES, "ramp": 10}, {"factor": 1e30}], ids=["ties", "a seed that diverges"])
def test_neon_has_the_same_bits(how, tmp_path):
    """To those of what is no number any more."""
    assert_same_bits(SPEC, (777, 1), 40, tmp_path, "-O1", batch=40, **how)


@pytest.mark.full
@pytest.mark.parametrize("name", ["57p", "100p", "170p", "262p", "62p"])
def test_neon_has_the_same_bits_of_every_family_in_whole_batches(name, tmp_path):
    """As a user's compiler would build them, for 300 steps of problems of all kinds, then all 5,000 evaluated ones."""
    kinds = ((0, 0.2, 0.1, 0.1, 0.0), (300, 0.0, 0.1, 0.2, 0.2))
    assert_same_bits(preset(name), (777, 1, 5, 9, 12), 300, tmp_path, "-O3", carry_shares=kinds)


SMALLEST = Fraction(2) ** -126
"""The smallest normal number: what is below is 0 in the engine."""
HALF_AN_ULP = Fraction(2) ** -151
"""Half the distance from it to the number below, were there one of 24 bits."""


def numbers_near_the_smallest():
    """Numbers a, b, c [N, 3] whose product, or quotient, lies beside the smallest normal number."""
    rng = np.random.default_rng(1)
    a = (1 + rng.integers(0, 2**23, 1_024) * 2.0**-23).astype(np.float32)
    beside = np.float32(1) / a
    for _ in range(2):
        beside = np.where(rng.random(len(a)) < 0.5, beside, np.nextafter(beside, np.float32(0)))
    half = np.float32(2.0**-63)
    c = np.where(rng.random(len(a)) < 0.5, 0, rng.choice([-1, 1], len(a)) * 2.0**-126).astype(np.float32)
    products = np.stack([a * half, beside * half, c], axis=1)
    quotients = np.stack([a * half, np.nextafter(a, np.float32(2)) / half, c], axis=1)
    sums = np.stack([a * np.float32(2.0**-125), -beside * np.float32(2.0**-125), c], axis=1)
    return np.concatenate([products, quotients, sums])


def results_of(a, b, c):
    a, b, c = map(Fraction, map(float, (a, b, c)))
    return a * b, a / b, a * b + c, a + b


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compares with x86-64")
def test_only_what_rounds_up_to_the_smallest_normal_number_differs(tmp_path):
    """x86-64 rounds first, ARM looks first whether a result is too small. Of sums and quotients none lies so near."""
    numbers = numbers_near_the_smallest()
    here = near_the_smallest("g++", [], numbers, tmp_path)
    there = near_the_smallest(COMPILER, [MACHINE], numbers, tmp_path)
    exact = np.array([results_of(*row) for row in numbers], object)
    rounds_up = (abs(exact) < SMALLEST) & (abs(exact) >= SMALLEST - HALF_AN_ULP)
    products, quotients, fused, sums = rounds_up.sum(0)
    assert min(products, fused) > 50 and quotients == sums == 0
    assert (abs(here[rounds_up]) == np.float32(2.0**-126)).all() and not there[rounds_up].any()
    assert np.array_equal(here[~rounds_up].view(np.int32), there[~rounds_up].view(np.int32))
    below = abs(exact) < SMALLEST - HALF_AN_ULP
    assert below.sum() > 500 and not here[below].any()
