"""ARM has x86-64's bits: engine and kernels compiled for its 64-bit chips, and run by QEMU."""

import numpy as np
import pytest

from model import preset
from model.tied import constrained
from tests.arm import Trained, needs_arm, train_on_arm
from tests.banks import SPEC
from trainer import Bank, Pair, Recipe, Seed

pytestmark = needs_arm
TIES = constrained(SPEC, ["norm[0,1] = norm[0,0]", "fc1[1,4] = -fc1[0,0]"])


def assert_same_bits(spec, seeds, steps, folder, optimise, ties=None, **fields):
    recipe = Recipe(steps=1_000, warmup=20, mixed_lengths=0.2, curriculum=((3, 20),), **fields)
    bank = Bank(spec, [Pair(recipe, Seed.of(n), ties=ties) for n in seeds], futility=None)
    slots = bank.programs.slots_of(bank.state, bank.hyper)
    here = Trained.here(bank.programs, slots, steps)
    there = train_on_arm(bank.programs, slots, steps, folder, optimise)
    assert np.array_equal(here.rows.view(np.int32), there.rows.view(np.int32))
    assert np.array_equal(here.losses.view(np.int32), there.losses.view(np.int32))
    assert here.measures == there.measures


@pytest.mark.usefixtures("few_selection_problems")
def test_neon_has_the_same_bits(tmp_path):
    assert_same_bits(SPEC, (777, 1), 40, tmp_path, "-O1", ties=TIES, batch=40, ramp=10)


@pytest.mark.full
@pytest.mark.parametrize("name", ["57p", "100p", "170p", "262p", "62p"])
def test_neon_has_the_same_bits_of_every_family_in_whole_batches(name, tmp_path):
    """As a user's compiler would build them, for 300 steps, and of all 5,000 evaluated problems."""
    assert_same_bits(preset(name), (777, 1, 5, 9, 12), 300, tmp_path, "-O3")
