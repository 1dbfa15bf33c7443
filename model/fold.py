"""Folds: a trained θ rewritten exactly into a form with fewer numbers. Nothing is trained again.

`Spec.folds` lists a family's folds; a new constraint brings the rewriting that leads to it. The arithmetic is
done in float64 and rounded once.

Axes: P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from model.ops import Tensors
    from model.spec import Fold, Spec


@dataclass(frozen=True)
class Folded:
    """A θ [P] in its smallest form, and the steps that led there."""

    spec: Spec
    theta_P: Tensor
    steps: tuple[str, ...]


def fold(spec: Spec, theta_P: Tensor) -> Folded:
    """Apply the family's folds to θ [P] while one of them takes numbers away.

    >>> from model import preset
    >>> spec = preset("57p")
    >>> fold(spec, spec.initial(0)).spec.params
    47
    """
    tensors = spec.layout.split_one(theta_P.double())
    steps: list[str] = []
    # Each fold may make another one possible, so all of them are asked again.
    while (pair := _next(spec, tensors)) is not None:
        step, tensors = pair
        spec = step.to
        steps.append(step.description)
    theta = spec.layout.join(tensors).to(theta_P.dtype)
    return Folded(spec, theta, tuple(steps))


def _next(spec: Spec, tensors: Tensors) -> tuple[Fold, Tensors] | None:
    """Return the first fold that takes numbers away from this θ, and the rewritten tensors."""
    for step in spec.folds():
        if step.to.params >= spec.params:
            continue
        rewritten = step.rewrite(tensors)
        if rewritten is not None:  # else this θ would need a division by zero
            return step, rewritten
    return None
