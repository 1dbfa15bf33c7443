"""A command's surroundings, made safe before anything else runs: its output, and variables that name paths."""

from __future__ import annotations

import errno
import io
import locale
import os
import stat
import sys
from functools import cache
from importlib import metadata
from typing import Any

from search import OURS
from search.errors import Failure, one_line, reraise_as

PATHS = (
    "ADDER_SEARCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "TMPDIR",
    "RAY_TMPDIR", "PGPASSFILE", "RAY_AUTH_TOKEN_PATH",
)  # fmt: skip
"""Environment variables that name files and folders, for us or for a library."""


class Unread(io.FileIO):
    """A stream that outlives its reader: once a pipe or a terminal is closed, output goes nowhere."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            is_closed_terminal = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self.fileno()).st_mode)
            if error.errno != errno.EPIPE and not is_closed_terminal:
                raise

            # By the descriptor, which what is written in C++ and later child processes have too.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return memoryview(data).nbytes


def settle_output() -> None:
    """Let neither a character nor a closed reader end a command.

    Characters that the locale cannot write are escaped, and a training goes on when `| head` has seen enough.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue

        raw = getattr(stream.buffer, "raw", stream.buffer)  # PYTHONUNBUFFERED leaves out what is between
        if type(raw) is io.FileIO:
            stream.flush()
            unread = Unread(raw.fileno(), "wb", closefd=False)
            binary = unread if raw is stream.buffer else io.BufferedWriter(unread)
            lines, at_once = stream.line_buffering, stream.write_through
            text = io.TextIOWrapper(binary, stream.encoding, line_buffering=lines, write_through=at_once)
            setattr(sys, name, text)
        getattr(sys, name).reconfigure(errors="backslashreplace")


def settle_encoding() -> None:
    """Begin this process again with paths and files in UTF-8, where the locale has another encoding.

    Arrow always has paths in UTF-8, and would make a second folder beside one that is called é. Output stays in the
    locale's encoding.
    """
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1":
        return
    os.environ["PYTHONUTF8"] = "1"
    os.environ.setdefault("PYTHONIOENCODING", f"{locale.getencoding()}:backslashreplace")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def settle_environment() -> None:
    """Expand tildes in variables that name paths: libraries and processes of ours would make a folder called ~.

    Raises UserError where no home is known.
    """
    if not any("~" in os.environ.get(name, "") for name in (*PATHS, "MLFLOW_TRACKING_URI")):
        return  # before anything is imported

    from search.store.home import TRACKING, expanded_address
    from trainer.files.paths import named_by

    with reraise_as():
        os.environ.update({name: named_by(name) for name in filter(os.environ.get, PATHS)})
    if uri := os.environ.get(TRACKING):
        os.environ[TRACKING] = expanded_address(uri)


@cache
def check_libraries() -> None:
    """Raise Failure, with what to install, for libraries in versions that setup.cfg excludes.

    pip installs such a version later with no more than a warning.
    """
    from packaging.requirements import Requirement

    wrong, remedy = [], []
    for line in _required():
        needed = Requirement(line)
        if needed.marker and not needed.marker.evaluate({"extra": ""}):
            continue

        version = _version(needed.name)
        if version is None or not needed.specifier.contains(version, prereleases=True):
            wrong.append(f"{needed.name} {version or 'is missing'}")
            remedy.append(f"'{line}'")
    if wrong:
        raise Failure(f"adder-search does not work with {', '.join(wrong)}: pip install {' '.join(remedy)}")


def changed_library(error: ImportError) -> str:
    """Return a line on a library that lacks something we import: a version that nobody has tried yet."""
    name = (error.name or "").partition(".")[0]
    if name in OURS:
        return f"{one_line(error)}: a folder of adder-search is missing; install it again"
    version = _version(name) if name else None
    return f"{one_line(error)}: {name} {version or 'is not installed'}; constraints.txt has versions that work"


def _required() -> list[str]:
    """Return what setup.cfg requires; nothing where adder-search is not installed."""
    try:
        return metadata.requires("adder-search") or []
    except metadata.PackageNotFoundError:
        return []


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
