"""A seed, and the pair of seed and recipe that a bank trains."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

from model.tasks import Columns, only_addition
from trainer.recipe.carry import CarrySchedule
from trainer.recipe.curriculum import LENGTHS, Curriculum
from trainer.recipe.recipe import Recipe
from trainer.recipe.restarts import check_recycle, check_restarts
from trainer.recipe.stages import end_of, road_of
from trainer.recipe.starts import check_start
from trainer.recipe.teacher import check_teacher
from trainer.recipe.weight_decay import check_cycles
from trainer.stopping import Rule

if TYPE_CHECKING:
    from model.spec import Spec
    from model.tasks import Task


@dataclasses.dataclass(frozen=True, order=True)
class Seed:
    """One run of a configuration: the numbers of its start and of its stream of problems.

    >>> Seed.named("777.804")
    Seed(init_seed=777, data_seed=804)
    >>> str(Seed.of(777))
    '777'
    """

    init_seed: int
    data_seed: int

    @classmethod
    def of(cls, number: int) -> Seed:
        """Return the usual seed, with `number` for both."""
        return cls(number, number)

    @classmethod
    def named(cls, name: str) -> Seed:
        """Parse a seed: `777`, or `777.804`. Raise ValueError for other text."""
        numbers = name.split(".")
        if len(numbers) > 2 or not all(n.isdecimal() and n.isascii() for n in numbers):
            raise ValueError(f"a seed is a number, or two with a dot between them, got {name!r}")
        return cls(int(numbers[0]), int(numbers[-1]))  # the same twice where there is one

    def __str__(self) -> str:
        # As `named` reads it.
        same = self.init_seed == self.data_seed
        return str(self.init_seed) if same else f"{self.init_seed}.{self.data_seed}"


def is_spared(seed: Seed) -> bool:
    """True for a random tenth of all seeds, which no rule ends, by their numbers alone.

    A bank goes by it where a pair does not say itself if it is spared.
    """
    # A digest and no random draw: the same tenth on every machine, whoever asks and however often.
    text = f"spared {seed.init_seed} {seed.data_seed}"
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") % 10 == 0


@dataclasses.dataclass(frozen=True)
class Pair:
    """A seed and the recipe it is trained with.

    start: θ [P] at the first step, instead of the spec's initial values. ties: for each entry of θ 0, or
    plus or minus the number that it reads (model/tied.py): θ is moved into them over the recipe's `ramp`.
    rules: what may end it early, in the order in which they are asked; by default nothing. spared: whether no rule
    ends it; None: as its seed's numbers say (`is_spared`).

        >>> Pair(Recipe(), Seed.of(777)).seed
        Seed(init_seed=777, data_seed=777)
    """

    recipe: Recipe
    seed: Seed
    start: tuple[float, ...] | None = None
    ties: tuple[int, ...] | None = None
    rules: tuple[Rule, ...] = ()
    spared: bool | None = None

    def program(self) -> tuple[Any, ...]:
        """Return the values in which the pairs of a bank must agree."""
        return (*self.recipe.program(), self.ties is not None)

    def check(self, spec: Spec) -> None:
        """Raise ValueError unless the pair can be trained with a spec."""
        check_fit(spec, self.recipe, has_start=self.start is not None)
        params = spec.params
        for name, values in (("start", self.start), ("ties", self.ties)):
            if values is not None and len(values) != params:
                raise ValueError(f"{name} must be {params} entries for this spec, got {len(values)}")
        # The engine writes by these numbers.
        wrong = [k for k in self.ties or () if type(k) is not int or abs(k) > params]
        if wrong:
            raise ValueError(f"ties must be whole numbers from {-params} to {params}, got {wrong[0]!r:.80}")
        if self.recipe.ramp and not self.recipe.stages and self.ties is None:
            raise ValueError(f"ramp={self.recipe.ramp} needs ties, and this pair has none")


def check_fit(spec: Spec, recipe: Recipe, has_start: bool = False) -> None:
    """Raise ValueError unless a spec has all that a recipe needs. has_start: θ at step 0 is not drawn.

    What only earlier versions trained is refused here, and not where a recipe is made: records of it are read.
    """
    if recipe.stages:
        if has_start:
            raise ValueError("stages draw their first θ: a start does not go with them")
        check_road(spec, recipe)
        return
    check_problems(spec.task, recipe)
    spec.check_trained()
    recipe.check_names(spec.layout)
    check_start(spec, recipe)
    check_teacher(spec, recipe)
    check_recycle(spec, recipe)
    check_restarts(spec, recipe, has_start)
    check_cycles(recipe)


def check_problems(task: Task, recipe: Recipe) -> None:
    """Raise ValueError for a field of a recipe that means nothing for a task: a curriculum of digits, carries."""
    if recipe.finish_above < 1:
        only_addition(task, "finish_above")
    if not task.is_measured:
        from model.tasks.checks import check_task  # needs torch

        check_task(task)
    if task.carries:
        return
    # A value other than the default was set by somebody, who would find it without effect.
    lengths = LENGTHS if isinstance(task, Columns) else ()
    what = "carries" if lengths else "columns of digits"
    for field in (*dataclasses.fields(Curriculum), *dataclasses.fields(CarrySchedule)):
        if field.name not in lengths and getattr(recipe, field.name) != field.default:
            raise ValueError(f"{field.name} is about {what}, which {task.title} has not")


def check_road(spec: Spec, recipe: Recipe) -> None:
    """Raise ValueError unless a recipe's stages can be trained, and lead to a spec."""
    stages = road_of(recipe)
    # The curves of its trainings are one curve, whose rows are equally far apart.
    intervals = {recipe.eval_every, *(each.eval_every for stage in stages for each in stage.recipes)}
    if len(intervals) > 1:
        raise ValueError(f"stages must have one eval_every, got {sorted(intervals)}")
    for stage in stages:
        for each in stage.recipes:
            try:
                # Only the very first training draws its θ.
                check_fit(stage.spec, each, has_start=stage is not stages[0] or each is stage.longer)
            except ValueError as error:
                raise ValueError(f"stage {stage.name}: {error}") from None
    if end_of(stages) != spec:
        raise ValueError("stages must lead to the model, and end at another one")
