"""The seeds of a study file: a range, a list, or every crossing of initial values with data."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, model_validator

from search.study.space import LARGEST_SEED, Strict
from trainer import Seed

MOST_SEEDS = 200_000

SeedNumber = Annotated[int, Field(ge=0, le=LARGEST_SEED)]


class SeedRange(Strict):
    """Consecutive seeds; one number sets both the initial values and the data."""

    first: SeedNumber = Field(1, description="the first seed's number")
    count: int = Field(ge=1, le=MOST_SEEDS, description="how many; unit: seeds")


class SeedCross(Strict):
    """Every crossing of initial values with data: what is luck made of?"""

    init: list[SeedNumber] = Field(min_length=1, description="seeds of the initial values")
    data: list[SeedNumber] = Field(min_length=1, description="seeds of the data")

    @model_validator(mode="after")
    def _countable(self) -> SeedCross:
        if (pairs := len(self.init) * len(self.data)) > MOST_SEEDS:
            raise ValueError(f"at most {MOST_SEEDS} pairs of init and data, got {pairs}")
        return self


def _form(value: Any) -> str | None:
    """Which of the ways to write seeds is meant."""
    if isinstance(value, dict):
        return "cross" if {"init", "data"} & value.keys() else "range"
    return {SeedCross: "cross", SeedRange: "range", list: "list"}.get(type(value))  # type: ignore[call-overload]


Seeds = Annotated[
    Annotated[SeedRange, Tag("range")]
    | Annotated[SeedCross, Tag("cross")]
    | Annotated[list[SeedNumber], Tag("list")],
    Discriminator(_form),
]


def numbered(seeds: SeedRange | SeedCross | list[int]) -> list[Seed]:
    """The seeds as they are written, in order."""
    if isinstance(seeds, SeedCross):
        return [Seed(init, data) for init in seeds.init for data in seeds.data]
    numbers = seeds if isinstance(seeds, list) else range(seeds.first, seeds.first + seeds.count)
    return [Seed.of(n) for n in numbers]
