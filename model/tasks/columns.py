"""Tasks of columns: one to three numbers in a base, and an answer made of their columns.

Units are the first column. A family puts the columns in order, between delimiters of its own (`Spec.sequence`);
`written` is the order in which people write them. The engine is compiled for the task (`macros`), so each is drawn at
addition's speed: model/tasks/sums.py, model/tasks/sequences.py.

A problem is two numbers, so a third one rides on them: its lower columns above those of the first number, the others
above those of the second. Of a task of one number the second is 0.
"""

from __future__ import annotations

import dataclasses
import random
from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, ClassVar

from model.fields import option
from model.tasks.task import Pairs, Task, has_own

if TYPE_CHECKING:
    from torch import Tensor

BY_ENGINE = ("answer", "asked", "sign", "turned", "written")
"""What the engine does as it is here."""
LARGEST = 2**50
"""Of operands: they are float64, in which sums must leave half a unit to spare."""
UNIFORM = 10_000
"""Pairs of a verification beside its edge cases; a task that has no more of them asks all."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns(Task):
    """Numbers of `digits` digits in a base, and an answer. A subclass says the answer, and how it is written."""

    carries: ClassVar[bool] = True
    is_symmetric: ClassVar[bool] = True
    """True if numbers can trade the digits of a column, and the answer stays the same."""

    base: int = option(10, "base of the numbers", unit="digits", ge=2, le=16)
    digits: int = option(10, "columns of an operand", unit="columns", ge=2, le=20)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limits[0] > LARGEST:
            what = "three numbers" if self.numbers == 3 else "numbers"
            raise ValueError(f"digits must leave {what} below 2^50, got {self.digits} in base {self.base}")

    @property
    def numbers(self) -> int:
        """How many numbers are asked about, 1 to 3."""
        return 2

    @property
    def prompt(self) -> int:
        """Tokens of numbers, and one behind each."""
        return self.numbers * (self.digits + 1)

    @property
    def outputs(self) -> int:
        return self.base

    @property
    def limit(self) -> int:
        """The least number that has too many digits for an operand."""
        return int(self.base**self.digits)

    @property
    def half(self) -> int:
        """The least number that has too many digits for what the first number carries of the third."""
        return int(self.base ** (-(-self.digits // 2)))

    @property
    def limits(self) -> tuple[int, int]:
        """What the two numbers of a problem are below."""
        if self.numbers == 1:
            return self.limit, 1
        if self.numbers == 2:
            return self.limit, self.limit
        return self.limit * self.half, self.limit * (self.limit // self.half)

    @property
    @abstractmethod
    def kinds(self) -> dict[str, tuple[int, int]]:
        """Macros of the answer, each with the value that it has for addition."""

    @property
    def macros(self) -> dict[str, int] | None:
        if has_own(self, BY_ENGINE):
            return None
        values = {
            "BASE": (self.base, 10),
            "DIGITS": (self.digits, 10),
            "NUMBERS": (self.numbers, 2),
            **self.kinds,
        }
        return {name: value for name, (value, usual) in values.items() if value != usual}

    @abstractmethod
    def answer(self, *numbers: Sequence[Any]) -> list[Any]:
        """Return the answer's columns, from those of the numbers: tensors or integers."""

    def value(self, a: Any, b: Any) -> Any:
        """Return the answer as a number: that of its columns. a, b: integers, or int64 tensors."""
        return self.number(self.answer(*self.operands(a, b)))

    def packed(self, a: Any, b: Any, third: Any) -> tuple[Any, Any]:
        """Return the two numbers of a problem about three: integers, or tensors of integers below 2^50."""
        above = third // self.half
        below = third - self.half * above
        return a + self.limit * below, b + self.limit * above

    def operands(self, a: Any, b: Any) -> list[list[Any]]:
        """Return the columns of each number of a problem. a, b: integers, or int64 tensors."""
        if self.numbers == 3:
            third = a // self.limit + self.half * (b // self.limit)
            return [self.columns(number) for number in (a % self.limit, b % self.limit, third)]
        return [self.columns(number) for number in (a, b)[: self.numbers]]

    def columns(self, number: Any) -> list[Any]:
        """Return the digits of a number, units first."""
        return [number // self.base**n % self.base for n in range(self.digits)]

    def number(self, columns: Sequence[Any]) -> Any:
        """Return the number that columns spell, units first."""
        return sum(digit * self.base**n for n, digit in enumerate(columns))

    def drawn_columns(self, a: Tensor, b: Tensor) -> list[list[Tensor]]:
        """Return the columns of each number and of the answer, units first, for a problem that was drawn.

        a, b: float64 integers, of which every division is exact on every device.
        """
        a, b = self.asked(a, b)
        digits = self.digits
        if self.numbers == 3:
            lower = -(-digits // 2)  # columns of the third number that the first one carries
            x = self._exact_columns(a, digits + lower)
            y = self._exact_columns(b, 2 * digits - lower)
            third = x[digits:] + y[digits:]
            numbers = [x[:digits], y[:digits], third]
        else:
            numbers = [self._exact_columns(number, digits) for number in (a, b)[: self.numbers]]
        return [*numbers, self.answer(*numbers)]

    def _exact_columns(self, number: Tensor, count: int) -> list[Tensor]:
        """Return `count` digits of float64 integers, units first: tensors of the same shape."""
        import torch

        cut = [number]
        for n in range(1, count + 1):
            # Half a unit above: a product that is rounded down must not fall below a whole number.
            above = torch.floor((number + 0.5) * (1 / self.base**n))
            cut.append(above)
        return [here - self.base * above for here, above in pairwise(cut)]

    def written(self, a: Tensor, b: Tensor) -> list[Tensor]:
        numbers = self.operands(a.long(), b.long())
        return self.spelt(*numbers, self.answer(*numbers))

    @property
    def spells_units_first(self) -> bool:
        """True if a number's first token is its units, as it is `spelt`."""
        return False

    def read(self, answer_AB: Sequence[Tensor]) -> Tensor:
        answer = list(answer_AB)  # a tensor cannot be turned around by a slice
        return super().read(answer[::-1] if self.spells_units_first else answer)

    @abstractmethod
    def spelt(self, *columns: Sequence[Tensor]) -> list[Tensor]:
        """Return the columns of numbers and answer, as people write them, with tokens between them."""

    def check_pairs(self, a: Sequence[int], b: Sequence[int]) -> None:
        for numbers, limit in zip((a, b), self.limits, strict=True):
            for n in numbers:
                if type(n) is not int or not 0 <= n < limit:
                    raise ValueError(f"operands must be integers from 0 to {limit - 1}, got {n!r}")
        super().check_pairs(a, b)

    def pairs(self) -> Pairs:
        """Return the pairs that verify a net: all of them, or edge cases and uniform ones (AdderBoard's protocol)."""
        first, second = self.limits
        if first * second > UNIFORM:
            return self.ask(self.edge_cases() + self.uniform(2025, UNIFORM))
        # Several drawn pairs may be asked as one: of an ordered difference, a - b and b - a.
        every = list(product(range(first), range(second)))
        return list(dict.fromkeys(self.ask(every)))

    def uniform(self, seed: int, count: int) -> Pairs:
        """Draw pairs of integers, a then b, from Python's generator."""
        # Python's and not torch's: AdderBoard's pairs are draws of this generator, in this order.
        rng = random.Random(seed)
        first, second = (limit - 1 for limit in self.limits)
        return [(rng.randint(0, first), rng.randint(0, second)) for _ in range(count)]

    def ask(self, pairs: Pairs) -> Pairs:
        """Return the pairs that are asked of drawn ones."""
        import torch

        a, b = self.asked(*torch.tensor(pairs).T)
        return list(zip(a.tolist(), b.tolist(), strict=True))

    def edge_cases(self) -> Pairs:
        """Return ten hard pairs: in base ten, of ten digits, AdderBoard's. A third number is 0, then the largest."""
        last, middle = self.limit - 1, self.limit // 2
        # In base ten 1111111111, 1234567890 and 9876543210, as AdderBoard has them. It asks (last, last) twice.
        ones = self.number([1] * self.digits)
        rises = self.number([(self.digits - n) % self.base for n in range(self.digits)])
        falls = self.number([n % self.base for n in range(self.digits)])
        carried = [(middle, middle), (ones, self.limit - ones), (rises, falls)]
        hard = [(0, 0), (0, 1), (last, 0), (last, 1), (last, last), *carried, (last, last), (1, last)]
        if self.numbers == 3:
            return [self.packed(a, b, third) for third in (0, last) for a, b in hard]
        return hard

    @property
    def problems(self) -> int:
        """Pairs that verify a net: how many `pairs` has."""
        first, second = self.limits
        is_all = first * second <= UNIFORM
        return first * second if is_all else len(self.edge_cases()) + UNIFORM


def in_columns(task: Task) -> Columns:
    """Return a task of columns. Raises ValueError for any other."""
    if not isinstance(task, Columns):
        raise ValueError(f"{task.title} is no task of columns, which this is about")
    return task
