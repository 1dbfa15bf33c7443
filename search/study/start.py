"""The `start` of a study file, and the θ that it resolves to, with its lineage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from model import Spec, make_spec, preset_name
from model.spec import known_spec
from model.tied import Tied, describe_new, free, ties_of
from search.errors import printable, reraise_as
from search.study.reading import Data, Plain
from search.study.space import Strict, refuse
from trainer import Seed

if TYPE_CHECKING:
    from trainer.checkpoints.checkpoint import Checkpoint

ANY = ""
"""Name for a θ that serves every seed."""
MOST_STEPS, MOST_TEXTS = 200, 10_000
"""Of a lineage, and of a list in a step of it: the last, the first."""
STEP: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("model", "study", "configuration", "trained", "theta_sha256", "seed", "run"), (str,)),
    **dict.fromkeys(("params", "tried"), (int,)),
    **dict.fromkeys(("tied", "how", "then"), (list,)),
    "exact": (int, float),
    "spec": (dict,),
}
"""Types of what a step of a lineage says (search/study/ancestors.py)."""


class StartSpec(Strict):
    """The source of θ at step 0: seeds of a study, or a checkpoint."""

    study: str | None = Field(None, description="a recorded study of this home")
    best: int | None = Field(
        None, ge=1, le=1_000, description="so many of its best seeds, each with all the seeds; 1; unit: seeds"
    )
    seed: int | str | None = Field(None, description="this seed of it: 800, or 777.804")
    each: bool = Field(False, description="each seed from the parent study's seed of the same number")
    configuration: str | None = Field(None, description="of this configuration of it; its key, or how it begins")
    checkpoint: str | None = Field(None, description="a checkpoint's folder, from where the command is typed")
    grokked: bool = Field(True, description="refuse a θ that has not grokked")

    @model_validator(mode="after")
    def _one_kind(self) -> StartSpec:
        sources = sum(source is not None for source in (self.study, self.checkpoint))
        choices = sum((self.best is not None, self.seed is not None, self.each))
        is_mixed = choices > 1 or (self.study is None and (choices or self.configuration))
        refuse(
            (sources != 1, "give exactly one of study, checkpoint"),
            (is_mixed, "a study goes with one of best, seed, each; a checkpoint with none"),
        )
        if self.seed is not None:
            Seed.named(str(self.seed))  # raises ValueError
        return self

    @property
    def count(self) -> int:
        """Number of θ that the file asks for."""
        return self.best or 1


def digest_of(values: Any) -> str:
    """Return the name of plain values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def read_start(start: StartSpec) -> Checkpoint:
    """Return the checkpoint that a study starts from. Raises UserError."""
    from search.study.checkpoints import load_grokked

    with reraise_as("start.checkpoint"):
        return load_grokked(Path(start.checkpoint or ""), start.grokked)


@dataclass(frozen=True)
class InitialTheta:
    """θ at step 0, of `spec`: one for all seeds (named ANY), one per seed, or none (the spec's initial values).

    lineage: its ancestors as plain values, oldest first; the last is the parent (search/study/ancestors.py).
    number: its place among those that the study file asks for.
    """

    spec: Spec
    thetas: Mapping[str, tuple[float, ...]] = field(compare=False, hash=False, repr=False)
    lineage: tuple[Plain, ...] = field(default=(), compare=False, hash=False, repr=False)
    number: int = field(default=0, compare=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", digest_of([self.spec.as_dict(), sorted(self.thetas.items())]))

    @property
    def title(self) -> str:
        """The parent in a few words, or the spec where there is none."""
        if self.lineage:
            return describe_step(self.lineage[-1])
        return f"{preset_name(self.spec)} at random"

    def theta_of(self, seed: Seed) -> tuple[float, ...] | None:
        """Return θ [P] at step 0 of a seed; None for the spec's initial values."""
        return self.thetas.get(str(seed), self.thetas.get(ANY))

    def as_dict(self) -> Data:
        """Return it as plain values, from which `of` makes it again."""
        return {
            "spec": self.spec.as_dict(),
            "thetas": {name: list(theta) for name, theta in self.thetas.items()},
            "lineage": list(self.lineage),
            "number": self.number,
        }

    @classmethod
    def of(cls, about: Plain) -> InitialTheta:
        thetas = {name: tuple(map(float, theta)) for name, theta in about["thetas"].items()}
        lineage = tuple(read_lineage(about["lineage"]))
        return cls(make_spec(**about["spec"]), thetas, lineage, about.get("number", 0))


def read_lineage(values: Any) -> list[dict[str, Any]]:
    """Return the steps of a lineage that anyone may have written, without what no step can say."""
    steps = values[-MOST_STEPS:] if isinstance(values, list | tuple) else []
    return [read_step(step) for step in steps if isinstance(step, Mapping)]


def read_step(values: Plain) -> dict[str, Any]:
    """Return what a step may say of these values: each of its type, and each text in one printable line."""
    step = {}
    for name, value in values.items():
        if type(value) in STEP.get(name, ()):  # not isinstance: True is no number of parameters
            step[name] = read_texts(value) if type(value) is list else _line(value)
    return step


def read_texts(values: Any) -> list[str]:
    """Return the texts of a list, each in one printable line; of anything else none."""
    if not isinstance(values, list | tuple):
        return []
    texts = [value for value in values if isinstance(value, str)]
    return list(map(_line, texts[:MOST_TEXTS]))


def _line(value: Any) -> Any:
    return printable(" ".join(value.split())) if isinstance(value, str) else value


def describe_step(step: Plain) -> str:
    """Describe a step of a lineage: `54p-rate, seed 800 of 54p`."""
    seed = f"seed {step['seed']} of " if step.get("seed") else ""
    text = f"{seed}{step.get('model', '')}".strip()
    return f"{step['study']}, {text}" if step.get("study") else text


def ties_beyond_parent(parent: Plain | None, spec: Spec) -> list[str]:
    """Return the ties that a spec has beyond those of its parent (a spec as plain values)."""
    if not isinstance(spec, Tied):
        return []
    before = known_spec(parent)
    ties = free(spec.base.params)
    if before:
        base, ties_before = ties_of(before)
        if base == spec.base:  # else numbers of one base mean nothing in the other
            ties = ties_before
    return describe_new(spec.base, ties, spec.ties)
