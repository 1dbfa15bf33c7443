"""What NVRTC makes of the CUDA engine, without a GPU: registers, stack, spills of a thread; memory and steps of a seed.

python -m benchmarks.cuda_compiled [PRESET ...]
"""

from __future__ import annotations

import re
import sys

from benchmarks.emulator import Emulator
from model import preset
from trainer import Recipe
from trainer.engine.cuda import nvrtc
from trainer.engine.cuda.backend import CudaBackend, macros_of
from trainer.engine.cuda.machine import source_of

ARCHITECTURE = "sm_90"
TRAIN = re.compile(
    r"properties for engine_train\n.*?(\d+) bytes stack frame, (\d+) bytes spill stores.*?Used (\d+) registers",
    re.DOTALL,
)


def main(names: list[str]) -> None:
    for name in names:
        spec, recipe = preset(name), Recipe()
        kernel = spec.kernel()
        assert kernel is not None
        text, headers = source_of(kernel, macros_of(spec, kernel, recipe))
        log = nvrtc.compiled(text, headers, ARCHITECTURE, "ProgramLog").decode()
        match = TRAIN.search(log)
        assert match, log
        program = CudaBackend(spec, recipe, Emulator()).cuda_program
        steps = sum(getattr(program, part).last - getattr(program, part).first for part in PARTS)
        print(
            f"{name}: {match[3]} registers, {match[1]} bytes of stack, {match[2]} bytes spilled ({ARCHITECTURE}); "
            f"{4 * program.team_words / 1000:.1f} kB of shared memory, {steps} steps"
        )


PARTS = ("lesson", "expand", "back", "probe", "take")

if __name__ == "__main__":
    main(sys.argv[1:] or ["57p", "100p", "170p", "262p"])
