"""Shared libraries of our C++: a wheel's own, or else built at first use into the user's cache.

The cache's folder is trainer/files/installed.py's.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

import model
from trainer.files import durable
from trainer.files.installed import (
    SHIPPED,
    cache_folder,
    compiler_command,
    missing_for_compilation,
)

Macros = Mapping[str, int | str]
"""Values of a source's macros by name."""
FOLDERS = (Path(model.__file__).parent / "cpp", Path(__file__).parent / "cpp")
ENGINE = FOLDERS[1] / "engine.cpp"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-shared",
    "-fPIC",
    "-w",
    "-ffp-contract=off",  # keeps every rounding in its place
    # Neither errno nor traps are read: without them the compiler can make vectors of lanes.
    "-fno-math-errno",
    "-fno-trapping-math",
)
REGISTERS = {"AVX512": "x86-64-v4", "AVX2": "x86-64-v3"}
"""torch's name of a CPU's capability -> architecture of a build. ATEN_CPU_CAPABILITY lowers it, as for torch."""
DENORMALS = "ADDER_SEARCH_DENORMALS"
"""Environment variable. With "kept", engine and kernels compute with denormal numbers, as they did until 2026-11-26."""
LONGEST_S = 600.0
"""Seconds that a compiler gets, which needs some ten."""
LONGEST_OUTPUT = 1 << 20
"""Bytes of a compiler's output that are searched for its first error."""
LONGEST_LINE = 300
"""Characters of that error that are shown."""

log = logging.getLogger(__name__)


class BuildError(RuntimeError):
    """The C++ did not compile. The message has the compiler's first error."""


class GivenUp(BuildError):
    """A compiler that has not ended."""


def denormals() -> str:
    """Return the fate of denormal numbers in the engine: "0", or "kept" (DENORMALS)."""
    return "kept" if os.environ.get(DENORMALS) == "kept" else "0"


@dataclass(frozen=True)
class Job:
    """A build without its compiler: source, flags, and folders of headers."""

    source: Path
    flags: tuple[str, ...]
    headers: tuple[Path, ...]

    def stem(self, compiler: Sequence[str] = ()) -> str:
        """Return the start of its file's name, with a digest of all that it depends on."""
        files = [self.source, *headers_in(self.headers)]
        return f"{self.source.parent.name}-{digest_of([*compiler, *self.flags], files)}"

    def command(self, compiler: Sequence[str]) -> list[str]:
        """Return a compiler's command, without its output."""
        return [
            *compiler,
            *self.flags,
            *(f"-I{folder}" for folder in self.headers),
            str(self.source),
        ]


def job_of(
    source: Path,
    shape: Macros | None = None,
    folders: Sequence[Path] = (),
    capability: str = "",
    machine: str = "",
) -> Job:
    """Return the build of a source for a shape and a kind of CPU.

    shape: values of its macros. folders: headers, beside the source's own and FOLDERS. capability: the CPU's, as torch
    names it; machine: its architecture, as `platform.machine()` names it; this machine's where they are not given.
    """
    capability = capability or torch.backends.cpu.get_cpu_capability()
    cpu = target(capability, machine or platform.machine())
    macros = dict(shape or {})
    # A macro, and so a library of its own: one process may rerun seeds of both kinds.
    if denormals() == "kept":
        macros["DENORMALS_KEPT"] = 1
    defined = (f"-D{name}={value}" for name, value in macros.items())
    return Job(source, (*FLAGS, *cpu, *defined), (*FOLDERS, source.parent, *folders))


def target(capability: str, machine: str) -> list[str]:
    """Return compiler flags for a kind of CPU. Only speed depends on them, not one bit of a result."""
    if machine not in ("x86_64", "AMD64"):
        return []  # NEON belongs to every 64-bit ARM
    kind = REGISTERS.get(capability)
    if kind is None:
        return ["-O1"]  # there as fast as -O3, and built in a sixth of its time
    return [f"-march={kind}"]


def library(
    source: Path,
    shape: Macros | None = None,
    folders: Sequence[Path] = (),
) -> ctypes.CDLL:
    """Load a source compiled for a shape and this CPU (`job_of`): shipped, else built by one of several processes.

    Raise BuildError; ValueError where the cache cannot be trusted.
    """
    return _library(job_of(source, shape, folders), tuple(compiler_command()))


def missing_to_build(source: Path, shape: Macros) -> str | None:
    """Name the tool without which a library cannot be had here (trainer/files/installed.py), or return None."""
    missing = missing_for_compilation()
    return missing if missing and not _shipped(job_of(source, shape)) else None


def _shipped(job: Job) -> ctypes.CDLL | None:
    """Load a library that came with the package, unless the user names a compiler."""
    return None if os.environ.get("CXX") or not SHIPPED.exists() else _load(SHIPPED, job.stem())


@cache
def _library(job: Job, compiler: tuple[str, ...]) -> ctypes.CDLL:
    if (loaded := _shipped(job)) is not None:
        return loaded
    folder = cache_folder() / "native"
    stem = job.stem(compiler)
    if (loaded := _load(folder, stem)) is not None:
        return loaded
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        with FileLock(folder / f"{stem}.lock", timeout=LONGEST_S):
            # Looked for again: another process may have built it while this one waited for the lock.
            return _load(folder, stem) or build(job.command(compiler), folder, stem)
    except Timeout:
        raise GivenUp(f"another process has been building {stem} for {LONGEST_S:.0f} s") from None
    except OSError as error:
        raise BuildError(f"nothing can be built in {folder}: {error.strerror or error}") from None


def _load(folder: Path, stem: str) -> ctypes.CDLL | None:
    """Load a library from the cache, and remove one that is not as it was built. Its name has its digest."""
    for path in folder.glob(f"{stem}.*.so"):
        try:
            # A damaged library would crash the process that loads it, so its bytes are digested first.
            if path.name == name_of(stem, path.read_bytes()):
                return ctypes.CDLL(str(path))
            why = "it was damaged"
        except FileNotFoundError:  # another process has removed it
            continue
        except OSError as error:
            why = str(error)
        log.warning("%s: built again, %s", path, why)
        with suppress(OSError):  # another process has removed it, or it is in a wheel's folder
            path.unlink()
    return None


def name_of(stem: str, content: bytes, kind: str = "so") -> str:
    """Return the name of a file of the cache, which says what it was made of (`stem`) and what it must hold."""
    return f"{stem}.{hashlib.sha256(content).hexdigest()[:32]}.{kind}"


def headers_in(folders: Sequence[Path]) -> list[Path]:
    """Return the headers of folders: any source may include any of them."""
    return [p for folder in folders for p in sorted(folder.glob("*.h"))]


def digest_of(command: Sequence[str], files: Sequence[Path]) -> str:
    """Digest everything that a build depends on: its command, and all its sources."""
    digest = hashlib.sha256("\0".join(command).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def build(
    command: list[str],
    folder: Path,
    stem: str,
    load: Callable[[str], Any] = ctypes.CDLL,
) -> Any:
    """Compile beside the cache's files, load, then rename: half a library, or a broken one, gets no name there.

    command: the compiler's, without output. stem: start of the file's name. A library that cannot be kept (a full disk)
    is used all the same. Return the result of `load` for the library's path. Raise BuildError.
    """
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        half = Path(aside) / f"{stem}.so"
        _compile([*command, "-o", str(half)])
        # Loaded before it is kept: a compiler that ends well may yet have written no library.
        try:
            built = load(str(half))
        except OSError as error:
            raise BuildError(f"{command[0]} built no library: {_first_line(str(error))}") from None
        try:
            durable.move_in(half, folder / name_of(stem, half.read_bytes()))
        except OSError as error:
            log.warning("%s: what was built is not kept: %s", folder, error.strerror or error)
    return built


def _compile(command: list[str]) -> None:
    """Run a compiler to its end, with all that it starts. Raise BuildError, GivenUp after LONGEST_S."""
    # Into a file: a pipe that nobody reads would fill, and the compiler would wait.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise BuildError(f"{command[0]}: {getattr(error, 'strerror', error)}") from None
        try:
            code = process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            raise GivenUp(f"{command[0]} has not ended in {LONGEST_S:.0f} s") from None
        finally:
            # g++ starts cc1plus and as: the whole group ends with it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code:
            output.seek(0)
            lines = output.read(LONGEST_OUTPUT).decode(errors="replace").splitlines()
            errors = [line for line in lines if "error" in line]
            # Not every failure says "error": a linker's, or that of a program that is no compiler.
            first, *_ = errors or lines or [""]
            raise BuildError(f"{command[0]} failed: {_first_line(first or f'exit code {code}')}")


def _first_line(text: str) -> str:
    """Return the start of a text, in which anything may be, as one line."""
    line = text.strip().partition("\n")[0]
    return "".join(c if c.isprintable() else "?" for c in line[:LONGEST_LINE])
