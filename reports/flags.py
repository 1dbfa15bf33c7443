"""Flags: one on against off, or two against each other with the rate in each cell, and if they are more than their sum.

The configurations may differ in other fields too, as those of a search do. A flag is a field of the model with few
values, or one of the recipe or task with few names. One alone may be any field, or which of two listed
configurations it is.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import inf
from numbers import Real
from typing import Any

from reports.logistic import Coefficient, fit
from reports.ratios import Paired, ends_text, ratio_of_intervals, times
from reports.table_text import bullets, markdown_table, rows_text
from reports.verdicts import cost
from search.errors import printable
from search.stats.counting import (
    COUNTED,
    FEWEST_SEEDS,
    TOO_FEW,
    GrokRate,
    PooledRate,
    group_by,
    percent,
    percents,
)
from search.stats.intervals import Interval
from search.stats.record import SeedRecord
from search.study.described import shown
from trainer import Seed

Values = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Those of two flags."""
Cell = tuple[Any, Any]
"""A value of each."""
Row = Mapping[str, Any]
Rows = Sequence[Row]
Seeds = Sequence[SeedRecord]
Rate = GrokRate | PooledRate
MOST_VALUES = 4
"""Values of a flag beside others."""
MOST_ALONE = 12
"""Values of the only field that differs."""
MOST_GRIDS = 15
"""Grids that are drawn."""
NOT_FLAGS = {"model.family", "model.task", "model.ties", "model.digest", "model.constraints"}
"""Fields that others say in full: a task's text has the fields of the task."""
FIELDS = ("model.", "recipe.", "task.")
NOTES_ON_ONE = (
    "×: the rate over the first one's, with its 95 % interval, seed by seed where both had the same seeds; it costs "
    "where this interval is below 1, and helps where it is above",
)
POOLED = (
    "a rate of several configurations is of all their counted seeds, without those of a confirmation; its interval is "
    "clustered by seed. What else differs is averaged over, and a sampler that learns visits good regions more often: "
    "a hint and no experiment",
)
STOPPED = ("a study that stops at a success has no ratio",)
NOTES = (
    "a cell: grokked of counted seeds of all its configurations, without those of a confirmation; intervals of "
    f"95 % are clustered by seed, as configurations share their seeds, under {FEWEST_SEEDS} seeds there are {TOO_FEW}",
    "other searched fields differ between the cells, and a sampler that learns visits good regions more often: a hint "
    "and no experiment",
)
BEYOND = (
    "beyond both: the odds with both, over what they were if both ratios of odds were multiplied, of a logistic "
    "model of the two and their product, penalised (Firth), with standard errors clustered by seed",
)


class Entries(tuple[Any, ...]):
    """A list as a value of a flag, compared as text: stages have no hash."""

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


# One flag


@dataclass(frozen=True)
class Against:
    """A rate over another."""

    ratio: float | None
    """None where the other is 0."""
    interval: Interval | None
    """None where several configurations have too few seeds."""
    pairs: int
    """Seeds that both had."""

    @property
    def times(self) -> str:
        return times(self.ratio)

    @property
    def ends(self) -> str:
        return ends_text(self.interval, " to ") or "no interval"

    def __str__(self) -> str:
        pairs = f", {self.pairs} seeds in both" if self.pairs else ""
        return f"{self.times} ({self.ends}){pairs}"


@dataclass(frozen=True)
class Side:
    """A value of a flag. against: its rate over that of the flag's first value, which has none."""

    value: Any
    rate: Rate | None
    """None where no seed was counted."""
    against: Against | None

    @property
    def text(self) -> str:
        return "none" if self.value is None else shown(self.value)

    @property
    def effect(self) -> str:
        return str(cost(self.against.interval)) if self.against else ""


@dataclass(frozen=True)
class Flag:
    """The flag of a study that has one."""

    study: str
    name: str
    sides: tuple[Side, ...]
    has_stopped: bool
    """True if it went on until enough seeds had grokked."""

    def lines(self) -> list[list[str]]:
        """Return the texts of a table: its head, and one line for each value."""
        lines = [[self.name, "grokked", f"over {self.sides[0].text}", "effect"]]
        for side in self.sides:
            against = str(side.against or "")
            lines.append([side.text, rate_text(side.rate), against, side.effect])
        return lines

    def tidy(self) -> list[dict[str, Any]]:
        """Return one row for each value."""
        return [self._row(side) for side in self.sides]

    def _row(self, side: Side) -> dict[str, Any]:
        against = side.against or Against(None, None, 0)
        low, high = against.interval or (None, None)
        return {
            "study": self.study,
            "flag": self.name,
            "value": side.value,
            **_counts(side.rate),
            "ratio": against.ratio,
            "pairs": against.pairs,
            "ratio_low": low,
            "ratio_high": None if high == inf else high,  # JSON has no infinity
            "effect": side.effect or None,
        }


def single_flags(configurations: Iterable[Row], seeds: Iterable[SeedRecord]) -> list[Flag]:
    """Return the flag of each study that has one: rows as search.analysis.frames has them."""
    flags = []
    for study, rows, by_key in _by_study(configurations, seeds):
        single = _single(rows)
        if single:
            name, values = single
            has_stopped = any(row.get("stopped") for row in rows)
            sides = _sides(rows, values, by_key, has_stopped)
            flags.append(Flag(study, name, tuple(sides), has_stopped))
    return flags


def _sides(rows: Rows, values: Sequence[Any], by_key: Mapping[str, Seeds], has_stopped: bool) -> list[Side]:
    """Return the different values of a flag with their rates, off first. values: one for each row."""
    sides: list[Side] = []
    first: Seeds = ()
    for value in sorted({*values}, key=_order):
        members = [row for row, of_row in zip(rows, values, strict=True) if of_row == value]
        own = _seeds_of(members, by_key)
        rate = _rate(own) if own else None
        against = None
        # A rate that stopped at a success is too high: it has the interval for that, and no ratio.
        if rate and has_stopped:
            rate = _as_recorded(rate, members)
        elif own and first:
            against = _against(own, first)
        # The first value is what the others are compared with.
        if not sides:
            first = own
        sides.append(Side(value, rate, against))
    return sides


def _seeds_of(rows: Rows, by_key: Mapping[str, Seeds]) -> list[SeedRecord]:
    """Return the counted seeds of some configurations."""
    seeds: list[SeedRecord] = []
    for row in rows:
        seeds += by_key.get(row["configuration"], ())
    return seeds


def _as_recorded(rate: Rate, rows: Rows) -> Rate:
    """Return a rate of a study that stops at a success with the interval of its row; without one if it is of many."""
    if isinstance(rate, PooledRate):
        return replace(rate, interval=None)
    ends = (rows[0]["grok_rate_low"], rows[0]["grok_rate_high"])
    return replace(rate, recorded_interval=ends)


def _single(rows: Rows) -> tuple[str, list[Any]] | None:
    """Return the name of a study's only flag and each configuration's value; None if it has none, or several.

    It is the one field that differs, or which of some configurations it is, or else the one flag of the model.
    """
    differing = {}
    for name in rows[0]:
        if name.startswith(FIELDS) and name != "model.task":
            different = _values(rows, name)
            if len(different) > 1:
                differing[name] = len(different)
    by_title = "configuration", [printable(str(row.get("title", row["configuration"]))) for row in rows]
    # Two that differ in several fields have no field to name: each is called by its title.
    if len(rows) == 2 and len(differing) > 1:
        return by_title

    flags = _flags(rows)
    # The only field that differs is the flag, though it be a number with more values than others may have.
    if len(differing) == 1 and max(differing.values()) <= MOST_ALONE:
        flags = list(differing)
    if len(flags) != 1:
        return None
    (flag,) = flags
    values = [_plain(row.get(flag)) for row in rows]
    is_clear = len({*map(shown, values)}) == len({*values})  # not where stages have the same names
    if not is_clear and len(rows) <= MOST_ALONE:
        return by_title
    return flag.partition(".")[2], values


def _rate(seeds: Seeds) -> Rate:
    configurations = {row.configuration for row in seeds}
    return GrokRate.of(seeds) if len(configurations) == 1 else PooledRate.of(seeds)


def _against(own: Seeds, first: Seeds) -> Against:
    """Return the rate of seeds over that of the first value's; seeds that both had are compared with themselves."""
    share = _rate(own)
    other = _rate(first)
    grokked = {row.seed: row.has_grokked for row in own}
    others = {row.seed: row.has_grokked for row in first}
    shared = grokked.keys() & others.keys()

    # Pairs leave out the seeds that one side alone had. Where these are most of them, all seeds say more.
    is_paired = 2 * len(shared) >= min(len(grokked), len(others))
    if is_paired and isinstance(share, GrokRate) and isinstance(other, GrokRate):
        pairs = Paired.of([(grokked[seed], others[seed]) for seed in shared])
        return Against(pairs.ratio, pairs.ratio_interval, pairs.n)

    rate = share.rate or 0.0
    base = other.rate or 0.0
    interval = None
    if share.interval and other.interval:
        # Shared seeds have the same luck on both sides: the ratio is known better than from two independent rates.
        alike = _correlation(_beyond(own, rate), _beyond(first, base))
        interval = ratio_of_intervals(rate, share.interval, base, other.interval, alike)
    return Against(rate / base if base else None, interval, len(shared))


def _beyond(seeds: Seeds, rate: float) -> dict[Seed, float]:
    """Return how often each seed grokked beyond what a rate lets expect."""
    n = Counter(row.seed for row in seeds)
    grokked = Counter(row.seed for row in seeds if row.has_grokked)
    return {seed: grokked[seed] - rate * n[seed] for seed in n}


def _correlation(one: Mapping[Seed, float], other: Mapping[Seed, float]) -> float:
    """Return the correlation of deviations from a mean; a seed that one lacks deviates by nothing there."""
    squares = sum(value**2 for value in one.values()) * sum(value**2 for value in other.values())
    if not squares:
        return 0.0
    shared = one.keys() & other.keys()
    together = sum(one[seed] * other[seed] for seed in shared)
    return together / squares**0.5


def _counts(rate: Rate | None) -> dict[str, Any]:
    """Return a rate as columns."""
    if not rate:
        return {"n": 0, "grokked": 0, "low": None, "high": None}
    low, high = rate.interval or (None, None)
    return {"n": rate.n, "grokked": rate.grokked, "low": low, "high": high}


# Two flags


@dataclass(frozen=True)
class Grid:
    """Two flags of a study, the first one's values as rows."""

    study: str
    flags: tuple[str, str]
    values: Values
    cells: Mapping[Cell, PooledRate | None]
    """None where no seed was counted."""
    interaction: Coefficient | None
    reason: str
    """Why the interaction cannot be estimated; empty if it is."""

    @property
    def beyond(self) -> str:
        """The interaction in words."""
        if self.interaction is None:
            return f"not estimable: {self.reason}"
        return "odds × {:.2g} ({:.2g} to {:.2g}) beyond both".format(*self.interaction.odds_ratio)

    def lines(self) -> list[list[str]]:
        """Return the texts of a table: the second flag's values as its head, and one line for each of the first."""
        first, second = self.flags
        rows, columns = self.values
        heads = [f"{second} {shown(b)}" for b in columns]
        lines = [[first, *heads]]
        for a in rows:
            rates = [rate_text(self.cells[a, b]) for b in columns]
            lines.append([shown(a), *rates])
        return lines

    def tidy(self) -> list[dict[str, Any]]:
        """Return one row per cell, with the interaction of its grid."""
        return [self._row(cell, rate) for cell, rate in self.cells.items()]

    def _row(self, cell: Cell, rate: PooledRate | None) -> dict[str, Any]:
        odds, low, high = self.interaction.odds_ratio if self.interaction else (None, None, None)
        first, second = self.flags
        a, b = cell
        return {
            "study": self.study,
            "flag": first,
            "value": a,
            "with_flag": second,
            "with_value": b,
            "configurations": rate.configurations if rate else 0,
            "seeds": rate.seeds if rate else 0,
            **_counts(rate),
            "odds_ratio": odds,
            "odds_ratio_low": low,
            "odds_ratio_high": high,
            "reason": self.reason or None,
        }


def flag_grids(configurations: Iterable[Row], seeds: Iterable[SeedRecord]) -> list[Grid]:
    """Return a grid of each two flags whose values differ in a study: rows as search.analysis.frames has them."""
    grids = []
    for study, rows, by_key in _by_study(configurations, seeds):
        # Two configurations are one against the other, as a single flag.
        if len(rows) > 2:
            grids += [_grid(study, flags, rows, by_key) for flags in combinations(_flags(rows), 2)]
    return grids


def write_flags(singles: Sequence[Flag], grids: Sequence[Grid], style: str) -> str:
    """Return flags as md, csv or json."""
    if style != "md":
        rows = [row for flag in singles for row in flag.tidy()]
        for grid in grids:
            rows += grid.tidy()
        return rows_text(rows, style)

    parts = []
    for flag in singles:
        parts.append(f"{flag.study}: {flag.name}\n\n{_table(flag)}")
    for grid in grids:
        head = f"{grid.study}: {' × '.join(grid.flags)}"
        parts.append(f"{head}\n\n{_table(grid)}\n\n{grid.beyond}")
    notes = bullets([*notes_on_one(singles), *notes_on(grids)])
    return "\n\n".join([*parts, "Notes:", notes]) + "\n"


def _table(answer: Flag | Grid) -> str:
    head, *lines = answer.lines()
    return markdown_table(head, lines)


def notes_on_one(flags: Sequence[Flag]) -> tuple[str, ...]:
    """Return the notes that explain what these flags show."""
    notes: tuple[str, ...] = NOTES_ON_ONE if flags else ()
    rates = [side.rate for flag in flags for side in flag.sides]
    if any(isinstance(rate, PooledRate) for rate in rates):
        notes += POOLED
    if any(flag.has_stopped for flag in flags):
        notes += STOPPED
    return notes


def notes_on(grids: Sequence[Grid]) -> tuple[str, ...]:
    """Return the notes that explain what these grids show."""
    notes: tuple[str, ...] = NOTES if grids else ()
    if any(grid.interaction for grid in grids):
        notes += BEYOND
    return notes


def _by_study(
    configurations: Iterable[Row], seeds: Iterable[SeedRecord]
) -> Iterator[tuple[str, Rows, Mapping[str, Seeds]]]:
    """Yield each study with its configurations, and the counted seeds of each that confirm nothing."""
    # Without seeds of a confirmation, which only what a search chose has. Each once: a study may be named twice.
    own = {(row.study, row.key): row for row in seeds if row.outcome in COUNTED and not row.confirmation}
    counted = group_by(own.values(), "study")
    for study, rows in group_by(configurations, "study").items():
        once = {row["configuration"]: row for row in rows}
        yield study, list(once.values()), group_by(counted.get(study, ()), "configuration")


def _flags(rows: Rows) -> list[str]:
    """Return the fields with few values: all of the model, and those of recipe and task that are no numbers."""
    flags = []
    for name in rows[0]:
        if not name.startswith(FIELDS) or name in NOT_FLAGS:
            continue
        values = _values(rows, name)
        is_flag = name.startswith("model.") or all(map(_is_word, values))
        if is_flag and 1 < len(values) <= MOST_VALUES:
            flags.append(name)
    return flags


def _is_word(value: Any) -> bool:
    """True for a value that is no number: a number of a recipe, such as its rate, is a point on a scale."""
    return value is None or isinstance(value, str) or shown(value) in ("on", "off")


def _values(rows: Rows, name: str) -> tuple[Any, ...]:
    """Return the different values of a field in order: none before others, off before on."""
    values = {_plain(row.get(name)) for row in rows}
    return tuple(sorted(values, key=_order))


def _plain(value: Any) -> Any:
    """Return a value as it is compared: NaN, as frames have for none, is None."""
    if isinstance(value, list | tuple):
        return Entries(value)
    if isinstance(value, Sized) and not isinstance(value, str):
        return repr(value)
    # NaN alone differs from itself.
    return None if value != value else value


def _order(value: Any) -> tuple[Any, ...]:
    """Return a sorting key: none, then numbers by their size, then texts."""
    number = float(value) if isinstance(value, Real) else 0.0
    return value is not None, number, shown(value), repr(value)


def _grid(study: str, flags: tuple[str, str], rows: Rows, seeds: Mapping[str, Seeds]) -> Grid:
    first, second = flags
    values = (_values(rows, first), _values(rows, second))
    members: dict[Cell, Any] = {cell: [] for cell in product(*values)}
    for row in rows:
        cell = (_plain(row.get(first)), _plain(row.get(second)))
        members[cell].append(row)

    cells: dict[Cell, PooledRate | None] = {}
    for cell, part in members.items():
        of_cell = _seeds_of(part, seeds)
        cells[cell] = PooledRate.of(of_cell) if of_cell else None
    interaction, reason = _interaction(values, members, cells, seeds)

    # Without the part of the study file that they are in: a table's head is narrow.
    names = (first.partition(".")[2], second.partition(".")[2])
    return Grid(study, names, values, cells, interaction, reason)


def _interaction(
    values: Values,
    members: Mapping[Cell, Rows],
    cells: Mapping[Cell, PooledRate | None],
    seeds: Mapping[str, Seeds],
) -> tuple[Coefficient | None, str]:
    """Return the interaction in log odds, or None and why not.

    Axes: C configurations, S seeds, F the two flags, K coefficients.
    """
    import numpy as np

    if max(map(len, values)) > 2:
        return None, "more than two values"
    if not all(cells.values()):
        return None, "an empty cell"
    # Where one value of one flag has all or nothing, its odds are infinite and the penalty alone would decide.
    for flag in range(2):
        for value in values[flag]:
            side = [rate for cell, rate in cells.items() if rate and cell[flag] == value]
            grokked = sum(rate.grokked for rate in side)
            if grokked in (0, sum(rate.n for rate in side)):
                return None, "all or none grokked at a value of one"

    arms: list[Seeds] = []
    is_on: list[tuple[bool, bool]] = []
    (_, first_on), (_, second_on) = values
    for (first, second), rows in members.items():
        own = [seeds[row["configuration"]] for row in rows if row["configuration"] in seeds]
        arms += own
        is_on += [(first == first_on, second == second_on)] * len(own)
    numbers = sorted({row.seed for arm in arms for row in arm})
    places = {seed: place for place, seed in enumerate(numbers)}
    if len(places) < FEWEST_SEEDS:
        return None, TOO_FEW

    outcomes_CS = np.full((len(arms), len(places)), np.nan)
    for outcomes_S, arm in zip(outcomes_CS, arms, strict=True):
        for row in arm:
            outcomes_S[places[row.seed]] = row.has_grokked

    # With levels of -1/2 and 1/2 the product's coefficient is the log of one odds ratio over the other.
    levels_CF = np.array(is_on) - 0.5
    design_CK = np.column_stack([np.ones(len(arms)), levels_CF, levels_CF.prod(1)])
    *_, interaction = fit(design_CK, outcomes_CS)
    return interaction, ""


def rate_text(rate: Rate | None) -> str:
    """Return a rate with its interval; a dash where no seed was counted."""
    if rate is None:
        return "–"
    words = percent(rate.rate or 0.0, 0)
    if rate.interval:
        words += f", {percents(rate.interval, 0)}"
    return f"{rate.grokked:,} of {rate.n:,} ({words})"
