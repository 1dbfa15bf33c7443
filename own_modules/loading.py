"""Classes and modules of a spec: loaded, built of a seed, and put on a device.

Torch's generator is used as the module's own code does, and left as it was.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import BytesIO
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from model.doors import first_line
from model.files import read_limited
from model.layout import Shapes
from model.spec import Parts
from model.trust import LARGEST_CODE, digest_of

if TYPE_CHECKING:
    from model.tasks import Task
    from own_modules.spec import Module

INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"


def _import_compiler() -> None:
    """Import what torch.func imports at its first call, and undo what torch then does to the environment.

    It sets the variable by which a user says where compiled programs are (trainer/files/installed.py).
    """
    before = os.environ.get(INDUCTOR)
    importlib.import_module("torch._dynamo.aot_compile")
    if before is None:
        os.environ.pop(INDUCTOR, None)


_import_compiler()
FORM_OF_PARTS = '{"units": ("hidden", {"up.weight": 0, "up.bias": 0, "down.weight": 1})}'
MISSING = inspect.Parameter.empty
MOST_PARAMS = 4_000_000
"""Numbers of a checkpoint's file."""
Wrong = (Exception, SystemExit)
"""What the code of a module may raise. An interrupt is the user's."""


def read_file(where: str) -> str:
    """Return the text of the file of a module's name. Raises ValueError."""
    path = Path(where.partition(":")[0])
    try:
        return read_limited(path, LARGEST_CODE, "file of a module").decode()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def installed_digests(where: str) -> list[str]:
    """Return the digests of the files of an installed class and of the module that is named. Raises ValueError.

    They are two where a package only passes the class on; earlier records have the second. A class may have no text.
    """
    place, _, name = where.partition(":")
    try:
        named = importlib.import_module(place)
        found = getattr(named, name, None)
        own = sys.modules.get(found.__module__, named) if isinstance(found, type) else named
        digests = [digest_of(inspect.getsource(named))]
        with suppress(OSError, TypeError):
            digests.insert(0, digest_of(inspect.getsource(own)))
        return digests
    except ModuleNotFoundError:
        raise ValueError(f"{where}: no module {place!r} is installed here") from None
    except Wrong as error:
        raise ValueError(f"{where}: cannot be imported: {first_line(error)}") from None


@lru_cache(512)
def _loaded(place: str, code: str, digest: str) -> ModuleType:
    """Return the Python module of a file by its text, or of a package by its name."""
    if not code:
        return importlib.import_module(place)

    name = f"adder_search_module_{digest[:16]}"
    module = ModuleType(name)
    module.__file__ = f"<{place} {digest[:12]}>"
    # Tracebacks and `inspect` find its lines there: no file need have them any more.
    linecache.cache[module.__file__] = (len(code), None, code.splitlines(keepends=True), module.__file__)
    # Where dataclasses and pickles look for it.
    sys.modules[name] = module
    try:
        exec(compile(code, module.__file__, "exec"), vars(module))
    except BaseException:
        # As an import does: half a module must not be found.
        del sys.modules[name]
        raise
    return module


def class_of(spec: Module) -> type[nn.Module]:
    """Return the class of a spec. Raises ValueError."""
    try:
        found = getattr(_loaded(spec.place, spec.code, spec.digest), spec.label, None)
    except Wrong as error:
        raise ValueError(f"{spec.module}: cannot be imported: {first_line(error)}") from None
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ValueError(f"{spec.module}: there is no nn.Module of that name")
    return found


def again(spec: Module, use: str = "again") -> Module:
    """Return a spec whose class is of another load of its text: nothing that a load or a cache makes is shared.

    use: each has a load of its own. Of an installed package, and of a text that runs once alone, there is one.
    """
    class_of(spec)  # first: of a text that runs once alone it is the one
    bare = dataclasses.replace(spec, args=())
    return dataclasses.replace(spec, digest=_digest_again(bare, use))


@lru_cache(512)
def _digest_again(spec: Module, use: str) -> str:
    """Return by which digest `again` knows a class, whatever its arguments are."""
    other = dataclasses.replace(spec, digest=f"{use}-{spec.digest}")
    try:
        # By another seed: what is drawn as a file is read differs.
        with seeded(1):
            class_of(other)
    except ValueError:
        return spec.digest
    return other.digest


def arguments_of(spec: Module) -> dict[str, Any]:
    """Return the arguments of a spec's class with their defaults; MISSING for one that has none."""
    signature = inspect.signature(class_of(spec).__init__)
    parameters = list(signature.parameters.values())[1:]  # without self
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name: p.default for p in parameters if p.kind not in several}


def given(spec: Module) -> dict[str, Any]:
    """Return the arguments as the class is given them: tuples where its defaults are, and lists elsewhere."""
    defaults, lists = arguments_of(spec), spec.as_dict()["args"]
    return {name: value if isinstance(defaults.get(name), tuple) else lists[name] for name, value in spec.args}


def constraints_of(spec: Module) -> dict[str, Any]:
    """Return what the class lists in `constraints`: arguments, and their values that mean "off"."""
    cls = class_of(spec)
    listed = getattr(cls, "constraints", {})
    known = {}
    if isinstance(listed, Mapping):
        arguments = dict(spec.args)
        known = {name: off for name, off in listed.items() if name in arguments}
    # A list of the class's own must be right; one that a base class has may name arguments that this one lacks.
    is_own = "constraints" in vars(cls)
    if not isinstance(listed, Mapping) or (is_own and len(known) < len(listed)):
        raise ValueError(f"{spec.module}: constraints must be arguments of the class with their off values")
    return known


def parts_of(spec: Module) -> dict[str, Parts]:
    """Return what the class lists in `parts`, by kind.

    A kind has the argument that counts its parts, and the axes of parameters along which they lie. Raises ValueError
    for what is no such list.
    """
    cls = class_of(spec)
    listed = getattr(cls, "parts", {})
    if not isinstance(listed, Mapping):
        return {}  # the class has something else of that name
    right = {name: kind for name, kind in listed.items() if _is_kind(spec, kind)}
    if "parts" in vars(cls) and len(right) < len(listed):
        raise ValueError(f"{spec.module}: parts must be like {FORM_OF_PARTS}, of what the class has")
    kinds = {}
    for name, (size, axes) in right.items():
        of_tensors = {parameter.replace(".", "_"): axis for parameter, axis in axes.items()}
        kinds[str(name)] = Parts(size, of_tensors)
    return kinds


def _is_kind(spec: Module, kind: Any) -> bool:
    """True if a kind is an argument that counts, with axes of parameters that there are."""
    if not isinstance(kind, tuple | list) or len(kind) != 2:
        return False
    size, axes = kind
    if not isinstance(axes, Mapping) or type(dict(spec.args).get(size)) is not int:
        return False
    dims = {name: parameter.dim() for name, parameter in template(spec).named_parameters()}
    return all(name in dims and axis in range(dims[name]) for name, axis in axes.items())


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's generator for a block."""
    # Of the CPU alone: modules are built there, and to ask a GPU for its generator would start CUDA.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def build(spec: Module, seed: int) -> nn.Module:
    """Build a module of a seed, on the CPU. Raises ValueError."""
    cls, arguments = class_of(spec), given(spec)  # what its file draws as it is read is none of the seed's
    with seeded(seed):
        try:
            return cls(**arguments)
        except Wrong as error:
            raise ValueError(f"{spec.module}: cannot be built: {first_line(error)}") from None


@lru_cache(1024)
def template(spec: Module) -> nn.Module:
    """Return the module whose code all seeds share, on the CPU; its own parameters are never read.

    Raises ValueError for one with too many parameters, before they take memory.
    """
    if (count := _count_without_memory(spec)) > MOST_PARAMS:
        raise ValueError(f"{spec.module}: {too_many(count)}")
    module = build(spec, 0)
    if any(tensor.is_meta for tensor in chain(module.parameters(), module.buffers())):
        raise ValueError(f"{spec.module}: it keeps tensors from one build to the next: seeds would share them")
    return module


def too_many(count: int) -> str:
    """Return the message on a module with too many parameters, or without any."""
    return f"it has {count:,} parameters, and 1 to {MOST_PARAMS:,} can be trained"


def _count_without_memory(spec: Module) -> int:
    """Return how many parameters a module would have; 0 where it cannot be built without their numbers."""
    # A load for this alone, before: what it keeps from now on, such as in a cache, has no numbers.
    cls, arguments = class_of(again(spec, "count")), given(spec)
    try:
        # On "meta" tensors have shapes alone.
        with seeded(0), torch.device("meta"):
            module = cls(**arguments)
    except Wrong:
        return 0
    return sum(parameter.numel() for parameter in module.parameters())


@lru_cache(1024)
def logits_of(spec: Module) -> int:
    """Return how many logits the module has for a token."""
    with torch.no_grad():
        # A copy: a module may write to it.
        return int(template(spec)(problems_of(spec.task)[:1].clone()).shape[-1])


@lru_cache(64)
def problems_of(task: Task) -> Tensor:
    """Return what a net reads of some problems, [B, T] int64: at each place each token that any problem has there.

    B is not T: logits whose axes were exchanged would have the right shape.
    """
    a, b = torch.tensor(task.pairs()).T
    tokens = task.written(a, b)[:-1]  # the last one is asked for alone
    chosen = list[int]()
    for token in tokens:
        numbers = token.numpy()
        values, firsts = np.unique(numbers, return_index=True)
        chosen += firsts[~np.isin(values, numbers[chosen])].tolist()
    chosen.sort()
    if len(chosen) == len(tokens):
        chosen.append(chosen[-1])
    return torch.stack([token[chosen] for token in tokens], dim=1)


@lru_cache(64)
def constants(spec: Module, device: torch.device) -> dict[str, Tensor]:
    """Return the buffers, which all seeds share, on a device."""
    return {name: buffer.to(device) for name, buffer in template(spec).named_buffers()}


def shapes_of(spec: Module) -> Shapes:
    """Return the shapes of the parameters, each once, by their names with _ for dots."""
    return {name.replace(".", "_"): tuple(p.shape) for name, p in template(spec).named_parameters()}


def parameters(spec: Module, theta_SP: Tensor) -> dict[str, Tensor]:
    """Return θ as a module's named parameters [S, ...]."""
    names = [name for name, _ in template(spec).named_parameters()]
    return dict(zip(names, spec.layout.split(theta_SP).values(), strict=True))


def state_of(spec: Module, theta_P: Tensor) -> bytes:
    """Return a file that `torch.load` reads: the state of the module with one seed's θ [P]."""
    # A module of its own: the template is shared by all seeds.
    module = build(spec, 0)
    named = parameters(spec, theta_P[None])
    for name, parameter in module.named_parameters():
        # Not in place: a parameter may be made of a tensor that the file keeps, with which all builds begin.
        parameter.data = named[name][0].to(parameter, copy=True)
    file = BytesIO()
    torch.save(module.state_dict(), file)
    return file.getvalue()
