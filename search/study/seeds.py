"""The seeds of a study file: a range, a list, or every crossing of initial values with data."""

from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, model_validator

from search.study.space import LARGEST_SEED, Strict, error_at
from trainer import Seed

MOST_SEEDS = 200_000  # all are listed, and a study file may be anybody's

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
    def _countable(self) -> Self:
        if (pairs := len(self.init) * len(self.data)) > MOST_SEEDS:
            raise ValueError(f"at most {MOST_SEEDS} pairs of init and data, got {pairs}")
        return self


def _form(value: Any) -> str | None:
    """Return the tag of the form in which seeds are written."""
    if isinstance(value, dict):
        return "cross" if {"init", "data"} & value.keys() else "range"
    # A file has a mapping or a list; what Python code builds may have the section itself.
    return {SeedCross: "cross", SeedRange: "range", list: "list"}.get(type(value))  # type: ignore[call-overload]


Seeds = Annotated[
    Annotated[SeedRange, Tag("range")] | Annotated[SeedCross, Tag("cross")] | Annotated[list[SeedNumber], Tag("list")],
    Discriminator(_form),
]


def seed_list(seeds: SeedRange | SeedCross | list[int]) -> list[Seed]:
    """Return the seeds in the order of the file."""
    if isinstance(seeds, SeedCross):
        return [Seed(init, data) for init in seeds.init for data in seeds.data]
    numbers = seeds if isinstance(seeds, list) else range(seeds.first, seeds.first + seeds.count)
    return [Seed.of(n) for n in numbers]


class Until(Strict):
    """The end of a study: further rounds of its seeds, or further proposals, until enough have grokked."""

    grokked: int | None = Field(
        None,
        ge=1,
        description="end once this many seeds grokked: the whole search, or each listed configuration; unit: seeds",
    )
    max_seeds: int | None = Field(
        None, ge=1, le=MOST_SEEDS, description="while fewer grokked, go on in rounds up to this; unit: seeds"
    )


class Allocation(Strict):
    """More seeds, `seeds.count` at a time, for configurations whose verdict is open or that may be the best.

    A verdict is open while the interval of the grok rate has `threshold` in it.
    """

    threshold: float = Field(0.1, gt=0, lt=1, description="the grok rate that is asked about")
    most: int = Field(128, ge=1, le=MOST_SEEDS, description="of one configuration; unit: seeds")
    budget: int | None = Field(None, ge=1, description="of the whole study, the confirmation not counted; unit: seeds")


class Confirm(Strict):
    """At the end the best configurations once more, on seeds that nothing was chosen by."""

    configurations: int = Field(3, ge=1, le=1_000, description="how many, the best by what the search seeks")
    seeds: Seeds = Field(description="as the study's seeds; none of those")
    hopeless: bool = Field(False, description="give up hopeless seeds here too; unless set, all train to their end")


def check_numbers(seeds: list[Seed], path: str) -> None:
    """Raise ValueError, at a key path, for seeds that are none, listed twice or too large."""
    if not seeds:
        raise error_at(path, "give at least one seed")
    if len(set(seeds)) < len(seeds):
        raise error_at(path, "a seed is listed twice")
    if max(max(s.init_seed, s.data_seed) for s in seeds) > LARGEST_SEED:
        raise error_at(path, f"seeds go up to {LARGEST_SEED}")
