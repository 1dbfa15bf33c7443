"""A task: two numbers in a base, and an answer made column by column: z = p·x + q·y and what is carried.

A task is a frozen dataclass of options, like a family, and a field of every spec. A family puts its columns in
order, between delimiters of its own (`Spec.sequence`). The engine is compiled for p, q, the base and the number of
columns (`macros`), so each task is drawn at addition's speed. An answer has one column more than an operand; beyond
it nothing is carried, so an answer below 0 has the largest digit there: its complement in the base.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import check, did_you_mean, option

if TYPE_CHECKING:
    from torch import Tensor

Pairs = list[tuple[int, int]]
TASKS: dict[str, type[Task]] = {}
"""Tasks by name."""
LARGEST = 2**50
"""Of operands: they are float64, in which sums must leave half a unit to spare."""
UNIFORM = 10_000
"""Pairs of a verification beside its edge cases; a task that has no more of them asks all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """Two numbers of `digits` digits in a base, and an answer of one digit more, all with units first.

    Instances are values: equal tasks ask the same problems.
    """

    name: ClassVar[str]
    sign: ClassVar[int] = 1
    """What the second number is multiplied by."""

    base: int = option(10, "base of the numbers", unit="digits", ge=2, le=16)
    digits: int = option(10, "columns of an operand", unit="columns", ge=2, le=20)
    times: int = option(1, "what the first number is multiplied by; below the base", unit="factor", ge=1, le=15)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        TASKS[cls.name] = cls

    def __post_init__(self) -> None:
        check(self)
        if self.limit > LARGEST:
            raise ValueError(f"digits must leave numbers below 2^50, got {self.digits} in base {self.base}")
        if self.times >= self.base:
            raise ValueError(f"times must be below the base, or answers need more columns, got {self.times}")

    @property
    def is_measured(self) -> bool:
        """True for ten-digit addition, on which the rules that end seeds were measured. On other tasks they are off."""
        return self == TASKS["addition"]()

    @property
    def answers(self) -> int:
        """Columns of the answer. All of them count."""
        return self.digits + 1

    @property
    def limit(self) -> int:
        """The least number that has too many digits for an operand."""
        return int(self.base**self.digits)

    @property
    def ordered(self) -> bool:
        """True if the first number is never the smaller one."""
        return False

    @property
    def macros(self) -> dict[str, int] | None:
        """Return what the engine's C++ is compiled for: nothing for addition; None for a task that it does not know.

        A subclass with an `answer` of its own must return None.
        """
        values = {
            "BASE": (self.base, 10),
            "DIGITS": (self.digits, 10),
            "TIMES": (self.times, 1),
            "SIGN": (self.sign, 1),
            "ORDERED": (int(self.ordered), 0),
        }
        return {name: value for name, (value, usual) in values.items() if value != usual}

    def asked(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers that are asked, of two that were drawn. Both are tensors of the same shape."""
        return a, b

    def answer(self, x: Sequence[Any], y: Sequence[Any]) -> list[Any]:
        """Return the answer's columns, from those of both numbers: tensors or integers."""
        carried = x[0] * 0
        columns = []
        for a, b in zip(x, y, strict=True):
            total = self.times * a + self.sign * b + carried
            carried = total // self.base
            columns.append(total - self.base * carried)
        return [*columns, carried % self.base]

    def value(self, a: Any, b: Any) -> Any:
        """Return the answer as a number: that of its columns. a, b: integers, or int64 tensors."""
        return self.number(self.answer(self.columns(a), self.columns(b)))

    def columns(self, number: Any) -> list[Any]:
        """Return the digits of an operand, units first."""
        return [number // self.base**n % self.base for n in range(self.digits)]

    def number(self, columns: Sequence[Any]) -> Any:
        """Return the number that columns spell, units first."""
        return sum(digit * self.base**n for n, digit in enumerate(columns))

    def pairs(self) -> Pairs:
        """Return the pairs that verify a net: all of them, or edge cases and uniform ones (AdderBoard's protocol)."""
        if self.limit**2 > UNIFORM:
            return self.ask(self.edge_cases() + self.uniform(2025, UNIFORM))
        every = [(a, b) for a in range(self.limit) for b in range(self.limit)]
        return list(dict.fromkeys(self.ask(every)))

    def uniform(self, seed: int, count: int) -> Pairs:
        """Draw pairs of integers, a then b, from Python's generator."""
        rng, last = random.Random(seed), self.limit - 1
        return [(rng.randint(0, last), rng.randint(0, last)) for _ in range(count)]

    def ask(self, pairs: Pairs) -> Pairs:
        """Return the pairs that are asked of drawn ones."""
        import torch

        a, b = self.asked(*torch.tensor(pairs).T)
        return list(zip(a.tolist(), b.tolist(), strict=True))

    def edge_cases(self) -> Pairs:
        """Return ten hard pairs: in base ten, of ten digits, AdderBoard's."""
        last, middle = self.limit - 1, self.limit // 2
        rises = [n % self.base for n in range(self.digits)]
        falls = [(self.digits - n) % self.base for n in range(self.digits)]
        ones, turned = self.number([1] * self.digits), (self.number(falls), self.number(rises))
        carried = [(middle, middle), (ones, self.limit - ones), turned]
        return [(0, 0), (0, 1), (last, 0), (last, 1), (last, last), *carried, (last, last), (1, last)]

    @property
    def problems(self) -> int:
        """Pairs that verify a net: how many `pairs` has."""
        if self.limit**2 > UNIFORM:
            return len(self.edge_cases()) + UNIFORM
        return self.limit * (self.limit + 1) // 2 if self.ordered else self.limit**2

    def words(self, a: int, b: int) -> str:
        """Return a problem in words."""
        times = f"{self.times} · " if self.times > 1 else ""
        return f"{times}{a} {'+' if self.sign > 0 else '-'} {b}"

    def __str__(self) -> str:
        """Return the task as one writes it, and as `make_task` reads it: `subtraction base=3 digits=4`."""
        values = ((f.name, getattr(self, f.name), f.default) for f in dataclasses.fields(self))
        return " ".join(
            [self.name, *(f"{name}={value}".lower() for name, value, default in values if value != default)]
        )


def make_task(given: Any) -> Task:
    """Make a task of a mapping with its name and options, or of a text.

    Raises ValueError for an unknown name or option, naming the nearest, and for a value out of bounds.

    >>> make_task("subtraction base=3 digits=4").answers
    5
    """
    if isinstance(given, Task):
        return given
    options = _parsed(given) if isinstance(given, str) else given
    if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
        raise ValueError(f"task must be a name, or a mapping with a name, got {given!r:.80}")
    name = options["name"]
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r:.80}; {did_you_mean(name, TASKS)}")
    fields = [field.name for field in dataclasses.fields(TASKS[name])]
    chosen = {key: value for key, value in options.items() if key != "name"}
    for key in chosen:
        if key not in fields:
            raise ValueError(f"unknown option {key!r:.80} of {name}; {did_you_mean(key, fields)}")
    return TASKS[name](**chosen)


def options_of(task: Task) -> dict[str, Any]:
    """Return a task's options by name."""
    return {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}


def changed(task: Task, changes: Mapping[str, Any]) -> Task:
    """Return a task with some options changed. Raises ValueError as `make_task` does."""
    return make_task({"name": task.name, **options_of(task), **changes})


def _parsed(text: str) -> dict[str, Any]:
    """Return name and options of a task as `Task.__str__` writes it."""
    name, *chosen = text.split() or [""]
    values: dict[str, Any] = {"name": name}
    for word in chosen:
        key, _, value = word.partition("=")
        words = {"true": True, "false": False}
        values[key] = int(value) if value.isdecimal() else words.get(value, value)
    return values


def only_addition(task: Task, what: str) -> None:
    """Raise ValueError unless a task is that which `what` is about: ten-digit addition in base ten."""
    if not task.is_measured:
        raise ValueError(f"{what} is about addition in base 10 with 10 digits alone, and this model's task is {task}")
