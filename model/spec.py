"""The spec: a family of transformers with all of its constraints and sizes. Frozen, hashable, complete.

A family is one subclass of `Spec` in spec.py of its package; its fields, made by `model.fields.option`, are
its constraints and sizes. Its functions of θ are in modules beside it, which may import torch: `FamilyModule`.
The parameters that a constraint saves are written nowhere: they are the difference of two layouts.

Axes: S seed, B problem, T position, A answer position, V vocabulary, P parameters.
Problems are the innermost axis everywhere, so that every operation runs along contiguous memory.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from model import doors
from model.doors import known
from model.fields import check, check_combination, did_you_mean
from model.layout import Layout, Shapes
from model.structures import Words, of_matrices
from model.tasks import ADDITION, Columns, Sums, Task, in_columns, make_task

if TYPE_CHECKING:
    from torch import Tensor

    from model.ops import Tensors

MOST_TOKENS = 16
"""Tokens of a table: kernels look a token up in a vector of lanes."""
Probe = Callable[[Any, "Tensor"], "Tensor"]
"""A named measure of θ: from a spec and θ [S, P] (float64) one number per seed [S]. Its docstring defines it."""
FAMILIES: dict[str, type[Spec]] = {}
UNLISTED: dict[str, type[Spec]] = {}
"""Families over other specs, or of users' code: what they are made of no list can tell."""


class FamilyModule:
    """A module of the family's package, imported on first use, so that specs are listed without torch.

    The class keeps it as a plain attribute.
    """

    def __init__(self, name: str):
        self.name = name

    def __get__(self, instance: Any, owner: type[Spec]) -> Any:
        module = import_module(f"{owner.__module__.rpartition('.')[0]}.{self.name}")
        setattr(owner, f"_{self.name}", module)  # in place of this descriptor: from now on an ordinary look-up
        return module


@dataclasses.dataclass(frozen=True)
class Parts:
    """Parts of a kind, such as hidden units.

    size: the field that counts them. axes: for each tensor in which they have entries, the axis along which the parts
    lie, one after another, with equally many entries each.
    """

    size: str
    axes: Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec(ABC):
    """Interface of every family. Instances are values: equal specs train the same model."""

    family: ClassVar[str]
    about: ClassVar[str]
    """The family in one sentence."""
    roles: ClassVar[dict[str, str]]
    """Purpose of each slice of θ that some spec of the family has."""
    delimiters: ClassVar[int] = 1
    """Tokens of the prompt beside each of its numbers."""
    operands: ClassVar[tuple[int, ...]] = (2,)
    """How many numbers the family can be asked about."""
    sees_whose: ClassVar[bool] = True
    """False if numbers can trade the digits of a column, and every logit stays the same."""
    essential: ClassVar[tuple[str, ...]] = ()
    """Slices of θ that must not be all zero: without them every answer is the same."""
    parts: ClassVar[Mapping[str, Parts]] = {}
    """Kinds of parts that can go one at a time, by name (model/parts.py): the rest computes as with them at zero."""
    runs_code: ClassVar[bool] = False
    """True if specs are made of users' code (model/trust.py). Its name, FILE.py:NAME or package.module:NAME, is the
    option that is called as the family; `code` is the text of a file, which studies read, and `digest` its SHA-256."""
    task: Task = ADDITION
    """What is asked. Plain values have it only where it is not ten-digit addition."""
    _forward = FamilyModule("forward")
    _initial = FamilyModule("initial")
    _folds = FamilyModule("folds")
    _probes = FamilyModule("probes")
    _images = FamilyModule("images")

    def __init_subclass__(cls, listed: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if listed:
            FAMILIES[cls.family] = cls
        elif "family" in vars(cls):  # and no variant of another class
            UNLISTED[cls.family] = cls

    def __post_init__(self) -> None:
        check(self)
        check_combination(self)
        self.check_task()

    def check_asked(self) -> None:  # noqa: B027
        """Raise ValueError where the model cannot be asked its task, if that is not known before it is tried."""

    def check_trained(self) -> None:
        """Raise ValueError where the model cannot be asked its task, or not be trained with others."""
        self.check_asked()

    @property
    def adds(self) -> bool:
        """True for a model of AdderBoard's task that can be exported as an adder."""
        return self.task == ADDITION

    @property
    def label(self) -> str:
        """The kind of model, in a name."""
        return self.family

    @property
    def why_not(self) -> str:
        """Return why no θ can be right on the task; empty if nothing is known against it."""
        task = self.task
        if self.sees_whose or not isinstance(task, Columns) or task.is_symmetric:
            return ""
        return f"{task.title}: {self.family} sees which digits a column has, and not to which number each belongs"

    def check_task(self) -> None:
        """Raise ValueError for a task that the family cannot be asked."""
        task = self.task
        numbers = task.numbers if isinstance(task, Columns) else 0  # no family of columns is asked rows
        if numbers not in self.operands:
            load_families()
            able = [name for name, cls in (FAMILIES | UNLISTED).items() if numbers in cls.operands]
            raise ValueError(f"{self.family} cannot be asked {task.title}; these can: {', '.join(able)}")
        if isinstance(task, Sums) and task.units_first:
            raise ValueError(f"units_first is asked of modules; {self.family} has an order of its own")
        if self.tokens > MOST_TOKENS:
            base = in_columns(task).base
            raise ValueError(f"base={base} needs {self.tokens} tokens in {self.family}, of {MOST_TOKENS} at most")

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Tokens in the table; the task's are the first."""

    @property
    def tokens(self) -> int:
        """V: tokens in the table, in any base."""
        return self.vocabulary

    @property
    def logits(self) -> int:
        """Numbers that predict a token: one per token of the table, or more."""
        return self.tokens

    @property
    def prompt(self) -> int:
        """Tokens before the first of the answer."""
        task = in_columns(self.task)
        return task.numbers * (task.digits + self.delimiters)

    @property
    @abstractmethod
    def decoded(self) -> int:
        """Tokens that greedy decoding asks for: those of the answer, or one more that is to end it."""

    @property
    @abstractmethod
    def answers(self) -> int:
        """A: positions whose next token is predicted, the first of them the prompt's last."""

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.shapes())

    @property
    def params(self) -> int:
        """P: the AdderBoard parameter count."""
        return self.layout.size

    @abstractmethod
    def shapes(self) -> Shapes:
        """Return the trainable tensors' shapes of one seed, by name."""

    def initial(self, seed: int) -> Tensor:
        """Return θ [P] at step 0, float32 on CPU, a function of the seed alone."""
        return self._initial.initial(self, seed)

    def expand(self, theta_SP: Tensor) -> Tensors:
        """Return the wide tensors [S, ...] by name: everything that θ alone decides, all constraints applied."""
        return self._forward.expand(self, theta_SP)

    def all_tensors(self, theta_SP: Tensor) -> Tensors:
        """Return what the forward pass reads, by name: the wide tensors.

        Specs of one family with equal wide tensors compute the same. Of modules only `answers_as` can say that.
        """
        return self.expand(theta_SP)

    def answers_as(self, theta_SP: Tensor, other: Spec, other_SR: Tensor) -> bool:
        """True if another spec, which has the same tensors, computes the same."""
        return True

    def apply(self, wide: Tensors, tokens_STB: Tensor, first: int) -> list[Tensor]:
        """Return the logits for the token after each position from `first` on: V tensors [S, A, B].

        wide: tensors from `expand`. tokens_STB may have S = 1, when all seeds see the same problems, and be
        the beginning of a sequence, down to the prompt.
        """
        return self._forward.apply(self, wide, tokens_STB, first)

    def kernel(self) -> Kernel | MakeKernel | None:
        """Return the C++ kernel of `apply` and its gradient, or None if there is none, or none for the task.

        Or a function that makes one, called where it is needed, such as `by_tape` of own_modules/tapes.
        """
        return None if self.task.macros is None else self._forward.kernel(self)

    def forward(self, theta_SP: Tensor, tokens_STB: Tensor, first: int) -> list[Tensor]:
        """Return the logits for the token after each position from `first` on; see `apply`."""
        return self.apply(self.expand(theta_SP), tokens_STB, first)

    def sequence(self, *columns: list[Tensor]) -> list[Tensor]:
        """Return the whole token sequence (prompt, answer, end) from digit columns, units first.

        columns: of each number, a tensor for each digit; then of the answer, or fewer to get the beginning.
        """
        return self._forward.sequence(self, *columns)

    def tokens_of(self, a: Tensor, b: Tensor) -> list[Tensor]:
        """Return the whole token sequence of problems that were drawn: one tensor [..., B] per position.

        a, b: float64 integers [..., B], as the task draws them.
        """
        return self.sequence(*in_columns(self.task).drawn_columns(a, b))

    def prompt_of(self, a: Tensor, b: Tensor) -> list[Tensor]:
        """Return the prompt's tokens [B] of problems that are asked: int64."""
        return self.sequence(*in_columns(self.task).operands(a, b), [])

    def read_answer(self, answer_AB: Tensor) -> Tensor:
        """Return the numbers [B] that decoded answers spell. They end at the first token that is no digit."""
        task = in_columns(self.task)
        # The product stays 0 from the first other token on: what follows it is not read.
        is_answer_AB = (answer_AB < task.base).cumprod(0)
        return task.number(answer_AB * is_answer_AB)

    def folds(self) -> list[Fold]:
        """Return the exact rewritings of this spec to others that the family knows."""
        return self._folds.folds(self)

    def probes(self) -> dict[str, Probe]:
        """Return the family's probes for this spec, which tell early where a seed is going. See `Probe`."""
        return {}

    def read(self, theta_SP: Tensor) -> Tensor:
        """Return all probes of θ [S, P] in their order: [S, R], float64. Without probes [S, 0]."""
        import torch

        double_SP = theta_SP.double()
        columns = [probe(self, double_SP) for probe in self.probes().values()]
        return torch.stack(columns, dim=1) if columns else double_SP[:, :0]  # torch stacks no empty list

    def images(self, theta_P: Tensor) -> list[Tensor]:
        """Return other θ [P] that compute the same, or nearly, such as mirror images: what ties can be entered from."""
        return []

    def recycled(self) -> Callable[[Any, Tensor], Tensor] | None:
        """Return a function that gives useless hidden units a new role; None if the family has none.

        It takes the spec and θ [S, P] (float32, on the CPU), and returns θ [S, P], unchanged where no unit is useless.
        """
        return None

    def hard_wired(self) -> dict[str, float]:
        """Return the architecture's fixed numbers by name, but for zeros and signs. They are no parameters."""
        return {}

    def structures(self) -> dict[str, list[Words]]:
        """Return groups of constraints to impose together, by kind: those of any matrix, and the family's own.

        Constraints are spelt as in model/tied.py.
        """
        return of_matrices(self.shapes())

    def trained(self) -> Spec:
        """Return this spec without the fields that only set initial values: equal ones read θ alike."""
        return self

    def with_defaults(self, names: Collection[str]) -> Self:
        """Return this spec with the defaults of some fields."""
        defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(self) if f.name in names}
        return dataclasses.replace(self, **defaults)

    def as_dict(self) -> dict[str, Any]:
        """Return family and every field, as plain values: what `make_spec` takes."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        task = values.pop("task")
        # Left out where it is the default: records and keys are older than the field.
        return {"family": self.family, **values} | ({} if task == ADDITION else {"task": str(task)})

    @classmethod
    def from_values(cls, **options: Any) -> Spec:
        """Return a spec of plain values, as `as_dict` has them. Raises ValueError as `make_spec` does."""
        fields = [f.name for f in dataclasses.fields(cls)]
        for name in options:
            if name not in fields:
                raise ValueError(f"unknown constraint {name!r:.80} of {cls.family}; {did_you_mean(name, fields)}")
        if "task" in options:
            options["task"] = make_task(options["task"])
        return cls(**options)

    def record_columns(self) -> dict[str, str]:
        """Return what its records have beside `shown` so that `from_record` can do without this spec, by name."""
        return {}

    @classmethod
    def from_record(cls, values: dict[str, Any], params: int) -> Spec:
        """Return the spec of a record, which may be a stranger's: no code of users runs. Raise ValueError.

        values: as `shown` and `record_columns` have them. params: how many it has.
        """
        return cls.from_values(**values)

    def places(self) -> set[str]:
        """Return the Python modules whose code this is."""
        return {type(self).__module__, type(self.task).__module__}

    def files(self, theta_P: Tensor) -> dict[str, bytes]:
        """Return files that a checkpoint has beside its own, by name."""
        return {}

    def shown(self) -> dict[str, Any]:
        """Return family and fields for a person: one short value per name."""
        return self.as_dict() | ({} if self.task == ADDITION else {"task": self.task.title})

    def applied(self) -> dict[str, Any]:
        """Return the constraints that are applied here, by name, with their values."""
        applied = {}
        for name, field in self.constraints().items():
            value = self.value_of(name)
            if value != field.metadata["off"]:
                applied[name] = value
        return applied

    def without(self, constraint: str) -> Spec:
        """Return the spec without a constraint and those that need it.

        Raises ValueError for an unknown constraint, with the nearest ones.
        """
        constraints = self._constraints_with(constraint)
        # What needs a constraint cannot stay without it, nor what needs that.
        removed = [constraint]
        for name in removed:  # grows while it is walked
            for other in self.applied():
                needs_it = name in constraints[other].metadata["needs"]
                if needs_it and other not in removed:
                    removed.append(other)
        off = {name: constraints[name].metadata["off"] for name in removed}
        return self.replaced(off)

    def constrained(self, constraint: str, value: Any = True) -> Spec:
        """Return the spec with a constraint and all that it needs, without those that they exclude.

        Raises ValueError for an unknown constraint, or a value that it cannot have here.
        """
        constraints = self._constraints_with(constraint)
        names, values = [constraint], {constraint: value}
        for name in names:  # grows while it is walked
            for needed, needed_value in constraints[name].metadata["needs"].items():
                if needed in constraints and needed not in values:
                    names.append(needed)
                values.setdefault(needed, needed_value)

        # Either of two constraints may say that they exclude each other.
        excluded = {n for name in names for n in constraints[name].metadata["excludes"]}
        for name, field in constraints.items():
            if set(field.metadata["excludes"]) & set(names):
                excluded.add(name)
        off = {name: constraints[name].metadata["off"] for name in excluded - values.keys()}
        return self.replaced(values | off)

    def toggled(self, constraint: str, value: Any = True) -> Spec:
        """Remove a constraint where it is applied, apply it where it is not."""
        return self.without(constraint) if constraint in self.applied() else self.constrained(constraint, value)

    def value_of(self, name: str) -> Any:
        """Return the value of a constraint."""
        return getattr(self, name)

    def replaced(self, values: Mapping[str, Any]) -> Spec:
        """Return the spec with other values of constraints."""
        return dataclasses.replace(self, **values)

    def _constraints_with(self, name: str) -> dict[str, dataclasses.Field[Any]]:
        """Return all constraints. Raises ValueError if `name` is not one of them."""
        constraints = self.constraints()
        if name not in constraints:
            raise ValueError(f"unknown constraint {name!r} of {self.family}; {did_you_mean(name, constraints)}")
        return constraints

    def saved_by(self, constraint: str) -> int:
        """Return the parameters that a constraint takes away here: P without it less P with it."""
        return self.without(constraint).params - self.params

    @classmethod
    def options(cls) -> list[dataclasses.Field[Any]]:
        """Return the family's own fields: its constraints and sizes."""
        return [field for field in dataclasses.fields(cls) if field.name != "task"]

    @classmethod
    def constraints(cls) -> dict[str, dataclasses.Field[Any]]:
        """Return the fields that can be switched off, by name."""
        return {f.name: f for f in dataclasses.fields(cls) if f.metadata.get("off") is not None}


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A C++ source and the shape for which it is compiled, as model/cpp/kernel.h declares it.

    It reads the numbers of a seed's wide tensors one after another, in the order of `expand`.
    """

    source: Path
    shape: dict[str, int]
    folders: tuple[Path, ...] = ()
    """Of headers beside its own."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """A kernel, or None for torch, and what trains the net, in a line for users: by torch, why."""

    kernel: Kernel | None
    why: str


MakeKernel = Callable[[Spec], Choice]
"""Makes a kernel of a spec, for CPUs, where that is faster than torch."""


def sizes(spec: Spec, vocabulary: int, prompt: int = 22) -> dict[str, int]:
    """Return the macros of a kernel that a task changes. vocabulary, prompt: what its source says without them."""
    values = {
        "VOCABULARY": (spec.tokens, vocabulary),
        "PROMPT_TOKENS": (spec.prompt, prompt),
        "COUNTED": (spec.task.answers, ADDITION.answers),
    }
    return {name: value for name, (value, usual) in values.items() if value != usual}


@dataclasses.dataclass(frozen=True)
class Fold:
    """One exact rewriting of θ to another spec.

    `rewrite` takes the named tensors of one seed (float64) and returns those of `to`, and maybe more; None
    where this θ cannot be rewritten (a division by zero).
    """

    description: str
    to: Spec
    rewrite: Callable[[Tensors], Tensors | None]
    rescales: bool = False
    """True if each position's logits are multiplied by one positive number, which changes no answer."""


def choices(instance: Any) -> dict[str, Any]:
    """Return a dataclass's fields that differ from their defaults, as plain values.

    Keys digest them, so a field that is added or retired later changes no digest.
    """
    chosen: dict[str, Any] = {}
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if value == field.default:
            continue
        if isinstance(value, Spec):
            value = [value.family, choices(value)]
        elif isinstance(value, Task):
            value = [value.name, choices(value)]
        elif dataclasses.is_dataclass(value):
            value = choices(value)
        chosen[field.name] = value
    return chosen


def known_spec(values: Any) -> Spec | None:
    """Return the spec of plain values that anyone may have written; None where they are none."""
    try:
        return make_spec(**values)
    except (TypeError, ValueError, LookupError):
        return None


def make_spec(family: str, **options: Any) -> Spec:
    """Make a spec by family name.

    options: the family's fields; those that are left out have their defaults.
    Raises ValueError for an unknown family or option, naming the nearest, and for a value out of bounds.

    >>> make_spec("rope", ffn=3).params
    122
    """
    return family_class(family).from_values(**options)


def family_class(name: str) -> type[Spec]:
    """Return a family by name, of a package too. Raises ValueError for an unknown one, naming the nearest."""
    return known(name, ChainMap(UNLISTED, FAMILIES), doors.FAMILIES, "family")


def load_families() -> None:
    """Load the families of packages, which are else loaded where one is asked for. One that fails is left out."""
    for name in doors.points(doors.FAMILIES):
        with suppress(ValueError):
            family_class(name)


def family_of(options: Mapping[Any, Any]) -> Any:
    """Return the family that a model's plain values name, or None.

    An option that is called as a package's family of users' code stands for it: `module: net.py:Net`.
    """
    named = doors.points(doors.FAMILIES).keys() & options.keys()
    of_code = (name for name in sorted(named) if family_class(name).runs_code)
    return options.get("family", next(of_code, None))


def no_family(options: Mapping[Any, Any]) -> ValueError:
    """Return the error of a model's plain values that name no family (`family_of`)."""
    load_families()
    of_code = [f"a {name}" for name, family in UNLISTED.items() if family.runs_code]
    *others, last = ["a preset", "a family", *of_code]
    found = [str(name) for name in options if name != "task"]  # which a study gives its models
    return ValueError(f"give {', '.join(others)} or {last}; keys found: {', '.join(found) or 'none'}")
