"""Structs are read from C++ headers as a compiler reads them."""

import ctypes
import subprocess

import pytest

from tests import needs_compiler
from tests.banks import Lesson
from trainer.engine import structures
from trainer.engine.build import ENGINE, job_of
from trainer.engine.structures import Struct
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
    structs = [*structs_of(structures), Lesson]
    assert len(structs) == 9
    assert not compiled(CPU, structs, tmp_path)


def test_a_struct_takes_all_its_fields_or_none():
    assert structures.Errors().kept == 0
    with pytest.raises(TypeError, match="Errors has the fields operands, count, kept, got kept"):
        structures.Errors(kept=1)
