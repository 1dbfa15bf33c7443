"""Optimisers: what turns a gradient into a step of every slot. An optimiser is an entry of OPTIMISERS here.

Without torch at import, so that a recipe can be checked against the names; updates use tensors' own methods,
or import torch themselves.

Axes: S slot, P parameters. A slot's state must depend on that slot alone, and be the same in any company:
each of its tensors has the slots first, and whatever an update sums, it sums within a slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from model.fields import nearest, option
from trainer.fields import Group

if TYPE_CHECKING:
    from torch import Tensor

Tensors = dict[str, "Tensor"]


@dataclass(frozen=True)
class Optimiser:
    """fresh: θ [S, P] -> the optimiser's state before its first step, tensors [S, ...] by names of its own.

    update: (state, now, gradient [S, P]) -> the new θ and the new tensors of `fresh`. `state` is a bank's
    (trainer/step.py): theta, step [S] and what `fresh` named. `now` has every number of the recipe [S], the
    learning rate as scheduled at this step, and `decay`, the share of θ that decoupled weight decay takes
    off in it. The gradient is clipped. Slots that are not active are masked by the caller. A gradient that is
    not finite must make θ so, for by θ a bank sees that a seed diverged; `sign` would hide it.
    """

    fresh: Callable[[Tensor], Tensors]
    update: Callable[[Tensors, Tensors, Tensor], Tensors]


def zeros(*names: str) -> Callable[[Tensor], Tensors]:
    """A fresh state of tensors like θ that begin at zero."""
    return lambda theta_SP: {name: theta_SP.new_zeros(theta_SP.shape) for name in names}


def columns(now: Tensors, *names: str) -> list[Tensor]:
    """Numbers of the recipe as [S, 1], to go with θ."""
    return [now[name][:, None] for name in names]


def adamw(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
    """Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, algorithm 2."""
    lr, decay, beta1, beta2, epsilon = columns(now, "lr", "decay", "beta1", "beta2", "epsilon")
    count_S1 = (state["step"] + 1)[:, None]
    m = state["m"] + (grad_SP - state["m"]) * (1 - beta1)
    v = state["v"] * beta2 + grad_SP.square() * (1 - beta2)
    unbiased_m = m / (1 - beta1**count_S1)
    unbiased_v = v / (1 - beta2**count_S1)
    theta = state["theta"] * (1 - decay) - lr * unbiased_m / (unbiased_v.sqrt() + epsilon)
    return {"theta": theta, "m": m, "v": v}


OPTIMISERS = {
    "adamw": Optimiser(zeros("m", "v"), adamw),
}


@dataclass(frozen=True, kw_only=True)
class Stepping(Group):
    optimiser: str = option(
        "adamw", f"what takes the steps: {', '.join(OPTIMISERS)}", unit="name", shapes=True
    )
    clip: float = option(1.0, "largest gradient norm of a seed", unit="norm", low=0.0)
    beta1: float = option(0.9, "AdamW's decay of the first moment", unit="fraction", low=0, high=0.9999999)
    beta2: float = option(0.999, "AdamW's decay of the second moment", unit="fraction", low=0, high=0.9999999)
    epsilon: float = option(1e-8, "AdamW's denominator offset", unit="gradient", low=0.0)

    @staticmethod
    def agree(recipe: Any) -> None:
        if recipe.optimiser not in OPTIMISERS:
            hint = nearest(recipe.optimiser, OPTIMISERS)
            raise ValueError(f"optimiser: unknown {recipe.optimiser!r:.80}; {hint}")
