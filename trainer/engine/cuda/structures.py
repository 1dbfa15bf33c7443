"""The structs that Python and engine.h share, compared when a build is loaded."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int32, c_void_p
from typing import NamedTuple

import numpy as np

from trainer.engine.structures import Struct, compare_place, fields_of, places_of
from trainer.engine.tape_graph import Array

MOST_NUMBERS = 128
"""More than `write_sizes` of engine.h writes."""


class Schedule(Struct):
    """`Schedule` of steps.h."""

    _fields_ = fields_of(c_void_p, "kinds places")


class Part(Struct):
    """`Part` of steps.h."""

    _fields_ = fields_of(c_int32, "first last")


class Program(Struct):
    """`Program` of engine.h."""

    _fields_ = (
        ("schedule", Schedule),
        *fields_of(Part, "lesson expand back probe take"),
        *fields_of(c_void_p, "constants inputs parked"),
        *fields_of(c_int32, "input_count constant_count parked_count row updated parameters batch"),
        *fields_of(c_int32, "constants_at asked_at gradient_at there_at wide_at pull_at room_at"),
        *fields_of(c_int32, "team_words yard_words targeted"),
    )


class Seeds(Struct):
    """`Seeds` of engine.h."""

    _fields_ = (
        *fields_of(c_void_p, "rows data_seeds ties errors error_count losses yard"),
        *fields_of(c_int32, "kept count"),
    )


class Exam(Struct):
    """`Exam` of engine.h."""

    _fields_ = (*fields_of(c_void_p, "tokens measures marks"), *fields_of(c_int32, "problems each"))


class Sizes(NamedTuple):
    """Bytes of structs that depend on the kernel, as a build knows them: `write_sizes` of engine.h."""

    wide: int
    shared: int
    far: int

    @classmethod
    def checked(cls, ask: Callable[[Array], None]) -> Sizes:
        """Return what a build says of itself, which `ask` writes into int32 numbers.

        Raise AssertionError naming the first struct or field that lies elsewhere than here.
        """
        numbers = np.zeros(MOST_NUMBERS, np.int32)
        ask(numbers)
        sizes, there = numbers[:3].tolist(), numbers[3:].tolist()
        here = [row for struct in (Schedule, Part, Program, Seeds, Exam) for row in places_of(struct).items()]
        for (place, ours), theirs in zip(here, there, strict=False):
            compare_place(place, ours, theirs)
        return cls(*sizes)
