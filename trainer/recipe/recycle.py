"""Recycling: unused hidden units of a seed that has not reached a threshold get new weights.

A unit where its activation is nearly flat stays there, for next to no gradient reaches it. After Sokar et al.
2023 (The Dormant Neuron Phenomenon), who draw such units again. Here a probe of the seed decides, and the
family changes its units (`Spec.recycled`). The rest of θ, the step and the data go on. It depends on θ alone,
and happens at evaluations.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model.fields import option
from trainer.fields import Group, dependent_option
from trainer.recipe.screen import THRESHOLDS, check_thresholds, parse_thresholds, reaches_any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from model.spec import Spec

SOURCE = "after Sokar et al. 2023, section 4"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recycle(Group):
    """Fields of recycling."""

    recycle_every: int = option(
        0, "distance of recycling: hidden units that have no use get another; 0 is off", unit="steps", ge=0,
        source=SOURCE,
    )  # fmt: skip
    recycle_from: int = dependent_option(
        "recycle_every", 4_000, "where it begins", unit="steps", ge=1, source=SOURCE
    )
    recycle_until: int = dependent_option(
        "recycle_every", 16_000, "none after", unit="steps", ge=1, source=SOURCE
    )
    recycle_unless: tuple[tuple[Any, ...], ...] = dependent_option(
        "recycle_every", (), f"{THRESHOLDS}: a seed that reaches any of them is left alone", unit="name, number",
        source=SOURCE,
    )  # fmt: skip

    @staticmethod
    def validate(recipe: Any) -> None:
        object.__setattr__(
            recipe, "recycle_unless", parse_thresholds("recycle_unless", recipe.recycle_unless)
        )
        if not recipe.recycle_every:
            return
        if not recipe.recycle_unless:
            raise ValueError(f"recycle_every={recipe.recycle_every} needs recycle_unless")
        for name in ("recycle_every", "recycle_from"):
            if (length := getattr(recipe, name)) % recipe.eval_every:
                raise ValueError(f"eval_every must divide {name}, got {recipe.eval_every} and {length}")


def check_recycle(spec: Spec, recipe: Recycle) -> None:
    """Raise ValueError unless a spec has units to recycle, and the probes that a recipe names."""
    if recipe.recycle_every and spec.recycled() is None:
        raise ValueError("recycle_every needs a model that has the probe switches")
    check_thresholds("recycle_unless", recipe.recycle_unless, spec.probes())


def is_recycling_due(recipe: Recycle, step: int, values: Mapping[str, float]) -> bool:
    """True if a seed's units are to be recycled at an evaluation. values: its measures and probes, by name."""
    since = step - recipe.recycle_from
    if not recipe.recycle_every or since < 0 or step > recipe.recycle_until or since % recipe.recycle_every:
        return False
    return not reaches_any(recipe.recycle_unless, values)
