"""Other programs' checkpoint files, read as data: what a PyTorch archive holds, its settings, its tensors.

A pickle is a program. Three fences keep it from running: its archive is packed anew in memory, nothing but
pickle and numbers, under a size limit; the pickle may name dense tensors and plain containers alone, which is
checked before any of it is interpreted; and torch.load(weights_only=True) reads what is left. A tensor is
asked for its shape before it is touched, because a few bytes can claim to be a terabyte.

Every ValueError here says what is wrong, and leaves it to the caller to say where.
"""

from __future__ import annotations

import io
import math
import pickletools
import posixpath
import sys
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Mapping
from itertools import count
from typing import Any

import torch
from torch import Tensor

LARGEST = 1 << 22  # bytes; the published files have up to 40 kB
MOST, DEEPEST = 10_000, 8  # plain values that are taken over, and how deep they may be nested
ARCHIVE, PICKLE = b"PK\x03\x04", b"\x80"
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # what torch.save began with before PyTorch 1.6
DAMAGED = "damaged: its pickle cannot be read"
STORAGES = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
PATHS = {
    f"{module} {kind}Path"
    for module in ("pathlib", "pathlib._local")
    for kind in ("", "Pure", "Posix", "PurePosix", "Windows", "PureWindows")
}
HARMLESS = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "argparse Namespace",
    "torch device",
    *(f"torch {kind}Storage" for kind in STORAGES),
    *PATHS,
}
"""All that a checkpoint's pickle may name, as `module name`."""
REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


# ---- the file


def unpacked(data: bytes) -> dict[str, Any]:
    """The dictionary that torch.save wrote."""
    kind = _kind(data)
    if kind:
        raise ValueError(kind)
    inside = _inside(_entries(data))
    _check_pickle(inside["data.pkl"])
    return mapping(_loaded(inside), "its content")


def _kind(data: bytes) -> str:
    """What it is, if its first bytes are not those of PyTorch's archives."""
    if not data:
        return "empty"
    if data.startswith(LEGACY):
        return "written in PyTorch's format before 1.6; load it there and save it again"
    if data.startswith(PICKLE):
        return "a plain pickle, not a PyTorch checkpoint; nothing of it was run"
    return "" if data.startswith(ARCHIVE) else "not a checkpoint: no folder of ours, no PyTorch archive"


def _entries(data: bytes) -> dict[str, bytes]:
    """All that is in an archive, by name; nothing, if it would unfold to more than a checkpoint is."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            usual = all(e.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for e in entries)
            fits = usual and sum(entry.file_size for entry in entries) <= LARGEST
            return {entry.filename: _unfolded(archive, entry) for entry in entries} if fits else {}
    except Exception:  # a damaged archive can raise anything
        raise ValueError("truncated or damaged: it begins like a PyTorch file and is not whole") from None


def _unfolded(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """No more of it than it says that it has: `ZipFile.read` unfolds all that is there and then cuts it."""
    with archive.open(entry) as file:
        return file.read(entry.file_size)


def _inside(entries: Mapping[str, bytes]) -> dict[str, bytes]:
    """The pickle and the numbers of PyTorch's archive."""
    folders = [name.removesuffix("data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(folders) != 1:
        raise ValueError("a zip archive, but not as PyTorch writes it, with one data.pkl and all of it small")
    inside = {name.removeprefix(folders[0]): entries[name] for name in entries if name.startswith(folders[0])}
    if "constants.pkl" in inside:
        raise ValueError("a TorchScript archive, which is a program, not a checkpoint")
    return {
        name: content
        for name, content in inside.items()
        if name in ("data.pkl", "byteorder", "version") or name.startswith("data/")
    }


def _check_pickle(pickled: bytes) -> None:
    """Refuse a pickle that names anything but plain data, without interpreting it."""
    try:
        named = {str(arg) for step, arg, _ in pickletools.genops(pickled) if step.name == "GLOBAL"}
    except Exception:  # whatever its parser stumbles over
        raise ValueError(DAMAGED) from None
    if others := sorted(named - HARMLESS):
        what = ", ".join(word(name.replace(" ", ".")) for name in others[:3])
        raise ValueError(f"its pickle asks for {what}, as no known checkpoint does; nothing of it was run")
    if not pickled.startswith(b"\x80\x02"):
        raise ValueError("its pickle is not of protocol 2, PyTorch's own; nothing of it was run")


def _loaded(inside: Mapping[str, bytes]) -> Any:
    fresh = io.BytesIO()
    with zipfile.ZipFile(fresh, "w") as archive:
        for name, content in inside.items():
            archive.writestr(f"archive/{name}", content)
    fresh.seek(0)
    known: list[Any] = [Namespace, *((posixpath.join, name.replace(" ", ".")) for name in PATHS)]
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(known):
            warnings.simplefilter("ignore")
            return torch.load(fresh, map_location="cpu", weights_only=True, mmap=False)
    except Exception:  # a pickle that is made up can raise anything
        raise ValueError(DAMAGED) from None


# ---- plain values


def mapping(value: Any, what: str) -> dict[str, Any]:
    """A dictionary with names for keys. What was unpickled may shadow its own methods, so none is asked."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a dictionary, got {shown(value)}")
    found = dict(dict.items(value))
    for key in found:
        if type(key) is not str:
            raise ValueError(f"{what} must have names for keys, got {shown(key)}")
    return found


def shown(value: Any) -> str:
    """A value for a message: short, on one line, and never the whole of a large or made-up one."""
    if type(value) is str:
        return ascii(value) if len(value) <= 60 else f"{value[:40]!a}..."
    if value is None or type(value) in (bool, int, float):
        return f"{value!r:.40}"
    return f"a {type(value).__name__}"


def word(text: str) -> str:
    """A name for a message, bare if it is one."""
    return text if 0 < len(text) <= 60 and text.isprintable() else shown(text)


def plain(value: Any) -> Any:
    """A value as JSON has it: what is no plain value is named by its type, what is not finite is spelt."""
    taken = count()

    def walk(value: Any, depth: int) -> Any:
        if next(taken) > MOST or depth > DEEPEST:
            raise ValueError(f"its settings are more than {MOST} values, or nested more than {DEEPEST} deep")
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else str(value)
        if type(value) is Namespace:
            value = vars(value)
        if isinstance(value, dict):
            return {k: walk(v, depth + 1) for k, v in dict.items(value) if type(k) is str}
        if type(value) in (list, tuple):
            return [walk(v, depth + 1) for v in value]
        return shown(value)

    return walk(value, 0)


# ---- settings


def unknown(name: str, value: Any) -> ValueError:
    """The error for a setting that no spec can say."""
    text = word(value) if type(value) is str else shown(value)
    return ValueError(f"architecture not known here: {word(name)}={text}")


Choices = Mapping[str, Mapping[Any, dict[str, Any]]]
"""Setting -> its value -> what that says in the fields of a spec. The first value is the default."""


def all_chosen(config: Mapping[str, Any], choices: Choices) -> dict[str, Any]:
    """What some settings say in the fields of a spec."""
    return {k: v for name, values in choices.items() for k, v in _chosen(config, name, values).items()}


def _chosen(config: Mapping[str, Any], name: str, choices: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    default = next(iter(choices))
    value = config.get(name, default)
    if type(value) is not type(default):
        raise ValueError(f"{name} must be like {default!r}, got {shown(value)}")
    if value not in choices:
        raise unknown(name, value)
    return choices[value]


def integer(config: Mapping[str, Any], name: str, default: int) -> int:
    value = config.get(name, default)
    if type(value) is not int:
        raise ValueError(f"{name} must be an integer, got {shown(value)}")
    if value.bit_length() > 63:
        raise ValueError(f"{name} is beyond any use: {shown(value)}...")
    return value


def number(config: Mapping[str, Any], name: str, default: float) -> float:
    value = config.get(name, default)
    if (
        type(value) not in (int, float) or not abs(value) <= sys.float_info.max
    ):  # so put, a NaN is refused too
        raise ValueError(f"{name} must be a finite number, got {shown(value)}")
    return float(value)


def refuse_others(config: Mapping[str, Any], known: set[str]) -> None:
    """A setting that nothing here reads must be off."""
    for name, value in config.items():
        off = value is None or (type(value) in (bool, int, float, str) and value in (0, "", "none"))
        if name not in known and not off:
            raise unknown(name, value)


# ---- tensors


class State:
    """A state dictionary. Tensors are taken out of it one by one; what is left at the end is an error."""

    def __init__(self, state: Any, what: str):
        self._left: dict[str, Any] = mapping(state, what)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def names(self) -> list[str]:
        return list(self._left)

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor of this shape, float32 and finite."""
        if name not in self._left:
            raise ValueError(f"tensor {name} is missing")
        tensor = self._left.pop(name)
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise ValueError(f"{name} must be a dense tensor, got {shown(tensor)}")
        if tuple(tensor.shape) != shape:
            raise ValueError(f"tensor {name} must have shape {shape}, found {tuple(tensor.shape)}")
        if tensor.dtype not in REAL:
            raise ValueError(f"tensor {name} must have real floating numbers, found {tensor.dtype}")
        found = tensor.detach().to(torch.float32)
        if not torch.isfinite(found).all():
            raise ValueError(f"tensor {name} has numbers that are not finite in float32")
        if not torch.equal(found.to(tensor.dtype), tensor.detach()):
            raise ValueError(f"tensor {name} has {tensor.dtype} numbers that float32 cannot hold")
        return found

    def check(self, name: str, wanted: Tensor, why: str, tolerance: float = 0.0) -> None:
        """Where there is such a tensor, it must be this one."""
        if name in self._left:
            found = self.take(name, tuple(wanted.shape))
            if not torch.allclose(found, wanted, rtol=tolerance, atol=tolerance):
                raise ValueError(f"tensor {name} must be {why}, and is not")

    def ignore(self, *names: str) -> None:
        for name in names:
            self._left.pop(name, None)

    def end(self) -> None:
        """Everything has been understood."""
        if self._left:
            names = ", ".join(word(name) for name in list(self._left)[:3])
            more = f" and {len(self._left) - 3} more" if len(self._left) > 3 else ""
            raise ValueError(f"tensors that are no part of this architecture: {names}{more}")


def shortest(number: Tensor) -> float:
    """The decimal number with the fewest digits that float32 rounds to this one: 0.15, not 0.15000000596."""
    exact = float(number)
    return next(d for d in (float(f"{exact:.{n}g}") for n in range(1, 10)) if float(torch.tensor(d)) == exact)
