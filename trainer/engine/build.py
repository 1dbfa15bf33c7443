"""Shared libraries of our C++, built when they are first wanted and kept in the user's cache
(trainer/files/installed.py)."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch
from filelock import FileLock

import model
from trainer.files.installed import cache_folder

FOLDERS = (Path(model.__file__).parent / "cpp", Path(__file__).parent / "cpp")
ENGINE = FOLDERS[1] / "engine.cpp"
COMPILER = "g++"
FLAGS = (
    *("-std=c++17", "-O3", "-shared", "-fPIC", "-w"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),  # what leaves every rounding where it is
)
REGISTERS = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}
"""What a build is for, by torch's name of what this CPU can: ATEN_CPU_CAPABILITY chooses less, as for
torch."""


class BuildError(RuntimeError):
    """The C++ did not compile here. The message has the compiler's first complaint."""


def target() -> list[str]:
    """Compiler flags for this CPU. Only speed depends on them, not one bit of a result."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []  # NEON belongs to every 64-bit ARM
    kind = REGISTERS.get(torch.backends.cpu.get_cpu_capability())
    return [f"-march={kind}"] if kind else []


def library(source: Path, shape: Mapping[str, int] | None = None) -> ctypes.CDLL:
    """A source, compiled for a shape (its macros) and this CPU. Of several processes that want it one builds
    it.

    Raises BuildError; ValueError where the cache cannot be trusted.
    """
    macros = [f"-D{name}={value}" for name, value in (shape or {}).items()]
    return _library(
        source, tuple(macros), tuple(shlex.split(os.environ.get("CXX", COMPILER))), tuple(target())
    )


@cache
def _library(
    source: Path, macros: tuple[str, ...], compiler: tuple[str, ...], cpu: tuple[str, ...]
) -> ctypes.CDLL:
    how = [*FLAGS, *cpu, *macros, *(f"-I{folder}" for folder in (*FOLDERS, source.parent))]
    made = (
        cache_folder()
        / "native"
        / f"{source.parent.name}-{_digest(source, [*compiler, *FLAGS, *cpu, *macros])}.so"
    )
    if not made.exists():
        made.parent.mkdir(mode=0o700, exist_ok=True)
        with FileLock(made.with_suffix(".lock")):
            if not made.exists():
                _build([*compiler, *how, str(source)], made)
    return ctypes.CDLL(str(made))


def _digest(source: Path, how: list[str]) -> str:
    """Of everything that a build comes from: all our C++, for a header may be anywhere in it."""
    texts = [p for folder in (*FOLDERS, source.parent) for p in sorted(folder.glob("*.h"))]
    digest = hashlib.sha256("\0".join(how).encode())
    for path in (source, *texts):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _build(command: list[str], made: Path) -> None:
    """Compile to a file beside it, then rename: a build that was cut off is never loaded."""
    with tempfile.TemporaryDirectory(dir=made.parent) as aside:
        half = Path(aside) / made.name
        try:
            ran = subprocess.run([*command, "-o", str(half)], capture_output=True, text=True)
        except OSError as error:
            raise BuildError(f"{command[0]}: {error.strerror}") from None
        if ran.returncode:
            complaint = next((line for line in ran.stderr.splitlines() if "error" in line), ran.stderr[:200])
            raise BuildError(f"{command[0]} failed: {complaint}")
        half.rename(made)
