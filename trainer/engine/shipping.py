"""Libraries for a wheel (setup.py): the engine and the kernels of all presets, for each kind of x86-64."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from model import PRESETS
from trainer.engine.build import ENGINE, REGISTERS, Job, build, job_of
from trainer.files.cores import usable_cores
from trainer.files.installed import compiler_command


def ship(folder: Path, presets: Sequence[str] = tuple(PRESETS)) -> list[Path]:
    """Build what is not in a folder yet. Return the libraries' files. Raise BuildError.

    Their loss is cross-entropy: a recipe with another one compiles.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kernels = [kernel for name in presets if (kernel := PRESETS[name].kernel())]
    wanted = [(ENGINE, {}), *((k.source, k.shape) for k in kernels)]
    jobs = {job_of(*each, capability=kind) for each in wanted for kind in (*REGISTERS, "DEFAULT")}

    def file_of(job: Job) -> Path:
        if not list(folder.glob(f"{job.stem()}.*.so")):
            build(job.command(compiler_command()), folder, job.stem())
        (file,) = folder.glob(f"{job.stem()}.*.so")
        return file

    with ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(file_of, jobs))
