"""A bank's state on disk: tensors and JSON in one file, atomic, with a checksum and a predecessor."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

DIGEST = 64  # hexadecimal characters of SHA-256 in front of the payload


def write(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Replace `path` in one instant; what it held before stays beside it as `*.previous`.

    Raises OSError if the disk is full, and leaves what was there.
    """
    payload = save({k: t.contiguous() for k, t in tensors.items()}, {"meta": json.dumps(meta)})
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = _beside(path, ".new")
    try:
        with fresh.open("wb") as file:
            file.write(hashlib.sha256(payload).hexdigest().encode() + payload)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        fresh.unlink(missing_ok=True)  # half a file helps nobody and takes room
        raise
    if path.exists():
        path.replace(_beside(path, ".previous"))
    fresh.replace(path)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest whole state at `path`: the file, its predecessor if it is torn, or None."""
    for candidate in (path, _beside(path, ".new"), _beside(path, ".previous")):
        data = candidate.read_bytes() if candidate.exists() else b""
        payload = data[DIGEST:]
        if payload and hashlib.sha256(payload).hexdigest().encode() == data[:DIGEST]:
            header = json.loads(payload[8 : 8 + int.from_bytes(payload[:8], "little")])
            return load(payload), json.loads(header["__metadata__"]["meta"])
    return None
