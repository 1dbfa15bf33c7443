"""Libraries for a wheel (setup.py): the engine and the kernels of all presets, for each kind of CPU of a machine."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from model import PRESETS
from model.spec import Kernel
from trainer.engine.build import ENGINE, REGISTERS, Job, build, job_of
from trainer.files.cores import usable_cores
from trainer.files.installed import compiler_command

KINDS = {"x86_64": (*REGISTERS, "DEFAULT"), "aarch64": ("DEFAULT",)}
"""Machine -> the kinds of its CPUs that have builds of their own, as torch names them."""


def ship(folder: Path, presets: Sequence[str] = tuple(PRESETS), machine: str = "") -> list[Path]:
    """Build the libraries that a folder lacks. Return the libraries' files. Raise BuildError.

    Their loss is cross-entropy: a recipe with another one compiles. machine: of KINDS, this one where it is not given;
    another one's compiler is Debian's, or CXX.
    """
    here = platform.machine()
    machine = machine or here
    is_here = machine == here
    compiler = compiler_command() if is_here or os.environ.get("CXX") else [f"{machine}-linux-gnu-g++"]
    folder.mkdir(parents=True, exist_ok=True)
    kernels = [kernel for name in presets if isinstance(kernel := PRESETS[name].kernel(), Kernel)]
    wanted = [(ENGINE, {}), *((k.source, k.shape) for k in kernels)]
    # A set: many presets are one shape of kernel.
    jobs = {job_of(*each, capability=kind, machine=machine) for each in wanted for kind in KINDS[machine]}

    def file_of(job: Job) -> Path:
        if not list(folder.glob(f"{job.stem()}.*.so")):
            # Another machine's library cannot be loaded here, to see that it is one.
            load = ctypes.CDLL if is_here else Path
            build(job.command(compiler), folder, job.stem(), load)
        (file,) = folder.glob(f"{job.stem()}.*.so")
        return file

    with ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(file_of, jobs))
