"""The structs that Python fills in for the CUDA engine, read from the headers that declare them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trainer.engine.structures import Struct, declared
from trainer.engine.tape_graph import Array

SOURCES = Path(__file__).parent
STEPS = SOURCES / "steps.h"
ENGINE = SOURCES / "engine.h"


class Schedule(Struct):
    """The steps of all parts."""

    _fields_ = declared(STEPS, "Schedule")


class Part(Struct):
    """A range of steps."""

    _fields_ = declared(STEPS, "Part")


class Program(Struct):
    """A step of a seed."""

    _fields_ = declared(ENGINE, "Program", Schedule=Schedule, Part=Part)


class Seeds(Struct):
    """Arrays with one entry per seed."""

    _fields_ = declared(ENGINE, "Seeds")


class Exam(Struct):
    """Problems to evaluate, and addresses for the results."""

    _fields_ = declared(ENGINE, "Exam")


class Sizes(NamedTuple):
    """Bytes of structs that depend on the kernel, as a build knows them: `write_sizes` of engine.h."""

    wide: int
    shared: int
    far: int

    @classmethod
    def asked(cls, ask: Callable[[Array], None]) -> Sizes:
        """Return the sizes of a build, which `ask` writes into int32 numbers."""
        numbers = np.zeros(len(cls._fields), np.int32)
        ask(numbers)
        return cls(*numbers.tolist())
