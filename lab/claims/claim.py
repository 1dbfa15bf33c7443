"""A claim as data (claims.yaml): its source, and the contrast of the study that decides it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import inf
from typing import Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from lab.claims.trained import MEASURES
from lab.plans import load_plan
from search.errors import UserError
from search.kinds.scales import Scales
from search.study.space import Strict
from search.study.trial import Configuration

Kind = Literal[
    "possible",
    "impossible",
    "better",
    "no-better",
    "harmless",
    "rate",
    "unrelated",
    "found",
    "not-found",
    "always",
]
OF_SEEDS = ("possible", "impossible", "better", "no-better", "harmless", "rate", "unrelated")
KINDS: dict[Kind, str] = {
    "possible": "it groks: holds once a seed did, does not where none did and the arm without it did (5 %)",
    "impossible": "it never groks: the other way round",
    "better": "more seeds grok with it: holds, or does not, where the paired test says so (5 %); it does not "
    "hold either where the interval ends below 5 points",
    "no-better": "no more seeds grok with it: the other way round",
    "harmless": "it costs nothing: holds where the interval leaves at least half of the rate without it, and "
    "does not where the paired test says so (5 %)",
    "rate": "a share of the seeds: holds where the interval lies between the claim's bounds, does not where "
    "it lies outside",
    "unrelated": "other seeds grok with it than without: does not hold where more do with both than chance "
    "would have (Fisher's exact test, 5 %)",
    "found": "a checkpoint grokked from scratch: holds where there is one",
    "not-found": "none does: does not hold where there is one",
    "always": "a measure of all such checkpoints of some rungs lies between bounds: does not hold where one "
    "is outside, and holds where the exact interval of the share that do is above one half",
}  # fmt: skip
TABLE = "constraints"
"""The study of the table of constraints."""
PAPERS = ("57p paper", "Reflection", "456p report")


class Claim(Strict):
    """One claim. Its arms are named configurations of its study, as `arm` reads them."""

    id: str = Field(pattern=r"^[a-z0-9-]+$", description="a short name")
    paper: Literal["57p paper", "Reflection", "456p report"]
    section: str
    says: str = Field(description="in our own words")
    kind: Kind | None = Field(None, description="what would decide it")
    study: str | None = Field(None, description="the study whose seeds decide it")
    with_: str | None = Field(None, alias="with", description="the arm that the claim is about")
    without: str | None = Field(None, description="the arm that it is compared with, on the same seeds")
    cell: str | None = Field(
        None, pattern=r"^\S+ at \S+$", description="a cell of the table of constraints, whose seeds decide it too"
    )
    reaches: float | None = Field(None, gt=0, lt=1, description="count seeds whose best token accuracy does")
    held: bool = Field(False, description="of the seeds that grokked early enough to show it, count those that held")
    within: int | None = Field(
        None, gt=0, description="of the seeds that grokked, count those whose exact match came from below "
        "10 % to 90 % in so many steps: a table's column `rise`"
    )  # fmt: skip
    at_least: float | None = Field(None, description="of a rate or a measure")
    at_most: float | None = Field(None, description="of a rate or a measure")
    rungs: list[str] = Field([], description="whose checkpoints decide it")
    measure: str | None = Field(None, description="of a checkpoint's θ (lab/claims/trained.py)")
    open: str = Field("", description="what is missing to decide it, where there is no study")

    @model_validator(mode="after")
    def _decidable(self) -> Claim:
        if (self.kind is None) != bool(self.open):
            raise ValueError("has a kind with its study and arms, or says with `open` what is missing")
        if self.kind in OF_SEEDS and not (self.study and self.with_):
            raise ValueError(f"{self.kind} needs study and with")
        if bool(self.rungs) != (self.kind in ("found", "not-found", "always")):
            raise ValueError("rungs are for what checkpoints decide, and that needs them")
        if (self.measure is not None) != (self.kind == "always") or self.measure not in (None, *MEASURES):
            raise ValueError(f"always, and nothing else, needs a measure: one of {', '.join(MEASURES)}")
        if self.kind in ("better", "no-better", "harmless", "unrelated") and not self.without:
            raise ValueError(f"{self.kind} needs without")
        if (self.kind in ("rate", "always")) != (self.at_least is not None or self.at_most is not None):
            raise ValueError("at_least and at_most are for rate and always, which need one")
        if (self.reaches is not None) + self.held + (self.within is not None) > 1:
            raise ValueError("one of reaches, held and within")
        return self

    @property
    def contrasts(self) -> list[Contrast]:
        """The arms of its own study, then those of its cell. Raise UserError where there is none of that name."""
        if not (self.study and self.with_):
            return []
        without = arm(self.study, self.without) if self.without else None
        own = Contrast(self.study, arm(self.study, self.with_), without)
        return [own, *([of_cell(self.cell)] if self.cell else [])]

    @property
    def bounds(self) -> tuple[float, float]:
        return -inf if self.at_least is None else self.at_least, inf if self.at_most is None else self.at_most


@dataclass(frozen=True)
class Contrast:
    """Two configurations with the same seeds of a study, or one."""

    study: str
    with_it: Configuration
    without: Configuration | None


@cache
def of_cell(name: str) -> Contrast:
    """Return the arms of a cell of the table, `CONSTRAINT at SCALE`; of both the smaller has the constraint."""
    scales = load_plan(TABLE).kind
    assert isinstance(scales, Scales)
    cells = {f"{cell.constraint} at {cell.scale}": cell for cell in scales.design.cells}
    if name not in cells:
        raise UserError(f"study {TABLE} has no cell {name!r}")
    with_it, without = sorted((cells[name].base, cells[name].toggled), key=lambda pair: pair[0].params)
    return Contrast(TABLE, Configuration(*with_it), Configuration(*without))


@cache
def claims() -> tuple[Claim, ...]:
    """Return all claims, in the papers' order."""
    text = files("lab.claims").joinpath("claims.yaml").read_text("utf-8")
    return read(text)


def read(text: str) -> tuple[Claim, ...]:
    """Parse a YAML list of claims. Raises UserError naming the claim and what is wrong."""
    parsed = []
    for entry in yaml.safe_load(text):
        try:
            parsed.append(Claim.model_validate(entry))
        except ValidationError as error:
            raise UserError(f"claim {entry.get('id')}: {error.errors()[0]['msg']}") from None
    ids = [claim.id for claim in parsed]
    if twice := [name for name in ids if ids.count(name) > 1]:
        raise UserError(f"claim {twice[0]}: there are two")
    return tuple(parsed)


@cache
def seeds_of(study: str) -> frozenset[tuple[int, int]]:
    """Return the seeds that a study's file lists, further rounds included: they were fixed before the run."""
    return frozenset((s.init_seed, s.data_seed) for round_ in load_plan(study).rounds for s in round_)


@cache
def arm(study: str, name: str) -> Configuration:
    """Return a named configuration of a study. Raises UserError where it has none of that name.

    `base` is what the file's model and recipe say, another name an entry's; `NAME toggled CONSTRAINT` is one
    of those with the constraint taken off or applied. `NAME of STUDY` is another study's.
    """
    name, _, elsewhere = name.partition(" of ")
    plan, (name, _, constraint) = load_plan(elsewhere or study), name.partition(" toggled ")
    names = {entry.name: i for i, entry in enumerate(plan.kind.entries)}
    if name == "base":
        spec, recipe = plan.base_spec, plan.base_recipe
    elif name in names:
        spec, recipe = plan.kind.spelled_out[names[name]]
    else:
        raise UserError(f"study {plan.name} has no configuration {name!r}")
    if constraint:
        field, _, value = constraint.partition("=")
        spec = spec.toggled(field, int(value) if value else True)
    return Configuration(spec, recipe)
