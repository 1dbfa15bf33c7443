"""What this machine has: a version of adder-search, and what compiling needs. Without torch."""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from importlib import metadata
from pathlib import Path


def code_version() -> str:
    """The installed version of adder-search."""
    try:
        return metadata.version("adder-search")
    except metadata.PackageNotFoundError:
        return "not installed"


def missing_for_compilation() -> str | None:
    """What torch.compile lacks on this machine to build CPU programs, or None."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(shlex.split(compiler)[0]) is None:
        return f"a C++ compiler ({compiler})"
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return None if headers.exists() else f"Python's headers ({headers})"
