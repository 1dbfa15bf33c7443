"""Rules that end a seed before its budget: the rule for hopeless seeds, and a study's own screens."""

from collections.abc import Iterable
from itertools import pairwise
from math import inf
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from model import Spec, preset_name
from model.fields import did_you_mean
from search.study.space import Strict, error_at, refuse
from trainer import Recipe
from trainer.recipe.screen import BEST, Rung

BY_PAIR, BY_SEED = "pairs", "seeds"
"""Draws of the spared tenth (search/run/spared.py)."""
Bounds = float | tuple[float, float]
"""The least value, or the least and the greatest."""


class Screen(Strict):
    """A rung: at step `at` a seed ends that reaches none of the values in `keep`."""

    at: int = Field(ge=1, description="when a seed is looked at, at the next evaluation; unit: steps")
    keep: dict[str, Bounds] = Field(
        description="what keeps a seed, any of: exact or token (best so far) or a probe, at least so high or "
        "from .. to; nothing: none but those that are spared"
    )

    @field_validator("keep", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        """Return lists of two as tuples: YAML has no tuples."""
        if not isinstance(value, dict):
            return value
        return {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}

    @model_validator(mode="after")
    def _meaningful(self) -> Self:
        for name, low, high in self.rung.keep:
            refuse(
                (low > high, f"keep.{name} must rise, got {low:g} to {high:g}"),
                (name in BEST and not 0 <= low <= 1, f"keep.{name} must be from 0 to 1, got {low:g}"),
            )
        return self

    @property
    def rung(self) -> Rung:
        """The rung in the trainer's form: names with lowest and highest values."""
        return Rung(self.at, tuple((k, *(v if isinstance(v, tuple) else (v, inf))) for k, v in self.keep.items()))


class Stop(Strict):
    """Rules that end a seed before its budget. Each spares a random tenth."""

    hopeless: bool = Field(
        True, description="give up seeds that the rule calls hopeless, a random tenth of them spared"
    )
    screen: list[Screen] = Field(
        default_factory=list,
        max_length=20,
        description="rungs, one or a list: seeds that show too little end there, a random tenth spared",
    )
    spare: Literal["pairs", "seeds"] | None = Field(
        None,
        description="how the spared tenth is drawn. pairs: of ten pairs of configuration and seed one, as in a search "
        "if unset. seeds: of ten one for all configurations, as in a list if unset",
    )

    @field_validator("screen", mode="before")
    @classmethod
    def _one_or_more(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for i, (rung, following) in enumerate(pairwise(self.screen), start=1):
            if following.at <= rung.at:
                late = f"must be later than the rung before, got {following.at} after {rung.at}"
                raise ValueError(f"screen.{i}.at {late}")
        return self

    @property
    def rungs(self) -> tuple[Rung, ...]:
        return tuple(screen.rung for screen in self.screen)

    def check(self, spec: Spec, recipe: Recipe, path: str = "stop.screen") -> None:
        """Raise ValueError at the key path of a rung that reads what a configuration lacks."""
        for i, screen in enumerate(self.screen):
            here, last = path if len(self.screen) == 1 else f"{path}.{i}", recipe.steps - recipe.eval_every
            late = f"must be at most the evaluation before the last ({last}), got {screen.at}"
            early = f"must be at the ramp's end ({recipe.counts_from}) or later for {' and '.join(BEST)}"
            unread = screen.at < recipe.counts_from and not screen.keep.keys().isdisjoint(BEST)
            refuse(
                (screen.at > last, f"{here}.at: {late}"),
                (unread, f"{here}.at: {early}, got {screen.at}"),
            )
            check_names(spec, screen.keep, f"{here}.keep")


def check_names(spec: Spec, names: Iterable[str], path: str) -> None:
    """Raise ValueError for a name that is neither a measure nor a probe of a spec."""
    readable = [*BEST, *spec.probes()]
    for name in names:
        if name not in readable:
            model = preset_name(spec)
            of = f" of {model}" if spec.probes() else f" ({model} has no probes)"
            raise error_at(f"{path}.{name}", f"unknown probe{of}; {did_you_mean(name, readable)}")
