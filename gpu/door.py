"""NVIDIA's GPUs as a kind of GPU (`Accelerator` in trainer/engine/accelerators.py). Only `backend` needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpu import mps
from gpu.driver import gpus
from gpu.driver import is_declared as is_declared
from gpu.prices import price as price

if TYPE_CHECKING:
    from model.spec import Spec
    from trainer.engine.native import EngineBackend
    from trainer.recipe import Recipe


def count() -> int:
    """Return the number of GPUs that this process may use. One that does not answer is none."""
    return len(gpus()[0])


def remark(share: float | None) -> str:
    """Return a line where GPUs are silent, or where banks with a share of one would take turns."""
    visible, why = gpus()
    if visible and share is not None and share < 1 and not mps.is_available():
        return mps.without(share)
    return f"{why}; training by the CPU engine" if why else ""


def backend(spec: Spec, recipe: Recipe) -> EngineBackend | None:
    """Return the CUDA engine where it has passed its test, or None."""
    from gpu.guard import checked_backend  # torch

    return checked_backend(spec, recipe)


def sharing() -> str:
    """Return "MPS" if a daemon runs, or a run can start one."""
    return "MPS" if mps.is_available() else ""


@contextmanager
def side_by_side(session: Path, share: float, is_auto: bool) -> Iterator[dict[str, str] | None]:
    """Run a daemon of MPS where workers with this share need one. Yield their variables; None where there is no MPS."""
    with mps.own_mps(session, share, is_auto) as variables:
        yield variables if variables or mps.is_running() else None


def end(session: Path) -> None:
    """End the daemon that a killed run has left."""
    mps.end(session / mps.FOLDER)
