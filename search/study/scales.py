"""The table of constraints as a study: `scales` are its columns, `constraints` its rows.

A cell compares two arms on the same seeds: a base, which is a preset with the scale's recipe, and the base with
one constraint toggled. A constraint that touches what the recipe reads is compared with a base of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from model import Spec, preset
from search.study.seeds import MOST_SEEDS, SeedRange
from search.study.space import Strict, error_at, errors_at, refuse
from search.study.spelling import constraint_of, recipe_of, toggled, validated_pair
from trainer import Recipe

Pair = tuple[Spec, Recipe]
MOST_SCALES = 64
OTHER_LISTS = ("model", "configurations", "toggle", "combine", "stages", "space", "compress", "start")


class Base(Strict):
    """A further base of a scale: the preset with another recipe, for constraints that the scale's does not fit."""

    constraints: list[str] = Field(min_length=1, description="those that are compared with this base")
    recipe: dict[str, Any] = Field(min_length=1, description="fields over those of the scale's recipe")
    rate: float | None = Field(None, gt=0, le=1, description="its planned grok rate; unset: the scale's")


class Scale(Strict):
    """A column: a preset, trained as it is and with each of the constraints toggled."""

    recipe: dict[str, Any] = Field(
        default_factory=dict, description="fields over those of the study's recipe"
    )
    seeds: int | None = Field(
        None, ge=1, le=MOST_SEEDS, description="of each arm, from seeds.first on; unset: seeds.count"
    )
    rate: float = Field(gt=0, le=1, description="planned grok rate of its base, for the power of a plan")
    bases: dict[str, Base] = Field(
        default_factory=dict, max_length=MOST_SCALES, description="further bases, by any name"
    )


@dataclass(frozen=True)
class Cell:
    """A constraint at a scale: two arms with the same seeds that differ in that constraint alone."""

    scale: str
    constraint: str
    base_name: str
    """Empty for the scale's own base."""
    base: Pair
    toggled: Pair
    seeds: int
    rate: float
    """Planned grok rate of the base."""


@dataclass
class Design:
    """Cells and bases of a study, scale by scale."""

    cells: list[Cell] = field(default_factory=list)
    bases: list[Pair] = field(default_factory=list)
    seeds: dict[Pair, int] = field(default_factory=dict)
    """Number of seeds of each configuration: if two scales have it, the greater."""
    skipped: dict[str, dict[str, str]] = field(default_factory=dict)
    """Reasons why scales cannot toggle a constraint, by constraint and scale."""

    def add(self, pair: Pair, seeds: int) -> None:
        """Ask for seeds of a configuration."""
        self.seeds[pair] = max(seeds, self.seeds.get(pair, 0))


def check_scales(study: Any) -> None:
    """Raise ValueError where a study with scales lacks constraints, or asks for other seeds than a table's."""
    if bool(study.scales) != bool(study.constraints):
        name, missing = ("scales", "constraints") if study.scales else ("constraints", "scales")
        raise error_at(missing, f"missing, and the study has {name}")
    if not study.scales:
        return
    apart, alike = "does not go with scales", "all arms of a scale have the same seeds"
    counted = next((n for n, scale in study.scales.items() if scale.seeds), None)
    is_uncounted = counted and not isinstance(study.seeds, SeedRange)
    refuse(
        *((getattr(study, name), f"{name}: {apart}: they say what is trained") for name in OTHER_LISTS),
        *((getattr(study, name), f"{name}: {apart}: {alike}") for name in ("allocation", "confirm")),
        (study.until.grokked, f"until.grokked: {apart}: {alike}"),
        (study.stop.ranks, f"stop.screen.keep.top: {apart}: {alike}"),
        (is_uncounted, f"scales.{counted}.seeds: counts from seeds.first, and the study's seeds have none"),
    )


def design_of(scales: dict[str, Scale], constraints: list[str], recipe: dict[str, Any], count: int) -> Design:
    """Return the design of these scales and constraints. Raise ValueError at a key path.

    recipe: fields of every recipe; count: seeds of an arm of scales that name none.
    """
    for i, constraint in enumerate(constraints):
        constraint_of(constraint, f"constraints.{i}")
        if constraint in constraints[:i]:
            raise error_at(f"constraints.{i}", f"{constraint} is listed twice")
    design = Design()
    for name, scale in scales.items():
        with errors_at(f"scales.{name}"):
            spec = preset(name)
        partners = _partners(design, name, spec, constraints)
        seeds = scale.seeds or count
        own = {"": _add_base(design, spec, scale.recipe, recipe, f"scales.{name}.recipe", seeds)}
        for label, base in scale.bases.items():
            path, common = f"scales.{name}.bases.{label}.recipe", recipe | scale.recipe
            own[label] = _add_base(design, spec, base.recipe, common, path, seeds)
        labels = _labels(design, name, scale, constraints)
        for constraint, partner in partners.items():
            label = labels.get(constraint, "")
            arm = _fitting(partner, own[label][1], constraint, f"scales.{name}", label)
            rate = (scale.bases[label].rate if label else None) or scale.rate
            design.cells.append(Cell(name, constraint, label, own[label], arm, seeds, rate))
            design.add(arm, seeds)
    for i, constraint in enumerate(constraints):
        reasons = design.skipped.get(constraint, {})
        if len(reasons) == len(scales):
            scale_name, reason = next(iter(reasons.items()))
            is_unknown = reason.startswith("unknown constraint")
            where = "" if is_unknown else f"cannot be toggled at any scale; at {scale_name}: "
            raise error_at(f"constraints.{i}", where + reason)
    return design


def _partners(design: Design, scale: str, spec: Spec, constraints: list[str]) -> dict[str, Spec]:
    """Return the spec with each constraint toggled, noting those that this scale skips."""
    partners = {}
    for i, constraint in enumerate(constraints):
        path = f"constraints.{i}"
        try:
            partner, reason = toggled(spec, constraint, path), "it would take no parameter away"
        except ValueError as error:
            partner, reason = None, str(error).removeprefix(path).lstrip(".: ")
        if partner is None:
            design.skipped.setdefault(constraint, {})[scale] = reason
        else:
            partners[constraint] = partner
    return partners


def _add_base(
    design: Design, spec: Spec, fields: dict[str, Any], common: dict[str, Any], path: str, seeds: int
) -> Pair:
    base = validated_pair(spec, recipe_of(fields, {}, path, base=common), path)
    if base in design.bases:
        raise error_at(path, "trains what another base of this scale does")
    design.bases.append(base)
    design.add(base, seeds)
    return base


def _labels(design: Design, name: str, scale: Scale, constraints: list[str]) -> dict[str, str]:
    """Return the name of the base of each constraint that has one of its own at a scale."""
    labels: dict[str, str] = {}
    for label, base in scale.bases.items():
        for i, constraint in enumerate(base.constraints):
            path = f"scales.{name}.bases.{label}.constraints.{i}"
            if constraint not in constraints:
                raise error_at(path, f"{constraint} is none of the study's constraints")
            if reason := design.skipped.get(constraint, {}).get(name):
                raise error_at(path, f"{constraint} cannot be toggled at {name}: {reason}")
            if constraint in labels:
                raise error_at(path, f"{constraint} has a base already, {labels[constraint]!r}")
            labels[constraint] = label
    return labels


def _fitting(partner: Spec, recipe: Recipe, constraint: str, path: str, label: str) -> Pair:
    """Return an arm. Raise ValueError, naming the way out, if its base's recipe does not fit it."""
    try:
        return validated_pair(partner, recipe, f"with {constraint} toggled")
    except ValueError as error:
        if label:
            raise error_at(f"{path}.bases.{label}.recipe", str(error)) from None
        raise error_at(path, f"{error}; give {constraint} a base of its own in {path}.bases") from None
