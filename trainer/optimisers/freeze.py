"""Freezing in place: entries of θ that keep their values from a step on. Axes: S slot, P parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model.fields import LARGEST, option
from model.layout import Layout
from trainer.fields import Group, entry_indices
from trainer.optimisers.base import Optimiser, Tensors

if TYPE_CHECKING:
    from torch import Tensor

FORM = "rows [step, entries or tensors of θ], such as [20000, arc, 'norm[0,4]']"
NEVER = 1 << 62


@dataclasses.dataclass(frozen=True, kw_only=True)
class Freeze(Group):
    freeze: tuple[tuple[Any, ...], ...] = option(
        (), f"{FORM}: from a step on these keep the values that they have then", unit="step, names",
        max_length=64, entries="rows", switch=True,
        source="Reflection 1 and 2 (its cascade, and freezing in place)",
    )  # fmt: skip

    @staticmethod
    def validate(recipe: Any) -> None:
        for row in recipe.freeze:
            whole = isinstance(row, tuple) and len(row) > 1 and all(isinstance(n, str) for n in row[1:])
            if not whole or type(row[0]) is not int or not 0 <= row[0] <= LARGEST:
                raise ValueError(f"freeze must be {FORM}, got {row!s:.80}")
        for other in ("ramp", "fold_step"):
            if recipe.freeze and getattr(recipe, other):
                raise ValueError(f"freeze excludes {other}, by which θ becomes another one")

    @staticmethod
    def validate_names(recipe: Any, layout: Layout) -> None:
        frozen_from(layout, recipe.freeze)


def frozen_from(layout: Layout, rows: tuple[tuple[Any, ...], ...]) -> list[int]:
    """The step from which each entry keeps its value [P]. Raises ValueError for a name that θ has not."""
    steps = [NEVER] * layout.size
    for step, *names in rows:
        for p in entry_indices(layout, "freeze must be of", names):
            steps[p] = min(step, steps[p])
    return steps


def freeze(inner: Optimiser) -> Optimiser:
    """The outermost wrapper, so that nothing inside moves what is frozen; frozen entries have no gradient,
    and no share in its norm.
    """

    def gradient(state: Tensors, now: Tensors, grad_SP: Tensor) -> tuple[Tensor, Tensors]:
        return inner.gradient(state, now, _without(state, now, grad_SP))

    def probe(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensor:
        assert inner.probe
        return inner.probe(state, now, _without(state, now, grad_SP))

    def update(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
        """θ, and a θ beside it, keep their frozen entries."""
        new, frozen_SP = inner.update(state, now, grad_SP), _frozen(state, now)
        names = [name for name in ("theta", inner.beside) if name in new]
        return new | {name: state["theta"].where(frozen_SP, new[name]) for name in names if name}

    return dataclasses.replace(inner, gradient=gradient, update=update, probe=inner.probe and probe)


def _frozen(state: Tensors, now: Tensors) -> Tensor:
    """Which entries are frozen [S, P]."""
    return state["step"][:, None] >= now["freeze"]


def _without(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensor:
    """A gradient that is 0 where θ is frozen; not a number where it is none, or nobody sees a divergence."""
    return (grad_SP * 0).where(_frozen(state, now), grad_SP)
