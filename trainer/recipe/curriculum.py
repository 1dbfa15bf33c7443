"""The problems of a seed: lengths and share of carry problems over time, own errors again."""

from __future__ import annotations

import dataclasses
from typing import Any

from model.fields import LARGEST, option
from trainer.fields import PAPER, Group

LENGTHS = ("curriculum", "mixed_lengths")
"""Fields that say how long numbers are; the others are about carries."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curriculum(Group):
    curriculum: tuple[tuple[int, ...], ...] = option(
        ((3, 2_000), (6, 5_000)),
        "pairs [digits, steps]: largest operand length and for how long; then 10 digits",
        unit="digits, steps",
        source=PAPER,
        max_length=4,
        entries="stages",
    )
    mixed_lengths: float = option(
        0.0,
        "share of ordinary problems whose length is drawn too, uniformly up to the curriculum's",
        unit="fraction",
        ge=0,
        le=1,
        source="456p report, training code",
    )
    carry_mix: float = option(
        0.8,
        "share of carry problems before the fade",
        unit="fraction",
        ge=0,
        le=1,
        source=PAPER,
    )
    fade_start: int = option(15_000, "where the share begins to fall linearly", unit="steps", ge=0)
    fade_end: int = option(45_000, "where it reaches 0", unit="steps", ge=0, source=PAPER)
    fade_token: float = option(
        1.0,
        "token accuracy above which the share falls linearly; 1 is off",
        unit="fraction",
        ge=0,
        le=1,
        source="57p paper, section 3.2",
    )
    fade_token_end: float = option(1.0, "token accuracy where it is 0", unit="fraction", ge=0, le=1)

    @staticmethod
    def validate(recipe: Any) -> None:
        if recipe.fade_end < recipe.fade_start:
            actual = f"{recipe.fade_end} < {recipe.fade_start}"
            raise ValueError(f"fade_end must be fade_start or more, got {actual}")
        if recipe.fade_token_end < recipe.fade_token:
            actual = f"{recipe.fade_token_end} < {recipe.fade_token}"
            raise ValueError(f"fade_token_end must be fade_token or more, got {actual}")
        for stage in recipe.curriculum:
            valid = isinstance(stage, tuple) and [type(n) for n in stage] == [int, int]  # true is an int too
            if not valid or not 1 <= stage[0] <= 10 or not 0 <= stage[1] <= LARGEST:
                raise ValueError(f"curriculum must be pairs [digits 1 to 10, steps 0 to {LARGEST}], got {stage!s:.80}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation(Group):
    targeted: float = option(
        0.0,
        "share of a step's problems that are of the seed's own errors at the last evaluation, searched in "
        "a separate stream drawn by the curriculum of that step; 0 is off",
        unit="fraction",
        ge=0,
        le=1,
        switch=True,
        source="AdderBoard: tbukic and vijec fine-tune on error pairs; the stream is ours",
    )
