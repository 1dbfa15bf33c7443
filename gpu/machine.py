"""What runs the CUDA engine: a GPU (card.py), or benchmarks/emulator.py in its place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from gpu.driver import TEAMS as TEAMS
from gpu.structures import SOURCES as SOURCES
from gpu.structures import Exam, Program, Seeds, Sizes
from model.spec import Kernel
from trainer.engine.build import FOLDERS, Macros, headers_in
from trainer.engine.tape_graph import Array


class Module(Protocol):
    """An engine compiled for a kernel and its macros."""

    sizes: Sizes

    def train(self, program: Program, seeds: Seeds, steps: int) -> None: ...

    def evaluate(self, program: Program, seeds: Seeds, exam: Exam) -> None: ...


class Machine(Protocol):
    """Memory and modules. Each method raises CudaError."""

    about: dict[str, str]
    """What records say of it."""

    def allocate(self, size: int) -> int: ...

    def write(self, address: int, array: Array) -> None: ...

    def read(self, address: int, array: Array) -> None: ...

    def free(self, address: int) -> None: ...

    def module(self, kernel: Kernel, macros: Macros) -> Module: ...


class Memory:
    """Arrays on a machine, freed together."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.addresses: list[int] = []

    def put(self, array: Array | None) -> int | None:
        """Copy an array to the machine. Return its address, or None for no array and an empty one."""
        if array is None or not array.size:
            return None
        array = np.ascontiguousarray(array)  # it is copied as bytes
        address = self.room(array.nbytes)
        self.machine.write(address, array)
        return address

    def room(self, size: int) -> int:
        """Return the address of `size` bytes, which are not set."""
        address = self.machine.allocate(max(size, 16))  # CUDA refuses to allocate nothing
        self.addresses.append(address)
        return address

    def free(self) -> None:
        """Free every array that was put here."""
        while self.addresses:
            self.machine.free(self.addresses.pop())

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


def folders(kernel: Kernel) -> Sequence[Path]:
    """Return the folders of an engine's headers."""
    return (*FOLDERS, SOURCES, kernel.source.parent)


def source_of(kernel: Kernel, macros: Macros) -> tuple[str, dict[str, str]]:
    """Return the text of an engine for NVRTC, and its headers by name."""
    # NVRTC reads no files: it gets the text of every header.
    headers = {path.name: path.read_text(encoding="utf-8") for path in headers_in(folders(kernel))}
    lines = [f"#define {name} {value}\n" for name, value in macros.items()]
    return "".join([*lines, '#include "engine.h"\n']), headers


def address_of(array: Array) -> int:
    assert array.flags.c_contiguous
    return int(array.ctypes.data)
