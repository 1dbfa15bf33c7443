"""What is to be trained: configurations, their keys, and the trials that pairs are packed into."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    work: tuple[tuple[Configuration, Seed], ...]
    slots: int
    resources: Resources
    stop: Stop
    confirmation: bool = False
    """Whether its seeds are those of the confirmation pass."""

    @cached_property
    def key(self) -> str:
        """Depends on the pairs and slots alone, so that a trial finds its bank's state again."""
        return _digest([self.study, [[c.key, s.init_seed, s.data_seed] for c, s in self.work], self.slots])

    @property
    def spec(self) -> Spec:
        return self.work[0][0].spec

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Each once, in order."""
        return tuple(dict.fromkeys(configuration for configuration, _ in self.work))

    @property
    def pairs(self) -> list[Pair]:
        return [Pair(configuration.recipe, seed) for configuration, seed in self.work]

    def part(self, configuration: Configuration) -> Trial:
        """What of the trial is one configuration's."""
        return replace(self, work=tuple(pair for pair in self.work if pair[0] == configuration))

    def write(self, folder: Path) -> None:
        """Leave the trial where its worker finds it."""
        folder.mkdir(parents=True, exist_ok=True)
        about = {
            "study": self.study,
            "spec": self.spec.as_dict(),
            "recipes": {c.key: c.recipe.as_dict() for c in self.configurations},
            "pairs": [[c.key, s.init_seed, s.data_seed] for c, s in self.work],
            "slots": self.slots,
            "resources": self.resources.model_dump(),
            "stop": self.stop.model_dump(),
            "confirmation": self.confirmation,
        }
        fresh = folder / (TRIAL_FILE + ".new")
        fresh.write_text(json.dumps(about, indent=2))
        fresh.replace(folder / TRIAL_FILE)

    @classmethod
    def read(cls, folder: Path) -> Trial:
        about = json.loads((folder / TRIAL_FILE).read_text())
        spec = make_spec(**about["spec"])
        known = {key: Configuration(spec, Recipe(**recipe)) for key, recipe in about["recipes"].items()}
        work = tuple((known[key], Seed(*numbers)) for key, *numbers in about["pairs"])
        resources, stop = Resources(**about["resources"]), Stop(**about["stop"])
        confirmation = about.get("confirmation", False)
        return cls(about["study"], work, about["slots"], resources, stop, confirmation)


Program = tuple[Spec, int, int]
"""What a compiled program depends on, and with it who can share a bank: spec, batch, eval_every."""


def program_of(spec: Spec, recipe: Recipe) -> Program:
    return spec, recipe.batch, recipe.eval_every


def trial_size(study: Study, program: Program, fits: Fits) -> tuple[int, int]:
    """Pairs of a trial and slots of its bank: a round spread over its share of the trials that fit at once.

    Both depend on the file and the machine alone: a seed has the same slots in every round and after every
    interruption. What a search will propose is not known, so its trials are taken for equals, with two pairs
    a slot: enough to fill the slots that fall free, few enough for the sampler to hear soon.
    """
    slots, most = study.resources.room(fits.on_gpu)
    programs = [program] * study.planned if study.space else [program_of(*c) for c in study.listed()]
    most = min(most, 2 * slots) if study.space else most
    share = max(1, fits.concurrent // len(set(programs)))
    size = min(most, -(-programs.count(program) * len(study.first_seeds()) // share))
    return size, min(slots, size)


def pack(
    study: Study, work: Sequence[tuple[Configuration, Seed]], fits: Fits, confirmation: bool = False
) -> list[Trial]:
    """Pairs as trials: those that can share a bank together, with equal slots."""
    groups: dict[Program, list[tuple[Configuration, Seed]]] = {}
    for configuration, seed in work:
        program = program_of(configuration.spec, configuration.recipe)
        groups.setdefault(program, []).append((configuration, seed))
    trials = []
    for program, pairs in groups.items():
        size, slots = trial_size(study, program, fits)
        cut = [tuple(pairs[i : i + size]) for i in range(0, len(pairs), size)]
        trials += [Trial(study.name, c, slots, study.resources, study.stop, confirmation) for c in cut]
    return trials


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
