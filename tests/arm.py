"""The CPU engine compiled for 64-bit ARM and run by QEMU: its lanes are NEON's there (arm.cpp)."""

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests import ROOT
from trainer.engine.build import ENGINE, FLAGS, FOLDERS, headers_in
from trainer.engine.native import Slots, kernel_of
from trainer.files.installed import cache_folder

COMPILER, MACHINE = "aarch64-linux-gnu-g++", "qemu-aarch64"
MISSING = [program for program in (COMPILER, MACHINE) if shutil.which(program) is None]
needs_arm = pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}")
MAIN = Path(__file__).with_name("arm.cpp")
PROGRAM_FLAGS = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]


@dataclass(frozen=True)
class Trained:
    """What a program made: rows [S, R], summed losses [S], and sums over evaluated problems [S, bytes]."""

    rows: np.ndarray
    losses: np.ndarray
    measures: bytes

    @classmethod
    def here(cls, backend, slots, steps):
        """Train and evaluate slots on this machine."""
        rows = slots.rows.copy()
        trained = Slots(rows, slots.data_seeds, slots.ties, slots.errors)
        losses = backend.run_steps(trained, steps)
        sums = backend.measure(rows, backend._blocks, backend.problems.shape[-1])
        return cls(rows, losses, bytes(sums))


def program_of(kernel, optimise):
    """Return the program for a kernel's shape, compiled once.

    optimise: the compiler's level of optimisation. It changes the speed and no bit.
    """
    folders = (*FOLDERS, kernel.source.parent, *kernel.folders)
    macros = [f"-D{name}={value}" for name, value in kernel.shape.items()]
    options = [*PROGRAM_FLAGS, optimise, "-static", *(f"-I{folder}" for folder in folders)]
    files = [MAIN, ENGINE, kernel.source, *headers_in(folders)]
    digest = hashlib.sha256("\0".join([*options, *macros]).encode())
    for file in files:
        digest.update(file.read_bytes())
    program = cache_folder() / f"arm-{digest.hexdigest()[:24]}"
    if not program.exists():
        half = program.with_suffix(".half")
        part = program.with_suffix(".o")
        subprocess.run([COMPILER, *options, *macros, "-c", kernel.source, "-o", part], check=True, cwd=ROOT)
        subprocess.run([COMPILER, *options, MAIN, part, "-o", half], check=True, cwd=ROOT)
        part.unlink()
        half.rename(program)
    return program


def near_the_smallest(compiler, machine, numbers_NA, folder):
    """Return a * b, a / b, a * b + c and a + b [N, 4] of numbers a, b, c [N, 3], as the engine computes them.

    machine: words that run a program of the compiler's.
    """
    program = folder / compiler
    source = MAIN.with_name("flush.cpp")
    includes = [f"-I{folder}" for folder in FOLDERS]
    subprocess.run([compiler, *PROGRAM_FLAGS, "-static", *includes, source, "-o", program], check=True, cwd=ROOT)
    blocks = np.ascontiguousarray(numbers_NA.reshape(-1, 16, 3).transpose(0, 2, 1))
    ran = subprocess.run([*machine, program], input=blocks.tobytes(), capture_output=True, check=True)
    return np.frombuffer(ran.stdout, np.float32).reshape(-1, 4, 16).transpose(0, 2, 1).reshape(-1, 4)


def train_on_arm(backend, slots, steps, folder, optimise):
    """Train slots by a program for ARM, then evaluate them on the selection problems."""
    given, made = folder / "given", folder / "made"
    given.write_bytes(b"".join(map(sent, arrays_of(backend, slots, steps))))
    program = program_of(kernel_of(backend.spec), optimise)
    subprocess.run([MACHINE, program, given, made], check=True, timeout=1_200)
    seeds, numbers = slots.rows.shape
    content = made.read_bytes()
    floats = np.frombuffer(content, np.float32, seeds * numbers + seeds)
    rows = floats[: seeds * numbers].reshape(seeds, numbers)
    return Trained(rows, floats[seeds * numbers :], content[floats.nbytes :])


def assert_same_there(backend, slots, steps, folder, optimise):
    """Slots have the same bits after their next steps on ARM as here. Return what they have here."""
    here = Trained.here(backend, slots, steps)
    there = train_on_arm(backend, slots, steps, folder, optimise)
    assert np.array_equal(here.rows.view(np.int32), there.rows.view(np.int32))
    assert np.array_equal(here.losses.view(np.int32), there.losses.view(np.int32))
    assert here.measures == there.measures
    return here


def arrays_of(backend, slots, steps):
    """Yield what the program reads, in its order."""
    for tape in backend.tapes:
        yield np.array([tape.inputs], np.int32)
        yield tape.constants
        yield tape.blocks
        yield from tape.reads
        yield tape.outputs
    source, updated, *_ = backend._arrays
    program = backend.program
    numbers = [getattr(program, name) for name in ("batch", "row", "theta", "step", "gradient", "parameters")]
    yield source
    yield np.array(numbers, np.int32)
    yield updated
    yield slots.rows
    yield slots.data_seeds
    yield np.zeros(0, np.int32) if slots.ties is None else slots.ties
    yield backend._blocks
    yield np.array([steps, backend.problems.shape[-1]], np.int32)


def sent(array):
    """Return an array as the program reads it: its numbers, behind how many there are."""
    return np.int64(array.size).tobytes() + np.ascontiguousarray(array).tobytes()
