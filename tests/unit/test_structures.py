"""The structs that Python and C++ share fit each other, and one that does not is noticed when the library loads."""

import ctypes

import pytest

from benchmarks.emulator import Emulator
from tests import needs_compiler
from tests.banks import SPEC
from trainer import Recipe
from trainer.engine import native, structures
from trainer.engine.cuda import structures as structures_of_cuda
from trainer.engine.cuda.backend import macros_of
from trainer.engine.structures import Struct


def other(name, fields):
    return type(name, (Struct,), {"_fields_": fields})


FIELDS = structures.Program._fields_


@needs_compiler
@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ([*FIELDS[:5], FIELDS[6], FIELDS[5], *FIELDS[7:]], r"Program.batch is at byte (\d+) there, \d+ here"),
        (FIELDS[:-2], r"Program is (\d+) bytes there, \d+ here"),
        ([*FIELDS, ("more", ctypes.c_int64)], "Program.more is missing there, "),
    ],
)
def test_a_struct_that_differs_is_named(monkeypatch, fields, complaint):
    engine = native.engine()
    structures.check_layout(engine)
    monkeypatch.setitem(structures.STRUCTS, "Program", other("Program", fields))
    with pytest.raises(AssertionError, match=f"does not fit its structs in Python: {complaint}"):
        structures.check_layout(engine)


@needs_compiler
def test_the_library_is_compared_when_it_is_loaded(monkeypatch):
    monkeypatch.setitem(structures.STRUCTS, "Seen", other("Seen", [("right", ctypes.c_void_p)]))
    native._engine.cache_clear()
    with pytest.raises(AssertionError, match=r"Seen\.right is at byte 8 there, 0 here"):
        native.engine()


@needs_compiler
def test_a_struct_of_the_gpus_with_two_fields_exchanged_is_named(monkeypatch):
    """Which is as many bytes."""
    *fields, first, last = structures_of_cuda.Program._fields_
    monkeypatch.setattr(structures_of_cuda, "Program", other("Program", [*fields, last, first]))
    with pytest.raises(AssertionError, match=r"Python: Program\.targeted is at byte (\d+) there, \d+ here"):
        Emulator().module(SPEC.kernel(), macros_of(SPEC, SPEC.kernel(), Recipe()))
