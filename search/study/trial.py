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

from model import Spec, make_spec, name_of
from search.study.schema import Resources
from search.study.stopping import Stop
from trainer import Pair, Recipe, Seed, durable

TRIAL_FILE = "trial.json"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _choices(instance: Any) -> dict[str, Any]:
    """The fields that differ from their defaults: a field that is added later changes no old key."""
    fields = dataclasses.fields(instance)
    chosen = {f.name: v for f in fields if (v := getattr(instance, f.name)) != f.default}
    return {n: [v.family, _choices(v)] if isinstance(v, Spec) else v for n, v in chosen.items()}


@dataclass(frozen=True)
class Configuration:
    """A spec and a recipe. Equal ones have equal keys, in every study and home."""

    spec: Spec
    recipe: Recipe

    @cached_property
    def key(self) -> str:
        return _digest([self.spec.family, _choices(self.spec), _choices(self.recipe)])

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def parts(self) -> tuple[Spec, Recipe]:
        return self.spec, self.recipe

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
            return [Pair(configuration.recipe, seed) for configuration, seed in self.work]
        rungs, size = self.stop.rungs, self.stop.group if self.stop.ranks else 1
        begun: dict[Configuration, list[Seed]] = {}
        pairs = []
        for configuration, seed in self.work:
            mine = begun.setdefault(configuration, [])
            mine.append(seed)
            first = mine[(len(mine) - 1) // size * size] if self.stop.ranks else None
            pairs.append(Pair(configuration.recipe, seed, rungs=rungs, group=first))
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
            "pairs": [[c.key, s.init_seed, s.data_seed] for c, s in self.work],
            "slots": self.slots,
            "resources": self.resources.model_dump(),
            "stop": self.stop.model_dump(),
            "confirmation": self.confirmation,
        }
        return json.dumps(about, indent=2).encode()

    @classmethod
    def read(cls, folder: Path) -> Trial:
        about = json.loads((folder / TRIAL_FILE).read_text())
        spec = make_spec(**about["spec"])
        known = {key: Configuration(spec, Recipe(**recipe)) for key, recipe in about["recipes"].items()}
        work = tuple((known[key], Seed(*numbers)) for key, *numbers in about["pairs"])
        resources, stop = Resources(**about["resources"]), Stop(**about["stop"])
        confirmation = about.get("confirmation", False)
        return cls(about["study"], work, about["slots"], resources, stop, confirmation)
