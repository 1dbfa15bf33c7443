"""Shared libraries of our C++, built at first use into the user's cache (trainer/files/installed.py)."""

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
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),  # keeps every rounding in its place
)
REGISTERS = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}
"""torch's name of a CPU's capability -> architecture of a build. ATEN_CPU_CAPABILITY lowers it, as for torch."""


class BuildError(RuntimeError):
    """The C++ did not compile. The message has the compiler's first error."""


def target() -> list[str]:
    """Return compiler flags for this CPU. Only speed depends on them, not one bit of a result."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []  # NEON belongs to every 64-bit ARM
    kind = REGISTERS.get(torch.backends.cpu.get_cpu_capability())
    return [f"-march={kind}"] if kind else []


def library(source: Path, shape: Mapping[str, int] | None = None) -> ctypes.CDLL:
    """Load a source compiled for a shape (its macros) and this CPU. One of several processes builds it.

    Raise BuildError; ValueError where the cache cannot be trusted.
    """
    macros = [f"-D{name}={value}" for name, value in (shape or {}).items()]
    return _library(
        source, tuple(macros), tuple(shlex.split(os.environ.get("CXX", COMPILER))), tuple(target())
    )


@cache
def _library(
    source: Path, macros: tuple[str, ...], compiler: tuple[str, ...], cpu: tuple[str, ...]
) -> ctypes.CDLL:
    flags = [*FLAGS, *cpu, *macros, *(f"-I{folder}" for folder in (*FOLDERS, source.parent))]
    path = (
        cache_folder()
        / "native"
        / f"{source.parent.name}-{_digest(source, [*compiler, *FLAGS, *cpu, *macros])}.so"
    )
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                _build([*compiler, *flags, str(source)], path)
    return ctypes.CDLL(str(path))


def _digest(source: Path, command: list[str]) -> str:
    """Digest everything that a build depends on: all our C++, for a header may be anywhere in it."""
    texts = [p for folder in (*FOLDERS, source.parent) for p in sorted(folder.glob("*.h"))]
    digest = hashlib.sha256("\0".join(command).encode())
    for path in (source, *texts):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _build(command: list[str], path: Path) -> None:
    """Compile beside `path`, then rename: an interrupted build is never loaded."""
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        half = Path(aside) / path.name
        try:
            ran = subprocess.run([*command, "-o", str(half)], capture_output=True, text=True)
        except OSError as error:
            raise BuildError(f"{command[0]}: {error.strerror}") from None
        if ran.returncode:
            first = next((line for line in ran.stderr.splitlines() if "error" in line), ran.stderr[:200])
            raise BuildError(f"{command[0]} failed: {first}")
        half.rename(path)
