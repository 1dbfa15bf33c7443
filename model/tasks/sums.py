"""Sums and differences, column by column: z = times·x ± y, and what is carried.

An answer has one column more than an operand; beyond it nothing is carried, so an answer below 0 has the largest digit
there: its complement in the base.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import option
from model.tasks.columns import UNIFORM, Columns

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sums(Columns):
    """times·a ± b, or times·a + b + c."""

    sign: ClassVar[int] = 1
    """What the second number is multiplied by."""

    times: int = option(1, "what the first number is multiplied by; below the base", unit="factor", ge=1, le=15)
    units_first: bool = option(False, "a module is asked numbers, and answers, from their units on")

    def __post_init__(self) -> None:
        super().__post_init__()
        # The largest answer's top column holds what is carried: at most times + numbers - 2.
        if self.times + self.numbers - 2 >= self.base:
            of_three = ", less one with three numbers" if self.numbers == 3 else ""
            raise ValueError(f"times must be below the base{of_three}, or answers need more columns, got {self.times}")

    @property
    def is_symmetric(self) -> bool:  # type: ignore[override]
        return self.sign > 0 and self.times == 1

    @property
    def answers(self) -> int:
        """Columns of the answer. All of them count."""
        return self.digits + 1

    @property
    def vocabulary(self) -> int:
        """The digits, then the sign, then the equals sign."""
        return self.base + 2

    @property
    def ordered(self) -> bool:
        """True if the first number is never the smaller one."""
        return False

    @property
    def kinds(self) -> dict[str, tuple[int, int]]:
        return {"TIMES": (self.times, 1), "SIGN": (self.sign, 1), "ORDERED": (int(self.ordered), 0)}

    def answer(self, *numbers: Sequence[Any]) -> list[Any]:
        carried = numbers[0][0] * 0  # of the columns' own kind: integers, or tensors of any type
        columns = []
        for first, second, *third in zip(*numbers, strict=True):
            total = self.times * first + self.sign * second + carried
            total = sum(third, total)
            carried = total // self.base  # rounded down, so that a borrow is -1
            columns.append(total - self.base * carried)
        return [*columns, carried % self.base]

    def spelt(self, *columns: Sequence[Tensor]) -> list[Tensor]:
        """Return columns the most significant digit first, 0 4 1 + 0 0 7 = 0 0 4 8, or the units first."""
        import torch

        sign, equals = (torch.full_like(columns[0][0], self.base + n) for n in range(2))
        step = 1 if self.units_first else -1
        *numbers, answer = (number[::step] for number in columns)
        asked = []
        behind = [sign] * (self.numbers - 1) + [equals]
        for number, mark in zip(numbers, behind, strict=True):
            asked += [*number, mark]
        return [*asked, *answer]

    @property
    def spells_units_first(self) -> bool:
        return self.units_first

    def words(self, a: int, b: int) -> str:
        times = f"{self.times} · " if self.times > 1 else ""
        sign = " + " if self.sign > 0 else " - "
        return times + sign.join(str(self.number(columns)) for columns in self.operands(a, b))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Addition(Sums):
    """k·a + b, or k·a + b + c."""

    name: ClassVar[str] = "addition"

    terms: int = option(2, "numbers that are added", unit="numbers", ge=2, le=3)

    @property
    def numbers(self) -> int:
        return self.terms


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subtraction(Sums):
    """k·a - b. Drawn numbers are asked as sums backwards, so that borrows are the carries that were drawn."""

    name: ClassVar[str] = "subtraction"
    sign: ClassVar[int] = -1

    signed: bool = option(False, "b may be above a; answers below 0 are complements in the base")

    @property
    def ordered(self) -> bool:
        return not self.signed

    @property
    def problems(self) -> int:
        is_half = self.ordered and self.limit**2 <= UNIFORM  # all of them, each pair in one order
        return self.limit * (self.limit + 1) // 2 if is_half else super().problems

    def asked(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Return a + b and b, as far as the columns go: a + b - b borrows where a + b carries."""
        import torch

        total = a + b
        first = torch.where(total < self.limit, total, total - self.limit)
        if self.signed:
            return first, b
        return torch.maximum(first, b), torch.minimum(first, b)


ADDITION = Addition()
