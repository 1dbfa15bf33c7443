"""Sums and differences. Drawn numbers of a difference are asked as sums backwards."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar

from model.fields import option
from model.tasks.columns import Columns

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Addition(Columns):
    """k·a + b."""

    name: ClassVar[str] = "addition"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subtraction(Columns):
    """k·a - b. Drawn numbers are asked as sums backwards, so that borrows are the carries that were drawn."""

    name: ClassVar[str] = "subtraction"
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
