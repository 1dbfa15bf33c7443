"""Paths as people name them, in options, environment variables and files."""

from __future__ import annotations

import os


def expanded(name: str) -> str:
    """Return the path `name` with that user's home folder in place of a leading ~ or ~user.

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
