"""The CUDA engine's structs are read from its headers as a compiler reads them."""

from gpu import structures
from gpu.backend import macros_of
from gpu.machine import SOURCES, folders
from tests import needs_compiler
from tests.banks import SPEC
from tests.unit.test_structures import compiled, structs_of
from trainer import Recipe
from trainer.engine.build import job_of


@needs_compiler
def test_every_struct_lies_as_a_compiler_has_it(tmp_path):
    kernel = SPEC.kernel()
    job = job_of(SOURCES / "emulator.cpp", {**macros_of(SPEC, kernel, Recipe()), "FIBRES": 1}, folders(kernel))
    structs = structs_of(structures)
    assert len(structs) == 5
    assert not compiled(job, structs, tmp_path)
