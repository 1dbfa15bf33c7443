"""The structs that Python and engine.h share, in the order of their fields there."""

from __future__ import annotations

from ctypes import c_int32, c_void_p
from typing import NamedTuple

from trainer.engine.structures import Struct


class Schedule(Struct):
    """`Schedule` of steps.h."""

    _fields_ = (("kinds", c_void_p), ("places", c_void_p))


class Part(Struct):
    """`Part` of steps.h."""

    _fields_ = (("first", c_int32), ("last", c_int32))


class Program(Struct):
    """`Program` of engine.h."""

    _fields_ = (
        ("schedule", Schedule),
        *((name, Part) for name in ("lesson", "expand", "back", "probe", "take")),
        *((name, c_void_p) for name in ("constants", "inputs", "parked")),
        *((name, c_int32) for name in ("input_count", "constant_count", "parked_count")),
        *((name, c_int32) for name in ("row", "updated", "parameters", "batch")),
        *(
            (f"{name}_at", c_int32)
            for name in ("constants", "asked", "gradient", "there", "wide", "pull", "room")
        ),
        *((name, c_int32) for name in ("team_words", "yard_words")),
        *((name, c_int32) for name in ("swapped", "targeted")),
    )


class Seeds(Struct):
    """`Seeds` of engine.h."""

    _fields_ = (
        *(
            (name, c_void_p)
            for name in ("rows", "data_seeds", "ties", "errors", "error_count", "losses", "yard")
        ),
        *((name, c_int32) for name in ("kept", "count")),
    )


class Exam(Struct):
    """`Exam` of engine.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("tokens", "measures", "marks")),
        *((name, c_int32) for name in ("problems", "each")),
    )


class Sizes(NamedTuple):
    """Bytes of structs, as a build knows them: `write_sizes` of engine.h."""

    program: int
    seeds: int
    exam: int
    wide: int
    shared: int
    far: int
