"""The recipe: everything about training that is not architecture. And the seed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model.fields import LARGEST, check, nearest, option
from trainer.carry import CarrySchedule
from trainer.optimisers import OPTIMISERS
from trainer.screen import Rung
from trainer.starts import Starts, check_start

if TYPE_CHECKING:
    from model.spec import Spec

MOST_EVALUATIONS = 10_000  # a seed's curve has a row each
PAPER = "57p paper, sections 3.2 to 3.5"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(CarrySchedule, Starts):
    """How a seed is trained. The defaults are those of the 57p paper's training command.

    What shapes the compiled program says so, and seeds share a bank where `program()` is the same. Everything
    else is a number a seed.
    """

    steps: int = option(60_000, "the budget", unit="steps", low=1, source=PAPER)
    batch: int = option(
        256, "problems in one step", unit="problems per seed", low=1, high=1 << 16, shapes=True
    )
    eval_every: int = option(
        1_000, "distance of evaluations; divides the budget", unit="steps", low=1, shapes=True
    )
    hold: int = option(10_000, "how long a grokked seed must stay perfect to have held", unit="steps", low=0)
    optimiser: str = option(
        "adamw", f"what takes the steps: {', '.join(OPTIMISERS)}", unit="name", shapes=True
    )
    lr: float = option(0.02, "peak learning rate", unit="per step", low=0.0, source=PAPER)
    lr_floor: float = option(
        0.1, "learning rate at the last step, of the peak", unit="fraction", low=0, high=1
    )
    warmup: int = option(1_000, "linear warm-up of the learning rate", unit="steps", low=0)
    weight_decay: float = option(0.01, "decoupled decay of every parameter", unit="per unit of lr", low=0.0)
    wd_drop: float = option(
        1.0, "adaptive decay: factor at each of two thresholds; 1 is off", unit="fraction", low=0, high=1
    )
    wd_drop_token: float = option(0.7, "token accuracy that a drop needs", unit="fraction", low=0, high=1)
    wd_drop_exact: float = option(0.02, "exact match of the first drop", unit="fraction", low=0, high=1)
    wd_drop_exact_final: float = option(0.2, "exact match of the second drop", unit="fraction", low=0, high=1)
    clip: float = option(1.0, "largest gradient norm of a seed", unit="norm", low=0.0)
    beta1: float = option(0.9, "AdamW's decay of the first moment", unit="fraction", low=0, high=0.9999999)
    beta2: float = option(0.999, "AdamW's decay of the second moment", unit="fraction", low=0, high=0.9999999)
    epsilon: float = option(1e-8, "AdamW's denominator offset", unit="gradient", low=0.0)
    curriculum: tuple[tuple[int, ...], ...] = option(
        ((3, 2_000), (6, 5_000)),
        "pairs [digits, steps]: largest operand length and for how long; then 10 digits",
        unit="digits, steps",
        source=PAPER,
    )
    mixed_lengths: float = option(
        0.0,
        "share of ordinary problems whose length is drawn too, uniformly up to the curriculum's",
        unit="fraction", low=0, high=1, source="456p report, training code",
    )  # fmt: skip
    carry_mix: float = option(
        0.8, "share of carry problems before the fade", unit="fraction", low=0, high=1, source=PAPER
    )
    fade_start: int = option(15_000, "where the share begins to fall linearly", unit="steps", low=0)
    fade_end: int = option(45_000, "where it reaches 0", unit="steps", low=0, source=PAPER)
    fade_token: float = option(
        1.0, "token accuracy above which the share falls linearly; 1 is off", unit="fraction", low=0, high=1,
        source="57p paper, section 3.2",
    )  # fmt: skip
    fade_token_end: float = option(1.0, "token accuracy where it is 0", unit="fraction", low=0, high=1)
    ramp: int = option(
        0, "how long ties take to full hold on θ, linearly; for pairs that have ties", unit="steps", low=0
    )  # fmt: skip

    def __post_init__(self) -> None:
        if isinstance(self.curriculum, list | tuple) and len(self.curriculum) > 4:
            raise ValueError(f"curriculum must have at most 4 stages, got {len(self.curriculum)}")
        for name in LISTS:
            rows = getattr(self, name)
            if isinstance(rows, list | tuple) and all(isinstance(row, list | tuple) for row in rows):
                object.__setattr__(self, name, tuple(map(tuple, rows)))
        check(self)
        self.check_carry()
        self.check_starts()
        if self.optimiser not in OPTIMISERS:
            hint = nearest(self.optimiser, OPTIMISERS)
            raise ValueError(f"optimiser: unknown {self.optimiser!r:.80}; {hint}")
        if self.steps % self.eval_every:
            raise ValueError(f"eval_every must divide steps, got {self.eval_every} and {self.steps}")
        if self.steps > MOST_EVALUATIONS * self.eval_every:
            least = f"at most {MOST_EVALUATIONS} evaluations, got {self.steps // self.eval_every}"
            raise ValueError(f"eval_every must be such that there are {least}")
        if self.ramp > self.steps:
            raise ValueError(f"ramp must be at most steps, got {self.ramp} > {self.steps}")
        if self.fade_end < self.fade_start:
            raise ValueError(f"fade_end must be fade_start or more, got {self.fade_end} < {self.fade_start}")
        if self.fade_token_end < self.fade_token:
            ends = f"{self.fade_token_end} < {self.fade_token}"
            raise ValueError(f"fade_token_end must be fade_token or more, got {ends}")
        for stage in self.curriculum:
            whole = isinstance(stage, tuple) and [type(n) for n in stage] == [int, int]
            if not whole or not 1 <= stage[0] <= 10 or not 0 <= stage[1] <= LARGEST:
                raise ValueError(
                    f"curriculum must be pairs [digits 1 to 10, steps 0 to {LARGEST}], got {stage}"
                )

    def program(self) -> tuple[Any, ...]:
        """What shapes the compiled program: the values of the fields in SHAPING."""
        return tuple(getattr(self, name) for name in SHAPING)

    def as_dict(self) -> dict[str, Any]:
        """Every field, as plain values."""
        return {
            name: [list(row) for row in value] if name in LISTS else value
            for name, value in dataclasses.asdict(self).items()
        }


LISTS = tuple(field.name for field in dataclasses.fields(Recipe) if type(field.default) is tuple)
"""Fields that are lists of lists."""
SHAPING = tuple(field.name for field in dataclasses.fields(Recipe) if field.metadata["shapes"])


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

    start: θ [P] at step 0, instead of the spec's initial values. ties: for each entry of θ 0, or plus or
    minus the number that it reads (model/tied.py): θ is moved into them over the recipe's `ramp`. rungs:
    where it is screened, in order; group: the first of those that it is ranked with there.
    """

    recipe: Recipe
    seed: Seed
    start: tuple[float, ...] | None = None
    ties: tuple[int, ...] | None = None
    rungs: tuple[Rung, ...] = ()
    group: Seed | None = None

    def program(self) -> tuple[Any, ...]:
        """What pairs of one bank must agree in."""
        return (*self.recipe.program(), self.ties is not None)

    def check(self, spec: Spec) -> None:
        """Raise ValueError unless it can be trained with a spec."""
        check_start(spec, self.recipe)
        params = spec.params
        for name, given in (("start", self.start), ("ties", self.ties)):
            if given is not None and len(given) != params:
                raise ValueError(f"{name} must be {params} entries for this spec, got {len(given)}")
        if self.recipe.ramp and self.ties is None:
            raise ValueError(f"ramp={self.recipe.ramp} needs ties, and this pair has none")
