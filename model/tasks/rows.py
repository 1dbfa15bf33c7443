"""Tasks of rows: all problems of a finite table, of which training sees a share and the rest decides what has grokked.

`split_seed` draws the rows that are trained on, whatever the seed of a run. A step's problems are drawn from them with
replacement; a batch with room for all of them is all of them, in order. Selection problems are held-out rows.
Verification asks every row, so a net that is verified is right on all there is to ask.

A problem is the number of its row, and 0.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from functools import lru_cache
from itertools import permutations
from math import factorial
from typing import TYPE_CHECKING, ClassVar

from model.fields import option
from model.tasks.task import Pairs, Task, has_own

if TYPE_CHECKING:
    from torch import Tensor

MOST_ROWS = 1 << 20
OPERATIONS = ("a+b", "a-b", "a*b", "a/b", "a^2+ab+b^2")
BY_ENGINE = ("sample", "written", "asked")
"""What the engine does as it is here."""
ROUNDING = 1e-9
"""More than a share of MOST_ROWS can be off: 100 · 0.29 is a little less than 29, and means 29."""
SPLIT = 0x5917
"""Apart from other words of a counter."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows(Task):
    """A finite table. A subclass says `count`, `prompt`, `answers`, `vocabulary`, `outputs` and `row`."""

    train: float = option(0.5, "share of the rows that are trained on", unit="fraction", ge=0, le=1)
    split_seed: int = option(0, "draws the rows that are trained on", unit="seed", ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 < self.count <= MOST_ROWS:
            raise ValueError(f"{self.name} has {self.count:,} rows, and 2 to {MOST_ROWS:,} can be asked")
        if not 0 < self.trained < self.count:
            raise ValueError(f"train must leave rows to train on and to hold out of {self.count:,}, got {self.train}")

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of rows."""

    @abstractmethod
    def row(self, number: Tensor) -> list[Tensor]:
        """Return the tokens of rows, prompt and answer, by their numbers from 0 on: int64 tensors of its shape."""

    def written(self, a: Tensor, b: Tensor) -> list[Tensor]:
        return self.row(a.long())

    @property
    def trained(self) -> int:
        """Number of rows that are trained on."""
        return int(self.count * self.train + ROUNDING)

    @property
    def problems(self) -> int:
        return self.count

    @property
    def macros(self) -> dict[str, int] | None:
        """Nothing: the engine looks rows up. None for a subclass that draws or writes them in a way of its own."""
        return None if has_own(self, BY_ENGINE) else {}

    def pairs(self) -> Pairs:
        return [(number, 0) for number in range(self.count)]

    def trained_rows(self) -> Tensor:
        """Return the numbers of the rows that are trained on, in order: int64."""
        return _split(self)[0]

    def sample(self, data_seed_R: Tensor, step_R: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        import torch

        from model.counter import fraction, words

        rows_N = self.trained_rows().to(step_R.device)
        # A batch with room for all rows has each of them once: drawn, some would be missing.
        if batch >= len(rows_N):
            drawn_RB = rows_N.expand(len(step_R), -1)
        else:
            (word_RB,) = words(data_seed_R, step_R, batch, 1)
            place_RB = torch.floor(fraction(word_RB, 11, 53) * len(rows_N))
            drawn_RB = rows_N[place_RB.long()]
        return drawn_RB.double(), torch.zeros_like(drawn_RB, dtype=torch.float64)

    def selection(self, count: int) -> tuple[Tensor, Tensor]:
        import torch

        _, held_out_N = _split(self)
        rows_1B = held_out_N[None, :count].double()
        return rows_1B, torch.zeros_like(rows_1B)


@lru_cache(64)
def _split(task: Rows) -> tuple[Tensor, Tensor]:
    """Return the rows that are trained on, in order, and the others, in an order that tells nothing of them."""
    import torch

    from model.counter import words

    # By a counter's words and not by torch's generator, whose permutations no promise keeps.
    at = torch.tensor([task.split_seed]), torch.tensor([SPLIT])
    (word_1N,) = words(*at, task.count, 1)
    order_N = word_1N[0].argsort(stable=True)
    return order_N[: task.trained].sort().values, order_N[task.trained :]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Binary(Rows):
    """An operation on two elements of a finite set: a, b, = (the next token after the elements), and its value."""

    prompt, answers = 3, 1

    @property
    @abstractmethod
    def size(self) -> int:
        """Elements of the set."""

    @property
    def count(self) -> int:
        return self.size**2

    @property
    def outputs(self) -> int:
        return self.size

    @property
    def vocabulary(self) -> int:
        return self.size + 1

    def operands(self, number: Tensor) -> tuple[Tensor, Tensor]:
        """Return the elements that rows ask about."""
        return number // self.size, number % self.size

    @abstractmethod
    def result(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the operation's value."""

    def row(self, number: Tensor) -> list[Tensor]:
        a, b = self.operands(number)
        return [a, b, a * 0 + self.size, self.result(a, b)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Modular(Binary):
    """An operation on integers modulo a number (Power et al., arXiv 2201.02177): a, b, =, its value."""

    name: ClassVar[str] = "modular"

    op: str = option("a+b", "the operation; a/b needs a prime modulus, and b is never 0", values=OPERATIONS)
    modulus: int = option(97, "numbers are below it", unit="numbers", ge=2, le=1_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Otherwise some b have no inverse.
        if self.op == "a/b" and any(self.modulus % n == 0 for n in range(2, self.modulus)):
            raise ValueError(f"modulus must be a prime for a/b, got {self.modulus}")

    @property
    def size(self) -> int:
        return self.modulus

    @property
    def count(self) -> int:
        return self.modulus * (self.modulus - 1) if self.op == "a/b" else self.modulus**2

    def operands(self, number: Tensor) -> tuple[Tensor, Tensor]:
        """Return a and b; of a quotient the rows are those of the product that it undoes, without b = 0."""
        a, b = number // self.modulus, number % self.modulus
        return (b, a + 1) if self.op == "a/b" else (a, b)

    def result(self, a: Tensor, b: Tensor) -> Tensor:
        if self.op == "a/b":  # a times what b is to be multiplied by for 1, which is b^(p - 2)
            return a * _power(b, self.modulus - 2, self.modulus) % self.modulus
        values = {
            "a+b": a + b,
            "a-b": a - b,
            "a*b": a * b,
            "a^2+ab+b^2": a * a + a * b + b * b,
        }
        return values[self.op] % self.modulus

    def words(self, a: int, b: int) -> str:
        import torch

        first, second = (int(n) for n in self.operands(torch.tensor(a)))
        return f"{self.op} mod {self.modulus} with a = {first}, b = {second}"


def _power(base: Tensor, exponent: int, modulus: int) -> Tensor:
    """Return base^exponent modulo a number."""
    # By squaring, and cut at each product: int64 would not hold the power itself.
    result = base * 0 + 1
    while exponent:
        if exponent % 2:
            result = result * base % modulus
        base, exponent = base * base % modulus, exponent // 2
    return result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Permutations(Binary):
    """Composition of permutations: first b, then a. They are numbered in the order of the alphabet."""

    name: ClassVar[str] = "permutations"

    points: int = option(5, "what is permuted: S5 has 120 permutations", unit="points", ge=2, le=6)

    @property
    def size(self) -> int:
        return factorial(self.points)

    def result(self, a: Tensor, b: Tensor) -> Tensor:
        import torch

        images_NP = torch.tensor(list(permutations(range(self.points))), device=a.device)
        composed = images_NP[a].gather(-1, images_NP[b])
        # Each permutation's images, read as digits, are one number: that is searched.
        scale_P = self.points ** torch.arange(self.points, device=a.device).flip(0)
        names_N = (images_NP * scale_P).sum(-1)  # rising, as the alphabet is
        return torch.searchsorted(names_N, (composed * scale_P).sum(-1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parity(Rows):
    """Sparse parity (Barak et al., arXiv 2207.08799): bits, =, and the parity of the first few of them."""

    name: ClassVar[str] = "parity"

    bits: int = option(10, "bits that are read", unit="bits", ge=2, le=20)
    of: int = option(3, "bits that count, the first of them", unit="bits", ge=1, le=20)

    answers, vocabulary, outputs = 1, 3, 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of > self.bits:
            raise ValueError(f"of must be at most bits, got {self.of} of {self.bits}")

    @property
    def prompt(self) -> int:
        return self.bits + 1

    @property
    def count(self) -> int:
        return 1 << self.bits

    def row(self, number: Tensor) -> list[Tensor]:
        bits = [number >> n & 1 for n in range(self.bits)]
        counted = sum(bits[1 : self.of], bits[0])
        return [*bits, number * 0 + 2, counted % 2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table(Binary):
    """Any binary operation of a finite set, by its table: row a and column b have the value."""

    name: ClassVar[str] = "table"

    entries: str = option("", "the table, rows with ; between them; `entries: {file: FILE}` reads a CSV file")

    def __post_init__(self) -> None:
        if not self.entries:
            raise ValueError("entries must be the table of the operation: entries: {file: FILE}")
        super().__post_init__()
        rows = _cells(self.entries)
        size = len(rows)
        for n, row in enumerate(rows):
            if len(row) != size:
                raise ValueError(f"entries must be a square table, got {len(row)} values in row {n} of {size}")
            if not all(value.isdecimal() and int(value) < size for value in row):
                raise ValueError(f"entries must be numbers from 0 to {size - 1}, got {','.join(row):.80} in row {n}")

    @property
    def title(self) -> str:
        """The table's size and digest: its entries are the records' and the key's."""
        from hashlib import sha256

        digest = sha256(self.entries.encode()).hexdigest()
        return str(self).replace(f"entries={self.entries}", f"{self.size}x{self.size} {digest[:6]}")

    @property
    def size(self) -> int:
        return self.entries.count(";") + 1

    def result(self, a: Tensor, b: Tensor) -> Tensor:
        return _table(self.entries).to(a.device)[a, b]


def _cells(entries: str) -> list[list[str]]:
    return [row.split(",") for row in entries.split(";")]


@lru_cache(16)
def _table(entries: str) -> Tensor:
    import torch

    return torch.tensor([list(map(int, row)) for row in _cells(entries)])
