"""The scale-dependent-constraint table: at which scales does which constraint work?

A pure function of the recorded configurations (search/analysis/frames.py). A column is a scale: a recorded
configuration of a published rung, its base. A row is a constraint. A cell compares two arms that differ in
the constraint alone: the base, and the configuration with the same recipe and that one constraint toggled.
(57p paper, section 4.3)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from math import isnan
from operator import attrgetter
from typing import Any

from model import PRESETS, Spec, make_spec, preset, preset_name
from model.fields import did_you_mean, spelt
from model.spec import FAMILIES
from search.analysis.verdicts import CLAIMS, Agreement, Claim, Verdict, agreement, claim, verdict
from search.errors import UserError
from search.stats.counting import COUNTED, GrokRate, difference
from search.stats.intervals import Paired
from trainer import FALSE_KILLS_UPPER, Outcome, Recipe
from trainer.bank.futility import MEASURED


@dataclass(frozen=True)
class Arm:
    """One recorded configuration."""

    spec: Spec
    recipe: Recipe
    configuration: str
    study: str
    experiment_id: str
    run_id: str
    rate: GrokRate
    best_exact: float
    median_grok_step: float | None
    verified: int
    """How many of the `decoded` best grokked seeds are right on all 10,010."""
    decoded: int
    seeds: Mapping[tuple[int, int], bool] = field(default_factory=dict, compare=False)
    """Whether each counted seed grokked, where that was recorded seed by seed."""

    @property
    def page(self) -> str:
        """Where the MLflow UI shows it, below the UI's address."""
        return f"#/experiments/{self.experiment_id}/runs/{self.run_id}"


ARM_VALUES: dict[str, Callable[[Arm], Any]] = {
    "grokked": attrgetter("rate.grokked"),
    "seeds": attrgetter("rate.n"),
    "given_up": attrgetter("rate.given_up"),
    "rate": attrgetter("rate.rate"),
    "low": lambda arm: arm.rate.interval[0],
    "high": lambda arm: arm.rate.interval[1],
    "params": attrgetter("spec.params"),
    **{name: attrgetter(name) for name in ("best_exact", "median_grok_step", "verified", "decoded")},
    **{name: attrgetter(name) for name in ("study", "configuration", "run_id", "page")},
}
"""What a tidy row says of an arm."""


@dataclass(frozen=True)
class Scale:
    """A column. `base` is None for a rung that was asked for and of which nothing is recorded."""

    label: str
    rung: str
    base: Arm | None = None

    @property
    def params(self) -> int:
        return (self.base.spec if self.base else preset(self.rung)).params


@dataclass(frozen=True)
class Cell:
    """A constraint at a scale, with an arm for what is recorded."""

    constraint: str
    scale: Scale
    with_it: Arm | None = None
    without: Arm | None = None

    @cached_property
    def verdict(self) -> Verdict:
        return verdict(self.with_it.rate if self.with_it else GrokRate(0, 0), self.paired)

    @property
    def says(self) -> str:
        """The verdict, and whether what works is verified."""
        if self.with_it is None or self.verdict not in (Verdict.WORKS, Verdict.HELPS):
            return str(self.verdict)
        return f"{self.verdict}, {'verified' if self.with_it.verified else 'not verified'}"

    @cached_property
    def paired(self) -> Paired | None:
        """The seeds that both arms had: `one` those that grokked with the constraint alone."""
        if not (self.with_it and self.without):
            return None
        mine, others = self.with_it.seeds, self.without.seeds
        return Paired.of([(mine[s], others[s]) for s in mine.keys() & others.keys()])

    @property
    def difference(self) -> tuple[float, float, float] | None:
        """Grok rate with the constraint less that without it, and its 95 % interval for independent seeds."""
        if not (self.with_it and self.without and self.with_it.rate.n and self.without.rate.n):
            return None
        one, other = self.with_it.rate, self.without.rate
        return (one.rate - other.rate, *difference(one, other))

    @property
    def specs(self) -> tuple[Spec, Spec] | None:
        """With the constraint and without, where both are recorded."""
        return (self.with_it.spec, self.without.spec) if self.with_it and self.without else None

    @property
    def saves(self) -> int | None:
        """Parameters that the constraint takes away here."""
        return self.specs and self.specs[1].params - self.specs[0].params

    @property
    def also(self) -> str:
        """What else differs between the arms, because the constraint needs or excludes it."""
        sides = {"with it also": self.specs, "without it also": self.specs and self.specs[::-1]}
        own = {where: _beside(self.constraint, *specs) for where, specs in sides.items() if specs}
        return "; ".join(f"{where} {', '.join(names)}" for where, names in own.items() if names)

    @property
    def published(self) -> Claim:
        return claim(self.constraint, self.scale.rung)

    @property
    def agreement(self) -> Agreement:
        return agreement(self.verdict, self.published)

    def as_dict(self, paper: bool = False) -> dict[str, Any]:
        """Plain values; None for what is not known."""
        between, low, high = self.difference or (None, None, None)
        pairs = self.paired if self.paired and self.paired.n else None
        paired_low, paired_high = pairs.interval if pairs else (None, None)
        shared = {
            "constraint": self.constraint, "scale": self.scale.label, "params": self.scale.params,
            "verdict": str(self.verdict), "difference": between,
            "difference_low": low, "difference_high": high, "params_saved": self.saves, "also": self.also,
            "pairs": pairs and pairs.n,
            "only_with": pairs and pairs.first, "only_without": pairs and pairs.second,
            "paired_difference": pairs and pairs.difference, "paired_low": paired_low,
            "paired_high": paired_high, "p": pairs and pairs.p, "power": pairs and pairs.power,
        }  # fmt: skip
        if paper:
            words = {"published": self.published.words, "published_verdict": self.published.verdict}
            shared |= {**words, "agreement": str(self.agreement)}
        arms = {"with": self.with_it, "without": self.without}
        return shared | {
            f"{side}_{name}": read(arm) if arm else None
            for side, arm in arms.items()
            for name, read in ARM_VALUES.items()
        }


def _beside(constraint: str, one: Spec, other: Spec) -> list[str]:
    """What one spec has and another has not, but for a constraint."""
    mine, theirs, known = one.as_dict(), other.as_dict(), one.constraints()
    own = {k: v for k, v in mine.items() if v != theirs[k] and k != constraint.partition("=")[0]}
    return [spelt(k, v) for k, v in own.items() if k not in known or v != known[k].metadata["off"]]


@dataclass(frozen=True)
class Table:
    """Cells row by row, each row in the order of the scales."""

    scales: tuple[Scale, ...]
    constraints: tuple[str, ...]
    cells: tuple[Cell, ...]
    pooled: bool  # whether a configuration occurred in several studies, so that one had to be chosen

    def rows(self) -> Iterator[tuple[str, tuple[Cell, ...]]]:
        width = len(self.scales)
        for i, constraint in enumerate(self.constraints):
            yield constraint, self.cells[i * width : (i + 1) * width]

    def tidy(self, paper: bool = False) -> list[dict[str, Any]]:
        """One row a cell. `paper` adds the published words and verdict, and whether they agree."""
        return [cell.as_dict(paper) for cell in self.cells]


Constraint = tuple[str, Any]  # name and value
Arms = dict[tuple[Spec, Recipe], Arm]


def constraint_table(
    configurations: Sequence[Mapping[str, Any]],
    constraints: Sequence[str] = (),
    scales: Sequence[str] = (),
    seeds: Iterable[Mapping[str, Any]] = (),
) -> Table:
    """The table of configurations of one study or several: rows as search.analysis.frames has them.

    A scale is a published rung's configuration that has a partner in the frame: the same recipe, one
    constraint toggled. A configuration of several studies is read from the one that trained the most
    configurations (then: counted the most seeds). Nothing is added up, as the same seeds may be in both.

    constraints, scales: further rows (`tie_vo`, `qk_dim=4`) and rungs, to be shown whether or not they are
    recorded. seeds: rows of the same studies' seeds; without them nothing is paired, and no cell can tell.
    Raises UserError if nothing can be compared, or for an unknown name.
    """
    arms = _arms(configurations, _grokked(seeds))
    tried = list(_tried(arms))
    if not tried:
        raise UserError(
            f"none of {len(arms)} recorded configurations is a published rung that has a partner: the same "
            "recipe, one constraint toggled; adder-search run constraints trains such pairs"
        )
    rows = {row for _, row in tried} | {_parsed(text) for text in constraints}
    columns = _scales([base for base, _ in tried], scales)
    ordered = sorted(rows, key=_row_order)
    cells = tuple(_cell(arms, scale, row) for row in ordered for scale in columns)
    names = tuple(spelt(*row) for row in ordered)
    return Table(tuple(columns), names, cells, pooled=len(arms) < len(configurations))


def _tried(arms: Arms) -> Iterator[tuple[Arm, Constraint]]:
    """Every base with every constraint for which it has a partner."""
    alike: dict[tuple[str, Recipe], list[Arm]] = {}
    for (spec, recipe), arm in arms.items():
        alike.setdefault((spec.family, recipe), []).append(arm)
    for group in alike.values():
        for base, other in product(group, group):
            if preset_name(base.spec) in PRESETS:
                yield from ((base, row) for row in _separating(base.spec, other.spec))


def _separating(base: Spec, other: Spec) -> list[Constraint]:
    """The constraints, at most one as a rule, by whose toggling one spec becomes another."""
    mine, theirs = base.applied(), other.applied()
    rows = [(name, (mine | theirs)[name]) for name in mine.keys() ^ theirs.keys()]
    return [row for row in rows if _toggled(base, *row) == other]


@cache
def _toggled(spec: Spec, name: str, value: Any) -> Spec | None:
    """None where the spec cannot have the constraint, or is the same with it (qk_dim as wide as a head)."""
    try:
        other = spec.toggled(name, value)
    except ValueError:
        return None
    return other if other != spec else None


def _scales(bases: list[Arm], rungs: Sequence[str]) -> list[Scale]:
    """The columns, largest first. Of a rung's bases the one with most partners has its plain name."""
    if unknown := [name for name in rungs if name not in PRESETS]:
        raise UserError(f"unknown scale {unknown[0]!r}; {did_you_mean(unknown[0], PRESETS)}")
    partners = Counter(bases)
    by_rung: dict[str, list[Arm]] = {name: [] for name in rungs}
    for base in sorted(partners, key=lambda b: (-partners[b], b.configuration)):
        by_rung.setdefault(preset_name(base.spec), []).append(base)
    scales = [Scale(name, name) for name, found in by_rung.items() if not found]
    for name, found in by_rung.items():
        scales += [Scale(f"{name} ({i})" if i > 1 else name, name, base) for i, base in enumerate(found, 1)]
    return sorted(scales, key=lambda s: (-s.params, s.rung, len(s.label), s.label))


def _cell(arms: Arms, scale: Scale, row: Constraint) -> Cell:
    (name, value), base = row, scale.base
    applied = base.spec.applied() if base else {}
    if base is None or name not in base.spec.constraints() or applied.get(name, value) != value:
        return Cell(spelt(name, value), scale)  # of another family, or of another width than the row's
    other = _toggled(base.spec, name, value)
    partner = arms.get((other, base.recipe)) if other else None
    return Cell(spelt(name, value), scale, *((base, partner) if name in applied else (partner, base)))


def _row_order(row: Constraint) -> tuple[int, int, Any]:
    """The paper's order, then the registry's, then by value."""
    known = [name for cls in FAMILIES.values() for name in cls.constraints()]
    paper = [*CLAIMS, text := spelt(*row)]
    return paper.index(text), known.index(row[0]), row[1]


def _parsed(text: str) -> Constraint:
    """A constraint as one writes it. Raises UserError for an unknown one."""
    name, _, value = text.partition("=")
    known = {n: field for cls in FAMILIES.values() for n, field in cls.constraints().items()}
    if name not in known:
        raise UserError(f"unknown constraint {name!r}; {did_you_mean(name, known)}")
    kind = type(known[name].default)
    try:
        return name, True if kind is bool and not value else {int: int, str: str}[kind](value)
    except (KeyError, ValueError):
        raise UserError(f"{text!r} is no constraint with a value that it can have") from None


COLUMNS = (
    "study", "configuration", "experiment_id", "run_id", "seeds", "grokked", "given_up", "best_exact",
    "median_grok_step", "verified", "verify_tried", "model.family",
)  # fmt: skip


Grokked = dict[tuple[str, str], dict[tuple[int, int], bool]]
"""Study and configuration -> seed -> whether it grokked."""


def _grokked(seeds: Iterable[Mapping[str, Any]]) -> Grokked:
    found: Grokked = {}
    for row in seeds:
        if row["outcome"] in COUNTED:
            mine = found.setdefault((str(row["study"]), str(row["configuration"])), {})
            mine[int(row["init_seed"]), int(row["data_seed"])] = row["outcome"] == Outcome.GROKKED
    return found


def _arms(configurations: Sequence[Mapping[str, Any]], seeds: Grokked) -> Arms:
    """The recorded configurations, each once: of several studies as the one that has most of them has it,
    then the one with most seeds. Raises UserError if these are no configurations.
    """
    size = Counter(row.get("study") for row in configurations)
    for row in configurations:
        if lacking := [c for c in COLUMNS if c not in row]:
            raise UserError(f"this is no frame of configurations: it has no column {', '.join(lacking)}")
    arms: Arms = {}
    order = sorted(
        configurations, key=lambda r: (size[r["study"]], r["seeds"], str(r["study"])), reverse=True
    )
    for record in order:
        if isinstance(taught := record.get("recipe.teacher"), str) and taught:
            continue  # a frame has its teacher's title alone: it cannot be said whose partner it is
        try:
            arm = _arm(record, seeds)
        except (ValueError, TypeError) as error:
            raise UserError(f"configuration {record['configuration']}: {error}") from None
        arms.setdefault((arm.spec, arm.recipe), arm)
    return arms


def _arm(record: Mapping[str, Any], seeds: Grokked) -> Arm:
    step = float(record["median_grok_step"])
    return Arm(
        spec=_spec(_fields(record, "model.")),
        recipe=_recipe(_fields(record, "recipe.")),
        **{n: str(record[n]) for n in ("configuration", "study", "experiment_id", "run_id")},
        rate=_rate(record),
        best_exact=float(record["best_exact"]),
        median_grok_step=None if isnan(step) else step,
        verified=int(record["verified"]),
        decoded=int(record["verify_tried"]),
        seeds=seeds.get((str(record["study"]), str(record["configuration"])), {}),
    )


def _rate(record: Mapping[str, Any]) -> GrokRate:
    """Where a frame does not say how many seeds may have been given up wrongly and nobody measured, all."""
    grokked, n, given_up = (int(record[name]) for name in ("grokked", "seeds", "given_up"))
    most = given_up * (FALSE_KILLS_UPPER if record["configuration"] in MEASURED else 1.0)
    ends = (record["grok_rate_low"], record["grok_rate_high"]) if record.get("stopped") in (True, 1) else None
    return GrokRate(grokked, n, given_up, float(record.get("wrongly", most)), recorded_interval=ends)


def _fields(record: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """What the columns with a prefix say; those of other families say nothing."""
    own = {name.removeprefix(prefix): v for name, v in record.items() if name.startswith(prefix)}
    return {name: v for name, v in own.items() if not (v is None or (isinstance(v, float) and isnan(v)))}


def _spec(given: dict[str, Any]) -> Spec:
    family = given.pop("family")
    return make_spec(family, **_typed(FAMILIES.get(family, Spec), given))


def _recipe(given: dict[str, Any]) -> Recipe:
    for name, its in Recipe.__dataclass_fields__.items():
        if isinstance(its.default, tuple) and name in given:
            entries = json.loads(kept) if isinstance(kept := given[name], str) else kept
            given[name] = [e if isinstance(e, str) else [_plain(number) for number in e] for e in entries]
    return Recipe(**_typed(Recipe, given))


def _plain(entry: Any) -> Any:
    """A list's entry as a study file has it: a table makes floats of its whole numbers."""
    return entry if isinstance(entry, str) else int(entry) if float(entry).is_integer() else float(entry)


def _typed(cls: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """A table's numbers as the fields want them: where families are mixed, integers have become floats."""
    known = cls.__dataclass_fields__
    return {name: type(known[name].default)(v) if name in known else v for name, v in given.items()}
