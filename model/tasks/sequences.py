"""Tasks of one number, whose digits are read as a sequence, and whose answer is a sequence of as many.

The first token is the column of units. There are no carries: of a recipe's problems only the lengths are these tasks'.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import option
from model.tasks.columns import Columns

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sequences(Columns):
    """Digits, =, and as many digits."""

    carries: ClassVar[bool] = False
    code: ClassVar[int]
    """The answer as the engine calls it: `Answer` in trainer/engine/cpp/problems.h, where 0 is a sum."""

    @property
    def numbers(self) -> int:
        return 1

    @property
    def answers(self) -> int:
        return self.digits

    @property
    def vocabulary(self) -> int:
        """The digits, then the equals sign."""
        return self.base + 1

    @property
    def kinds(self) -> dict[str, tuple[int, int]]:
        return {"ANSWER": (self.code, 0)}

    def answer(self, *numbers: Sequence[Any]) -> list[Any]:
        (number,) = numbers
        return self.turned(number)

    @abstractmethod
    def turned(self, number: Sequence[Any]) -> list[Any]:
        """Return the answer's digits from those that are read."""

    def asked(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a, b * 0  # two are drawn for every task of columns

    def spelt(self, *columns: Sequence[Tensor]) -> list[Tensor]:
        number, answer = columns
        return [*number, number[0] * 0 + self.base, *answer]

    @property
    def spells_units_first(self) -> bool:
        return True

    def words(self, a: int, b: int) -> str:
        return f"{self.name} {self.shown(a)}"

    def shown(self, value: int) -> str:
        return " ".join(map(str, self.columns(value)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Copy(Sequences):
    """The digits again."""

    name: ClassVar[str] = "copy"
    code: ClassVar[int] = 1

    def turned(self, number: Sequence[Any]) -> list[Any]:
        return [*number]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reverse(Sequences):
    """The digits from the last to the first."""

    name: ClassVar[str] = "reverse"
    code: ClassVar[int] = 2

    def turned(self, number: Sequence[Any]) -> list[Any]:
        return [*number[::-1]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prefix(Sequences):
    """The sum of the digits so far, modulo the base: in base two, prefix parity."""

    name: ClassVar[str] = "prefix"
    code: ClassVar[int] = 3

    base: int = option(2, "base of the digits, and modulus of their sums", unit="digits", ge=2, le=16)

    def turned(self, number: Sequence[Any]) -> list[Any]:
        return list(accumulate(number, lambda so_far, digit: (so_far + digit) % self.base))
