"""The CUDA engine as sixteen real threads a seed, in a program of its own under ThreadSanitizer (threads.cpp)."""

import os
import subprocess
from pathlib import Path

import numpy as np

from benchmarks.emulator import EmulatedModule, Emulator
from gpu.driver import CudaError
from gpu.machine import source_of
from trainer.files.installed import compiler_command

OPTIONS = (
    *("-std=c++17", "-O1", "-march=native", "-w", "-fsanitize=thread", "-pthread"),
    *("-ffp-contract=off", "-fno-math-errno"),
)
MEET = "meet();"


class ThreadedModule(EmulatedModule):
    """`Module` whose training is watched. Raises CudaError with the first race."""

    def __init__(self, kernel, macros, machine):
        super().__init__(kernel, macros)
        self.machine, folder = machine, machine.folder
        text, headers = source_of(kernel, macros)
        header, before = machine.unmet
        if header:
            assert headers[header].count(before + MEET) == 1
            headers[header] = headers[header].replace(before + MEET, before)
        for name, content in headers.items():
            (folder / name).write_text(content)
        main = folder / "main.cpp"
        main.write_text("#define FIBRES 1\n" + text + Path(__file__).with_name("threads.cpp").read_text())
        built = [*compiler_command(), *OPTIONS, f"-I{folder}", str(main), "-o", str(folder / "threads")]
        subprocess.run(built, check=True)

    def train(self, program, seeds, steps):
        arrays, folder = self.machine.arrays, self.machine.folder
        parts = [np.array([len(arrays)], np.uint64)]
        for address, array in arrays.items():
            parts += [np.array([address, array.size], np.uint64), array]
        parts += [program, seeds, np.array([steps], np.uint64)]
        (folder / "in").write_bytes(b"".join(map(bytes, parts)))
        ran = subprocess.run(
            [folder / "threads", folder / "in", folder / "out"], capture_output=True, text=True, timeout=300,
            env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1"},
        )  # fmt: skip
        if ran.returncode:
            raise CudaError(ran.stderr)
        trained, at = np.fromfile(folder / "out", np.uint8), 0
        for array in arrays.values():
            array[:] = trained[at : at + array.size]
            at += array.size


class ThreadedMachine(Emulator):
    """`Machine` by real threads. unmet: a header, and what stands before a meeting in it that is left out."""

    def __init__(self, folder, unmet=("", "")):
        super().__init__()
        self.folder, self.unmet = folder, unmet

    def module(self, kernel, macros):
        return ThreadedModule(kernel, macros, self)
