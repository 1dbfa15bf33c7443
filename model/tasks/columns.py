"""Tasks of columns: two numbers in a base, and an answer made column by column: z = p·x + q·y and what is carried.

A family puts the columns in order, between delimiters of its own (`Spec.sequence`); `written` is the order in which
people write them. The engine is compiled for p, q, the base and the number of columns (`macros`), so each task is
drawn at addition's speed. An answer has one column more than an operand; beyond it nothing is carried, so an answer
below 0 has the largest digit there: its complement in the base.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import option
from model.tasks.task import Pairs, Task

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 2**50
"""Of operands: they are float64, in which sums must leave half a unit to spare."""
UNIFORM = 10_000
"""Pairs of a verification beside its edge cases; a task that has no more of them asks all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns(Task):
    """Two numbers of `digits` digits in a base, and an answer of one digit more, all with units first."""

    sign: ClassVar[int] = 1
    """What the second number is multiplied by."""

    base: int = option(10, "base of the numbers", unit="digits", ge=2, le=16)
    digits: int = option(10, "columns of an operand", unit="columns", ge=2, le=20)
    times: int = option(1, "what the first number is multiplied by; below the base", unit="factor", ge=1, le=15)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit > LARGEST:
            raise ValueError(f"digits must leave numbers below 2^50, got {self.digits} in base {self.base}")
        if self.times >= self.base:
            raise ValueError(f"times must be below the base, or answers need more columns, got {self.times}")

    @property
    def prompt(self) -> int:
        return 2 * (self.digits + 1)

    @property
    def answers(self) -> int:
        """Columns of the answer. All of them count."""
        return self.digits + 1

    @property
    def vocabulary(self) -> int:
        """The digits, then the sign, then the equals sign."""
        return self.base + 2

    @property
    def outputs(self) -> int:
        return self.base

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

    def drawn_columns(self, a: Tensor, b: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return the columns of both numbers and of the answer, units first, for two numbers that were drawn.

        a, b: float64 integers, of which every division is exact on every device.
        """
        x, y = (self._exact_columns(number) for number in self.asked(a, b))
        return x, y, self.answer(x, y)

    def _exact_columns(self, number: Tensor) -> list[Tensor]:
        """Return the digits of float64 integers, units first: tensors of the same shape."""
        import torch

        cut = [number]
        for n in range(1, self.digits + 1):
            above = torch.floor((number + 0.5) * (1 / self.base**n))
            cut.append(above)
        return [here - self.base * above for here, above in pairwise(cut)]

    def written(self, a: Tensor, b: Tensor) -> list[Tensor]:
        x, y = self.columns(a.long()), self.columns(b.long())
        return self.spelt(x, y, self.answer(x, y))

    def spelt(self, x: Sequence[Tensor], y: Sequence[Tensor], z: Sequence[Tensor]) -> list[Tensor]:
        """Return columns as people write them, the most significant digit first: 0 4 1 + 0 0 7 = 0 0 4 8."""
        import torch

        sign, equals = (torch.full_like(x[0], self.base + n) for n in range(2))
        return [*x[::-1], sign, *y[::-1], equals, *z[::-1]]

    def check_pairs(self, a: Sequence[int], b: Sequence[int]) -> None:
        for n in (*a, *b):
            if type(n) is not int or not 0 <= n < self.limit:
                raise ValueError(f"operands must be integers from 0 to {self.limit - 1}, got {n!r}")
        super().check_pairs(a, b)

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
        times = f"{self.times} · " if self.times > 1 else ""
        return f"{times}{a} {'+' if self.sign > 0 else '-'} {b}"


def in_columns(task: Task) -> Columns:
    """Return a task of columns. Raises ValueError for any other."""
    if not isinstance(task, Columns):
        raise ValueError(f"{task.title} is no task of two numbers and a sum of theirs, which this is about")
    return task
