"""The optimiser: functions that make a step, composed by wrappers.

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
Change = Callable[[Tensors, Tensors, "Tensor"], "Tensor"]
Filter = Callable[[Tensors, Tensors, "Tensor"], "tuple[Tensor, Tensors]"]


def clipped(state: Tensors, now: Tensors, grad_SP: Tensor) -> tuple[Tensor, Tensors]:
    """Clip each seed's gradient to the recipe's `clip`."""
    # The small number keeps a gradient of 0 from becoming NaN; torch's clip_grad_norm_ has the same one.
    norm_S1 = grad_SP.square().sum(1, keepdim=True).sqrt()
    share_S1 = now["clip"][:, None] / (norm_S1 + 1e-6)
    return grad_SP * share_S1.clamp(max=1), {}


@dataclass(frozen=True)
class Optimiser:
    """Functions that make a step. They read a state and the numbers of the step.

    A state is a bank's (trainer/step/step.py): theta, step [S] and the tensors of `init`. `now` has every number of the
    recipe [S], and those that `now` of trainer/step/schedule.py adds. The caller masks slots that are not active.

    init: θ [S, P] -> the optimiser's state before its first step, tensors [S, ...] by names of its own.
    update: (state, now, gradient [S, P]) -> the new θ and the new tensors of `init`. A gradient that is not finite must
    make θ so: a bank sees by θ that a seed diverged, and `sign` would hide it.
    gradient: (state, now, raw gradient) -> the gradient for `update`, and new tensors of `init`.
    gradient_point: (state, now, raw gradient) -> θ at which the gradient is taken instead; None: at θ itself.
    """

    init: Callable[[Tensor], Tensors]
    update: Update
    gradient: Filter = clipped
    gradient_point: Change | None = None
    eval_theta: str | None = None
    """The name of a tensor of `init` that is a θ too, and is evaluated beside θ."""


def zeros(*names: str) -> Callable[[Tensor], Tensors]:
    """Return an `init` of tensors like θ that begin at zero."""
    return lambda theta_SP: {name: theta_SP.new_zeros(theta_SP.shape) for name in names}


def columns(now: Tensors, *names: str) -> list[Tensor]:
    """Return numbers of the step as [S, 1], to go with θ; those of single entries stay [S, P]."""
    return [t if (t := now[name]).dim() == 2 else t[:, None] for name in names]


def extend(inner: Optimiser, tensors: Callable[[Tensor], Tensors], **changes: Any) -> Optimiser:
    """Return an optimiser with more tensors in its state, and other functions."""
    return replace(
        inner,
        init=lambda theta_SP: {**inner.init(theta_SP), **tensors(theta_SP)},
        **changes,
    )


def with_raw_gradient(inner: Optimiser, change: Change) -> Optimiser:
    """Return an optimiser that sees a changed raw gradient, also for the point where the gradient is taken.

    change: (state, now, raw gradient) -> another raw gradient.
    """
    # The point too: SAM must climb by the gradient that the step would take.
    point = inner.gradient_point
    return replace(
        inner,
        gradient=lambda state, now, grad_SP: inner.gradient(state, now, change(state, now, grad_SP)),
        gradient_point=point and (lambda state, now, grad_SP: point(state, now, change(state, now, grad_SP))),
    )
