"""The scale-dependent-constraint table: which constraint works at which scale? (57p paper, section 4.3)

A function of recorded configurations (search/analysis/frames.py). A column is a scale; a row is a constraint. A cell
compares pairs of arms: the scale's model, and the same with the constraint toggled, trained by the same recipe. A cell
may have several pairs, by several recipes or studies: the one with most seeds in common speaks, among equals the one
whose arm without the constraint groks most.

A scale is a preset, or what a study names so. Of models that toggling joins to none of these, such as a module's, it is
the one from which most others are one constraint away, and of equals the one with the fewest constraints.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby, product
from typing import Any

from model import PRESETS, Spec, preset, preset_name
from model.fields import did_you_mean, spelt
from model.presets import is_preset
from model.spec import FAMILIES
from reports.arms import Arm, read_arms
from reports.ratios import Paired
from reports.verdicts import (
    Agreement,
    Answer,
    Claim,
    Effect,
    agreement,
    cost,
    keeps_half,
    published,
    trains,
)
from search.errors import UserError
from search.stats.intervals import Interval
from search.stats.record import SeedRecord
from search.study.described import counted
from trainer import Recipe

Constraint = tuple[str, Any]  # name and value
Roles = dict[str, tuple[dict[str, str], "Cell | None"]]
"""Words on each arm, and the cell of a toggled one, by its configuration's key."""


@dataclass(frozen=True)
class Pair:
    """Two arms of one recipe that differ in a constraint. base: that of the two that is the scale's own model."""

    with_it: Arm
    without: Arm
    base: Arm

    @property
    def toggled(self) -> Arm:
        return self.without if self.base is self.with_it else self.with_it

    @cached_property
    def paired(self) -> Paired:
        """The seeds that both arms had, the first arm with the constraint; none if one stopped at a success."""
        return self._paired(self.with_it.seeds, self.without.seeds)

    @cached_property
    def finished(self) -> Paired | None:
        """The same seeds with those that curvature finished; None where no seed was to be."""
        if not self.base.finishes:
            return None
        return self._paired(self.with_it.with_finished, self.without.with_finished)

    def _paired(self, first: Mapping[Any, bool], second: Mapping[Any, bool]) -> Paired:
        # How many seeds an arm had that stopped at a success depends on their luck.
        if self.with_it.stopped or self.without.stopped:
            return Paired.of([])
        shared = first.keys() & second.keys()
        return Paired.of([(first[seed], second[seed]) for seed in shared])

    @property
    def precedence(self) -> tuple[Any, ...]:
        """Return a sorting key: the pair that speaks for its cell comes first."""
        grokked_without = self.paired.both + self.paired.second
        # Names last, so that a cell says the same in whatever order studies are read.
        names = [(arm.study, arm.configuration) for arm in (self.with_it, self.without)]
        return -self.paired.n, -grokked_without, names


@dataclass(frozen=True)
class Cell:
    """A constraint at a scale."""

    constraint: str
    scale: str
    params: int
    """Of the scale's model."""
    saves: int
    """How many of these the constraint takes away."""
    also: str
    """What else it changes, in words."""
    pairs: tuple[Pair, ...] = ()
    """The one that speaks comes first."""
    arms: tuple[Arm, ...] = ()
    """All that are recorded with the constraint, paired or not."""
    alone: Arm | None = None
    """An arm without it, where there is no pair."""

    @property
    def pair(self) -> Pair | None:
        return self.pairs[0] if self.pairs else None

    @property
    def with_it(self) -> Arm | None:
        if self.pair:
            return self.pair.with_it
        return self.arms[0] if self.arms else None

    @property
    def without(self) -> Arm | None:
        return self.pair.without if self.pair else self.alone

    @property
    def trains(self) -> Answer:
        # One success anywhere shows that it trains; that it does not, only the pair's own arms can.
        verified = sum(arm.verified for arm in self.arms)
        grokked = sum(arm.grokked_with_finished for arm in self.arms)
        n, rate_without = 0, 0.0
        if self.pair:
            n, rate_without = self.pair.with_it.n, self.pair.without.promised
        return trains(verified, grokked, n, rate_without)

    @property
    def seen_in(self) -> str | None:
        """A study with a verified seed: the compared one if it has any."""
        for arm in (self.with_it, *self.arms):
            if arm and arm.verified:
                return arm.study
        return None

    @property
    def paired(self) -> Paired | None:
        """The seeds that both arms of its pair had; None if there are none."""
        return self.pair.paired if self.pair and self.pair.paired.n else None

    @property
    def interval(self) -> Interval | None:
        """Interval of the ratio of grok rates; None where nothing is paired."""
        return self.paired.ratio_interval if self.paired else None

    @property
    def cost(self) -> Effect:
        return cost(self.interval)

    @property
    def keeps_half(self) -> Answer:
        return keeps_half(self.interval)

    @property
    def published(self) -> Claim:
        return published().get((self.constraint, self.scale), Claim())

    @property
    def agreement(self) -> Agreement | None:
        return agreement(self.trains, self.published)

    def as_dict(self) -> dict[str, Any]:
        """Return the cell as plain values, None if unknown; an interval's end that is infinite is None too."""
        with_it = self.with_it
        without = self.without
        paired = self.paired
        # A pair that shares no seed has no ratio, with finished seeds or without.
        finished = self.pair.finished if self.pair and self.paired else None
        return {
            "scale": self.scale,
            "params": self.params,
            "constraint": self.constraint,
            "trains": str(self.trains),
            "cost": str(self.cost),
            "keeps_half": str(self.keeps_half),
            "n_with": with_it.n if with_it else 0,
            "grokked_with": with_it.grokked if with_it else 0,
            "n_without": without.n if without else 0,
            "grokked_without": without.grokked if without else 0,
            "pairs": paired.n if paired else 0,
            "only_with": paired and paired.first,
            "only_without": paired and paired.second,
            "rate_with": with_it and with_it.rate,
            "rate_without": without and without.rate,
            **_ratio("ratio", paired),
            "with_at_most": with_it and with_it.interval[1],
            "ended_early_with": with_it and with_it.ended,
            "ended_early_without": without and without.ended,
            "grokked_with_finished": _with_finished(with_it),
            "grokked_without_finished": _with_finished(without),
            **_ratio("ratio_finished", finished),
            "verified_with": sum(arm.verified for arm in self.arms),
            "verified_in": self.seen_in,
            "best_exact_with": with_it and with_it.best_exact,
            "params_saved": self.saves,
            "also": self.also,
            "study": with_it and with_it.study,
            "configuration_with": with_it and with_it.configuration,
            "configuration_without": without and without.configuration,
            "paper": self.published.verdict or None,
            "paper_words": self.published.words or None,
            "agrees": self.agreement and str(self.agreement),
        }


def _with_finished(arm: Arm | None) -> int | None:
    return arm.grokked_with_finished if arm and arm.finishes else None


def _ratio(name: str, paired: Paired | None) -> dict[str, float | None]:
    """Return the ratio of grok rates with its interval's ends, by `name`."""
    low, high = paired.ratio_interval if paired else (None, None)
    return {
        name: paired.ratio if paired else None,
        f"{name}_low": low,
        f"{name}_high": None if high == float("inf") else high,  # JSON has no infinity
    }


@dataclass(frozen=True)
class Table:
    """Cells by constraint and scale; none where the scale cannot have the constraint."""

    scales: tuple[str, ...]
    constraints: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]

    def rows(self) -> Iterator[tuple[str, tuple[Cell | None, ...]]]:
        """Yield each constraint with its cells, one per scale."""
        for constraint in self.constraints:
            yield constraint, tuple(self.cells.get((constraint, scale)) for scale in self.scales)

    def roles(self) -> Roles:
        """Return the role of each arm in the table by its configuration's key, and the cell of a toggled one.

        A role has a scale, a constraint, and `toggled`: on, off, or base. An arm that is a base and a toggled one,
        as 67p is 57p without tie_fc2_head, is a base.
        """
        toggled: Roles = {}
        bases: Roles = {}
        for cell in self.cells.values():
            if pair := cell.pair:
                side = "on" if pair.toggled is pair.with_it else "off"
                role = {"scale": cell.scale, "constraint": cell.constraint, "toggled": side}
                toggled[pair.toggled.configuration] = role, cell
                base = {"scale": cell.scale, "constraint": "none", "toggled": "base"}
                bases[pair.base.configuration] = base, None
        return toggled | bases

    def tidy(self) -> list[dict[str, Any]]:
        return [cell.as_dict() for cell in self.cells.values()]


class NoPartners(UserError):
    """No recorded preset has the same recipe with one constraint toggled."""


def constraint_table(
    configurations: Sequence[Mapping[str, Any]],
    constraints: Sequence[str] = (),
    scales: Sequence[str] = (),
    seeds: Iterable[SeedRecord] = (),
) -> Table:
    """Return the table of configurations of one study or several: rows as search.analysis.frames has them.

    constraints: rows (`tie_vo`, `qk_dim=4`), shown even if nothing is recorded; without any all that are recorded.
    scales: further presets, shown even if nothing is recorded.
    seeds: rows of the same studies' seeds; without them nothing is paired, and no cost is known.
    Raises UserError if nothing can be compared, or for an unknown name.
    """
    for name in scales:
        if name not in PRESETS:
            raise UserError(f"unknown scale {name!r}; {did_you_mean(name, PRESETS)}")
    rows = {_parsed(text) for text in constraints}

    arms = read_arms(configurations, seeds)
    pairs: dict[tuple[Spec, Constraint], list[Pair]] = {}
    for scale, row, pair in _pairs(arms):
        if not rows or row in rows:
            pairs.setdefault((scale, row), []).append(pair)
    if not pairs:
        message = (
            f"of {counted(len(configurations), 'recorded configuration')} no two differ in one constraint or flag "
            "alone; `toggle: [tie_vo]` in a study file trains such a pair, and adder-search report shows rates against "
            "other fields"
        )
        # Of a study that finishes seeds nothing is counted without its seeds: its arms were left out.
        if not seeds and any((row.get("recipe.finish_above") or 1) < 1 for row in configurations):
            message += "; with finish_above the records of its seeds are needed too"
        raise NoPartners(message)

    columns = _columns(pairs, [preset(name) for name in scales])
    names = _names(columns, {arm.spec: arm.scale for arm in arms if arm.scale})
    # A row of a scale that is no column would be empty.
    rows = rows or {row for scale, row in pairs if scale in names}
    ordered = {row: spelt(*row) for row in sorted(rows, key=row_order)}

    by_spec: dict[Spec, list[Arm]] = {}
    for arm in sorted(arms, key=lambda arm: -arm.n):
        by_spec.setdefault(arm.spec.trained(), []).append(arm)

    cells: dict[tuple[str, str], Cell] = {}
    for row, constraint in ordered.items():
        for scale, name in names.items():
            cell = _cell(name, scale, row, pairs.get((scale, row), ()), by_spec)
            if cell:
                cells[constraint, name] = cell
    return Table(tuple(names.values()), tuple(ordered.values()), cells)


def _pairs(arms: Iterable[Arm]) -> Iterator[tuple[Spec, Constraint, Pair]]:
    """Yield each scale's model, each constraint, and two arms that differ in it alone."""
    # Only arms of one family and recipe can differ in a constraint alone.
    groups: dict[tuple[str, Recipe], dict[Spec, list[Arm]]] = {}
    for arm in arms:
        by_spec = groups.setdefault((arm.spec.family, arm.recipe), {})
        by_spec.setdefault(arm.spec, []).append(arm)

    for by_spec in groups.values():
        rows: set[Constraint] = set()
        named = set[Spec]()
        for spec, of_spec in by_spec.items():
            rows |= spec.applied().items()
            if is_preset(spec) or any(arm.scale for arm in of_spec):
                named.add(spec)
        partners = {spec: _partners(spec, rows, by_spec) for spec in by_spec}

        for scale in _scales(partners, named):
            for row, toggled in partners[scale].items():
                has_it = row[0] in scale.applied()
                for base, partner in product(by_spec[scale], by_spec[toggled]):
                    pair = Pair(base, partner, base) if has_it else Pair(partner, base, base)
                    yield scale, row, pair


def _partners(spec: Spec, rows: Iterable[Constraint], specs: Collection[Spec]) -> dict[Constraint, Spec]:
    """Return which of `specs` the spec becomes when a constraint is toggled, by constraint."""
    partners: dict[Constraint, Spec] = {}
    for row in rows:
        toggled = _toggled(spec, *row)
        if toggled and toggled in specs:
            partners[row] = toggled
    return partners


def _scales(partners: Mapping[Spec, Mapping[Constraint, Spec]], named: Collection[Spec]) -> list[Spec]:
    """Return the specs that others are compared with: see the head of this file. named: those known to be scales."""
    # Dictionaries, whose order is the records': that of a set differs from process to process.
    joined: dict[Spec, dict[Spec, None]] = {spec: {} for spec in partners}
    for spec, toggled in partners.items():
        for other in toggled.values():
            # What a constraint needs may lead from one scale into another, and not back.
            if spec in named or spec in partners[other].values():
                joined[spec][other] = None
                joined[other][spec] = None

    # Each round takes out all specs that toggling joins to one of them.
    scales = list[Spec]()
    left = dict.fromkeys(partners)
    while left:
        together = dict[Spec, None]()
        waiting = [next(iter(left))]
        for spec in waiting:  # grows while it is walked
            if spec in left:
                del left[spec]
                together[spec] = None
                waiting += joined[spec]

        own = [spec for spec in together if spec in named]
        # Without a name, the spec from which most others are one constraint away.
        if not own:
            own = [max(together, key=lambda spec: (len(partners[spec]), -len(spec.applied())))]
        scales += own
    return scales


@cache
def _toggled(spec: Spec, name: str, value: Any) -> Spec | None:
    """Return the spec with the constraint, or without it if it has it.

    None if it cannot have it, or if that would add parameters (qk_dim wider than a head).
    """
    applied = spec.applied()
    if name not in spec.constraints() or applied.get(name, value) != value:
        return None
    try:
        toggled = spec.toggled(name, value)
    except ValueError:
        return None

    with_it, without = (spec, toggled) if name in applied else (toggled, spec)
    adds_parameters = with_it.params > without.params
    return None if toggled == spec or adds_parameters else toggled


def _columns(pairs: Mapping[tuple[Spec, Constraint], Sequence[Pair]], asked: Sequence[Spec]) -> list[Spec]:
    """Return the models that are columns, largest first: those asked for, and those with pairs of their own.

    A pair of two presets, such as 67p and 57p, is shown in the column that has more pairs.
    """
    by_scale: dict[Spec, set[frozenset[str]]] = {}
    for (scale, _), group in pairs.items():
        # A pair is one and the same, whichever of its arms is the scale.
        keys = {frozenset((p.with_it.configuration, p.without.configuration)) for p in group}
        by_scale.setdefault(scale, set()).update(keys)

    # The column with most pairs first; another is shown only for pairs that no earlier one has.
    by_pairs = sorted(by_scale, key=lambda scale: (-len(by_scale[scale]), scale.params, preset_name(scale)))
    columns = list(asked)
    shown = set[frozenset[str]]()
    for scale in (*asked, *by_pairs):
        own = by_scale.get(scale, set())
        if scale not in columns and own - shown:
            columns.append(scale)
        if scale in columns:
            shown |= own
    return sorted(columns, key=lambda scale: (-scale.params, preset_name(scale)))


def _names(specs: Sequence[Spec], scales: Mapping[Spec, str]) -> dict[Spec, str]:
    """Return a name for each spec. Specs of the same name have the fields behind it in which they differ.

    scales: names that studies give.
    """

    def given(spec: Spec) -> str:
        name = preset_name(spec)
        return name if is_preset(spec) else scales.get(spec, name)

    names: dict[Spec, str] = {}
    for name, members in groupby(sorted(specs, key=given), given):
        values = {spec: spec.as_dict() for spec in members}
        first, *others = values.values()
        differing = []
        for key, value in first.items():
            # As texts: 1 is no True here.
            if any(repr(fields.get(key)) != repr(value) for fields in others):
                differing.append(key)
        for spec, fields in values.items():
            behind = [spelt(key, fields.get(key)) for key in differing]
            names[spec] = ", ".join([name, *behind])
    return {spec: names[spec] for spec in specs}  # in the order of the columns


def _cell(
    name: str, base: Spec, row: Constraint, pairs: Sequence[Pair], by_spec: Mapping[Spec, Sequence[Arm]]
) -> Cell | None:
    """Return a cell; None if the scale's model cannot have the constraint.

    by_spec: all arms by their trained specs, those with most seeds first.
    """
    toggled = _toggled(base, *row)
    if toggled is None:
        return None
    with_it, without = (base, toggled) if row[0] in base.applied() else (toggled, base)
    arms = by_spec.get(with_it.trained(), ())
    others = by_spec.get(without.trained(), ())

    # A recorded arm's count where there is one: a module read from a row has no code, and keeps its count when toggled.
    params_with = arms[0].spec.params if arms else with_it.params
    params_without = others[0].spec.params if others else without.params
    return Cell(
        constraint=spelt(*row),
        scale=name,
        params=base.params,
        saves=params_without - params_with,
        also=_also(row[0], with_it, without),
        pairs=tuple(sorted(pairs, key=lambda pair: pair.precedence)),
        arms=tuple(arms),
        alone=others[0] if others else None,
    )


def _also(constraint: str, with_it: Spec, without: Spec) -> str:
    """Return other differences between the arms, which the constraint needs or excludes."""
    parts = []
    if names := _extra(constraint, with_it, without):
        parts.append(f"with it also {', '.join(names)}")
    if names := _extra(constraint, without, with_it):
        parts.append(f"without it also {', '.join(names)}")
    return "; ".join(parts)


def _extra(constraint: str, spec: Spec, partner: Spec) -> list[str]:
    """Return the fields of one spec that differ from another's, but for a constraint and what is off."""
    others = partner.as_dict()
    constraints = spec.constraints()
    extra = []
    for name, value in spec.as_dict().items():
        is_off = name in constraints and value == constraints[name].metadata["off"]
        if value != others[name] and name != constraint and not is_off:
            extra.append(spelt(name, value))
    return extra


def row_order(row: Constraint) -> tuple[int, int, Any]:
    """Return a sorting key: the paper's order, then the registry's, then by value."""
    text = spelt(*row)
    name = row[0]
    # Each list ends with the row's own, so that what the paper or the registry lacks is behind all others.
    texts = [*dict.fromkeys(constraint for constraint, _ in published()), text]
    names = [*(known for cls in FAMILIES.values() for known in cls.constraints()), name]
    return texts.index(text), names.index(name), row


def _parsed(text: str) -> Constraint:
    """Return a constraint's name and value. Raises UserError if it is unknown."""
    name, _, value = text.partition("=")
    fields = {n: field for cls in FAMILIES.values() for n, field in cls.constraints().items()}
    if name not in fields:
        raise UserError(f"unknown constraint {name!r}; {did_you_mean(name, fields)}")
    kind = type(fields[name].default)
    if kind is bool and not value:
        return name, True
    try:
        return name, {int: int, str: str}[kind](value)
    except (KeyError, ValueError):  # KeyError: a switch has no value
        raise UserError(f"{text!r} is no constraint with a value that it can have") from None
