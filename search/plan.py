"""What is to be trained: configurations, their keys, and the trials that pairs are packed into."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from model import Spec, make_spec, name_of
from search.errors import UserError
from search.study import Resources
from trainer import Pair, Recipe, Seed
from trainer.programs import missing_for_compilation

TRIAL_FILE = "trial.json"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _choices(instance: Any) -> dict[str, Any]:
    """The fields that differ from their defaults: a field that is added later changes no old key."""
    fields = dataclasses.fields(instance)
    return {f.name: v for f in fields if (v := getattr(instance, f.name)) != f.default}


@dataclass(frozen=True)
class Configuration:
    """A spec and a recipe. Equal ones have equal keys, in every study and home."""

    spec: Spec
    recipe: Recipe

    @cached_property
    def key(self) -> str:
        return _digest([self.spec.family, _choices(self.spec), _choices(self.recipe)])

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
        key = self.configuration.key
        about = {
            "study": self.study,
            "spec": self.configuration.spec.as_dict(),
            "recipes": {key: self.configuration.recipe.as_dict()},
            "pairs": [[key, s.init_seed, s.data_seed] for s in self.seeds],
            "resources": self.resources.model_dump(),
        }
        (folder / TRIAL_FILE).write_text(json.dumps(about, indent=2))

    @classmethod
    def read(cls, folder: Path) -> Trial:
        about = json.loads((folder / TRIAL_FILE).read_text())
        (recipe,) = about["recipes"].values()  # several configurations of one spec may share a trial one day
        configuration = Configuration(make_spec(**about["spec"]), Recipe(**recipe))
        seeds = tuple(Seed(*numbers) for _, *numbers in about["pairs"])
        return cls(about["study"], configuration, seeds, Resources(**about["resources"]))


def pack(
    study: str, configuration: Configuration, seeds: Sequence[Seed], resources: Resources
) -> list[Trial]:
    """Seeds of one configuration as trials of at most `seeds_per_trial`."""
    size = resources.seeds_per_trial
    return [
        Trial(study, configuration, tuple(seeds[i : i + size]), resources) for i in range(0, len(seeds), size)
    ]


def placement(resources: Resources, available: dict[str, float]) -> tuple[dict[str, float], int]:
    """What Ray reserves for a trial, and how many trials fit. Raises UserError if none does."""
    gpus = available.get("GPU", 0)
    gpu = float(gpus > 0) if resources.gpu == "auto" else float(resources.gpu)
    for name, wanted, there in (("cpu", resources.cpu, available.get("CPU", 0)), ("gpu", gpu, gpus)):
        if wanted > there:
            raise UserError(f"resources.{name}: a trial asks for {wanted:g}, there are {there:g}")
    fits = available.get("CPU", 0) // resources.cpu
    return {"cpu": resources.cpu, "gpu": gpu}, int(min(fits, gpus // gpu) if gpu else fits)


def here() -> dict[str, float]:
    """What this machine has, by Ray's names."""
    return {"CPU": os.cpu_count() or 1, "GPU": torch.cuda.device_count()}


def check_resources(resources: Resources) -> None:
    """Raise UserError at once if this machine cannot place a trial; a cluster is asked later."""
    if os.environ.get("RAY_ADDRESS"):
        return
    placement(resources, here())
    if resources.compiled and (missing := missing_for_compilation()):
        raise UserError(
            f"resources.compiled: compiling needs {missing}, which is not here; "
            "install it (apt-get install g++ python3-dev), or set compiled: false (many times slower)"
        )
