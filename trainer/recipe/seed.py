"""A seed, and the pair of seed and recipe that a bank trains."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model.spec import Spec
from trainer.recipe.recipe import Recipe
from trainer.recipe.recycle import check_recycle
from trainer.recipe.restarts import check_restarts
from trainer.recipe.screen import Rung
from trainer.recipe.starts import check_start
from trainer.recipe.teacher import check_teacher

if TYPE_CHECKING:
    from model.spec import Spec


@dataclasses.dataclass(frozen=True, order=True)
class Seed:
    """One run of a configuration: where θ starts and which problems it sees."""

    init_seed: int
    data_seed: int

    @classmethod
    def of(cls, number: int) -> Seed:
        """The usual case: one number sets both."""
        return cls(number, number)

    @classmethod
    def named(cls, name: str) -> Seed:
        """The seed of which `name` is the text: `777`, or `777.804`. Raises ValueError."""
        numbers = name.split(".")
        if len(numbers) > 2 or not all(n.isdecimal() and n.isascii() for n in numbers):
            raise ValueError(f"a seed is a number, or two with a dot between them, got {name!r}")
        return cls(int(numbers[0]), int(numbers[-1]))

    def __str__(self) -> str:
        same = self.init_seed == self.data_seed
        return str(self.init_seed) if same else f"{self.init_seed}.{self.data_seed}"


@dataclasses.dataclass(frozen=True)
class Pair:
    """A seed and the recipe it is trained with.

    start: θ [P] at the first step, instead of the spec's initial values. ties: for each entry of θ 0, or
    plus or minus the number that it reads (model/tied.py): θ is moved into them over the recipe's `ramp`.
    rungs: where it is screened, in order; group: the first of those that it is ranked with there.
    first_step: the age at which it begins. wide: whether it ends at the recipe's fold, where another spec's
    bank goes on with it (trainer/bank/folding.py).
    """

    recipe: Recipe
    seed: Seed
    start: tuple[float, ...] | None = None
    ties: tuple[int, ...] | None = None
    rungs: tuple[Rung, ...] = ()
    group: Seed | None = None
    first_step: int = 0
    wide: bool = False

    @property
    def ends(self) -> int:
        """The step at which its budget is spent."""
        return self.recipe.fold_step if self.wide else self.recipe.steps

    @property
    def counts_from(self) -> int:
        """The first step at which θ is what was asked for: no evaluation before counts."""
        return self.recipe.fold_step if self.wide else self.recipe.counts_from

    def program(self) -> tuple[Any, ...]:
        """What pairs of one bank must agree in."""
        return (*self.recipe.program(), self.ties is not None)

    def check(self, spec: Spec) -> None:
        """Raise ValueError unless it can be trained with a spec."""
        check_fit(spec, self.recipe, given=self.start is not None)
        params = spec.params
        for name, given in (("start", self.start), ("ties", self.ties)):
            if given is not None and len(given) != params:
                raise ValueError(f"{name} must be {params} entries for this spec, got {len(given)}")
        if self.recipe.ramp and self.ties is None and not self.wide:
            raise ValueError(f"ramp={self.recipe.ramp} needs ties, and this pair has none")


def check_fit(spec: Spec, recipe: Recipe, given: bool = False) -> None:
    """Raise ValueError unless a spec has all that a recipe asks of it. given: θ at step 0 is not drawn."""
    recipe.check_names(spec.layout)
    check_start(spec, recipe)
    check_teacher(spec, recipe)
    check_recycle(spec, recipe)
    check_restarts(spec, recipe, given)
