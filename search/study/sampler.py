"""The sampler of a search and its objectives."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from model import Spec
from search.study.space import LARGEST_SEED, MOST_POINTS, Space, Strict, error_at, grid_size
from search.study.stopping import Bounds, check_bounds, check_names, keep_of, paired
from trainer import Recipe
from trainer.recipe.screen import Keep, describe

PROPOSED = 16  # configurations, where the file does not say
PARAMS, GROK_RATE, PER_MILLION = "params", "grok_rate", "per_million"


class Share(Strict):
    """The share of seeds that reach any of this at a step: an objective known long before seeds end."""

    share: dict[str, Bounds] = Field(
        min_length=1, description="exact or token (best so far) or a probe: at least so high, or from .. to"
    )
    when: int = Field(ge=1, description="at the first evaluation from here on; unit: steps")

    @field_validator("share", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        return paired(value)

    @model_validator(mode="after")
    def _meaningful(self) -> Share:
        check_bounds(self.share, "share")
        return self

    @property
    def keep(self) -> Keep:
        """The condition in the trainer's form."""
        return keep_of(self.share)

    def __str__(self) -> str:
        return f"{describe(self.keep)} at {self.when}"

    def check(self, spec: Spec, recipe: Recipe) -> None:
        """Raise ValueError where a configuration has nothing to read at that step."""
        if self.when > recipe.steps:
            raise error_at(
                "sampler.objectives.when", f"must be at most the budget ({recipe.steps}), got {self.when}"
            )
        check_names(spec, self.share, "sampler.objectives.share")


class Sampler(Strict):
    """Optuna's sampler. Used where the study has a search space."""

    name: Literal["tpe", "nsga2", "qmc", "random", "grid"] = Field(
        "tpe", description="tpe, nsga2, qmc, random (Optuna's samplers) or grid"
    )
    configurations: int | None = Field(
        None, ge=1, description="how many are proposed; 16, or the whole grid; unit: configurations"
    )
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="of the sampler's own generator")
    objectives: list[Literal["grok_rate", "per_million", "params"] | Share] | None = Field(
        None,
        description="what is sought: grok_rate, per_million (grokked seeds for each million seed-steps) or a "
        "share up, beside it params down; grok_rate alone, unless named",
    )

    @field_validator("objectives")
    @classmethod
    def _one_rate(cls, value: list[Any] | None) -> list[Any] | None:
        if value is not None and (len([v for v in value if v != PARAMS]) != 1 or value.count(PARAMS) > 1):
            rule = "one of grok_rate, per_million and a share, beside it at most params"
            raise ValueError(f"must have {rule}, got {_spelt(value)}")
        return value

    @property
    def sought(self) -> str:
        """Name of the objective that is maximised."""
        return next((str(v) for v in self.objectives or () if v != PARAMS), GROK_RATE)

    @property
    def share(self) -> Share | None:
        """The objective that is a share of seeds, if there is one."""
        return next((v for v in self.objectives or () if isinstance(v, Share)), None)

    def planned(self, space: Space) -> int:
        """Return the number of proposals. Raise ValueError at the key path of a field that makes no grid."""
        if self.name != "grid":
            return self.configurations or PROPOSED
        for path, distribution in space.items():
            if not distribution.values():
                raise error_at(f"space.{path}", "a grid needs a step where a float is searched")
        return min(grid_size(space), self.configurations or MOST_POINTS)

    @property
    def directions(self) -> dict[str, str]:
        """The objectives by name, in order, each as Optuna names its direction."""
        names = _spelt(self.objectives or [GROK_RATE])
        return {name: "minimize" if name == PARAMS else "maximize" for name in names}

    @property
    def described(self) -> str:
        """The objectives in words."""
        return " and ".join(f"{name} ({direction})" for name, direction in self.directions.items())


def _spelt(objectives: list[Any]) -> list[str]:
    return [str(v) for v in objectives]
