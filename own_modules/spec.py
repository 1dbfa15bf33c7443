"""The family `module`: an ordinary nn.Module that maps tokens [B, T] to logits [B, T, V], or [B, V] of one answer.

Its arguments are what other families' fields are: `args.NAME` in a study, and constraints where the class lists them
with the values that mean "off": `constraints = {"tied": False}`. A file's text is a part of the spec, so that workers
and records have it and a file that changed is another model; of a class of an installed package it is the digest of
its file. A spec that is made of a text runs it, so a text that this user has not let run is refused (`Untrusted`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import check, did_you_mean, option
from model.layout import Shapes
from model.spec import FamilyModule, Fold, Parts, Spec
from model.tasks import ADDITION, in_columns, make_task
from model.trust import Untrusted, digest_of, is_file, let_run, may_run

if TYPE_CHECKING:
    from torch import Tensor

    from model.ops import Tensors

LONGEST_PLACE = 200
"""Characters of a module's name, which every record and message has."""
MOST_WHOLE = 1 << 53
"""Every whole number up to it is a float."""
ARG = "args."
"""What the name of an argument begins with where those of fields stand too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Module(Spec, listed=False):
    family: ClassVar[str] = "module"
    about: ClassVar[str] = "an nn.Module of your own file or package"
    roles: ClassVar[dict[str, str]] = {}
    operands: ClassVar[tuple[int, ...]] = (0, 1, 2, 3)
    runs_code: ClassVar[bool] = True

    _loading = FamilyModule("loading")
    _checks = FamilyModule("checks")
    _ways = FamilyModule("ways")
    _recorded = FamilyModule("recorded")

    module: str = option("", "FILE.py:Class, or package.module:Class of an installed package")
    args: tuple[tuple[str, Any], ...] = option((), "the class's arguments, by name")
    code: str = option("", "text of the file; empty for an installed package")
    digest: str = option("", "SHA-256 of the text, or of the installed class's file")

    def __post_init__(self) -> None:
        check(self)

    def check_asked(self) -> None:
        """Raise ValueError where the module cannot be asked the task, with others too, or rebuilt of a seed."""
        self._checks.check_module(self)

    def check_trained(self) -> None:
        self._checks.check_module(self, is_trained=True)

    @property
    def adds(self) -> bool:
        return False

    @property
    def label(self) -> str:
        """The class's name."""
        return self.module.partition(":")[2]

    @property
    def vocabulary(self) -> int:
        return self.task.vocabulary

    @property
    def logits(self) -> int:
        count: int = self._loading.logits_of(self)
        return count

    @property
    def prompt(self) -> int:
        return self.task.prompt

    @property
    def decoded(self) -> int:
        return self.task.answers

    @property
    def answers(self) -> int:
        return self.task.answers

    def shapes(self) -> Shapes:
        shapes: Shapes = self._loading.shapes_of(self)
        return shapes

    def sequence(self, *columns: list[Tensor]) -> list[Tensor]:
        return in_columns(self.task).spelt(*columns)

    def tokens_of(self, a: Tensor, b: Tensor) -> list[Tensor]:
        return self.task.written(*self.task.asked(a, b))

    def prompt_of(self, a: Tensor, b: Tensor) -> list[Tensor]:
        return self.task.written(a, b)[: self.prompt]

    def read_answer(self, answer_AB: Tensor) -> Tensor:
        return self.task.read(answer_AB)

    @property
    def place(self) -> str:
        """The file or package that has the class."""
        return self.module.partition(":")[0]

    def places(self) -> set[str]:
        places = {type(self.task).__module__}
        if not self.code:
            places.add(self.place)
        return places

    def files(self, theta_P: Tensor) -> dict[str, bytes]:
        """Return what torch alone loads: the module's state, and its file."""
        files = {"state_dict.pt": Module._loading.state_of(self, theta_P)}
        if self.code:
            files[Path(self.place).name] = self.code.encode()
        return files

    def folds(self) -> list[Fold]:
        """Return a rewriting for each constraint that only lets parameters share values."""
        folds: list[Fold] = self._ways.folds(self)
        return folds

    @property
    def parts(self) -> dict[str, Parts]:  # type: ignore[override]
        """Kinds of parts that the class lists: parts = {"units": ("hidden", {"up.weight": 0, "down.weight": 1})}."""
        kinds: dict[str, Parts] = Module._loading.parts_of(self)
        return kinds

    def all_tensors(self, theta_SP: Tensor) -> Tensors:
        """Return each parameter under all names that the module has for it."""
        tensors: Tensors = self._ways.all_tensors(self, theta_SP)
        return tensors

    def answers_as(self, theta_SP: Tensor, other: Spec, other_SR: Tensor) -> bool:
        is_alike: bool = self._ways.answers_as(self, theta_SP, other, other_SR)
        return is_alike

    @classmethod
    def from_values(
        cls, module: Any = None, args: Any = None, code: Any = "", digest: Any = "", task: Any = None, **more: Any
    ) -> Spec:
        """Return a module of plain values, as `as_dict` has them, and arguments as `args.NAME`.

        No file is read: `code` is the text of one, and is empty for an installed package.
        Raises ValueError for what is none, and Untrusted for a text that this user has not let run.
        """
        arguments = dict(_mapping(args))
        for name, value in more.items():
            if not name.startswith(ARG):
                known = ("module", "args", "task", *(f"{ARG}{n}" for n in arguments))
                raise ValueError(f"unknown field {name!r:.80} of a module; {did_you_mean(name, known)}")
            arguments[name.removeprefix(ARG)] = value

        where = place_of(module)
        if not isinstance(code, str) or not isinstance(digest, str):
            raise ValueError(f"code must be a text, got {code!r:.80}")
        if is_file(where):
            # Before anything of it runs: a record's text may be a stranger's.
            digests = [_trusted_digest(where, code)]
        else:
            # What is installed the user has chosen.
            digests = Module._loading.installed_digests(where)
            code = ""

        if digest not in ("", *digests):
            raise ValueError(f"{where} has changed: recorded with SHA-256 {digest:.12}, here it is {digests[0]:.12}")
        asked = ADDITION if task is None else make_task(task)
        spec = cls(module=where, code=code, digest=digest or digests[0], task=asked)
        return dataclasses.replace(spec, args=_checked_arguments(spec, arguments))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values: the arguments as a mapping, the file's text among them."""
        return {**super().as_dict(), "args": {name: _lists(value) for name, value in self.args}}

    def shown(self) -> dict[str, Any]:
        """Return one value for each argument, and no text."""
        values = super().shown()
        for name in ("args", "code"):
            values.pop(name, None)  # a recorded module has neither
        arguments = {f"{ARG}{name}": _lists(value) for name, value in self.args}
        return {**values, "digest": self.digest[:12], **arguments}

    def record_columns(self) -> dict[str, str]:
        return {"constraints": json.dumps(self.off_values)}

    @classmethod
    def from_record(cls, values: dict[str, Any], params: int) -> Spec:
        off = json.loads(values.pop("constraints", None) or "{}")
        recorded: Spec = Module._recorded.recorded_module(values, off, params)
        return recorded

    # ---- arguments are constraints where the class says so

    @property
    def off_values(self) -> dict[str, Any]:
        """Arguments that are constraints, with their values that mean "off"."""
        # As `args` has them.
        return {name: _tuples(off) for name, off in Module._loading.constraints_of(self).items()}

    def constraints(self) -> dict[str, dataclasses.Field[Any]]:  # type: ignore[override]
        """Return a field for each argument that the class lists in `constraints`, by name."""
        fields = {}
        for name, off in self.off_values.items():
            field: dataclasses.Field[Any] = option(off, f"{name} of {self.module}", off=off)
            field.name = name
            fields[name] = field
        return fields

    def value_of(self, name: str) -> Any:
        return dict(self.args)[name]

    def replaced(self, values: Mapping[str, Any]) -> Spec:
        return dataclasses.replace(self, args=_checked_arguments(self, dict(self.args) | dict(values)))

    def __reduce__(self) -> Any:
        # Of a pickle only fields are read, and nothing is asked: a driver's worker runs what the driver runs.
        return _restored, tuple(getattr(self, field.name) for field in dataclasses.fields(self))


def _restored(*values: Any) -> Module:
    """Return the module of a pickle, by the values of its fields."""
    names = [field.name for field in dataclasses.fields(Module)]
    return Module(**dict(zip(names, values, strict=True)))


def load_module(where: str, args: Mapping[str, Any] | None = None, task: Any = None) -> Spec:
    """Make a spec of a module of your own, whose file is run.

    where: FILE.py:Class, or package.module:Class of an installed package. args: arguments of the class. task: as
    `make_task` takes it; by default addition. Raises ValueError for what is no module, or cannot be imported.

        spec = load_module("net.py:Net", task={"name": "modular", "modulus": 97})
    """
    text = Module._loading.read_file(where) if is_file(where) else ""
    let_run(text)
    return Module.from_values(where, args, text, task=task)


def _trusted_digest(where: str, text: str) -> str:
    """Return the digest of a file's text. Raises ValueError if it is empty, Untrusted if it may not run."""
    if not text:
        raise ValueError(f"{where} comes without its text: load_module reads a file of your own")
    digest = digest_of(text)
    if not may_run(digest):
        code = f"code (SHA-256 {digest[:12]}) that has not run here"
        raise Untrusted(f"{where} is {code}: `verify` or `run` with --trust runs it")
    return digest


def place_of(where: Any) -> str:
    """Return a module's name. Raises ValueError for anything else."""
    if isinstance(where, str):
        file, _, name = where.partition(":")
        is_path = file.endswith(".py") or all(part.isidentifier() for part in file.split("."))
        is_line = len(where) <= LONGEST_PLACE and where.isprintable()
        if is_path and is_line and name.isidentifier():
            return str(where)
    raise ValueError(f"module must be FILE.py:Class or package.module:Class, got {where!r:.80}")


def _mapping(args: Any) -> Mapping[str, Any]:
    """Return arguments by name; none for None. Raises ValueError for anything else."""
    if args is None:
        return {}
    if not isinstance(args, Mapping) or not all(isinstance(name, str) for name in args):
        raise ValueError(f"args must be a mapping of the class's arguments, got {args!r:.80}")
    return args


def _checked_arguments(spec: Module, given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return all arguments of the class, given and default. Raises ValueError for one that it lacks or cannot have."""
    defaults = Module._loading.arguments_of(spec)
    checked = dict[str, Any]()
    for name, value in given.items():
        if name not in defaults:
            raise ValueError(f"{spec.label} has no argument {name!r:.80}; {did_you_mean(name, defaults)}")
        default = defaults[name]
        value = _floats(value, default)
        is_typed = isinstance(default, bool | int | float | str)
        if is_typed and type(value) is not type(default):
            raise ValueError(f"{ARG}{name} must be of the kind of {default!r:.80}, got {value!r:.80}")
        if not _is_plain(value):
            raise ValueError(f"{ARG}{name} must be a number, a text, true, false, null or a list, got {value!r:.80}")
        checked[name] = value

    for name, default in defaults.items():
        if default is Module._loading.MISSING and name not in given:
            raise ValueError(f"{ARG}{name} is missing: {spec.label} has no default for it")

    # Defaults too, so that a class that changes one is another model. One that is no plain value stays the class's.
    values = {name: checked.get(name, default) for name, default in defaults.items()}
    return tuple((name, _tuples(value)) for name, value in values.items() if _is_plain(value))


def _floats(value: Any, default: Any) -> Any:
    """Return a value with 1.0 for 1, as YAML has it, where the default has a float: both are one configuration."""
    if isinstance(value, list | tuple) and isinstance(default, list | tuple) and default:
        along = [*default, *default[-1:] * len(value)]  # a longer list goes on as the default ends
        return tuple(map(_floats, value, along))
    is_float = type(default) is float and type(value) is int and abs(value) <= MOST_WHOLE
    return float(value) if is_float else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _lists(value: Any) -> Any:
    return list(map(_lists, value)) if isinstance(value, tuple) else value
