"""The session of a Ray that a run starts for itself: a folder, a token and ports that no other user can enter.

By itself Ray keeps sockets, logs and what workers import in a folder that every user of the machine may write,
and its token in a file that every user may read.
"""

import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from search.errors import Failure
from trainer.engine.accelerators import accelerator

SYSTEM = "/tmp"
UID_MAP, OVERFLOW = Path("/proc/self/uid_map"), Path("/proc/sys/kernel/overflowuid")
ALL_USERS = ["0", "0", "4294967295"]
"""The map of users where there is no user namespace."""
LONGEST_SOCKET = 103 if sys.platform == "darwin" else 107
LONGEST = LONGEST_SOCKET - len("/r/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
"""Most bytes of a session folder's path: the system limits a socket's path, and Ray's sockets lie deep."""
STARTING_S = 60.0
"""Seconds that a run takes to lock its new folder and to write a token."""


@contextmanager
def private_session() -> Iterator[tuple[Path, Path]]:
    """Make a session folder that is this user's alone, and remove it at the end.

    Yields the folder for Ray and the file with its token. Removes the folders of runs that were killed. Raises
    Failure where no folder can be made.
    """
    folder = _make_folder()
    try:
        with FileLock(folder / "lock"):
            _remove_left_over(folder.parent)
            token = folder / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32), encoding="utf-8")
            yield folder / "r", token  # Ray gives its folder to all: the one around it stays closed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prefix() -> str:
    return f"ray-{os.geteuid()}-"


def _make_folder() -> Path:
    """Make a folder below RAY_TMPDIR, TMPDIR or /tmp, the first where nobody else can enter or exchange it."""
    refused = []
    named = os.environ.get("RAY_TMPDIR")
    for parent in dict.fromkeys(filter(None, (named, tempfile.gettempdir(), SYSTEM))):
        try:
            folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=Path(parent).resolve()))
        except OSError as error:
            refused.append(f"{parent}: {error.strerror}")
            continue
        why = _why_open(folder)
        if why is None:
            return folder
        refused.append(f"{parent}: {why}")
        folder.rmdir()
    raise Failure(f"Ray needs a folder of your own, named by RAY_TMPDIR; {'; '.join(refused)}")


def _why_open(folder: Path) -> str | None:
    """Return the reason against a new folder as the place of a session; None if there is none."""
    if len(os.fsencode(folder)) > LONGEST:
        return f"has more than {LONGEST - len(folder.name) - 1} bytes"
    if not _is_own(folder) or folder.lstat().st_mode & 0o077:
        return "a folder in it is not its maker's alone"

    # Whoever may write in a folder above could put another one in this one's place; with the sticky bit, only owners.
    trusted = {0, os.geteuid(), _unmapped_user()}
    for above in folder.parents:
        status = above.stat()
        if status.st_uid not in trusted:
            return f"{above} belongs to user {status.st_uid}"
        if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            return f"others can write in {above}"
    return None


def _is_own(folder: Path) -> bool:
    """True if a path is a folder of this user, and no link to one."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _unmapped_user() -> int:
    """Return the user who stands for all without a number in this user namespace, such as the machine's root.

    0 where each user has a number.
    """
    with suppress(OSError):
        if UID_MAP.read_text(encoding="utf-8").split() != ALL_USERS:
            return int(OVERFLOW.read_text(encoding="utf-8"))
    return 0


def _remove_left_over(parent: Path) -> None:
    """Remove the session folders below `parent` that no run has locked any more."""
    for folder in parent.glob(f"{_prefix()}*"):
        try:
            if not _is_own(folder):
                continue
            is_new = time.time() - folder.lstat().st_mtime < STARTING_S
            if is_new and not (folder / "token").exists():  # its run has made it and not locked it yet
                continue
            with FileLock(folder / "lock", timeout=0):
                accelerator().end(folder)
                shutil.rmtree(folder, ignore_errors=True)
        except (OSError, Timeout):  # in use, or just removed by another run
            continue
