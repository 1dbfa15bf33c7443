"""The structs that Python and the engine's C++ share, built by field name and compared when the library loads."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int32, c_int64, c_void_p
from typing import Any

from trainer.engine.tape_graph import Tape

ASKED = 8
"""Outputs of the lesson tape: `asked` in engine.cpp."""


def fields_of(kind: type, names: str) -> tuple[tuple[str, Any], ...]:
    """Return fields of one type, by their names between spaces."""
    return tuple((name, kind) for name in names.split())


class Struct(ctypes.Structure):
    """A struct that is built from all its fields by name, or from none. Raises TypeError for other names."""

    def __init__(self, **fields: Any) -> None:
        names = [name for name, *_ in self._fields_]
        if fields and sorted(fields) != sorted(names):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(names)}, got {', '.join(fields)}")
        super().__init__(**fields)


class Measures(Struct):
    """Sums over evaluated problems: `Measures` of model/cpp/goal.h."""

    _fields_ = (*fields_of(c_int64, "exact right"), ("loss", c_double))


class Seen(Struct):
    """Where a kernel writes what it sees: `Seen` of model/cpp/goal.h."""

    _fields_ = fields_of(c_void_p, "logits right")


class CTape(Struct):
    """`Tape` of trainer/engine/cpp/tape.h."""

    _fields_ = (
        *fields_of(c_int32, "inputs constants operations blocks outputs"),
        *fields_of(c_void_p, "constant block a b c output"),
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
        *fields_of(c_int64, "data_seed step"),
        *fields_of(c_double, "carry_mix mixed_lengths single chain place"),
        *fields_of(c_int32, "digits by_kind"),
        ("targeted", c_double),
        ("errors", c_int64),
        *fields_of(c_void_p, "error_a error_b"),
    )

    @classmethod
    def some(cls, **fields: Any) -> Lesson:
        """A lesson of which all fields that are not given are 0: shares and errors that are off."""
        return cls(**{name: 0 if kind is not c_void_p else None for name, kind, *_ in cls._fields_} | fields)


class Learning(Struct):
    """A teacher, or none: `Learning` of trainer/engine/cpp/engine.cpp."""

    _fields_ = (*fields_of(c_void_p, "teacher wide"), *fields_of(c_int32, "alpha temperature logits"))


class Errors(Struct):
    """Problems that each seed gets wrong: `Errors` of trainer/engine/cpp/engine.cpp."""

    _fields_ = (*fields_of(c_void_p, "operands count"), ("kept", c_int32))


class Program(Struct):
    """A step of a seed: `Program` of trainer/engine/cpp/engine.cpp."""

    _fields_ = (
        *fields_of(CTape, "lesson expand probe take"),
        ("sequence", Sequence),
        *fields_of(c_int32, "batch row theta step gradient parameters"),
        *fields_of(c_void_p, "updated train evaluate"),
        ("learning", Learning),
        ("targeted", c_int32),
    )


STRUCTS: dict[str, type[Struct]] = {
    struct.__name__.removeprefix("C"): struct
    for struct in (Measures, Seen, CTape, Sequence, Lesson, Learning, Errors, Program)
}
"""By the name in C++."""


def places_of(struct: type[Struct], name: str = "") -> dict[str, int]:
    """Return where each field of a struct is, by the alphabet, then its bytes: `Seeds.count`, ..., `Seeds`."""
    name = name or struct.__name__
    names = sorted(field for field, *_ in struct._fields_)
    return {**{f"{name}.{n}": getattr(struct, n).offset for n in names}, name: ctypes.sizeof(struct)}


def check_layout(engine: ctypes.CDLL) -> None:
    """Compare every struct's size and fields with those that the library was compiled with.

    Raises AssertionError naming the first struct or field that lies elsewhere.
    """
    engine.engine_layout.restype = ctypes.c_int64
    for name, struct in STRUCTS.items():
        for place, here in places_of(struct, name).items():
            compare_place(place, here, engine.engine_layout(place.encode()))


def compare_place(place: str, here: int, there: int) -> None:
    """Raise AssertionError where a struct's bytes, or a field's place, is another in the C++; -1: missing."""
    if here != there:
        what = "missing" if there < 0 else f"at byte {there}" if "." in place else f"{there} bytes"
        raise AssertionError(f"the C++ does not fit its structs in Python: {place} is {what} there, {here} here")
