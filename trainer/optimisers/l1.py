"""L1 on some entries of θ: a scaffold that is to go. Axes: S slot, P parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model.fields import option
from model.layout import Layout
from trainer.fields import Group, dependent_option, entry_indices
from trainer.optimisers.base import Optimiser, Tensors, columns, with_raw_gradient

if TYPE_CHECKING:
    from torch import Tensor

SOURCE = "Reflection 2 and 5 (scaffold: 0.1, 0.5 and late), which names it and does not say how"


@dataclasses.dataclass(frozen=True, kw_only=True)
class L1(Group):
    l1_lambda: float = option(
        0.0,
        "L1: this times the absolute values of l1_entries is added to the loss; 0 is off",
        unit="loss per unit of θ",
        ge=0.0,
        switch=True,
        source=SOURCE,
    )
    l1_entries: tuple[str, ...] = dependent_option(
        "l1_lambda",
        (),
        "entries or tensors of θ that it is on, such as [out_A, 'fc1[1,0]']",
        unit="names",
        max_length=100,
        entries="names",
        source=SOURCE,
    )
    l1_start: int = dependent_option("l1_lambda", 0, "its onset", unit="steps", ge=0, source=SOURCE)
    l1_rise: int = dependent_option(
        "l1_lambda",
        0,
        "how long it takes to full strength, linearly",
        unit="steps",
        ge=0,
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        if recipe.l1_lambda and not recipe.l1_entries:
            raise ValueError(f"l1_lambda={recipe.l1_lambda} needs l1_entries")
        if not all(isinstance(name, str) for name in recipe.l1_entries):
            raise ValueError(f"l1_entries must be names, got {list(recipe.l1_entries)!s:.80}")

    @staticmethod
    def validate_names(recipe: Any, layout: Layout) -> None:
        penalty_mask(layout, recipe.l1_entries)


def penalty_mask(layout: Layout, names: tuple[str, ...]) -> list[float]:
    """Return 1 for each named entry, else 0 [P]. Raise ValueError for a name that θ has not."""
    mask = [0.0] * layout.size
    for p in entry_indices(layout, "l1_entries must be", names):
        mask[p] = 1.0
    return mask


def strength(state: Tensors, now: Tensors) -> Tensor:
    """Return the penalty's factor at a step [S]: from the onset on, rising."""
    import torch

    since_S = state["step"] - now["l1_start"]
    rise_S = now["l1_rise"]
    is_rising_S = since_S < rise_S
    share_S = (since_S + 1) / rise_S.clamp(min=1)  # its first step has a share already, as a warm-up's has
    risen_S = torch.where(is_rising_S, share_S, 1.0)
    return torch.where(since_S >= 0, now["l1_lambda"] * risen_S, 0.0)


def l1(inner: Optimiser) -> Optimiser:
    """Add the penalty's slope, which is 0 at 0, to the raw gradient."""

    def penalised(state: Tensors, now: Tensors, grad_SP: Tensor) -> Tensor:
        # The slope of |θ| is its sign, and 0 at 0.
        (mask_SP,) = columns(now, "l1_entries")
        strength_S1 = strength(state, now)[:, None]
        return grad_SP + strength_S1 * mask_SP * state["theta"].sign()

    return with_raw_gradient(inner, penalised)
