"""Structs are read from C++ headers as a compiler reads them."""

import ctypes
import subprocess

import pytest

from tests import needs_compiler
from trainer.engine import structures
from trainer.engine.build import ENGINE, job_of
from trainer.engine.structures import Struct, declared, enumerated
from trainer.files.installed import compiler_command

CPU = job_of(ENGINE)


def structs_of(module):
    return [s for s in vars(module).values() if isinstance(s, type) and s is not Struct and issubclass(s, Struct)]


def compiled(job, structs, folder):
    """Compile, without making anything of it, that structs lie in C++ where Python has them. Return the errors."""
    lines = [f'#include "{job.source}"']
    for struct in structs:
        name = struct.__name__.removeprefix("C")
        lines.append(f"static_assert(sizeof({name}) == {ctypes.sizeof(struct)});")
        for field, *_ in struct._fields_:
            place = getattr(struct, field)
            lines.append(f"static_assert(offsetof({name}, {field}) == {place.offset});")
            lines.append(f"static_assert(sizeof({name}::{field}) == {place.size});")
    (source := folder / "checks.cpp").write_text("#include <cstddef>\n" + "\n".join(lines))
    flags = [*job.flags, *(f"-I{path}" for path in job.headers), "-O0", "-fsyntax-only"]
    run = subprocess.run([*compiler_command(), *flags, source], capture_output=True, text=True, check=False)
    assert run.returncode == 0 or run.stderr
    return run.stderr


@needs_compiler
def test_every_struct_lies_as_a_compiler_has_it(tmp_path):
    structs = structs_of(structures)
    assert len(structs) == 9
    assert not compiled(CPU, structs, tmp_path)


def header(folder, text):
    (path := folder / "some.h").write_text(text)
    return path


class Inner(Struct):
    _fields_ = (("x", ctypes.c_int64),)


def test_declarations_of_every_kind_are_read(tmp_path):
    text = """
    // struct Some { int32_t commented; };
    struct Something { double other; };
    struct Some {  // not {a} field;
        int32_t a, b;  // int32_t c;
        const float *one, *two;
        Inner* there;
        Inner inside;
        float (*call)(const float* wide, int count);

        int sum() const { return a + b; }
    };
    struct Some { int32_t second; };
    enum Kind { FIRST, LAST };
    """
    fields = declared(header(tmp_path, text), "Some", Inner=Inner)
    pointers = [(name, ctypes.c_void_p) for name in ("one", "two", "there")]
    numbers = [(name, ctypes.c_int32) for name in "ab"]
    assert [*fields] == [*numbers, *pointers, ("inside", Inner), ("call", ctypes.c_void_p)]
    assert enumerated(header(tmp_path, text), "Kind") == ["FIRST", "LAST"]


@pytest.mark.parametrize(
    ("declaration", "complaint"),
    {
        "float x": "unknown type in `float x`",
        "int32_t x[4]": r"cannot read `int32_t x\[4\]`",
        "int32_t x : 3": "cannot read `int32_t x : 3`",
        "unsigned long x": "cannot read|unknown type",
        "static const int32_t x": "cannot read",
    }.items(),
)
def test_a_declaration_that_cannot_be_read_is_an_error(tmp_path, declaration, complaint):
    with pytest.raises(ValueError, match=rf"^some\.h: .*{complaint}.* of the struct Some"):
        declared(header(tmp_path, f"struct Some {{ {declaration}; }};"), "Some")


@pytest.mark.parametrize("text", ["", "struct Some : Inner { int32_t x; };", "struct Some;"])
def test_a_struct_that_is_not_declared_plainly_is_an_error(tmp_path, text):
    with pytest.raises(ValueError, match=r"some\.h declares no struct Some"):
        declared(header(tmp_path, text), "Some")


def test_a_struct_takes_all_its_fields_or_none():
    assert structures.Errors().kept == 0
    with pytest.raises(TypeError, match="Errors has the fields operands, count, kept, got kept"):
        structures.Errors(kept=1)
