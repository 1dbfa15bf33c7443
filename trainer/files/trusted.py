"""Code that this user lets run: files of modules that a study names, and texts of records after `--trust`.

A text is remembered by its SHA-256 in the folder of compiled programs, which is refused if anyone else can write there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from model.trust import LETS_RUN
from trainer.files.installed import cache_folder, check_cache

EVERYONE_WRITES = 0o002
_here: set[str] = set()
"""Digests that this process runs."""


def trust(digest: str) -> bool:
    """Let a text run, here and in later commands of this user. Return True."""
    _here.add(digest)
    with suppress(OSError, ValueError):  # else a later command asks again
        folder = cache_folder() / "trusted"
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / digest).touch(mode=0o600)
    return True


def trust_all() -> None:
    """Let every text run that this process reads: `--trust`."""
    LETS_RUN.append(trust)


def is_own(path: Path) -> bool:
    """True if a file is this user's or the system's, and not everyone can write it; its group may."""
    status = path.stat()
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & EVERYONE_WRITES


def is_trusted(digest: str) -> bool:
    """True if this user has let a text with this digest run."""
    if digest in _here:
        return True
    try:
        return (check_cache() / "trusted" / digest).is_file()
    except (OSError, ValueError):
        return False


LETS_RUN.append(is_trusted)
