"""What NVRTC makes of the CUDA engine, without a GPU: registers, stack, spills of a thread; memory and steps of a seed.

python -m benchmarks.cuda_compiled [PRESET ...]
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from benchmarks.emulator import Emulator
from gpu import nvrtc
from gpu.backend import CudaBackend, macros_of
from gpu.driver import TEAMS
from gpu.machine import source_of
from model import preset
from model.spec import Spec
from trainer import Recipe

ARCHITECTURE = "sm_90"
FUNCTION = re.compile(
    r"properties for (engine_\w+)\n"
    r".*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers",
    re.DOTALL,
)
"""What ptxas says of a function that a GPU is asked for."""
PARTS = ("lesson", "expand", "back", "probe", "take")


class Usage(NamedTuple):
    """What a thread of a function uses: bytes of its stack, bytes spilled to it and loaded again, and registers."""

    stack: int
    stores: int
    loads: int
    registers: int


def usage(spec: Spec, architecture: str, teams: int = TEAMS) -> dict[str, Usage]:
    """Compile a spec's engine with so many seeds in a block. Return what each function uses. Raise CudaError."""
    kernel = spec.kernel()
    assert kernel is not None
    macros = macros_of(spec, kernel, Recipe())
    text, headers = source_of(kernel, {**macros, "TEAMS": teams})
    log = nvrtc.compiled(text, headers, architecture, "ProgramLog").decode()
    return {match[1]: Usage(*map(int, match.groups()[1:])) for match in FUNCTION.finditer(log)}


def main(names: list[str]) -> None:
    for name in names:
        spec = preset(name)
        train = usage(spec, ARCHITECTURE)["engine_train"]
        program = CudaBackend(spec, Recipe(), Emulator()).cuda_program
        steps = sum(getattr(program, part).last - getattr(program, part).first for part in PARTS)
        print(
            f"{name}: {train.registers} registers, {train.stack} bytes of stack, {train.stores} bytes spilled "
            f"({ARCHITECTURE}); {4 * program.team_words / 1000:.1f} kB of shared memory, {steps} steps"
        )


if __name__ == "__main__":
    main(sys.argv[1:] or ["57p", "100p", "170p", "262p"])
