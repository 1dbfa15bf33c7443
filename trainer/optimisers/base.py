"""What an optimiser is, and what is around it: the pieces of a step, composed by wrappers.

Axes: S slot, P parameters, M measure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Tensors = dict[str, "Tensor"]
Update = Callable[[Tensors, Tensors, "Tensor"], Tensors]
Filter = Callable[[Tensors, Tensors, "Tensor"], "tuple[Tensor, Tensors]"]


def clipped(state: Tensors, now: Tensors, grad_SP: Tensor) -> tuple[Tensor, Tensors]:
    """Each seed's gradient, no longer than the recipe's `clip`."""
    norm_S1 = grad_SP.square().sum(1, keepdim=True).sqrt()
    return grad_SP * (now["clip"][:, None] / (norm_S1 + 1e-6)).clamp(max=1), {}


@dataclass(frozen=True)
class Optimiser:
    """fresh: θ [S, P] -> the optimiser's state before its first step, tensors [S, ...] by names of its own.

    update: (state, now, gradient [S, P]) -> the new θ and the new tensors of `fresh`. `state` is a bank's
    (trainer/step/step.py): theta, step [S] and what `fresh` named. `now` has every number of the recipe [S] and
    what trainer/step/schedule.py's `now` adds. Slots that are not active are masked by the caller. A gradient that
    is not finite must make θ so, for by θ a bank sees that a seed diverged; `sign` would hide it.

    Everything else is for few. gradient: (state, now, raw gradient) -> what `update` is given, and new
    tensors of `fresh`. probe: (state, now, raw gradient) -> θ at which the gradient is taken instead.
    """

    fresh: Callable[[Tensor], Tensors]
    update: Update
    gradient: Filter = clipped
    probe: Callable[[Tensors, Tensors, Tensor], Tensor] | None = None
    beside: str | None = None
    """The name of a tensor of `fresh` that is a θ, and evaluated beside θ."""


Wrap = Callable[[Optimiser], Optimiser]


def zeros(*names: str) -> Callable[[Tensor], Tensors]:
    """A fresh state of tensors like θ that begin at zero."""
    return lambda theta_SP: {name: theta_SP.new_zeros(theta_SP.shape) for name in names}


def columns(now: Tensors, *names: str) -> list[Tensor]:
    """Numbers of the recipe as [S, 1], to go with θ; those that every entry has of its own as they are."""
    return [t if (t := now[name]).dim() == 2 else t[:, None] for name in names]


def also(inner: Optimiser, fresh: Callable[[Tensor], Tensors], **changes: Any) -> Optimiser:
    """An optimiser with more tensors in its state, and other pieces."""
    return replace(inner, fresh=lambda theta_SP: {**inner.fresh(theta_SP), **fresh(theta_SP)}, **changes)
