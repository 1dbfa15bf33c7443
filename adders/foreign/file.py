"""Other programs' checkpoint files, read as data: PyTorch archives, their settings and their tensors.

A pickle is a program, and torch.load(weights_only=True) refuses to run it. Before it reads an archive, the
archive must be whole and small. A tensor's shape is checked before its numbers are touched, because a few bytes
can claim to be a terabyte.

Every ValueError here says what is wrong; the caller says in which file.
"""

from __future__ import annotations

import io
import math
import posixpath
import re
import sys
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

LARGEST = 1 << 22  # bytes; the published files have up to 40 kB
MAX_VALUES = 10_000  # of the settings that are copied
MAX_DEPTH = 8
# What files begin with: zip archives, pickles, and those of torch.save before PyTorch 1.6.
ARCHIVE = b"PK\x03\x04"
PICKLE = b"\x80"
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
DAMAGED = "damaged: its pickle cannot be read"
REFUSED = re.compile(r"[Uu]nsupported (?:global: )?GLOBAL (\S+)")
"""What torch.load says of a name that a pickle may not have."""
PATHS = [
    f"{module}.{kind}Path"
    for module in ("pathlib", "pathlib._local")
    for kind in ("", "Pure", "Posix", "PurePosix", "Windows", "PureWindows")
]
REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


# ---- the file


def load_archive(data: bytes) -> dict[str, Any]:
    """Return the dictionary that torch.save wrote."""
    problem = _kind(data)
    if problem:
        raise ValueError(problem)
    _check_archive(data)
    # training scripts save their settings as a Namespace, and paths among them
    allowed: list[Any] = [Namespace, *((posixpath.join, name) for name in PATHS)]
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(allowed):
            warnings.simplefilter("ignore")
            content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True, mmap=False)
    except Exception as error:  # an invented pickle can raise anything
        refused = REFUSED.search(str(error))
        if not refused:
            raise ValueError(DAMAGED) from None
        name = word(refused[1])
        raise ValueError(f"its pickle asks for {name}, as no known checkpoint does; nothing of it was run") from None
    return mapping(content, "its content")


def load_tensors(data: bytes) -> dict[str, Any] | None:
    """Return the tensors by name of a file of tensors alone, safetensors or .npz; None if it is neither."""
    # safetensors: the length of a header in 8 bytes, then the header, in JSON
    if data[8:9] == b"{" and int.from_bytes(data[:8], "little") < len(data):
        try:
            return dict(safetensors.torch.load(data))
        except Exception:  # a damaged file can raise anything
            raise ValueError("damaged: its safetensors cannot be read") from None
    if not data.startswith(ARCHIVE):
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except Exception:  # a damaged archive can raise anything
        return None
    if not entries or not all(entry.filename.endswith(".npy") for entry in entries):
        return None
    # as the archive says, before anything is unpacked: a small file can hold gigabytes of zeros
    if sum(entry.file_size for entry in entries) > LARGEST:
        raise ValueError("an .npz file whose arrays are larger than any checkpoint known here")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except Exception:
        raise ValueError("damaged: its arrays cannot be read") from None


def _kind(data: bytes) -> str:
    """Say what the file is, if its first bytes are not those of PyTorch's archives."""
    if not data:
        return "empty"
    if data.startswith(LEGACY):
        return "written in PyTorch's format before 1.6; load it there and save it again"
    if data.startswith(PICKLE):
        return "a plain pickle, not a PyTorch checkpoint; nothing of it was run"
    return "" if data.startswith(ARCHIVE) else "not a checkpoint: no folder of ours, no PyTorch archive"


def _check_archive(data: bytes) -> None:
    """Raise ValueError for an archive that is not whole, not small, or a program."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            is_small = sum(entry.file_size for entry in archive.infolist()) <= LARGEST
            # testzip unpacks everything, so only what is small
            if is_small and archive.testzip():
                raise zipfile.BadZipFile
    except Exception:  # a damaged archive can raise anything
        raise ValueError("truncated or damaged: it begins like a PyTorch file and is not whole") from None
    if not is_small or sum(name.endswith("/data.pkl") for name in names) != 1:
        raise ValueError("a zip archive, but not as PyTorch writes it, with one data.pkl and all of it small")
    if any(name.endswith("/constants.pkl") for name in names):
        raise ValueError("a TorchScript archive, which is a program, not a checkpoint")


# ---- plain values


def mapping(value: Any, name: str) -> dict[str, Any]:
    """Copy a dictionary with text for keys. An unpickled one may shadow its methods, so none is called."""
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a dictionary, got {shown(value)}")
    content = dict(dict.items(value))
    for key in content:
        if type(key) is not str:
            raise ValueError(f"{name} must have names for keys, got {shown(key)}")
    return content


def shown(value: Any) -> str:
    """Describe a value for a message: short, on one line, a large or unknown one by its type."""
    # `type is`: a subclass could say anything of itself
    if type(value) is str:
        return ascii(value) if len(value) <= 60 else f"{value[:40]!a}..."
    if value is None or type(value) in (bool, int, float):
        return f"{value!r:.40}"
    return f"a {type(value).__name__}"


def word(text: str) -> str:
    """Return a name for a message, quoted if it is long or not printable."""
    return text if 0 < len(text) <= 60 and text.isprintable() else shown(text)


def plain(value: Any) -> Any:
    """Convert a value to JSON's types: other objects to their type's name, infinite floats to text."""
    counter = count()

    def walk(value: Any, depth: int) -> Any:
        # values are counted, as lists that hold one list many times are small in a file
        if next(counter) > MAX_VALUES or depth > MAX_DEPTH:
            raise ValueError(f"its settings are more than {MAX_VALUES} values, or nested more than {MAX_DEPTH} deep")
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else str(value)
        if type(value) is Namespace:
            value = vars(value)
        if isinstance(value, dict):
            # not `value.items()`, which an unpickled object may have instead
            named = {key: inner for key, inner in dict.items(value) if type(key) is str}
            return {key: walk(inner, depth + 1) for key, inner in named.items()}
        if type(value) in (list, tuple):
            return [walk(inner, depth + 1) for inner in value]
        return shown(value)

    return walk(value, 0)


# ---- settings


def unknown(name: str, value: Any, *more: tuple[str, Any]) -> ValueError:
    """Return the error for settings that no spec can express."""
    texts = []
    for setting, its_value in ((name, value), *more):
        text = word(its_value) if type(its_value) is str else shown(its_value)
        texts.append(f"{word(setting)}={text}")
    return ValueError(f"architecture not known here: {listed(texts)}")


def listed(texts: Sequence[str], most: int = 4) -> str:
    """Return texts in a row, the first few of many."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


Choices = Mapping[str, Mapping[Any, dict[str, Any]]]
"""Setting -> its value -> fields of the spec. The first value is the default."""
OF_TRAINING = {
    *("lr", "learning_rate", "min_lr", "weight_decay", "betas", "grad_clip", "optimizer", "scheduler", "warmup"),
    *("warmup_steps", "batch_size", "steps", "max_steps", "total_steps", "epochs", "seed", "device", "eval_every"),
    *("log_every", "save_every", "config"),
}
"""Settings that programs keep beside those of the model, and that say nothing of it."""


def all_chosen(config: Mapping[str, Any], choices: Choices, others: Iterable[str]) -> dict[str, Any]:
    """Convert settings to fields of a spec.

    others: settings that are read elsewhere, or do not matter. Raises ValueError naming all settings that are not
    known, unless they are off, and all values that are none of the choices.
    """
    known = {*choices, *others, *OF_TRAINING}
    refused = [(name, value) for name, value in config.items() if name not in known and _is_on(value)]
    options: dict[str, Any] = {}
    for name, values in choices.items():
        default = next(iter(values))
        value = config.get(name, default)
        # or True would be taken for 1
        if type(value) is not type(default):
            raise ValueError(f"{name} must be like {default!r}, got {shown(value)}")
        if value in values:
            options |= values[value]
        else:
            refused.append((name, value))
    if refused:
        raise unknown(*refused[0], *refused[1:])
    return options


def _is_on(value: Any) -> bool:
    """True if a setting that is not known says anything."""
    if value is None:
        return False
    is_simple = type(value) in (bool, int, float, str, list, tuple, dict)
    return not (is_simple and value in (0, "", "none", [], (), {}))


def check_agreement(config: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raise ValueError where a setting is another than tensors have. found: what they have, by the settings' names."""
    for name, value in found.items():
        said = config.get(name, value)
        # or True would be taken for 1, and a tensor compared number by number
        if type(said) is not type(value) or said != value:
            raise ValueError(f"{name} is {shown(said)}, and its tensors have {shown(value)}")


def integer(config: Mapping[str, Any], name: str, default: int) -> int:
    """Return a setting that is an integer. Raises ValueError where it is none, or too large for a tensor's size."""
    value = config.get(name, default)
    if type(value) is not int:
        raise ValueError(f"{name} must be an integer, got {shown(value)}")
    if value.bit_length() > 63:
        raise ValueError(f"{name} does not fit in 64 bits: {shown(value)}...")
    return value


def number(config: Mapping[str, Any], name: str, default: float) -> float:
    """Return a setting that is a finite number. Raises ValueError where it is none."""
    value = config.get(name, default)
    # Put this way, NaN is refused too.
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"{name} must be a finite number, got {shown(value)}")
    return float(value)


# ---- tensors


WRAPPERS = {
    "_orig_mod",
    "module",
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
    "_forward_module",
}
"""Modules that torch.compile, DataParallel and their like put around others, at any depth."""
HOLDERS = {"model", "net", "network", "ema_model"}
"""Names by which training code calls its one model."""
LAYER = re.compile(r"(?:^|\.)(?:blocks|layers|block|layer|h)\.(\d{1,4})\.")
COUNTERS = {"n_averaged", "initted", "step"}
"""Numbers that averages of models keep beside them."""


def unwrapped(state: Any, name: str) -> dict[str, str]:
    """Return the names of a state dictionary without what was put around the model -> its own names.

    Raises ValueError for two models in one dictionary.
    """
    paths: dict[str, list[str]] = {}
    for own, tensor in mapping(state, name).items():
        path = [part for part in own.split(".") if part not in WRAPPERS] or [own]
        while len(path) > 1 and path[0] in HOLDERS:
            path = path[1:]
        if path[-1] not in COUNTERS or getattr(tensor, "ndim", None) != 0:
            paths[own] = path
    # a model may be a part of another one that has nothing else
    while len(paths) > 1 and _is_one_module(list(paths.values())):
        paths = {own: path[1:] for own, path in paths.items()}
    names: dict[str, str] = {}
    for own, path in paths.items():
        first = names.setdefault(".".join(path), own)
        if first != own:
            raise ValueError(f"{name} has two models, as of {word(first)} and {word(own)}; save one of them alone")
    return names


def _is_one_module(paths: list[list[str]]) -> bool:
    """True if all tensors, by their paths, are in one module."""
    modules = {path[0] for path in paths}
    return len(modules) == 1 and all(len(path) > 1 for path in paths)


def layers_of(names: Iterable[str]) -> int:
    """Return how many layers of a model are among tensors' names, 0 for fewer than two."""
    matches = [LAYER.search(name) for name in names]
    last = max((int(match[1]) for match in matches if match), default=0)
    return last + 1 if last else 0


class State:
    """A state dictionary from which tensors are taken one by one; a remainder at the end is an error.

    places: the file's names of modules that it calls otherwise than the reader does.
    """

    def __init__(self, state: Any, name: str):
        """Raise ValueError for two models in one dictionary, and for tensors whose numbers are not all there."""
        self._own_names = unwrapped(state, name)
        self._remaining: dict[str, Any] = {short: state[own] for short, own in self._own_names.items()}
        self.places: Mapping[str, str] = {}
        # here, as they are compared before they are taken
        for short, tensor in self._remaining.items():
            if isinstance(tensor, Tensor) and not _is_dense(tensor):
                raise ValueError(f"{word(self._own_names[short])} must be a dense tensor, got {shown(tensor)}")

    def __contains__(self, name: str) -> bool:
        return self._key(name) in self._remaining

    def names(self) -> list[str]:
        """Return the names of tensors that are not yet taken, without what was put around the model."""
        return list(self._remaining)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor that is not yet taken."""
        tensor = self._remaining.get(self._key(name))
        if not isinstance(tensor, Tensor):
            raise ValueError(f"tensor {self.place(name)} is missing")
        return tuple(tensor.shape)

    def equals(self, name: str, expected: Tensor) -> bool:
        """True if a tensor is there, not yet taken, and is the expected one in float32."""
        tensor: Any = self._remaining.get(self._key(name))
        is_same = isinstance(tensor, Tensor) and tensor.shape == expected.shape
        return is_same and torch.equal(tensor.detach().float(), expected)

    def number(self, name: str) -> float:
        """Return a scalar that is not yet taken, with the fewest digits that float32 rounds to it."""
        if self.shape(name):
            raise ValueError(f"tensor {self.place(name)} must have shape (), found {self.shape(name)}")
        scalar = self._remaining[self._key(name)].detach().float()
        return shortest(scalar) if scalar.isfinite() else math.nan

    def _key(self, name: str) -> str:
        """Return a tensor's name without what is put around a model, as the file has it."""
        module, dot, rest = name.partition(".")
        if module in HOLDERS:
            return self._key(rest)
        return self.places.get(module, module) + dot + rest

    def place(self, name: str) -> str:
        """Return the file's name of a tensor."""
        key = self._key(name)
        return self._own_names.get(key, key)

    def numbers(self, names: Iterable[str]) -> Tensor:
        """Take out scalars as one tensor."""
        return torch.stack([self.take(name, ()) for name in names])

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Take out a tensor of this shape, as float32. Raises ValueError if it is another, or not finite."""
        key, name = self._key(name), self.place(name)
        if key not in self._remaining:
            raise ValueError(f"tensor {name} is missing")
        tensor = self._remaining.pop(key)
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a dense tensor, got {shown(tensor)}")
        if tuple(tensor.shape) != shape:
            raise ValueError(f"tensor {name} must have shape {shape}, found {tuple(tensor.shape)}")
        if tensor.dtype not in REAL:
            raise ValueError(f"tensor {name} must have real floating numbers, found {tensor.dtype}")
        numbers = tensor.detach().to(torch.float32)
        if not torch.isfinite(numbers).all():
            raise ValueError(f"tensor {name} has numbers that are not finite in float32")
        # a model that was trained in float64 is another one in float32, if only by a little
        if not torch.equal(numbers.to(tensor.dtype), tensor.detach()):
            raise ValueError(f"tensor {name} has {tensor.dtype} numbers that float32 cannot hold")
        return numbers

    def check(self, name: str, expected: Tensor, why: str, tolerance: float = 0.0) -> None:
        """Take out a tensor, if it is there. Raises ValueError if it is not the expected one."""
        if name in self:
            tensor = self.take(name, tuple(expected.shape))
            if not torch.allclose(tensor, expected, rtol=tolerance, atol=tolerance):
                raise ValueError(f"tensor {self.place(name)} must be {why}, and is not")

    def ignore(self, *names: str) -> None:
        """Take out tensors that say nothing of a model, if they are there."""
        for name in names:
            self._remaining.pop(self._key(name), None)

    def end(self) -> None:
        """Raise ValueError if tensors remain."""
        if self._remaining:
            names = [word(self._own_names[name]) for name in self._remaining]
            raise ValueError(f"tensors that are no part of this architecture: {listed(names, 3)}")


def _is_dense(tensor: Tensor) -> bool:
    """True if a tensor has a number at each place; what is not so refuses to be compared, or has no shape."""
    is_other = tensor.is_meta or tensor.is_nested or tensor.is_quantized
    return tensor.layout == torch.strided and not is_other


def shortest(number: Tensor) -> float:
    """Return the number with the fewest digits that float32 rounds to this one: 0.15, not 0.15000000596."""
    exact = float(number)
    # nine digits tell any two float32 numbers apart
    for digits in range(1, 9):
        short = float(f"{exact:.{digits}g}")
        if float(torch.tensor(short)) == exact:
            return short
    return float(f"{exact:.9g}")
