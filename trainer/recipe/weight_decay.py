"""Weight decay: its fields, and its factors at a step and after an evaluation.

Axes: S slot, L pair that was just evaluated, D scheduled drop.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from model.fields import LARGEST, option
from trainer.fields import Group, dependent_option

if TYPE_CHECKING:
    from torch import Tensor

SCHEDULES = ("constant", "drops", "cyclical", "warmup", "smooth")
MOST_DROPS = 4
MOST_CYCLES = 15_900
"""2 pi times as many are below 100,000, beyond which the engine has no sine (model/cpp/polynomials.h)."""
REFLECTION = "Reflection 2 and 5, which name it and do not say how"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightDecay(Group):
    weight_decay: float = option(0.01, "decoupled decay of every parameter", unit="per unit of lr", ge=0.0)
    wd_drop: float = option(
        1.0,
        "adaptive decay: factor at each of two thresholds; 1 is off",
        unit="fraction",
        ge=0,
        le=1,
    )
    wd_drop_token: float = option(0.7, "token accuracy that a drop needs", unit="fraction", ge=0, le=1)
    wd_drop_exact: float = option(0.02, "exact match of the first drop", unit="fraction", ge=0, le=1)
    wd_drop_exact_final: float = option(0.2, "exact match of the second drop", unit="fraction", ge=0, le=1)
    wd_schedule: str = option(
        "constant",
        "beside what is adaptive: constant, drops (at steps), cyclical (a cosine), warmup (linear from 0) or "
        "smooth (exponential from the first threshold on, to wd_drop squared)",
        unit="name",
        values=SCHEDULES,
        switch=True,
        source="Reflection 2; smooth: MicroAdder, src/train.py",
    )
    wd_drops: tuple[tuple[Any, ...], ...] = dependent_option(
        "wd_schedule=drops",
        (),
        "pairs [step, factor]: what decay is times from a step on, rising steps",
        unit="step, fraction",
        max_length=MOST_DROPS,
        entries="drops",
        source=REFLECTION,
    )
    wd_period: int = dependent_option(
        "wd_schedule=cyclical",
        10_000,
        "length of a cycle",
        unit="steps",
        ge=1,
        source=REFLECTION,
    )
    wd_warmup: int = dependent_option(
        "wd_schedule=warmup",
        10_000,
        "how long decay rises",
        unit="steps",
        ge=1,
        source=REFLECTION,
    )
    wd_alpha: float = dependent_option(
        "wd_schedule=smooth",
        0.0001,
        "rate at which decay falls, made anew at evaluations",
        unit="per step",
        ge=0.0,
        source="MicroAdder, src/train.py",
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        for drop in recipe.wd_drops:
            is_pair = isinstance(drop, tuple) and len(drop) == 2
            pair: Any = drop if is_pair else (None, None)
            step, factor = pair
            is_step = type(step) is int and 0 <= step <= LARGEST
            if not is_step or type(factor) not in (int, float):
                raise ValueError(f"wd_drops must be pairs [step 0 to {LARGEST}, factor], got {drop!s:.80}")
            if not 0 <= factor <= 1_000:
                raise ValueError(f"wd_drops must have factors from 0 to 1000, got {factor!s:.80}")
        steps = [drop[0] for drop in recipe.wd_drops]
        if sorted(set(steps)) != steps:
            raise ValueError(f"wd_drops must have rising steps, got {steps}")
        if recipe.wd_schedule == "drops" and not steps:
            raise ValueError("wd_schedule=drops needs wd_drops")
        if recipe.wd_schedule == "smooth" and recipe.wd_drop == 1:
            raise ValueError("wd_schedule=smooth needs wd_drop below 1: decay falls to its square")
        # Frozen, but still being made: a whole factor and its float must be one recipe.
        drops = tuple((step, float(factor)) for step, factor in recipe.wd_drops)
        object.__setattr__(recipe, "wd_drops", drops)


def check_cycles(recipe: Any) -> None:
    """Raise ValueError for more cycles of decay than the engine has a sine for."""
    if recipe.wd_schedule == "cyclical" and recipe.steps > MOST_CYCLES * recipe.wd_period:
        lengths = f"steps={recipe.steps} and wd_period={recipe.wd_period}"
        raise ValueError(f"wd_schedule=cyclical takes at most {MOST_CYCLES:,} cycles, got {lengths}")


def drops_of(recipe: Any) -> tuple[list[int], list[float]]:
    """Return steps and factors [D] of a recipe's drops, filled up with steps after every budget."""
    # Seeds of one bank may have different numbers of drops, and their tensors one shape.
    missing = MOST_DROPS - len(recipe.wd_drops)
    steps = [step for step, _ in recipe.wd_drops]
    factors = [factor for _, factor in recipe.wd_drops]
    return steps + [LARGEST] * missing, factors + [1.0] * missing


def factor(step_S: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    """Return the schedule's factor of decay at a step [S]; of banks with a schedule."""
    import torch

    dropped = constant = torch.ones_like(hyper["lr"])
    for d in range(MOST_DROPS):
        reached = step_S >= hyper["wd_drop_steps"][..., d]
        dropped = torch.where(reached, hyper["wd_drop_factors"][..., d], dropped)
    # All kinds are computed for all slots: a tape has no branches.
    turn = 2 * math.pi * (step_S / hyper["wd_period"])
    kinds = {
        "drops": dropped,
        "cyclical": 0.5 * (1 + turn.cos()),
        "warmup": ((step_S + 1) / hyper["wd_warmup"]).clamp(max=1),
    }
    # Only seeds of one program share a bank, but their schedules may differ: so each slot chooses.
    factor_S = constant
    for name, scheduled in kinds.items():
        factor_S = torch.where(hyper["wd_schedule"] == SCHEDULES.index(name), scheduled, factor_S)
    return factor_S


def scale(
    scale_L: Tensor,
    exact_L: Tensor,
    token_L: Tensor,
    hyper: Mapping[str, Tensor],
    eval_every: int,
) -> Tensor:
    """Return decay's factor [L] after an evaluation (57p paper, Reflection 5).

    scale_L: the factor before. exact_L, token_L: exact match and token accuracy. eval_every: steps since then.

    It drops for good when exact match passes each of two thresholds and token accuracy its own. With
    wd_schedule=smooth it falls gradually from the first threshold on.
    """
    import torch

    drop_L = hyper["wd_drop"]
    first_L = torch.where(exact_L > hyper["wd_drop_exact"], drop_L, 1.0)
    second_L = torch.where(exact_L > hyper["wd_drop_exact_final"], drop_L, 1.0)
    lower_L = torch.minimum(scale_L, first_L * second_L)  # a power would round as the CPU does
    gated_L = token_L < hyper["wd_drop_token"]
    dropped_L = torch.where(gated_L, scale_L, lower_L)
    if "wd_schedule" not in hyper:
        return dropped_L
    # It falls from the first threshold on, and goes on when exact match sinks again.
    falls_L = (scale_L < 1) | ((exact_L > hyper["wd_drop_exact"]) & ~gated_L)
    share_L = (hyper["wd_alpha"].double() * -eval_every).exp()  # float64, rounded: on every CPU the same
    falling_L = torch.maximum((scale_L * share_L).float(), drop_L * drop_L)
    smooth_L = torch.where(falls_L, falling_L, scale_L)
    return torch.where(hyper["wd_schedule"] == SCHEDULES.index("smooth"), smooth_L, dropped_L)
