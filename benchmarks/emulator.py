"""The CUDA engine without a GPU: its text compiled by g++, a team as sixteen fibres (emulator.cpp)."""

from __future__ import annotations

import ctypes

import numpy as np

from gpu.driver import CudaError
from gpu.machine import SOURCES, address_of, folders
from gpu.structures import Exam, Program, Seeds, Sizes
from model.spec import Kernel
from trainer.engine.build import Macros, library
from trainer.engine.native import pointer
from trainer.engine.tape_graph import Array

WHAT_NOBODY_WROTE = 0xFF  # bytes of no number (NaN)


class EmulatedModule:
    """`Module` by fibres. Raises CudaError where threads of a team part before a meeting."""

    def __init__(self, kernel: Kernel, macros: Macros) -> None:
        self.library = library(SOURCES / "emulator.cpp", {**macros, "FIBRES": 1}, folders(kernel))
        self.sizes = Sizes.asked(lambda numbers: self.library.emulated_sizes(pointer(numbers)))

    def train(self, program: Program, seeds: Seeds, steps: int) -> None:
        self._check(self.library.emulated_train(ctypes.byref(program), ctypes.byref(seeds), steps))

    def evaluate(self, program: Program, seeds: Seeds, exam: Exam) -> None:
        parts = (ctypes.byref(part) for part in (program, seeds, exam))
        self._check(self.library.emulated_evaluate(*parts))

    def _check(self, parted: int) -> None:
        if parted >= 0:
            raise CudaError(f"threads of seed {parted} did not meet equally often")


class Emulator:
    """`Machine` in this process's memory."""

    def __init__(self) -> None:
        self.about = {"device": "emulator"}
        self.arrays: dict[int, Array] = {}

    def allocate(self, size: int) -> int:
        array = np.full(size, WHAT_NOBODY_WROTE, np.uint8)
        self.arrays[address_of(array)] = array
        return address_of(array)

    def write(self, address: int, array: Array) -> None:
        ctypes.memmove(address, address_of(array), array.nbytes)

    def read(self, address: int, array: Array) -> None:
        ctypes.memmove(address_of(array), address, array.nbytes)

    def free(self, address: int) -> None:
        del self.arrays[address]

    def module(self, kernel: Kernel, macros: Macros) -> EmulatedModule:
        return EmulatedModule(kernel, macros)
