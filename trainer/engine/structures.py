"""The structs that Python fills in for the engine's C++, read from the headers that declare them.

So a field is declared once, with its comment, where C++ uses it. ctypes lays fields out as a C++ compiler does.
"""

from __future__ import annotations

import ctypes
import re
from ctypes import c_double, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

from trainer.engine.build import ENGINE, FOLDERS
from trainer.engine.tape_graph import Tape

TYPES: Any = {
    "int32_t": c_int32,
    "int64_t": c_int64,
    "double": c_double,
    "Evaluate": c_void_p,
}
"""C++ type -> ctypes type. Every pointer is a c_void_p."""
LANES = 16
"""Seeds of a group, and problems of a block (model/cpp/kernel.h)."""
GOAL = FOLDERS[0] / "goal.h"
TAPE = FOLDERS[1] / "tape.h"
PROBLEMS = FOLDERS[1] / "problems.h"

# Declarations that are read: `int32_t a, b`, `const float *one, *two`, `float (*call)(int)`. Anything else is an error.
COMMENT = re.compile(r"//.*")
METHOD = re.compile(r"[^;{}]*\)[^;{}]*\{[^{}]*\}")
POINTER_TO_FUNCTION = re.compile(r"[\w ]+\(\*(\w+)\)\([^()]*\)")
VARIABLES = re.compile(r"(?:const )?(\w+)([ *]+\w+(?:, *[*]*\w+)*)")


class Struct(ctypes.Structure):
    """A struct that is built from all its fields by name, or from none. Raises TypeError for other names."""

    def __init__(self, **fields: Any) -> None:
        names = [name for name, *_ in self._fields_]
        if fields and sorted(fields) != sorted(names):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(names)}, got {', '.join(fields)}")
        super().__init__(**fields)


def declared(header: Path, name: str, **structs: type[Struct]) -> list[tuple[str, Any]]:
    """Return the fields of the first C++ struct called `name` in a header, for `_fields_`.

    structs: those that are fields of it, by their names in C++. Raises ValueError naming a declaration that is none
    of numbers, pointers and these structs.
    """
    types = {**TYPES, **structs}
    fields = list[tuple[str, Any]]()
    data = METHOD.sub("", _body(header, "struct", name))
    for statement in data.split(";"):
        declaration = " ".join(statement.split())
        if not declaration:
            continue
        if function := POINTER_TO_FUNCTION.fullmatch(declaration):
            fields.append((function[1], c_void_p))
            continue
        variables = VARIABLES.fullmatch(declaration)
        if variables is None:
            raise ValueError(f"{header.name}: cannot read `{declaration}` of the struct {name}")
        for variable in variables[2].split(","):
            kind = c_void_p if "*" in variable else types.get(variables[1])
            if kind is None:
                raise ValueError(f"{header.name}: unknown type in `{declaration}` of the struct {name}")
            fields.append((variable.strip(" *"), kind))
    return fields


def enumerated(header: Path, name: str) -> list[str]:
    """Return the names of a C++ enum in a header, in order."""
    return [value.strip() for value in _body(header, "enum", name).split(",")]


def _body(header: Path, kind: str, name: str) -> str:
    """Return the text between the braces of a header's first struct or enum of a name, without comments."""
    text = COMMENT.sub("", header.read_text(encoding="utf-8"))
    found = re.search(rf"\b{kind} {name} \{{(.*?)\}};", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{header.name} declares no {kind} {name}")
    return found[1]


ASKED = [name.removeprefix("ASK_").lower() for name in enumerated(PROBLEMS, "Asked")[:-1]]  # the last one counts them
"""Names of the lesson tape's outputs, in order."""


class Measures(Struct):
    """Sums over evaluated problems."""

    _fields_ = declared(GOAL, "Measures")


class Seen(Struct):
    """Addresses for the logits and the right answers of a kernel."""

    _fields_ = declared(GOAL, "Seen")


class CTape(Struct):
    """A tape as C++ runs it."""

    _fields_ = declared(TAPE, "Tape")

    @classmethod
    def of(cls, tape: Tape) -> CTape:
        """Return a view of a tape, which must outlive it."""
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
    """Where a sequence's tokens come from."""

    _fields_ = declared(PROBLEMS, "Sequence")


class RowTable(Struct):
    """The rows of a task of rows."""

    _fields_ = declared(PROBLEMS, "RowTable")


class Learning(Struct):
    """A teacher, or none."""

    _fields_ = declared(ENGINE, "Learning")


class Errors(Struct):
    """Problems that each seed gets wrong."""

    _fields_ = declared(ENGINE, "Errors")


class Program(Struct):
    """A step of a seed."""

    _fields_ = declared(ENGINE, "Program", Tape=CTape, Sequence=Sequence, RowTable=RowTable, Learning=Learning)
