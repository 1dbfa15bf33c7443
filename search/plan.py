"""What is to be trained: configurations, their keys, and the trials that pairs are packed into."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from model import Spec, make_spec, name_of
from search.study import Resources
from trainer import Pair, Recipe, Seed


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Configuration:
    """A spec and a recipe. Equal ones have equal keys, in every study and home."""

    spec: Spec
    recipe: Recipe

    @cached_property
    def key(self) -> str:
        return _digest([self.spec.as_dict(), self.recipe.as_dict()])

    @property
    def title(self) -> str:
        """Short and unique: the spec's name and the beginning of the key."""
        return f"{name_of(self.spec)} {self.key[:6]}"

    def as_params(self) -> dict[str, Any]:
        """Every constraint, size and recipe field, flat, as MLflow's parameters."""
        return {
            "rung": name_of(self.spec),
            "params": self.spec.params,
            **{f"model.{k}": v for k, v in self.spec.as_dict().items()},
            **{f"recipe.{k}": v for k, v in self.recipe.as_dict().items()},
        }


@dataclass(frozen=True)
class Trial:
    """What Ray Tune schedules: one spec and pairs of (configuration, seed), trained as one bank."""

    study: str
    configuration: Configuration
    seeds: tuple[Seed, ...]
    resources: Resources

    @cached_property
    def key(self) -> str:
        """Depends on the pairs and slots alone, so that a trial finds its bank's state again."""
        seeds = [[s.init_seed, s.data_seed] for s in self.seeds]
        return _digest([self.study, self.configuration.key, seeds, self.resources.seeds_per_trial])

    @property
    def pairs(self) -> list[Pair]:
        return [Pair(self.configuration.recipe, seed) for seed in self.seeds]

    def write(self, folder: Path) -> None:
        """Leave the trial where its worker finds it."""
        folder.mkdir(parents=True, exist_ok=True)
        recipe = self.configuration.recipe.as_dict()
        about = {
            "study": self.study,
            "spec": self.configuration.spec.as_dict(),
            "recipe": recipe,
            "seeds": [[s.init_seed, s.data_seed] for s in self.seeds],
            "resources": self.resources.model_dump(),
        }
        (folder / "trial.json").write_text(json.dumps(about, indent=2))

    @classmethod
    def read(cls, folder: Path) -> Trial:
        about = json.loads((folder / "trial.json").read_text())
        configuration = Configuration(make_spec(**about["spec"]), Recipe(**about["recipe"]))
        seeds = tuple(Seed(*pair) for pair in about["seeds"])
        return cls(about["study"], configuration, seeds, Resources(**about["resources"]))


def pack(
    study: str, configuration: Configuration, seeds: Sequence[Seed], resources: Resources
) -> list[Trial]:
    """Seeds of one configuration as trials of at most `seeds_per_trial`."""
    size = resources.seeds_per_trial
    return [
        Trial(study, configuration, tuple(seeds[i : i + size]), resources) for i in range(0, len(seeds), size)
    ]
