"""What is to be trained: configurations with their keys, and trials, which go to workers as files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from model import Spec, make_spec, preset_name
from model.tied import Tied
from search.study.schema import Resources
from search.study.start import InitialTheta, trained_spec
from search.study.stopping import Stop
from trainer import Pair, Recipe, Seed
from trainer.files import durable
from trainer.recipe.teacher import shown

TRIAL_FILE = "trial.json"
LONGEST_PARAM = 5_000  # characters; MLflow takes 6,000


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _choices(instance: Any) -> dict[str, Any]:
    """The fields that differ from their defaults: a field that is added later changes no old key."""
    fields = dataclasses.fields(instance)
    chosen = {f.name: v for f in fields if (v := getattr(instance, f.name)) != f.default}
    return {n: [v.family, _choices(v)] if isinstance(v, Spec) else v for n, v in chosen.items()}


Program = tuple[Any, ...]
"""What a compiled program depends on, and with it who shares a bank."""


@dataclass(frozen=True)
class Configuration:
    """A spec and a recipe, and where seeds start unless that is at random. Equal ones have equal keys, in
    every study and home.
    """

    spec: Spec
    recipe: Recipe
    start: InitialTheta | None = None

    @cached_property
    def key(self) -> str:
        origin = [self.start.digest] if self.start else []
        return _digest([self.spec.family, _choices(self.spec), _choices(self.recipe), *origin])

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def trained(self) -> Spec:
        """What a bank trains."""
        return trained_spec(self.spec, self.recipe)

    @property
    def initial_spec(self) -> Spec:
        """Whose θ seeds have at step 0: that of a wider spec until the recipe's fold."""
        return self.start.spec if self.start and self.recipe.fold_step else self.trained

    @property
    def program(self) -> Program:
        """Configurations with the same can share a bank."""
        return self.initial_spec, self.trained, *self.pair(Seed.of(0)).program()

    def pair(self, seed: Seed) -> Pair:
        """What a bank has to train of a seed."""
        start = self.start.theta_of(seed) if self.start else None
        ties = self.spec.ties if isinstance(self.spec, Tied) and self.recipe.ramp else None
        return Pair(self.recipe, seed, start, ties)

    @property
    def title(self) -> str:
        """Short and unique: the spec's name and the beginning of the key."""
        return f"{preset_name(self.spec)} {self.key[:6]}"

    def as_params(self) -> dict[str, Any]:
        """Every constraint, size and recipe field, flat, as MLflow's parameters."""
        return {
            "rung": preset_name(self.spec),
            "params": self.spec.params,
            **{f"model.{k}": v for k, v in _fields(self.spec).items()},
            **{f"recipe.{k}": v for k, v in shown(self.recipe.as_dict()).items()},
            **({"recipe.start": self.start.title} if self.start else {}),
        }


def _fields(spec: Spec) -> dict[str, Any]:
    """A spec's fields as single values; of a tied one its base's, and the ties in words."""
    if not isinstance(spec, Tied):
        return spec.as_dict()
    said = ", ".join(spec.spelt())
    return {**spec.base.as_dict(), "family": spec.family, "ties": said[:LONGEST_PARAM]}


@dataclass(frozen=True)
class Trial:
    """What Ray Tune schedules: pairs of (configuration, seed) of one program, trained as one bank."""

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
        """What its bank trains."""
        return self.work[0][0].trained

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """Each once, in order."""
        runs = groupby((configuration for configuration, _ in self.work), id)
        return tuple(dict.fromkeys(next(same) for _, same in runs))

    @property
    def pairs(self) -> list[Pair]:
        """As a bank takes them, with the rungs at which they are screened: the confirmation's have none.

        Of a configuration each `stop.group` seeds, in order, are ranked together; a trial has whole groups.
        """
        if self.confirmation or not self.stop.rungs:
            return [configuration.pair(seed) for configuration, seed in self.work]
        rungs, size = self.stop.rungs, self.stop.group if self.stop.ranks else 1
        begun: dict[Configuration, list[Seed]] = {}
        pairs = []
        for configuration, seed in self.work:
            mine = begun.setdefault(configuration, [])
            mine.append(seed)
            first = mine[(len(mine) - 1) // size * size] if self.stop.ranks else None
            pairs.append(replace(configuration.pair(seed), rungs=rungs, group=first))
        return pairs

    def part(self, configuration: Configuration) -> Trial:
        """What of the trial is one configuration's."""
        return replace(self, work=tuple(pair for pair in self.work if pair[0] == configuration))

    def write(self, folder: Path) -> None:
        """Leave the trial where its worker finds it."""
        durable.make_folder(folder)
        durable.write(folder / TRIAL_FILE, self.as_json())

    def as_json(self) -> bytes:
        """What `read` reads."""
        about = {
            "study": self.study,
            "spec": self.spec.as_dict(),
            "recipes": {c.key: c.recipe.as_dict() for c in self.configurations},
            **self._special(),
            "pairs": [[c.key, s.init_seed, s.data_seed] for c, s in self.work],
            "slots": self.slots,
            "resources": self.resources.model_dump(),
            "stop": self.stop.model_dump(),
            "confirmation": self.confirmation,
        }
        return json.dumps(about, indent=2).encode()

    def _special(self) -> dict[str, Any]:
        """The specs that are not the bank's, and where configurations start, by their keys."""
        specs = {c.key: c.spec.as_dict() for c in self.configurations if c.spec != self.spec}
        starts = {c.start.digest: c.start.as_dict() for c in self.configurations if c.start}
        begun = {c.key: c.start.digest for c in self.configurations if c.start}
        return {"specs": specs, "starts": starts, "begun": begun} if specs or starts else {}

    @classmethod
    def read(cls, folder: Path) -> Trial:
        about = json.loads((folder / TRIAL_FILE).read_text())
        spec = make_spec(**about["spec"])
        specs = {key: make_spec(**its) for key, its in about.get("specs", {}).items()}
        starts = {digest: InitialTheta.of(its) for digest, its in about.get("starts", {}).items()}
        begun = about.get("begun", {})
        known = {
            key: Configuration(specs.get(key, spec), Recipe(**recipe), starts.get(begun.get(key)))
            for key, recipe in about["recipes"].items()
        }
        work = tuple((known[key], Seed(*numbers)) for key, *numbers in about["pairs"])
        resources, stop = Resources(**about["resources"]), Stop(**about["stop"])
        confirmation = about.get("confirmation", False)
        return cls(about["study"], work, about["slots"], resources, stop, confirmation)
