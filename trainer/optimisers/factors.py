"""Learning rate of single tensors. Axes: P parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from math import prod
from typing import Any

from model.fields import did_you_mean, option
from model.layout import Layout
from trainer.fields import Group


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorFactors(Group):
    lr_factors: tuple[tuple[Any, ...], ...] = option(
        (),
        "pairs [tensor, factor] of θ: the learning rate of some, times this; its decay too",
        unit="name, factor",
        switch=True,
        source="AdderBoard, vijec and warlockee (norm 3, arc 0.5)",
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        pairs = recipe.lr_factors
        for pair in pairs:
            is_pair = isinstance(pair, tuple) and len(pair) == 2
            if not is_pair or not isinstance(pair[0], str):
                raise ValueError(f"lr_factors must be pairs [tensor, factor], got {pair!s:.80}")
            factor = pair[1]
            if type(factor) not in (int, float) or not 0 <= factor <= 1_000_000:
                raise ValueError(f"lr_factors must have factors from 0 to 1000000, got {factor!s:.80}")
        if len(dict(pairs)) < len(pairs):
            raise ValueError(f"lr_factors must name a tensor once, got {pairs!s:.80}")
        canonical = tuple((name, float(factor)) for name, factor in pairs)
        # Frozen, but still being made: a whole number and its float must be one recipe.
        object.__setattr__(recipe, "lr_factors", canonical)

    @staticmethod
    def validate_names(recipe: Any, layout: Layout) -> None:
        entries(layout, recipe.lr_factors)


def entries(layout: Layout, factors: Sequence[tuple[str, float]]) -> list[float]:
    """Return each entry's factor [P], 1 by default. Raise ValueError for a tensor that θ does not have."""
    # By entries: the optimiser knows θ as one vector.
    by_name = dict(factors)
    for name in by_name.keys() - set(layout.names):
        near = did_you_mean(name, layout.names)
        raise ValueError(f"lr_factors must be of tensors of θ, not {name!r:.80}; {near}")
    each = list[float]()
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        each += [by_name.get(name, 1.0)] * prod(shape)
    return each
