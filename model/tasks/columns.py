"""Tasks of two numbers whose answer is made column by column: z = p·x + q·y and what is carried, in any base.

The engine is compiled for p, q, the base and the number of columns (`macros`), so each task is drawn at
addition's speed. An answer has one column more than an operand. Beyond it nothing is carried, so an answer below 0
has the largest digit there: its complement in the base.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import option
from model.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

Pairs = list[tuple[int, int]]
LARGEST = 2**50
"""Of operands: they are float64, in which sums must leave half a unit to spare."""
UNIFORM = 10_000
"""Pairs of a verification beside its edge cases; a task that has no more of them asks all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns(Task):
    """Two numbers of `digits` digits in a base, and an answer of one digit more, all with units first."""

    recipe_fields: ClassVar[frozenset[str]] = frozenset(
        ("curriculum", "mixed_lengths", "carry_mix", "carry_shares", "fade_start", "fade_end", "targeted")
    )
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
    def is_measured(self) -> bool:
        return self == ADDITION

    @property
    def vocabulary(self) -> int:
        return self.base

    @property
    def operands(self) -> tuple[int, ...]:
        return (self.digits, self.digits)

    @property
    def answers(self) -> int:
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
        ones = sum(self.base**n for n in range(self.digits))
        falls = sum((self.digits - n) % self.base * self.base**n for n in range(self.digits))
        rises = sum(n % self.base * self.base**n for n in range(self.digits))
        full = [(last, 0), (last, 1), (last, last)]
        carried = [(middle, middle), (ones, self.limit - ones), (falls, rises)]
        return [(0, 0), (0, 1), *full, *carried, (last, last), (1, last)]

    @property
    def problems(self) -> int:
        if self.limit**2 > UNIFORM:
            return len(self.edge_cases()) + UNIFORM
        return self.limit * (self.limit + 1) // 2 if self.ordered else self.limit**2

    def verification(self) -> list[Tensor]:
        import torch

        a, b = torch.tensor(self.pairs()).T
        x, y = self.columns(a), self.columns(b)
        return [*x, *y, *self.answer(x, y)]

    def words(self, parts: Sequence[int]) -> str:
        a, b = parts
        first = str(a) if self.times == 1 else f"{self.times} · {a}"
        return f"{first} {'+' if self.sign > 0 else '-'} {b}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Addition(Columns):
    """k·a + b."""

    name: ClassVar[str] = "addition"
    about: ClassVar[str] = "k·a + b, of two numbers in a base"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subtraction(Columns):
    """k·a - b. Drawn numbers are asked as sums backwards, so that borrows are the carries that were drawn."""

    name: ClassVar[str] = "subtraction"
    about: ClassVar[str] = "k·a - b, of two numbers in a base; a ≥ b, or of either sign"
    sign: ClassVar[int] = -1

    signed: bool = option(False, "b may be above a; answers below 0 are complements in the base")

    @property
    def ordered(self) -> bool:
        return not self.signed

    def asked(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return a + b and b, as far as the columns go: a + b - b borrows where a + b carries."""
        import torch

        total = a + b
        first = torch.where(total < self.limit, total, total - self.limit)
        if self.signed:
            return first, b
        return torch.maximum(first, b), torch.minimum(first, b)


ADDITION = Addition()
