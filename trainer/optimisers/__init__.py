"""Optimisers, which turn a gradient into a step of every slot, and wrappers that combine with any of them.

An optimiser is an entry of OPTIMISERS, a wrapper one of WRAPPERS; the fields of either stand in its own file.
Without torch at import, so that a recipe can be checked against the names; updates use tensors' own methods,
or import torch themselves.

A slot's state must depend on that slot alone, and be the same in any company: each of its tensors has the
slots first, and whatever an update sums, it sums within a slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from model.fields import did_you_mean, option
from trainer.fields import Group
from trainer.optimisers.base import Optimiser, zeros
from trainer.optimisers.factors import TensorFactors
from trainer.optimisers.first_order import adam, adamw, lion, sgd
from trainer.optimisers.freeze import Freeze, freeze
from trainer.optimisers.l1 import L1, l1
from trainer.optimisers.wrappers import Average, Grokfast, Sam, average, grokfast, sam

OPTIMISERS = {
    "adamw": Optimiser(zeros("m", "v"), adamw),
    "adam": Optimiser(zeros("m", "v"), adam),
    "lion": Optimiser(zeros("m"), lion),
    "sgd": Optimiser(zeros("m"), sgd),
}
WRAPPERS: dict[str, Callable[[Optimiser], Optimiser]] = {
    "sam_rho": sam,
    "ema_decay": average,
    "freeze": freeze,
    "grokfast_lambda": grokfast,
    "l1_lambda": l1,
}
"""Field that switches a wrapper on -> the wrapper; the innermost first."""


def optimiser_of(recipe: Any) -> Optimiser:
    """Return a recipe's optimiser in the wrappers that are on."""
    on = (wrap for name, wrap in WRAPPERS.items() if getattr(recipe, name))
    return reduce(lambda inner, wrap: wrap(inner), on, OPTIMISERS[recipe.optimiser])


@dataclass(frozen=True, kw_only=True)
class OptimiserFields(Group):
    optimiser: str = option(
        "adamw",
        f"what takes the steps: {', '.join(OPTIMISERS)}",
        unit="name",
        shapes=True,
    )
    clip: float = option(1.0, "largest gradient norm of a seed", unit="norm", ge=0.0)
    beta1: float = option(
        0.9,
        "decay of the first moment; of sgd, the momentum",
        unit="fraction",
        ge=0,
        le=0.9999999,
    )
    beta2: float = option(
        0.999,
        "decay of the second moment; of lion, of the first",
        unit="fraction",
        ge=0,
        le=0.9999999,
    )
    epsilon: float = option(1e-8, "denominator offset of adamw and adam", unit="gradient", ge=0.0)

    @staticmethod
    def validate(recipe: Any) -> None:
        if recipe.optimiser not in OPTIMISERS:
            hint = did_you_mean(recipe.optimiser, OPTIMISERS)
            raise ValueError(f"optimiser: unknown {recipe.optimiser!r:.80}; {hint}")


@dataclass(frozen=True, kw_only=True)
class Stepping(Freeze, L1, TensorFactors, Average, Grokfast, Sam, OptimiserFields):
    """Every field of optimisers and wrappers; groups are listed from the last one to the first."""
