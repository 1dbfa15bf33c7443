"""Freezing in place: entries of θ that keep their values from a step on. Axes: S slot, P parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model.fields import LARGEST, option
from model.layout import Layout
from trainer.fields import Group, entry_indices
from trainer.optimisers.base import Optimiser, Tensors, with_raw_gradient

if TYPE_CHECKING:
    from torch import Tensor

FORM = "rows [step, entries or tensors of θ], such as [20000, arc, 'norm[0,4]']"
NEVER = 1 << 62


@dataclasses.dataclass(frozen=True, kw_only=True)
class Freeze(Group):
    freeze: tuple[tuple[Any, ...], ...] = option(
        (),
        f"{FORM}: from a step on these keep the values that they have then",
        unit="step, names",
        max_length=64,
        entries="rows",
        switch=True,
        source="Reflection 1 and 2 (its cascade, and freezing in place)",
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        for row in recipe.freeze:
            is_row = isinstance(row, tuple) and len(row) > 1
            has_names = is_row and all(isinstance(name, str) for name in row[1:])
            if not has_names or type(row[0]) is not int or not 0 <= row[0] <= LARGEST:
                raise ValueError(f"freeze must be {FORM}, got {row!s:.80}")
        if recipe.freeze and recipe.ramp:
            raise ValueError("freeze excludes ramp, by which θ becomes another one")
        if recipe.freeze and recipe.recycle_every:
            raise ValueError("freeze excludes recycle_every, which moves whatever a unit has")

    @staticmethod
    def validate_names(recipe: Any, layout: Layout) -> None:
        frozen_from(layout, recipe.freeze)


def frozen_from(layout: Layout, rows: tuple[tuple[Any, ...], ...]) -> list[int]:
    """Return the step from which each entry keeps its value [P]; NEVER for the others.

    rows: as in the field `freeze`. Raise ValueError for a name that θ does not have.
    """
    steps = [NEVER] * layout.size
    # Of rows that name one entry twice the earlier step holds: what is frozen stays so.
    for step, *names in rows:
        for p in entry_indices(layout, "freeze must be of", names):
            steps[p] = min(step, steps[p])
    return steps


def freeze(inner: Optimiser) -> Optimiser:
    """Freeze entries of θ: they have no gradient where it is clipped or SAM moves θ, and no share in its norm."""

    def update(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensors:
        """Restore the frozen entries of θ, and of `eval_theta`."""
        new = inner.update(state, now, grad_SP)
        frozen_SP = _frozen(state, now)
        # The moving mean of θ too, or it would be evaluated with entries that moved.
        names = [name for name in ("theta", inner.eval_theta) if name in new]
        return new | {name: state["theta"].where(frozen_SP, new[name]) for name in names if name}

    return with_raw_gradient(dataclasses.replace(inner, update=update), _masked)


def _frozen(state: Tensors, now: Tensors) -> Tensor:
    """Mark the frozen entries [S, P]."""
    return state["step"][:, None] >= now["freeze"]


def _masked(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensor:
    """Return a gradient that is 0 where θ is frozen; NaN stays, so that a divergence is seen."""
    nothing = grad_SP - grad_SP  # a product with 0 is 0 on a tape, whatever the other factor is
    return nothing.where(_frozen(state, now), grad_SP)
