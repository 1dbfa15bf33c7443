"""The installation: version of adder-search, tools for compiling, and the cache of compiled programs.

Without torch.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path

from trainer.files.paths import named_by

CACHE = "TORCHINDUCTOR_CACHE_DIR"
OTHERS_WRITE = 0o022
INSTALLED = Path(__file__).resolve().parents[2]
"""The folder of our packages."""
SHIPPED = INSTALLED / "trainer" / "engine" / "shipped"
"""A wheel's libraries (trainer/engine/shipping.py). Only there if it has some."""


class NoCache(ValueError):
    """No folder of compiled programs that can be trusted."""


def own_module(name: str) -> list[str]:
    """Return the command that runs a module of ours in a process of its own.

    name: the module's. Another module of that name, in the current folder or on PYTHONPATH, is not run.
    """
    # -P leaves the current folder out of sys.path; PYTHONPATH comes behind our own folder.
    start = (
        f"import runpy, sys; sys.path.insert(0, {str(INSTALLED)!r}); runpy.run_module({name!r}, None, '__main__', True)"
    )
    return [sys.executable, "-P", "-c", start]


def code_version() -> str:
    """Return the installed version of adder-search."""
    try:
        return metadata.version("adder-search")
    except metadata.PackageNotFoundError:
        return "not installed"


def compiler_command() -> list[str]:
    """Return the C++ compiler as words: CXX, else g++. Raise ValueError for a quotation that has no end."""
    try:
        return shlex.split(os.environ.get("CXX", "")) or ["g++"]
    except ValueError as error:
        raise ValueError(f"CXX: {error}: {os.environ['CXX']!r}") from None


def missing_for_compilation() -> str | None:
    """Name the missing tool of the engine (trainer/engine/native.py), or return None."""
    try:
        compiler = compiler_command()
    except ValueError as error:
        return f"a C++ compiler ({error})"
    if shutil.which(compiler[0]) is None:
        return f"a C++ compiler ({' '.join(compiler)})"
    return None


def cache_folder() -> Path:
    """Return this user's folder of compiled programs (`check_cache`). Made if it is not there.

    Raises ValueError as `check_cache` does.
    """
    folder = check_cache()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _no_cache(folder, f"cannot be made ({error.strerror})") from None
    return check_cache()


def check_cache() -> Path:
    """Return the path of this user's folder of compiled programs, and write nothing.

    It is TORCHINDUCTOR_CACHE_DIR, else adder-search in XDG_CACHE_HOME, else ~/.cache/adder-search.
    Its files are run: raises ValueError if anyone else owns it or can write there, or if it cannot be made.
    """
    folder = Path(named_by(CACHE) or _caches() / "adder-search").absolute()
    try:
        # Of a folder that is not there yet the one above decides, in which it would be made.
        nearest = next(path for path in (folder, *folder.parents) if path.exists())
        status = nearest.stat()
    except OSError as error:
        raise _no_cache(folder, f"cannot be made ({error.strerror})") from None
    if not nearest.is_dir():
        raise _no_cache(folder, f"cannot be made ({nearest} is no folder)")
    if nearest != folder:  # it is not made yet, so that nobody has written there
        if not os.access(nearest, os.W_OK):
            raise _no_cache(folder, f"cannot be made (nothing can be written in {nearest})")
        return folder
    if status.st_uid != os.geteuid():
        raise _no_cache(folder, f"belongs to user {status.st_uid}")
    if status.st_mode & OTHERS_WRITE:
        raise _no_cache(folder, "others can write there (chmod go-w)")
    return folder


def _caches() -> Path:
    """Return the user's folder of caches (XDG Base Directory Specification: a relative path does not count)."""
    configured = Path(named_by("XDG_CACHE_HOME"))
    try:
        return configured if configured.is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        raise _no_cache(
            Path("~/.cache"),
            "cannot be made (no home directory is known for this user)",
        ) from None


def _no_cache(folder: Path, why: str) -> NoCache:
    return NoCache(f"compiled programs are code; {folder} {why}: name a folder of your own with {CACHE}")
