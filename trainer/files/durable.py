"""Writing that outlasts a power cut: when a call returns, its data are on disk, whole and by their names.

A file system may keep a name and lose the bytes, or keep the bytes and lose the name, until file and folder
have been synced (Pillai and others, "All File Systems Are Not Created Equal", OSDI 2014). All calls raise
OSError where the disk is full or nothing can be written.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Replace a file in one instant."""
    rename(stage(path, data), path)


def stage(path: Path, data: bytes) -> Path:
    """Write data beside `path` and return where; `rename` gives it its name."""
    fresh = path.with_name(path.name + ".new")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        fresh.unlink(missing_ok=True)  # half a file helps nobody and takes room
        raise
    return fresh


def rename(fresh: Path, target: Path) -> None:
    """Give a synced file its name, in one instant."""
    fresh.replace(target)
    _sync(target.parent)


def move_in(fresh: Path, target: Path) -> None:
    """Sync a file or folder that was written elsewhere, then give it its name."""
    sync(fresh)
    rename(fresh, target)


def sync(path: Path, above: int = 0) -> None:
    """Sync a file, or a folder with its contents. Its name belongs to its parent's sync.

    above: so many folders that lead to it are synced too, with the names in them.
    """
    for folder, _, files in os.walk(path):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))
    if path.is_file():
        _sync(path)
    for parent in path.parents[:above]:
        _sync(parent)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are not there."""
    # Each new folder's name is kept by its parent, which is synced after it is made.
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        _sync(folder.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder, if it is there, with all below it."""
    if path.exists():
        shutil.rmtree(path)
        _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot sync a folder keeps names by itself
            raise
    finally:
        os.close(handle)
