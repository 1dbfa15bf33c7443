"""The scale-dependent-constraint table: which constraint works at which scale? (57p paper, section 4.3)

A function of recorded configurations (search/analysis/frames.py). A column is a scale: a recorded configuration
of a preset, its base. A row is a constraint. A cell compares two arms that differ in that constraint alone: the
base, and the configuration with the same recipe and the constraint toggled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any

from model import PRESETS, Spec, preset, preset_name
from model.fields import did_you_mean, spelt
from model.spec import FAMILIES
from search.analysis.arms import ARM_VALUES, Arm, Arms, read_arms
from search.analysis.verdicts import Agreement, Claim, Verdict, agreement, published, verdict
from search.errors import UserError
from search.stats.counting import GrokRate, difference
from search.stats.intervals import Paired
from trainer import Recipe

Constraint = tuple[str, Any]  # name and value


@dataclass(frozen=True)
class Scale:
    """A column. `base` is None for a preset that was asked for and of which nothing is recorded."""

    label: str
    preset: str
    base: Arm | None = None

    @property
    def params(self) -> int:
        return (self.base.spec if self.base else preset(self.preset)).params


@dataclass(frozen=True)
class Cell:
    """A constraint at a scale, with an arm for each side that is recorded."""

    constraint: str
    scale: Scale
    with_it: Arm | None = None
    without: Arm | None = None

    @cached_property
    def verdict(self) -> Verdict:
        return verdict(self.with_it.rate if self.with_it else GrokRate(0, 0), self.paired)

    @property
    def summary(self) -> str:
        """The verdict, and whether seeds of a constraint that works are verified."""
        if self.with_it is None or self.verdict not in (Verdict.WORKS, Verdict.HELPS):
            return str(self.verdict)
        return f"{self.verdict}, {'verified' if self.with_it.verified else 'not verified'}"

    @cached_property
    def paired(self) -> Paired | None:
        """The seeds that both arms had; the first arm is that with the constraint."""
        if not (self.with_it and self.without):
            return None
        first, second = self.with_it.seeds, self.without.seeds
        return Paired.of([(first[s], second[s]) for s in first.keys() & second.keys()])

    @property
    def difference(self) -> tuple[float, float, float] | None:
        """Grok rate with the constraint less that without it, and its 95 % interval for independent seeds."""
        if not (self.with_it and self.without and self.with_it.rate.n and self.without.rate.n):
            return None
        first, second = self.with_it.rate, self.without.rate
        return (first.rate - second.rate, *difference(first, second))

    @property
    def specs(self) -> tuple[Spec, Spec] | None:
        """The specs with and without the constraint, where both are recorded."""
        return (self.with_it.spec, self.without.spec) if self.with_it and self.without else None

    @property
    def saves(self) -> int | None:
        """Parameters that the constraint saves here."""
        return self.specs and self.specs[1].params - self.specs[0].params

    @property
    def also(self) -> str:
        """Other differences between the arms, which the constraint needs or excludes."""
        if not self.specs:
            return ""
        sides = {"with it also": self.specs, "without it also": self.specs[::-1]}
        extra = {side: _extra(self.constraint, *specs) for side, specs in sides.items()}
        return "; ".join(f"{side} {', '.join(names)}" for side, names in extra.items() if names)

    @property
    def published(self) -> Claim:
        return published().get((self.constraint, self.scale.preset), Claim())

    @property
    def agreement(self) -> Agreement:
        return agreement(self.verdict, self.published)

    def as_dict(self, paper: bool = False) -> dict[str, Any]:
        """Return the cell as plain values, None if unknown; `paper` adds what was published."""
        between, low, high = self.difference or (None, None, None)
        pairs = self.paired if self.paired and self.paired.n else None
        paired_low, paired_high = pairs.interval if pairs else (None, None)
        values = {
            "constraint": self.constraint, "scale": self.scale.label, "params": self.scale.params,
            "verdict": str(self.verdict), "difference": between,
            "difference_low": low, "difference_high": high, "params_saved": self.saves, "also": self.also,
            "pairs": pairs and pairs.n,
            "only_with": pairs and pairs.first, "only_without": pairs and pairs.second,
            "paired_difference": pairs and pairs.difference, "paired_low": paired_low,
            "paired_high": paired_high, "p": pairs and pairs.p, "power": pairs and pairs.power,
        }  # fmt: skip
        if paper:
            claim = self.published
            values |= {
                "published": claim.words,
                "published_verdict": claim.verdict,
                "agreement": str(self.agreement),
            }
        arms = {"with": self.with_it, "without": self.without}
        return values | {
            f"{side}_{name}": read(arm) if arm else None
            for side, arm in arms.items()
            for name, read in ARM_VALUES.items()
        }


def _extra(constraint: str, spec: Spec, partner: Spec) -> list[str]:
    """Return the fields of one spec that differ from another's, but for a constraint and what is off."""
    values, others, known = spec.as_dict(), partner.as_dict(), spec.constraints()
    differing = {k: v for k, v in values.items() if v != others[k] and k != constraint.partition("=")[0]}
    return [spelt(k, v) for k, v in differing.items() if k not in known or v != known[k].metadata["off"]]


@dataclass(frozen=True)
class Table:
    """Cells row by row, each row in the order of the scales."""

    scales: tuple[Scale, ...]
    constraints: tuple[str, ...]
    cells: tuple[Cell, ...]
    has_repeats: bool
    """True if a configuration was recorded in several studies, of which one had to be chosen."""

    def rows(self) -> Iterator[tuple[str, tuple[Cell, ...]]]:
        """Yield each constraint with its cells."""
        width = len(self.scales)
        for i, constraint in enumerate(self.constraints):
            yield constraint, self.cells[i * width : (i + 1) * width]

    def tidy(self, paper: bool = False) -> list[dict[str, Any]]:
        """Return one row a cell (`Cell.as_dict`)."""
        return [cell.as_dict(paper) for cell in self.cells]


def constraint_table(
    configurations: Sequence[Mapping[str, Any]],
    constraints: Sequence[str] = (),
    scales: Sequence[str] = (),
    seeds: Iterable[Mapping[str, Any]] = (),
) -> Table:
    """Return the table of configurations of one study or several: rows as search.analysis.frames has them.

    constraints, scales: further rows (`tie_vo`, `qk_dim=4`) and presets, shown even if nothing is recorded.
    seeds: rows of the same studies' seeds; without them nothing is paired, and every verdict is open.
    Raises UserError if nothing can be compared, or for an unknown name.
    """
    arms = read_arms(configurations, seeds)
    pairs = list(_pairs(arms))
    if not pairs:
        raise UserError(
            f"none of {len(arms)} recorded configurations is a preset that has a partner: the same "
            "recipe, one constraint toggled; adder-search run constraints trains such pairs"
        )
    rows = sorted({row for _, row in pairs} | {_parsed(text) for text in constraints}, key=_row_order)
    columns = _scales([base for base, _ in pairs], scales)
    cells = tuple(_cell(arms, scale, row) for row in rows for scale in columns)
    names = tuple(spelt(*row) for row in rows)
    return Table(tuple(columns), names, cells, has_repeats=len(arms) < len(configurations))


def _pairs(arms: Arms) -> Iterator[tuple[Arm, Constraint]]:
    """Yield every base with every constraint for which it has a partner."""
    groups: dict[tuple[str, Recipe], list[Arm]] = {}
    for (spec, recipe), arm in arms.items():
        groups.setdefault((spec.family, recipe), []).append(arm)
    for group in groups.values():
        for base, partner in product(group, group):
            if preset_name(base.spec) in PRESETS:
                yield from ((base, row) for row in _separating(base.spec, partner.spec))


def _separating(spec: Spec, partner: Spec) -> list[Constraint]:
    """Return the constraints, as a rule at most one, by whose toggling one spec becomes another."""
    applied, others = spec.applied(), partner.applied()
    rows = [(name, (applied | others)[name]) for name in applied.keys() ^ others.keys()]
    return [row for row in rows if _toggled(spec, *row) == partner]


@cache
def _toggled(spec: Spec, name: str, value: Any) -> Spec | None:
    """Return None if the spec cannot have the constraint, or is the same with it (qk_dim as wide as a head)."""
    try:
        toggled = spec.toggled(name, value)
    except ValueError:
        return None
    return toggled if toggled != spec else None


def _scales(bases: list[Arm], presets: Sequence[str]) -> list[Scale]:
    """Return the columns, largest first. The base with most partners has the preset's plain name."""
    if unknown := [name for name in presets if name not in PRESETS]:
        raise UserError(f"unknown scale {unknown[0]!r}; {did_you_mean(unknown[0], PRESETS)}")
    partners = Counter(bases)
    by_preset: dict[str, list[Arm]] = {name: [] for name in presets}
    for base in sorted(partners, key=lambda b: (-partners[b], b.configuration)):
        by_preset.setdefault(preset_name(base.spec), []).append(base)
    scales = [Scale(name, name) for name, arms in by_preset.items() if not arms]
    for name, arms in by_preset.items():
        scales += [Scale(f"{name} ({i})" if i > 1 else name, name, base) for i, base in enumerate(arms, 1)]
    return sorted(scales, key=lambda s: (-s.params, s.preset, len(s.label), s.label))


def _cell(arms: Arms, scale: Scale, row: Constraint) -> Cell:
    (name, value), base = row, scale.base
    applied = base.spec.applied() if base else {}
    if base is None or name not in base.spec.constraints() or applied.get(name, value) != value:
        return Cell(spelt(name, value), scale)  # of another family, or of another width than the row's
    toggled = _toggled(base.spec, name, value)
    partner = arms.get((toggled, base.recipe)) if toggled else None
    return Cell(spelt(name, value), scale, *((base, partner) if name in applied else (partner, base)))


def _row_order(row: Constraint) -> tuple[int, int, Any]:
    """Return a sorting key: the paper's order, then the registry's, then by value."""
    names = [name for cls in FAMILIES.values() for name in cls.constraints()]
    texts = [*dict.fromkeys(constraint for constraint, _ in published()), text := spelt(*row)]
    return texts.index(text), names.index(row[0]), row[1]


def _parsed(text: str) -> Constraint:
    """Return a constraint's name and value. Raises UserError if it is unknown."""
    name, _, value = text.partition("=")
    known = {n: field for cls in FAMILIES.values() for n, field in cls.constraints().items()}
    if name not in known:
        raise UserError(f"unknown constraint {name!r}; {did_you_mean(name, known)}")
    kind = type(known[name].default)
    try:
        return name, True if kind is bool and not value else {int: int, str: str}[kind](value)
    except (KeyError, ValueError):
        raise UserError(f"{text!r} is no constraint with a value that it can have") from None
