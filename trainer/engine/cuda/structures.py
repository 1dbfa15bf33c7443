"""The structs that Python and engine.h share, in the order of their fields there."""

from __future__ import annotations

from ctypes import c_int32, c_void_p
from typing import NamedTuple

from trainer.engine.structures import Struct, fields_of


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
        *fields_of(c_int32, "team_words yard_words swapped targeted"),
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
    """Bytes of structs, as a build knows them: `write_sizes` of engine.h."""

    program: int
    seeds: int
    exam: int
    wide: int
    shared: int
    far: int
