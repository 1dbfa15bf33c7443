"""A bank's state on disk: tensors and JSON in one file, atomic, with a checksum and a predecessor."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from trainer.files import durable

DIGEST = 64  # hexadecimal characters of SHA-256 in front of the payload


def write(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Replace `path` in one instant; the file before stays beside it as `*.previous`.

    Raise OSError if the disk is full, and leave the old file.
    """
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    payload = save(whole, {"meta": json.dumps(meta)})
    durable.make_folder(path.parent)
    fresh = durable.stage(path, _digest(payload) + payload)
    if path.exists():
        path.replace(_beside(path, ".previous"))
    durable.rename(fresh, path)


def _digest(payload: bytes) -> bytes:
    return hashlib.sha256(payload).hexdigest().encode()


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Read the newest whole state at `path`: the file, its predecessor if it is torn, or None."""
    # A crash between the two renames of `write` leaves the new file under its first name.
    for candidate in (path, _beside(path, ".new"), _beside(path, ".previous")):
        data = candidate.read_bytes() if candidate.exists() else b""
        payload = data[DIGEST:]
        if payload and _digest(payload) == data[:DIGEST]:
            # safetensors: eight bytes that count the header's, then the header as JSON
            length = int.from_bytes(payload[:8], "little")
            header = json.loads(payload[8 : 8 + length])
            return load(payload), json.loads(header["__metadata__"]["meta"])
    return None
