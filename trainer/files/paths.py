"""Paths as people name them, in options, environment variables and files."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(name: str) -> str:
    """Return the path `name` with a leading ~ or ~user in place of which stands that user's home folder.

    A shell does this only where the tilde is not quoted, and never in the middle of `--home=~/runs`. Raises ValueError
    where no home is known: a folder that is itself called ~ would be removed with `rm -r ~`.
    """
    path = os.path.expanduser(name)  # noqa: PTH111 (Path.expanduser drops a trailing slash)
    if path.startswith("~"):
        tilde = path.partition("/")[0]
        raise ValueError(f"{name}: no home folder is known for {tilde}; a file of that name is ./{name}")
    return path


def named_by(variable: str) -> str:
    """Return the path that an environment variable names, `expanded`; empty if it is not set.

    Raises ValueError, naming the variable, as `expanded` does.
    """
    try:
        return expanded(os.environ.get(variable, ""))
    except ValueError as error:
        raise ValueError(f"{variable}: {error}") from None


def read_limited(path: Path, most: int, what: str) -> bytes:
    """Return the content of a file of `most` bytes at most. what: kind of file that none is larger than.

    Raises ValueError, without the path, for what is larger and for what is no regular file: a pipe would be waited for.
    """
    if not path.is_file():
        raise ValueError("not a file" if path.exists() else "no such file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"larger than any {what} ({path.stat().st_size:,} bytes)")
    return data
