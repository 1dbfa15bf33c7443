"""The budget of a seed: its steps, its problems per step, and its evaluations."""

from __future__ import annotations

import dataclasses
from typing import Any

from model.fields import option
from trainer.fields import PAPER, Group

MOST_STEPS = 1 << 24  # the engine counts them in float32
MOST_EVALUATIONS = 10_000  # a seed's curve has one row per evaluation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget(Group):
    steps: int = option(60_000, "the budget", unit="steps", ge=1, le=MOST_STEPS, source=PAPER)
    batch: int = option(
        256,
        "problems in one step",
        unit="problems per seed",
        ge=1,
        le=1 << 16,
        shapes=True,
    )
    eval_every: int = option(
        1_000,
        "distance of evaluations; divides the budget",
        unit="steps",
        ge=1,
        shapes=True,
    )
    hold: int = option(
        10_000,
        "how long a grokked seed must stay perfect to have held",
        unit="steps",
        ge=0,
    )
    grok_at: float = option(
        1.0,
        "exact match on the selection problems from which a seed has grokked",
        unit="fraction",
        ge=0.5,
        le=1,
        source="Power et al., arXiv 2201.02177: 0.99 of the held-out rows",
    )
    finish_above: float = option(
        1.0,
        "best exact match from which a seed whose budget is spent is finished by curvature; 1 is off",
        unit="fraction",
        ge=0,
        le=1,
        source="docs/compress.md, finishing",
    )

    @staticmethod
    def validate(recipe: Any) -> None:
        if recipe.finish_above < 1 and recipe.freeze:
            raise ValueError("finish_above excludes freeze: curvature moves every entry")
        if recipe.steps % recipe.eval_every:
            raise ValueError(f"eval_every must divide steps, got {recipe.eval_every} and {recipe.steps}")
        if recipe.steps > MOST_EVALUATIONS * recipe.eval_every:
            least = f"at most {MOST_EVALUATIONS} evaluations, got {recipe.steps // recipe.eval_every}"
            raise ValueError(f"eval_every must give {least}")
