"""Restarts and recycling, for a seed that has not reached a threshold by a step.

A restart draws another vector, and the seed begins anew. It is one seed and one run with one budget: steps of
earlier tries count. A try sees the schedules and the problems of its own age, from step 0 on, so the last one
may end before its schedules do. The vector of each try depends on spec, recipe and `init_seed` alone.

Recycling gives new weights to unused hidden units. A unit where its activation is nearly flat stays there, for
next to no gradient reaches it. After Sokar et al. 2023 (The Dormant Neuron Phenomenon), who draw such units
again. Here a probe of the seed decides, and the family changes its units (`Spec.recycled`). The rest of θ, the
step and the data go on. It depends on θ alone, and happens at evaluations.

Axes: N pair, L seed that was just evaluated.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from model.fields import option
from trainer.fields import Group, dependent_option
from trainer.recipe.starts import hashed_seed
from trainer.recipe.thresholds import THRESHOLDS, check_thresholds, parse_thresholds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from model.spec import Spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Restarts(Group):
    again_at: int = option(
        0,
        "age at which a seed that has not got where again_unless says begins anew; 0 is off",
        unit="steps",
        ge=0,
    )
    again_unless: tuple[tuple[Any, ...], ...] = dependent_option(
        "again_at",
        (),
        f"{THRESHOLDS}: a seed that reaches any of them goes on",
        unit="name, number",
    )
    again_most: int = dependent_option("again_at", 1, "how often at most", unit="times", ge=1)

    @staticmethod
    def validate(recipe: Any) -> None:
        object.__setattr__(
            recipe,
            "again_unless",
            parse_thresholds("again_unless", recipe.again_unless),
        )
        if not recipe.again_at:
            return
        if not recipe.again_unless:
            raise ValueError(f"again_at={recipe.again_at} needs again_unless")
        if recipe.again_at % recipe.eval_every:
            raise ValueError(f"eval_every must divide again_at, got {recipe.eval_every} and {recipe.again_at}")
        if recipe.again_at * recipe.again_most >= recipe.steps:
            tries = f"{recipe.again_most} times {recipe.again_at} of {recipe.steps}"
            raise ValueError(f"again_at must leave steps for the last try, got {tries}")
        if recipe.ramp:
            raise ValueError("again_at does not go with ramp")


def check_restarts(spec: Spec, recipe: Restarts, has_start: bool) -> None:
    """Raise ValueError unless a spec has the probes that a recipe names, and the seed draws its θ."""
    check_thresholds("again_unless", recipe.again_unless, spec.probes())
    if recipe.again_at and has_start:
        raise ValueError("again_at needs vectors that are drawn, and this seed's start is given")


def is_restart_due(limits: Mapping[str, Tensor], pair_L: Tensor, age_L: Tensor, before_L: Tensor) -> Tensor:
    """Mark the seeds [L] that begin again at this evaluation, unless they have reached `again_unless`.

    limits: the recipes' numbers [N]. pair_L: each seed's pair. age_L: steps of this try. before_L: steps of
    earlier tries.
    """
    at_L = limits["again_at"][pair_L]
    most_L = limits["again_most"][pair_L]
    return (at_L > 0) & (age_L == at_L) & (before_L < at_L * most_L)


def restart_seed(init_seed: int, tries: int) -> int:
    """Return the number that draws a seed's vector after `tries` earlier tries."""
    # The first try has the vector that the seed has without restarts.
    return init_seed if tries == 0 else hashed_seed(f"again {init_seed} {tries}")


SOKAR = "after Sokar et al. 2023, section 4"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recycle(Group):
    recycle_every: int = option(
        0,
        "distance of recycling: hidden units that have no use get another; 0 is off",
        unit="steps",
        ge=0,
        source=SOKAR,
    )
    recycle_from: int = dependent_option("recycle_every", 4_000, "where it begins", unit="steps", ge=1, source=SOKAR)
    recycle_until: int = dependent_option("recycle_every", 16_000, "none after", unit="steps", ge=1, source=SOKAR)
    recycle_unless: tuple[tuple[Any, ...], ...] = dependent_option(
        "recycle_every",
        (),
        f"{THRESHOLDS}: a seed that reaches any of them is left alone",
        unit="name, number",
        source=SOKAR,
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        thresholds = parse_thresholds("recycle_unless", recipe.recycle_unless)
        object.__setattr__(recipe, "recycle_unless", thresholds)
        if not recipe.recycle_every:
            return
        if not recipe.recycle_unless:
            raise ValueError(f"recycle_every={recipe.recycle_every} needs recycle_unless")
        for name in ("recycle_every", "recycle_from"):
            if (length := getattr(recipe, name)) % recipe.eval_every:
                raise ValueError(f"eval_every must divide {name}, got {recipe.eval_every} and {length}")


def check_recycle(spec: Spec, recipe: Any) -> None:
    """Raise ValueError unless a spec has units to recycle, and a recipe steps for it, no ramp and known probes."""
    if recipe.recycle_every and spec.recycled() is None:
        raise ValueError("recycle_every needs a model with the probe `switches` and two hidden units")
    # Probes see θ with the ties in it, and units are changed in θ without them.
    if recipe.recycle_every and recipe.ramp:
        raise ValueError("recycle_every does not go with ramp")
    first, last = recipe.recycle_from, recipe.recycle_until
    if recipe.recycle_every and last < first:
        raise ValueError(f"recycle_until must not be before recycle_from, got {last} and {first}")
    check_thresholds("recycle_unless", recipe.recycle_unless, spec.probes())


def is_recycling_due(limits: Mapping[str, Tensor], pair_L: Tensor, age_L: Tensor) -> Tensor:
    """Mark the seeds [L] whose units are recycled at this evaluation, unless they have reached `recycle_unless`.

    limits: the recipes' numbers [N]. pair_L: each seed's pair. age_L: steps of this try.
    """
    # Pairs of one bank may differ in these numbers, so that each has its own turn.
    every_L = limits["recycle_every"][pair_L]
    since_L = age_L - limits["recycle_from"][pair_L]
    is_on_time_L = (since_L >= 0) & (age_L <= limits["recycle_until"][pair_L])
    is_turn_L = since_L % every_L.clamp(min=1) == 0
    return (every_L > 0) & is_on_time_L & is_turn_L
