"""The sampler of a search and its objectives."""

from typing import Any, Literal

from pydantic import Field, field_validator

from search.study.space import LARGEST_SEED, MOST_POINTS, Space, Strict, error_at, grid_size
from search.study.warm import WarmStart

PROPOSED = 16  # configurations, where the file does not say
PARAMS, GROK_RATE, PER_MILLION = "params", "grok_rate", "per_million"


class Sampler(Strict):
    """Optuna's sampler. Used where the study has a search space."""

    name: Literal["tpe", "nsga2", "qmc", "random", "grid"] = Field(
        "tpe", description="tpe, nsga2, qmc, random (Optuna's samplers) or grid"
    )
    configurations: int | None = Field(
        None, ge=1, description="how many are proposed; 16, or the whole grid; unit: configurations"
    )
    seed: int = Field(0, ge=0, le=LARGEST_SEED, description="of the sampler's own generator")
    objectives: list[Literal["grok_rate", "per_million", "params"]] | None = Field(
        None,
        description="what is sought: grok_rate or per_million (grokked seeds for each million seed-steps) up, "
        "beside it params down; grok_rate alone, unless named",
    )
    warm_start: WarmStart | None = Field(
        None, description="trials of another search that tpe or nsga2 knows from the start; or the path of their file"
    )

    @field_validator("objectives")
    @classmethod
    def _one_rate(cls, value: list[Any] | None) -> list[Any] | None:
        if value is None:
            return value
        sizes = value.count(PARAMS)
        if len(value) - sizes != 1 or sizes > 1:
            raise ValueError(f"must have one of grok_rate and per_million, beside it at most params, got {value}")
        return value

    @property
    def sought(self) -> str:
        """Name of the objective that is maximised."""
        return next(name for name in self.directions if name != PARAMS)

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
        names: list[str] = [*self.objectives] if self.objectives else [GROK_RATE]
        return {name: "minimize" if name == PARAMS else "maximize" for name in names}

    @property
    def described(self) -> str:
        """The objectives in words."""
        return " and ".join(f"{name} ({direction})" for name, direction in self.directions.items())


def section_of(study: Any) -> Sampler:
    """Return the sampler of a study that is a search."""
    return study.sampler
