"""What is to be trained: configurations, their keys, and the trials that pairs are packed into."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from model import Spec, make_spec, name_of
from search.errors import UserError
from search.study import Resources, Stop, Study
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
class Fits:
    """How many trials a machine or cluster has room for at once, and whether they are on GPUs."""

    concurrent: int = 1
    on_gpu: bool = False


@dataclass(frozen=True)
class Trial:
    """What Ray Tune schedules: one spec and pairs of (configuration, seed), trained as one bank."""

    study: str
    configuration: Configuration
    seeds: tuple[Seed, ...]
    slots: int
    resources: Resources
    stop: Stop

    @cached_property
    def key(self) -> str:
        """Depends on the pairs and slots alone, so that a trial finds its bank's state again."""
        seeds = [[s.init_seed, s.data_seed] for s in self.seeds]
        return _digest([self.study, self.configuration.key, seeds, self.slots])

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
            "slots": self.slots,
            "resources": self.resources.model_dump(),
            "stop": self.stop.model_dump(),
        }
        (folder / TRIAL_FILE).write_text(json.dumps(about, indent=2))

    @classmethod
    def read(cls, folder: Path) -> Trial:
        about = json.loads((folder / TRIAL_FILE).read_text())
        (recipe,) = about["recipes"].values()  # several configurations of one spec may share a trial one day
        configuration = Configuration(make_spec(**about["spec"]), Recipe(**recipe))
        seeds = tuple(Seed(*numbers) for _, *numbers in about["pairs"])
        resources, stop = Resources(**about["resources"]), Stop(**about["stop"])
        return cls(about["study"], configuration, seeds, about["slots"], resources, stop)


def trial_size(study: Study, seeds: int, fits: Fits) -> tuple[int, int]:
    """Pairs of a trial and slots of its bank: a round spread over its share of the trials that fit at once.

    The share depends on the file and the machine alone, so that a study that goes on cuts as it did before.
    """
    slots, most = study.resources.room(fits.on_gpu)
    share = max(1, fits.concurrent // study.planned)
    size = min(most, -(-seeds // share))
    return size, min(slots, size)


def pack(
    study: Study,
    configuration: Configuration,
    seeds: Sequence[Seed],
    fits: Fits,
    ended: Collection[Seed] = (),
) -> list[Trial]:
    """A round of a configuration as trials with equal slots.

    The whole round is cut before the seeds that have ended are left out: so after an interruption the trials
    that are left have the pairs and slots, and with them the keys and bank states, that they had.
    """
    size, slots = trial_size(study, len(seeds), fits)
    chunks = [seeds[i : i + size] for i in range(0, len(seeds), size)]
    left = [tuple(s for s in chunk if s not in ended) for chunk in chunks]
    return [Trial(study.name, configuration, c, slots, study.resources, study.stop) for c in left if c]


def placement(resources: Resources, available: dict[str, float]) -> tuple[dict[str, float], Fits]:
    """What Ray reserves for a trial, and what fits. Raises UserError if nothing does."""
    gpus = available.get("GPU", 0)
    gpu = float(gpus > 0) if resources.gpu == "auto" else float(resources.gpu)
    for name, wanted, there in (("cpu", resources.cpu, available.get("CPU", 0)), ("gpu", gpu, gpus)):
        if wanted > there:
            raise UserError(f"resources.{name}: a trial asks for {wanted:g}, there are {there:g}")
    most = available.get("CPU", 0) // resources.cpu
    return {"cpu": resources.cpu, "gpu": gpu}, Fits(int(min(most, gpus // gpu) if gpu else most), gpu > 0)


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
