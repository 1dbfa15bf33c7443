"""The table of constraints as a study: `scales` are its columns, `constraints` its rows.

A cell compares two arms on the same seeds: a base, which is the scale's model with its recipe, and the base with one
constraint toggled. A scale's model is the preset of its name, or one of its own, such as a module. A constraint that
touches what the recipe reads is compared with a base of its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import Field

from model import Spec, preset
from search.kinds.listed import MOST_TOGGLES, check_count
from search.stats.intervals import LEVEL, power
from search.study.described import aligned
from search.study.kind import Asked, Kind
from search.study.reading import Data
from search.study.seeds import MOST_SEEDS, SeedRange, seed_list
from search.study.space import Strict, error_at, errors_at, refuse
from search.study.spelling import UNSAVED, asked_spec, model_options, recipe_of, toggled, validated_pair
from search.study.trial import Configuration
from trainer import Recipe, Seed

MOST_BASES = 64
OTHER_LISTS = ("model", "configurations", "toggle", "combine", "space", "start")
POWER = 0.8
"""Power that a plan should have."""
ABOUT = (
    "core-hours: at most, every seed training its whole budget. rate: planned, of the base.",
    "fatal, halves: power where one arm has the planned rate and the other 0, or half of it; McNemar's exact test,",
    "two-sided, independent arms, 5 % by Holm's worst case in the scale (in brackets: 5 % for the cell alone).",
)
HEAD = ("scale", "base", "cells", "arms", "seeds each", "to train", "core-hours", "rate", "fatal", "halves")


class Base(Strict):
    """A further base of a scale: the preset with another recipe, for constraints that the scale's does not fit."""

    constraints: list[str] = Field(min_length=1, description="those that are compared with this base")
    recipe: Data = Field(min_length=1, description="fields over those of the scale's recipe")
    rate: float | None = Field(None, gt=0, le=1, description="its planned grok rate; unset: the scale's")


class Scale(Strict):
    """A column: a model, trained as it is and with each of the constraints toggled."""

    model: str | Data | None = Field(None, description="its model; unset: the preset that the scale is named")
    recipe: Data = Field(default_factory=dict, description="fields over those of the study's recipe")
    seeds: int | None = Field(
        None, ge=1, le=MOST_SEEDS, description="of each arm, from seeds.first on; unset: seeds.count"
    )
    rate: float = Field(gt=0, le=1, description="planned grok rate of its base, for the power of a plan")
    bases: dict[str, Base] = Field(
        default_factory=dict, max_length=MOST_BASES, description="further bases, by any name"
    )


@dataclass(frozen=True)
class Cell:
    """A constraint at a scale: two arms with the same seeds that differ in that constraint alone."""

    scale: str
    constraint: str
    base_name: str
    """Empty for the scale's own base."""
    base: Asked
    toggled: Asked
    seeds: int
    rate: float
    """Planned grok rate of the base."""


@dataclass
class Design:
    """Cells of a study, scale by scale."""

    cells: list[Cell] = field(default_factory=list)
    seeds: dict[Asked, int] = field(default_factory=dict)
    """Number of seeds of each configuration: if two scales have it, the greater."""
    skipped: dict[str, dict[str, str]] = field(default_factory=dict)
    """Reasons why scales cannot toggle a constraint, by constraint and scale."""

    @property
    def bases(self) -> dict[Asked, str]:
        """Each base with the scale to which it belongs."""
        return {cell.base: cell.scale for cell in self.cells}


class Keys(Strict):
    scales: dict[str, Scale] = Field(
        default_factory=dict,
        max_length=MOST_TOGGLES,
        description="models by name, each with its recipe and seeds: the columns of the table of constraints",
    )
    constraints: list[str] = Field(
        default_factory=list,
        max_length=MOST_TOGGLES,
        description="the rows of that table, toggled at each scale: tie_vo, qk_dim=4",
    )


class Scales(Kind):
    """Constraints at scales."""

    asked_by = ("scales", "constraints")
    keys = Keys
    has_unequal_seeds = True

    def __init__(self, study: Any):
        super().__init__(study)
        self.scales: dict[str, Scale] = study.scales
        self.toggled = study.constraints

    def check_alone(self) -> None:
        study = self.study
        if bool(self.scales) != bool(self.toggled):
            name, missing = ("scales", "constraints") if self.scales else ("constraints", "scales")
            raise error_at(missing, f"missing, and the study has {name}")

        lists = "does not go with scales: they say what is trained"
        gives_more = "does not go with scales: all arms of a scale have the same seeds"
        counted = next((name for name, scale in self.scales.items() if scale.seeds), None)
        is_uncounted = counted and not isinstance(study.seeds, SeedRange)
        refuse(
            *((getattr(study, name), f"{name}: {lists}") for name in OTHER_LISTS),
            *((getattr(study, name), f"{name}: {gives_more}") for name in ("allocation", "confirm")),
            (study.until.grokked, f"until.grokked: {gives_more}"),
            (is_uncounted, f"scales.{counted}.seeds: counts from seeds.first, and the study's seeds have none"),
        )

    def check(self) -> None:
        check_count(len(self.scales), self.toggled, "constraints")

    @cached_property
    def design(self) -> Design:
        """The cells of the study's scales. Raises ValueError at a key path."""
        for i, constraint in enumerate(self.toggled):
            if constraint in self.toggled[:i]:
                raise error_at(f"constraints.{i}", f"{constraint} is listed twice")

        design = Design()
        count = len(seed_list(self.study.seeds))
        for name, scale in self.scales.items():
            spec = self._model(name, scale)
            partners = self._partners(design, name, spec)
            bases = self._bases(design, name, spec)
            seeds = scale.seeds or count
            for constraint, partner in partners.items():
                label, base = bases[constraint]
                arm = _fitting(partner, base[1], constraint, f"scales.{name}", label)
                rate = (scale.bases[label].rate if label else None) or scale.rate
                design.cells.append(Cell(name, constraint, label, base, arm, seeds, rate))
                for pair in (base, arm):
                    design.seeds[pair] = max(seeds, design.seeds.get(pair, 0))
        self._check_cells(design)
        return design

    def _check_cells(self, design: Design) -> None:
        """Raise ValueError at the key path of a constraint, or a scale, that has no cell at all."""
        for i, constraint in enumerate(self.toggled):
            reasons = design.skipped.get(constraint, {})
            if len(reasons) < len(self.scales):
                continue
            scale, reason = next(iter(reasons.items()))
            if not reason.startswith("unknown constraint"):
                reason = f"cannot be toggled at any scale; at {scale}: {reason}"
            raise error_at(f"constraints.{i}", reason)
        idle = self.scales.keys() - {cell.scale for cell in design.cells}
        if idle:
            raise error_at(f"scales.{min(idle)}", "none of the constraints can be toggled here")

    def _model(self, name: str, scale: Scale) -> Spec:
        """Return the model of a scale, which is asked the study's task."""
        path = f"scales.{name}"
        if scale.model is None:
            with errors_at(path):
                return asked_spec(preset(name).as_dict(), path, self.study.task)
        if not name.isprintable():
            raise error_at("scales", f"must be named by a line of text, got {name!r:.80}")
        path = f"{path}.model"
        return asked_spec(model_options(scale.model, path), path, self.study.task)

    def _partners(self, design: Design, scale: str, spec: Spec) -> dict[str, Spec]:
        """Return the spec with each constraint toggled, noting those that this scale skips."""
        partners = {}
        for i, constraint in enumerate(self.toggled):
            path = f"constraints.{i}"
            partner, reason = None, UNSAVED
            try:
                partner = toggled(spec, constraint, path)
            except ValueError as error:
                reason = str(error).removeprefix(path).lstrip(".: ")
            if partner is None:
                design.skipped.setdefault(constraint, {})[scale] = reason
            else:
                partners[constraint] = partner
        return partners

    def _bases(self, design: Design, name: str, spec: Spec) -> dict[str, tuple[str, Asked]]:
        """Return the base of each constraint at a scale, and its name: empty for the scale's own."""
        path, scale, recipe = f"scales.{name}", self.scales[name], self.study.recipe
        fields = recipe_of(scale.recipe, f"{path}.recipe", recipe)
        own = validated_pair(spec, fields, f"{path}.recipe")
        taken = {own}
        bases = dict.fromkeys(self.toggled, ("", own))
        for label, base in scale.bases.items():
            if not label:
                raise error_at(f"{path}.bases", "each needs a name")
            where = f"{path}.bases.{label}"
            fields = recipe_of(base.recipe, f"{where}.recipe", recipe | scale.recipe)
            further = validated_pair(spec, fields, f"{where}.recipe")
            if further in taken:
                raise error_at(f"{where}.recipe", "trains what another base of this scale does")
            taken.add(further)
            for i, constraint in enumerate(base.constraints):
                at = f"{where}.constraints.{i}: {constraint}"
                reason = design.skipped.get(constraint, {}).get(name)
                before, _ = bases.get(constraint, ("", own))
                refuse(
                    (constraint not in self.toggled, f"{at} is none of the study's constraints"),
                    (reason, f"{at} cannot be toggled at {name}: {reason}"),
                    (before, f"{at} has a base already, {before!r}"),
                )
                bases[constraint] = label, further
        return bases

    @cached_property
    def spelled_out(self) -> list[Asked]:
        return list(self.design.seeds)

    @property
    def planned_seeds(self) -> int:
        return sum(self.design.seeds.values())

    @cached_property
    def first_seeds(self) -> list[Seed]:
        """The seeds of the arms that have most."""
        seeds = self.study.seeds
        if not isinstance(seeds, SeedRange):
            return seed_list(seeds)
        most = max(self.design.seeds.values())
        return seed_list(seeds.model_copy(update={"count": most}))

    @cached_property
    def scale_names(self) -> dict[str, str]:
        return {Configuration(*pair).key: name for pair, name in self.design.bases.items()}

    def seeds_of(self, configuration: Asked) -> list[Seed]:
        # An arm with fewer seeds has the first of the others', so that all are compared seed by seed.
        count = self.design.seeds[configuration]
        return self.first_seeds[:count]

    def plan_design(
        self, to_train: Mapping[Configuration, int], core_hours: Mapping[Configuration, float]
    ) -> list[str]:
        """Return lines: a row for each base of each scale, then what its columns say and what is missing.

        to_train, core_hours: of each configuration. One that two scales have is an arm of the first.
        """
        cells_of = Counter(cell.scale for cell in self.design.cells)
        rows: list[Sequence[object]] = [HEAD]
        weak: list[str] = []
        counted: set[Configuration] = set()
        for cells in _by_base(self.design):
            first = cells[0]
            # Of all tests of a scale Holm asks this of the first, and less of each other.
            level = LEVEL / cells_of[first.scale]
            names = ", ".join(cell.constraint for cell in cells)
            arms = {Configuration(*pair) for cell in cells for pair in (cell.base, cell.toggled)}
            arms -= counted  # what two scales share is trained, and paid for, once
            counted |= arms

            fatal = _powers(first, 0.0, level)
            halves = _powers(first, first.rate / 2, level)
            if halves[0] < POWER:
                weak.append(f"{first.scale} {names}: {halves[0]:.0%}")
            rows.append((
                first.scale,
                f"{first.base_name}: {names}" if first.base_name else "",
                len(cells),
                len(arms),
                first.seeds,
                f"{sum(to_train[arm] for arm in arms):,}",
                f"{sum(core_hours[arm] for arm in arms):.2f}",
                first.rate,
                _spelt(fatal),
                _spelt(halves),
            ))  # fmt: skip

        seeds = sum(to_train.values())
        hours = f"{sum(core_hours.values()):.2f}"
        rows.append(("all", "", cells_of.total(), len(counted), "", f"{seeds:,}", hours, "", "", ""))
        numbers = range(2, len(HEAD))
        lines = ["", *aligned(rows, right=numbers), "", *ABOUT]
        for constraint, reasons in self.design.skipped.items():
            lines += [f"{constraint} is not toggled at {scale}: {reason}" for scale, reason in reasons.items()]
        if weak:
            lines.append(f"power against halves below {POWER:.0%} by Holm: {'; '.join(weak)}")
        return [f"  {line}".rstrip() for line in lines]


def _fitting(partner: Spec, recipe: Recipe, constraint: str, path: str, label: str) -> Asked:
    """Return an arm. Raise ValueError, naming the way out, if its base's recipe does not fit it."""
    try:
        return validated_pair(partner, recipe, f"with {constraint} toggled")
    except ValueError as error:
        if label:
            raise error_at(f"{path}.bases.{label}.recipe", str(error)) from None
        raise error_at(path, f"{error}; give {constraint} a base of its own in {path}.bases") from None


def _powers(cell: Cell, other: float, level: float) -> list[float]:
    """Return the chances to tell a cell's base from an arm of another rate, by Holm's worst case and alone."""
    by_holm = power(cell.seeds, cell.rate, other, level)
    alone = power(cell.seeds, cell.rate, other, LEVEL)
    return [by_holm, alone]


def _by_base(design: Design) -> list[list[Cell]]:
    """Return the cells by scale and base, of each scale its own base first."""
    by_base: dict[tuple[str, str], list[Cell]] = {}
    for cell in design.cells:
        by_base.setdefault((cell.scale, ""), [])
        by_base.setdefault((cell.scale, cell.base_name), []).append(cell)
    return [cells for cells in by_base.values() if cells]


def _spelt(powers: list[float]) -> str:
    by_holm, alone = (f"{power:.0%}" for power in powers)
    return f"{by_holm} ({alone})"
