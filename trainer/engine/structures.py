"""The structs that Python and the engine's C++ share, built by field name and compared when the library loads."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int32, c_int64, c_void_p
from typing import Any

from trainer.engine.tape_graph import Tape


class Struct(ctypes.Structure):
    """A struct that is built from all its fields by name, or from none. Raises TypeError for other names."""

    def __init__(self, **fields: Any) -> None:
        names = [name for name, *_ in self._fields_]
        if fields and sorted(fields) != sorted(names):
            raise TypeError(
                f"{type(self).__name__} has the fields {', '.join(names)}, got {', '.join(fields)}"
            )
        super().__init__(**fields)


class Measures(Struct):
    """Sums over evaluated problems: `Measures` of model/cpp/goal.h."""

    _fields_ = (("exact", c_int64), ("right", c_int64), ("loss", c_double))


class Seen(Struct):
    """Where a kernel writes what it sees: `Seen` of model/cpp/goal.h."""

    _fields_ = (("logits", c_void_p), ("right", c_void_p))


class CTape(Struct):
    """`Tape` of trainer/engine/cpp/tape.h."""

    _fields_ = (
        ("inputs", c_int32),
        ("constants", c_int32),
        ("operations", c_int32),
        ("blocks", c_int32),
        ("outputs", c_int32),
        ("constant", c_void_p),
        ("block", c_void_p),
        ("a", c_void_p),
        ("b", c_void_p),
        ("c", c_void_p),
        ("output", c_void_p),
    )

    @classmethod
    def of(cls, tape: Tape) -> CTape:
        """A view of a tape, which must outlive it."""
        a, b, c = tape.reads
        return cls(
            inputs=tape.inputs,
            constants=len(tape.constants),
            operations=tape.reads.shape[1],
            blocks=len(tape.blocks),
            outputs=len(tape.outputs),
            constant=tape.constants.ctypes.data,
            block=tape.blocks.ctypes.data,
            a=a.ctypes.data,
            b=b.ctypes.data,
            c=c.ctypes.data,
            output=tape.outputs.ctypes.data,
        )


class Sequence(Struct):
    """Where a sequence's tokens come from: `Sequence` of trainer/engine/cpp/problems.h."""

    _fields_ = (("length", c_int32), ("source", c_void_p))


class Lesson(Struct):
    """The numbers of a step: `Lesson` of trainer/engine/cpp/problems.h."""

    _fields_ = (
        ("data_seed", c_int64),
        ("step", c_int64),
        ("carry_mix", c_double),
        ("mixed_lengths", c_double),
        ("single", c_double),
        ("chain", c_double),
        ("place", c_double),
        ("digits", c_int32),
        ("by_kind", c_int32),
        ("fewest", c_int32),
        ("most", c_int32),
        ("swapped", c_double),
        ("targeted", c_double),
        ("errors", c_int64),
        ("error_a", c_void_p),
        ("error_b", c_void_p),
    )

    @classmethod
    def some(cls, **fields: Any) -> Lesson:
        """A lesson of which all fields that are not given are 0: shares and errors that are off."""
        return cls(**{name: 0 if kind is not c_void_p else None for name, kind in cls._fields_} | fields)


class Learning(Struct):
    """A teacher, or none: `Learning` of trainer/engine/cpp/engine.cpp."""

    _fields_ = (
        ("teacher", c_void_p),
        ("wide", c_void_p),
        ("alpha", c_int32),
        ("temperature", c_int32),
        ("logits", c_int32),
    )


class Errors(Struct):
    """Problems that each seed gets wrong: `Errors` of trainer/engine/cpp/engine.cpp."""

    _fields_ = (("operands", c_void_p), ("count", c_void_p), ("kept", c_int32))


class Program(Struct):
    """A step of a seed: `Program` of trainer/engine/cpp/engine.cpp."""

    _fields_ = (
        ("lesson", CTape),
        ("expand", CTape),
        ("probe", CTape),
        ("take", CTape),
        ("sequence", Sequence),
        ("batch", c_int32),
        ("row", c_int32),
        ("theta", c_int32),
        ("step", c_int32),
        ("gradient", c_int32),
        ("parameters", c_int32),
        ("updated", c_void_p),
        ("train", c_void_p),
        ("evaluate", c_void_p),
        ("learning", Learning),
        ("swapped", c_int32),
        ("targeted", c_int32),
    )


STRUCTS: dict[str, type[Struct]] = {
    "Measures": Measures,
    "Seen": Seen,
    "Tape": CTape,
    "Sequence": Sequence,
    "Lesson": Lesson,
    "Learning": Learning,
    "Errors": Errors,
    "Program": Program,
}
"""By the name in C++."""


def check_layout(engine: ctypes.CDLL) -> None:
    """Compare every struct's size and fields with those that the library was compiled with.

    Raises AssertionError naming the first struct or field that lies elsewhere.
    """
    engine.engine_layout.restype = ctypes.c_int64
    for name, struct in STRUCTS.items():
        places = {f"{name}.{field}": getattr(struct, field).offset for field, *_ in struct._fields_}
        for place, here in {**places, name: ctypes.sizeof(struct)}.items():
            there = engine.engine_layout(place.encode())
            if here != there:
                what = "missing" if there < 0 else f"at byte {there}" if "." in place else f"{there} bytes"
                raise AssertionError(
                    f"trainer/engine/structures.py does not fit the C++: {place} is {what} there, {here} here"
                )
