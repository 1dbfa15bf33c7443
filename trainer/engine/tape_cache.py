"""Tapes in the user's cache: recording a spec's takes a tenth of a second.

A tape depends on a spec, on the shapes of a row and on code. Its file name is a digest of these: of every
source of `model` and `trainer`, of the sources of a family or optimiser from elsewhere, and of torch's
version. An unreadable file is recorded anew. What cannot be kept is used all the same.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import model
from trainer.engine.tape_graph import Tape
from trainer.files.installed import cache_folder

log = logging.getLogger(__name__)
FIELDS = ("constants", "blocks", "reads", "outputs")
UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


def tapes(about: Sequence[Any], owners: Iterable[Any], make: Callable[[], list[Tape]]) -> list[Tape]:
    """Return cached tapes, or record them with `make`.

    about: all that they depend on but code, by its repr. owners: classes and functions from elsewhere.
    """
    try:
        sources = [inspect.getsourcefile(owner) for owner in owners]
    except TypeError:
        sources = [None]
    if None in sources:  # typed into an interpreter: no file shows a change
        return make()
    path = cache_folder() / "tapes" / f"{_digest(repr(about), tuple(map(str, sources)))}.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return [
                Tape(int(count), *(arrays[f"{name}{n}"] for name in FIELDS))
                for n, count in enumerate(arrays["inputs"])
            ]
    except UNREADABLE:
        recorded = make()
    arrays = {f"{name}{n}": getattr(tape, name) for n, tape in enumerate(recorded) for name in FIELDS}
    fresh = path.with_name(f"{path.stem}-{os.getpid()}.new")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with fresh.open("wb") as file:
            np.savez(file, inputs=np.array([tape.inputs for tape in recorded]), **arrays)
        fresh.replace(path)
    except OSError as error:
        log.warning("%s: a tape is not kept: %s", path.parent, error.strerror or error)
        with suppress(OSError):
            fresh.unlink()
    return recorded


def _digest(about: str, sources: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{digest_of_sources()}\0{torch.__version__}\0{about}".encode())
    for source in sources:
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()[:24]


@cache
def digest_of_sources() -> str:
    """Digest the sources of `model` and `trainer`."""
    digest = hashlib.sha256()
    for folder in (Path(model.__file__).parent, Path(__file__).parent.parent):
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.h"), *folder.rglob("*.cpp")]):
            digest.update(path.read_bytes())
    return digest.hexdigest()
