"""Configurations with their keys, and trials, which go to workers as files."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from model import Spec, make_spec, preset_name
from model.spec import choices
from model.tied import Tied
from search.study.resources import Resources
from search.study.start import InitialTheta, digest_of
from search.study.stopping import Stop
from trainer import Pair, Recipe, Seed
from trainer.files import durable
from trainer.recipe.teacher import shown

TRIAL_FILE = "trial.json"
LONGEST_PARAM = 5_000  # characters; MLflow takes 6,000
MAIN = (
    "rung", "params", "model.family", "model.ties", "recipe.steps", "recipe.batch", "recipe.lr",
    "recipe.weight_decay", "recipe.curriculum", "recipe.start",
)  # fmt: skip
"""Fields of a configuration that MLflow's page of it always shows."""
CARRY_MIX = ("recipe.carry_mix", "recipe.fade_start", "recipe.fade_end")


Spared = frozenset[tuple[str, Seed]]
"""Keys of configurations, with seeds that no stopping rule ends."""
Program = tuple[Any, ...]
"""Everything that a compiled program depends on. Configurations with equal programs can share a bank."""


@dataclass(frozen=True)
class Configuration:
    """A spec, a recipe, and the θ that seeds start from unless at random.

    Equal configurations have equal keys, in every study and home.
    """

    spec: Spec
    recipe: Recipe
    start: InitialTheta | None = None

    @cached_property
    def key(self) -> str:
        origin = [self.start.digest] if self.start else []
        return digest_of([self.spec.family, choices(self.spec), choices(self.recipe), *origin])

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def trained(self) -> Spec:
        """The spec that a bank trains: of a tied spec with a ramp the base, which moves into the ties."""
        return self.spec.base if isinstance(self.spec, Tied) and self.recipe.ramp else self.spec

    @property
    def program(self) -> Program:
        """The program that trains it. Configurations with equal programs can share a bank."""
        return self.trained, *self.pair(Seed.of(0)).program()

    def pair(self, seed: Seed) -> Pair:
        """Return the pair that a bank trains for a seed."""
        start = self.start.theta_of(seed) if self.start else None
        ties = self.spec.ties if isinstance(self.spec, Tied) and self.recipe.ramp else None
        return Pair(self.recipe, seed, start, ties)

    @property
    def title(self) -> str:
        """The spec's name and the beginning of the key."""
        return f"{preset_name(self.spec)} {self.key[:6]}"

    def main_params(self, varied: Iterable[str]) -> dict[str, Any]:
        """Return of `as_params` what a study varies, and what of the recipe is not its default."""
        carries = () if self.recipe.carry_shares else CARRY_MIX
        names = {*MAIN, *carries, *varied, *(f"recipe.{name}" for name in choices(self.recipe))}
        values = {name: value for name, value in self.as_params().items() if name in names}
        return {"preset": values.pop("rung"), **values}

    def as_params(self) -> dict[str, Any]:
        """Return every constraint, size and recipe field, flat."""
        return {
            "rung": preset_name(self.spec),
            "params": self.spec.params,
            **{f"model.{k}": v for k, v in _fields(self.spec).items()},
            **{f"recipe.{k}": v for k, v in shown(self.recipe.as_dict()).items()},
            **({"recipe.start": self.start.title} if self.start else {}),
        }


def _fields(spec: Spec) -> dict[str, Any]:
    """Return a spec's fields as single values; of a tied one its base's, and the ties in words."""
    if not isinstance(spec, Tied):
        return spec.as_dict()
    return {**spec.base.as_dict(), "family": spec.family, "ties": ", ".join(spec.spelt())[:LONGEST_PARAM]}


@dataclass(frozen=True)
class Trial:
    """Pairs of (configuration, seed) of one program, trained in one bank and recorded together."""

    study: str
    work: tuple[tuple[Configuration, Seed], ...]
    slots: int
    resources: Resources
    stop: Stop
    confirmation: bool = False
    """True if its seeds are those of the confirmation."""
    spared: Spared | None = None
    """Its pairs that no stopping rule ends; None if the numbers of their seeds say so."""

    @cached_property
    def key(self) -> str:
        """Digest of pairs and slots alone, so that a trial finds its bank's state again."""
        return digest_of([self.study, [[c.key, s.init_seed, s.data_seed] for c, s in self.work], self.slots])

    @property
    def spec(self) -> Spec:
        """The spec that its bank trains."""
        return self.work[0][0].trained

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """Its configurations, each once, in order."""
        runs = groupby((configuration for configuration, _ in self.work), id)
        return tuple(dict.fromkeys(next(same) for _, same in runs))

    @property
    def pairs(self) -> list[Pair]:
        """The pairs in a bank's form, with the rungs that screen them (none for a confirmation)."""
        rungs = () if self.confirmation else self.stop.rungs
        return [replace(self._pair(*pair), rungs=rungs) for pair in self.work]

    def _pair(self, configuration: Configuration, seed: Seed) -> Pair:
        pair = configuration.pair(seed)
        return pair if self.spared is None else replace(pair, spared=(configuration.key, seed) in self.spared)

    def part(self, configuration: Configuration) -> Self:
        """Return the part of the trial that is one configuration's."""
        return replace(self, work=tuple(pair for pair in self.work if pair[0] == configuration))

    def write(self, folder: Path, driver: str = "") -> None:
        """Write the trial into `folder`, where its worker reads it. driver: which one it belongs to now."""
        durable.make_folder(folder)
        durable.write(folder / TRIAL_FILE, self.as_json(driver))

    @staticmethod
    def read_driver(folder: Path) -> str:
        """Return the driver that a trial in `folder` belongs to; nothing where that is not said."""
        return str(json.loads((folder / TRIAL_FILE).read_bytes()).get("driver", ""))

    def as_json(self, driver: str = "") -> bytes:
        about = {
            **({"driver": driver} if driver else {}),
            "study": self.study,
            "spec": self.spec.as_dict(),
            "recipes": {c.key: c.recipe.as_dict() for c in self.configurations},
            **self._special(),
            "pairs": [[c.key, s.init_seed, s.data_seed] for c, s in self.work],
            "slots": self.slots,
            "resources": self.resources.model_dump(),
            "stop": self.stop.model_dump(),
            "confirmation": self.confirmation,
            "spared": None if self.spared is None else sorted([k, s.init_seed, s.data_seed] for k, s in self.spared),
        }
        return json.dumps(about, indent=2).encode()

    def _special(self) -> dict[str, Any]:
        """Return the specs that differ from the bank's, and the starts of configurations, by their keys."""
        specs = {c.key: c.spec.as_dict() for c in self.configurations if c.spec != self.spec}
        starts = {c.start.digest: c.start.as_dict() for c in self.configurations if c.start}
        digests = {c.key: c.start.digest for c in self.configurations if c.start}
        return {"specs": specs, "starts": starts, "begun": digests} if specs or starts else {}

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the trial that `write` left in `folder`."""
        about = json.loads((folder / TRIAL_FILE).read_bytes())
        spec = make_spec(**about["spec"])
        specs = {key: make_spec(**fields) for key, fields in about.get("specs", {}).items()}
        starts = {digest: InitialTheta.of(start) for digest, start in about.get("starts", {}).items()}
        digests = about.get("begun", {})
        configurations = {
            key: Configuration(specs.get(key, spec), Recipe.from_record(recipe), starts.get(digests.get(key)))
            for key, recipe in about["recipes"].items()
        }
        work = tuple((configurations[key], Seed(*numbers)) for key, *numbers in about["pairs"])
        resources, stop = Resources(**about["resources"]), Stop.recorded(about["stop"])
        spared = about.get("spared")
        return cls(
            about["study"], work, about["slots"], resources, stop, about.get("confirmation", False),
            None if spared is None else frozenset((key, Seed(*numbers)) for key, *numbers in spared),
        )  # fmt: skip
