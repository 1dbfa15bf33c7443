"""The CUDA engine without a GPU: its text by g++, a team of fibres a seed, bit for bit what the CPU engine does.

What nobody has written is no number there, and threads that part before a meeting are noticed.
"""

import ctypes
import dataclasses
import re

import numpy as np
import pytest
import torch

from benchmarks.emulator import Emulator
from gpu import backend as cuda_backend
from gpu import comparison, guard, nvrtc
from gpu.backend import CudaBackend, macros_of
from gpu.driver import CudaError
from gpu.graph import Values, gradient
from gpu.machine import source_of
from gpu.schedule import schedule
from model import PRESETS, preset
from model.tied import Tied, constrained
from tests import by_tier, needs_compiler
from tests.banks import SPEC
from tests.contract.test_optimisers import VARIANTS
from tests.gpu.threads import ThreadedMachine
from tests.unit.test_native import ENTRYWISE
from tests.unit.test_tasks import ASKED
from trainer import Bank, Pair, Recipe, Seed
from trainer.data.hard_examples import COUNT, OPERANDS
from trainer.engine import native
from trainer.engine.build import denormals
from trainer.engine.native import EngineBackend

pytestmark = [needs_compiler, pytest.mark.usefixtures("few_selection_problems")]
PARTLY_EMPTY = 40  # problems: two blocks and a half
LATER = 12_000
BY_KERNEL = {(s.family, *s.kernel().shape.items()): name for name in PRESETS if (s := preset(name)).kernel()}
SHAPES = {
    "57p": SPEC,
    "tied": Tied(base=SPEC, ties=constrained(SPEC, ["norm[0,1] = norm[0,0]", "fc1[1,4] = -fc1[0,0]"])),
    "two heads on a circle": dataclasses.replace(preset("74p"), pos_dim=4, heads=2, rank1_out=False, rank2_out=True),
    "eight hidden units": dataclasses.replace(preset("67p"), hidden=8),
    **{name: preset(name) for name in ("100p", *BY_KERNEL.values())},
}
"""A preset for each shape that a kernel is compiled for, and what no preset has."""
QUICK = ("57p", "tied", "100p", "262p")


def bank_of(spec, seeds=(777, 1), ties=None, **fields):
    recipe = Recipe(**{"batch": PARTLY_EMPTY, "mixed_lengths": 0.2, **fields})
    return Bank(spec, [Pair(recipe, Seed.of(s), ties=ties) for s in seeds])


def emulated(bank):
    return CudaBackend(bank.spec, bank.pairs[0].recipe, Emulator())


def bits(tensors):
    return {k: t.view(torch.int32) if t.dtype == torch.float32 else t for k, t in tensors.items()}


def assert_same_bits(ours, expected):
    """Of every tensor, θ and the optimiser's state among them."""
    assert ours.keys() == expected.keys()
    different = [k for k, t in bits(ours).items() if not torch.equal(t, bits(expected)[k])]
    assert not different
    assert all(torch.isfinite(t).all() for t in ours.values() if t.is_floating_point())


def assert_trains_alike(bank, backend, counts, starts=(0,)):
    for start in starts:
        state = {**bank.state, "step": bank.state["step"] + start}
        for steps in counts:
            (ours, loss), (expected, cpu_loss) = (b.train(state, bank.hyper, steps) for b in (backend, bank.backend))
            assert_same_bits({**ours, "loss": loss}, {**expected, "loss": cpu_loss})
    return ours


@pytest.mark.parametrize("name", by_tier(list(SHAPES), QUICK))
def test_every_shape_has_the_cpus_bits(name):
    bank = bank_of(SHAPES[name])
    backend = emulated(bank)
    assert_trains_alike(bank, backend, (1, 10, 100))
    assert_trains_alike(bank, backend, (1,), range(1, 9))  # a loss each: sums would hide a last bit
    ours = assert_trains_alike(bank, backend, (20,), (LATER,))
    theta, tokens = ours["theta"], bank.backend.problems.expand(2, -1, -1)[..., :70]
    assert_same_bits(backend.evaluate(theta), bank.backend.evaluate(theta))
    assert torch.equal(backend.is_wrong(theta, tokens), bank.backend.is_wrong(theta, tokens))


@pytest.mark.parametrize("name", [n for n in VARIANTS if n not in ("teacher", "all wrappers")])
def test_every_optimiser_and_wrapper_has_the_cpus_bits(name):
    bank = bank_of(SPEC, batch=16, **VARIANTS[name])
    if bank.pairs[0].recipe.targeted:
        bank.state[OPERANDS][:, :, :2] = torch.tensor([[1234567890.0, 99.0], [55.0, 1.0]]).double()
        bank.state[COUNT][:] = 2
    assert_trains_alike(bank, emulated(bank), (6,), (0, LATER))


@pytest.mark.parametrize("name", ["arithmetic", "limits", "bends"])
def test_a_gradient_of_operations_has_the_cpus_bits(name):
    """At limits and bends too. Each of its operations is the CPU engine's."""
    tape = native.record(lambda g: [ENTRYWISE[name](g["a"], g["b"])], {"a": (8,), "b": (8,)}, native.constant_fold)
    draw = torch.Generator().manual_seed(5)
    given = torch.randint(-1, 2, (16,), generator=draw).float().numpy()
    pull = torch.randn(len(tape.outputs), generator=draw).numpy()
    values = Values()
    registers = values.tape(tape, values.given)
    slopes = gradient(values, tape, registers, [values.given(16 + n) for n in range(len(pull))])
    numbers = {value: np.frombuffer(bits, np.float32)[0] for bits, value in values.constants.items()}
    numbers |= {value: [*given, *pull][slot] for value, slot in values.slots.items()}
    for value, (kind, reads) in enumerate(zip(values.kinds, values.reads, strict=True)):
        if kind >= 0:
            numbers[value] = native.constant_fold(kind, *(numbers[r] for r in reads))
    found = np.array([numbers[value] for value in slopes], np.float32)
    assert np.array_equal(found, native.run(tape, given, pull))


@pytest.mark.parametrize("spec", ASKED)
def test_every_task_has_the_cpus_bits(spec):
    bank = bank_of(spec)
    assert_trains_alike(bank, emulated(bank), (1, 10))


def test_ties_on_their_ramp_have_the_cpus_bits():
    ties = constrained(SPEC, ["norm[0,1] = -norm[0,0]", "fc1[1,4] = fc1[0,0]", "fc1[0,1] = 0"])
    bank = bank_of(SPEC, ties=ties, batch=16, ramp=8, ramp_start=2)
    assert_trains_alike(bank, emulated(bank), (3, 20))


@pytest.mark.full
def test_a_batch_of_more_than_a_chunk_has_the_cpus_bits():
    """A circle's kernel then adds to sums that it keeps in memory."""
    bank = bank_of(SPEC, batch=270)
    assert_trains_alike(bank, emulated(bank), (2,), (0, LATER))


def test_more_answers_than_threads_have_the_cpus_bits():
    """A circle's kernel then has no thread for each answer's sum, and keeps them in memory."""
    bank = bank_of(preset("57p addition digits=15"), batch=16)
    assert bank.spec.answers == 17
    assert_trains_alike(bank, emulated(bank), (2,))


@pytest.mark.full
@pytest.mark.parametrize("name", ["57p", "100p", "262p"])
def test_nvrtc_rounds_as_the_cpu_does(name):
    """To the nearest number, and denormal ones to 0 where the CPU makes them 0. Bits: benchmarks/gpu.py."""
    kernel = SHAPES[name].kernel()
    text, headers = source_of(kernel, macros_of(SHAPES[name], kernel, Recipe()))
    ptx = nvrtc.compiled(text, headers, "sm_90", "PTX").decode()
    used = set(re.findall(r"\b(?:add|sub|mul|div|rcp|fma|sqrt|neg|abs|min|max|setp)\.[\w.]*f32\b", ptx))
    assert len(used) > 8
    wrong = {
        op for op in used if {"approx", "full", "sat"} & set(op.split(".")) or ("ftz" in op) != (denormals() == "0")
    }
    assert not wrong


@pytest.mark.full
@pytest.mark.parametrize("name", ["57p", "100p"])
def test_sixteen_threads_have_no_race(name, tmp_path):
    bank = bank_of(SHAPES[name], batch=16)
    threads = CudaBackend(bank.spec, bank.pairs[0].recipe, ThreadedMachine(tmp_path))
    assert_trains_alike(bank, threads, (3,))


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "header", "before"),
    [
        ("57p", "steps.h", "slot[round[u].to()] = made[u].v;\n        "),
        ("100p", "kernel_by_problem.h", "w.scale[t][v] : top[t];\n        }\n        "),
    ],
)
def test_a_meeting_that_is_left_out_is_a_race(name, header, before, tmp_path):
    bank = bank_of(SHAPES[name], batch=16)
    machine = ThreadedMachine(tmp_path, (header, before))
    # A number that one thread reads too early may be an index, so a race can end in a fault before it is reported.
    with pytest.raises(CudaError, match=r"ThreadSanitizer: (data race|SEGV)"):
        CudaBackend(bank.spec, bank.pairs[0].recipe, machine).train(bank.state, bank.hyper, 30)


@pytest.fixture
def other_constant(monkeypatch):
    """Give the CUDA engine the next number for the spiral's radius, 3.5."""

    def changed(*arguments):
        planned = schedule(*arguments)
        constants = planned.constants.copy()
        (at,) = np.flatnonzero(constants == np.float32(3.5))
        constants[at] = np.nextafter(constants[at], np.float32(4))
        return dataclasses.replace(planned, constants=constants)

    monkeypatch.setattr(cuda_backend, "schedule", changed)


def test_another_constant_fails_these_tests_and_the_self_test(other_constant):
    bank = bank_of(SPEC, batch=16)
    with pytest.raises(AssertionError, match=r"\['theta'"):
        assert_trains_alike(bank, emulated(bank), (1,))
    recipe = bank.pairs[0].recipe
    why = comparison.failure(emulated(bank), EngineBackend(SPEC, recipe), recipe)
    assert why.startswith("other bits (step 1, seed ")


def test_another_constant_is_noticed_while_training(other_constant, caplog):
    """At a bank's start; and within its steps, which the CPU engine then repeats."""
    bank = bank_of(SPEC, batch=16)
    checked = [guard.CheckedBackend(SPEC, bank.pairs[0].recipe, Emulator()) for _ in range(2)]
    checked[0].warm_up(bank.state, bank.hyper)
    state, _ = checked[1].train(bank.state, bank.hyper, 5)
    assert_same_bits(state, bank.backend.train(bank.state, bank.hyper, 5)[0])
    assert [c.name for c in checked] == ["native", "native"]
    where = ["step 1, seed ", "within 5 steps, slot 1, "]
    said = [record.getMessage() for record in caplog.records]
    assert all(f"gave other bits on emulator ({w}" in line for w, line in zip(where, said, strict=True))


def test_every_seed_is_trained_again_by_the_cpu_in_turn(monkeypatch):
    """And evaluated: the two kinds of work alternate, with an even number of seeds."""
    bank = bank_of(SPEC, batch=16)
    checked, state, again = guard.CheckedBackend(SPEC, bank.pairs[0].recipe, Emulator()), bank.state, []
    train = EngineBackend.run_steps

    def trained_again(self, slots, steps):
        again.extend(slots.data_seeds.tolist())
        return train(self, slots, steps)

    monkeypatch.setattr(EngineBackend, "run_steps", trained_again)
    for _ in range(2):
        state, _ = checked.train(state, bank.hyper, 1)
        checked.evaluate(state["theta"])
    assert sorted(again) == sorted(bank.state["data_seed"].tolist())


def test_threads_that_part_are_noticed():
    """A team whose first thread meets once more than the others, and one whose threads all do."""
    emulator = emulated(bank_of(SPEC)).module.library
    assert [emulator.emulated_meetings(ctypes.c_int(more)) for more in (0, 1, 16)] == [1, 0, 1]
