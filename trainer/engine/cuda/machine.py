"""What runs the CUDA engine: a GPU (card.py), or its emulator (emulator.py)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from model.spec import Kernel
from trainer.engine.build import FOLDERS
from trainer.engine.cuda.structures import Exam, Program, Seeds, Sizes
from trainer.engine.tape_graph import Array

SOURCES = Path(__file__).parent
TEAMS = 2  # of a block of threads, a warp


class CudaError(RuntimeError):
    """The GPU, its driver or its compiler failed. The message names the call."""


class Module(Protocol):
    """An engine compiled for a kernel and its macros."""

    sizes: Sizes

    def train(self, program: Program, seeds: Seeds, steps: int) -> None: ...

    def evaluate(self, program: Program, seeds: Seeds, exam: Exam) -> None: ...


class Machine(Protocol):
    """Memory and modules. Each method raises CudaError."""

    name: str
    """For records."""

    def allocate(self, size: int) -> int: ...

    def write(self, address: int, array: Array) -> None: ...

    def read(self, address: int, array: Array) -> None: ...

    def free(self, address: int) -> None: ...

    def module(self, kernel: Kernel, macros: dict[str, int | str]) -> Module: ...


class Memory:
    """Arrays on a machine, freed together."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.addresses: list[int] = []

    def put(self, array: Array | None) -> int | None:
        """Copy an array there. Return its address; None of nothing."""
        if array is None or not array.size:
            return None
        array = np.ascontiguousarray(array)
        address = self.room(array.nbytes)
        self.machine.write(address, array)
        return address

    def room(self, size: int) -> int:
        """Return the address of so many bytes, which are not set."""
        self.addresses.append(address := self.machine.allocate(max(size, 16)))
        return address

    def free(self) -> None:
        while self.addresses:
            self.machine.free(self.addresses.pop())

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


def folders(kernel: Kernel) -> Sequence[Path]:
    """Return the folders of an engine's headers."""
    return (*FOLDERS, SOURCES, kernel.source.parent)


def address_of(array: Array) -> int:
    assert array.flags.c_contiguous
    return int(array.ctypes.data)


def checked_sizes(numbers: Array) -> Sizes:
    """Return what a build says of itself. Raise AssertionError where its structs are not ours."""
    sizes = Sizes(*map(int, numbers))
    ours = tuple(ctypes.sizeof(struct) for struct in (Program, Seeds, Exam))
    if (sizes.program, sizes.seeds, sizes.exam) != ours:
        raise AssertionError(f"trainer/engine/cuda/structures.py does not fit engine.h: {sizes}, not {ours}")
    return sizes
