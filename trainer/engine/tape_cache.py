"""Tapes that were recorded before, in the user's cache: recording a spec's takes a tenth of a second.

A tape is what our functions make of a spec and of the shapes that a row has. So it lies under a digest of
these, of every source of `model` and `trainer`, of those that a family or an optimiser from elsewhere has,
and of torch's version. What cannot be read is recorded anew.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import model
from trainer.engine.tape_graph import Tape
from trainer.files.installed import cache_folder

FIELDS = ("constants", "blocks", "reads", "outputs")
UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


def tapes(about: Sequence[Any], owners: Iterable[Any], make: Callable[[], list[Tape]]) -> list[Tape]:
    """What `make` records, or what it has recorded before.

    about: all that it depends on but code, by its repr. owners: what others may have written of that.
    """
    try:
        sources = [inspect.getsourcefile(owner) for owner in owners]
    except TypeError:
        sources = [None]
    if None in sources:  # typed in somewhere: nobody knows when it changes
        return make()
    path = cache_folder() / "tapes" / f"{_digest(repr(about), tuple(map(str, sources)))}.npz"
    try:
        with np.load(path, allow_pickle=False) as kept:
            return [
                Tape(int(count), *(kept[f"{name}{n}"] for name in FIELDS))
                for n, count in enumerate(kept["inputs"])
            ]
    except UNREADABLE:
        made = make()
    arrays = {f"{name}{n}": getattr(tape, name) for n, tape in enumerate(made) for name in FIELDS}
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = path.with_name(f"{path.stem}-{os.getpid()}.new")
    with fresh.open("wb") as file:
        np.savez(file, inputs=np.array([tape.inputs for tape in made]), **arrays)
    fresh.replace(path)
    return made


def _digest(about: str, sources: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{_ours()}\0{torch.__version__}\0{about}".encode())
    for source in sources:
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()[:24]


@cache
def _ours() -> str:
    """Of all of our sources."""
    digest = hashlib.sha256()
    for folder in (Path(model.__file__).parent, Path(__file__).parent.parent):
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.h"), *folder.rglob("*.cpp")]):
            digest.update(path.read_bytes())
    return digest.hexdigest()
