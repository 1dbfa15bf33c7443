"""Searched flags of the model against each other: the rate in each cell, and if two are more than their sum.

The configurations may differ in other fields too, as those of a search do. A flag is a field of the model with few
values.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from search.analysis.table_text import bullets, markdown_table, rows_text
from search.stats.counting import COUNTED, FEWEST_SEEDS, TOO_FEW, PooledRate, group_by
from search.stats.logistic import Coefficient, fit
from search.stats.record import SeedRecord
from search.study.described import shown

Values = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Those of two flags."""
Cell = tuple[Any, Any]
"""A value of each."""
Rows = Sequence[Mapping[str, Any]]
Seeds = Sequence[SeedRecord]
MOST_VALUES, MOST_GRIDS = 4, 15
NOT_FLAGS = {"model.family", "model.ties"}
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


@dataclass(frozen=True)
class Grid:
    """Two flags of a study, the first one's values as rows. cells: None where no seed was counted."""

    study: str
    flags: tuple[str, str]
    values: Values
    cells: Mapping[Cell, PooledRate | None]
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
        first, second = self.flags
        head = [first, *(f"{second} {shown(value)}" for value in self.values[1])]
        rows = ([shown(a), *(_cell(self.cells[a, b]) for b in self.values[1])] for a in self.values[0])
        return [head, *rows]

    def tidy(self) -> list[dict[str, Any]]:
        """Return one row a cell, with the interaction of its grid."""
        odds = self.interaction.odds_ratio if self.interaction else (None, None, None)
        rows = []
        for (a, b), rate in self.cells.items():
            low, high = rate.interval if rate and rate.interval else (None, None)
            rows.append({
                "study": self.study, "flag": self.flags[0], "value": a, "with_flag": self.flags[1], "with_value": b,
                "configurations": rate.configurations if rate else 0, "n": rate.n if rate else 0,
                "grokked": rate.grokked if rate else 0, "seeds": rate.seeds if rate else 0, "low": low, "high": high,
                **dict(zip(("odds_ratio", "odds_ratio_low", "odds_ratio_high"), odds, strict=True)),
                "reason": self.reason or None,
            })  # fmt: skip
        return rows


def flag_grids(configurations: Iterable[Mapping[str, Any]], seeds: Iterable[SeedRecord]) -> list[Grid]:
    """Return a grid of each two flags whose values differ in a study: rows as search.analysis.frames has them."""
    own = (row for row in seeds if row.outcome in COUNTED and not row.confirmation)
    counted = group_by(own, "study")
    grids = []
    for study, rows in group_by(configurations, "study").items():
        by_key = group_by(counted.get(study, ()), "configuration")
        flags = [name for name in rows[0] if name.startswith("model.") and name not in NOT_FLAGS]
        values = {name: _values(row.get(name) for row in rows) for name in flags}
        varied = [name for name in flags if 1 < len(values[name]) <= MOST_VALUES]
        grids += [_grid(study, pair, (values[pair[0]], values[pair[1]]), rows, by_key)
                  for pair in combinations(varied, 2)]  # fmt: skip
    return grids


def write_grids(grids: Sequence[Grid], style: str) -> str:
    """Return grids in one of table_text's FORMATS: md, csv or json."""
    if style != "md":
        return rows_text([row for grid in grids for row in grid.tidy()], style)
    parts = [
        f"{grid.study}: {' × '.join(grid.flags)}\n\n{markdown_table(head, lines)}\n\n{grid.beyond}"
        for grid in grids
        for head, *lines in [grid.lines()]
    ]
    return "\n\n".join([*parts, "Notes:", bullets(notes_on(grids))]) + "\n"


def notes_on(grids: Sequence[Grid]) -> tuple[str, ...]:
    """Return the notes that explain what these grids show."""
    return (*NOTES, *(BEYOND if any(grid.interaction for grid in grids) else ()))


def _values(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the different values in order, without those that are missing; none if they are no flag's."""
    known = {v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))}
    return tuple(sorted(known)) if all(isinstance(v, int | str) or hasattr(v, "item") for v in known) else ()


def _grid(study: str, flags: tuple[str, str], values: Values, rows: Rows, seeds: Mapping[str, Seeds]) -> Grid:
    members = {cell: [r for r in rows if (r.get(flags[0]), r.get(flags[1])) == cell] for cell in product(*values)}
    cells: dict[Cell, PooledRate | None] = {}
    for cell, part in members.items():
        of_cell = [seed for row in part for seed in seeds.get(row["configuration"], ())]
        cells[cell] = PooledRate.of(of_cell) if of_cell else None
    interaction, reason = _interaction(values, members, cells, seeds)
    names = (flags[0].removeprefix("model."), flags[1].removeprefix("model."))
    return Grid(study, names, values, cells, interaction, reason)


def _interaction(
    values: Values,
    members: Mapping[Cell, Rows],
    cells: Mapping[Cell, PooledRate | None],
    seeds: Mapping[str, Seeds],
) -> tuple[Coefficient | None, str]:
    """Return the interaction in log odds, or None and why not."""
    import numpy as np

    if max(map(len, values)) > 2:
        return None, "more than two values"
    if not all(cells.values()):
        return None, "an empty cell"
    for i, j in product(range(2), range(2)):  # at one level of one flag
        side = [rate for cell, rate in cells.items() if rate and cell[i] == values[i][j]]
        if sum(r.grokked for r in side) in (0, sum(r.n for r in side)):
            return None, "all or none grokked at a value of one"
    arms = [(cell, seeds[r["configuration"]]) for cell, part in members.items() for r in part
            if r["configuration"] in seeds]  # fmt: skip
    places = {seed: i for i, seed in enumerate(sorted({row.seed for _, rows in arms for row in rows}))}
    if len(places) < FEWEST_SEEDS:
        return None, TOO_FEW
    outcomes_CS = np.full((len(arms), len(places)), np.nan)
    for c, (_, rows) in enumerate(arms):
        for row in rows:
            outcomes_CS[c, places[row.seed]] = row.has_grokked
    levels_CF = np.array([[cell[i] == values[i][1] for i in range(2)] for cell, _ in arms]) - 0.5
    design_CK = np.column_stack([np.ones(len(arms)), levels_CF, levels_CF.prod(1)])
    return fit(design_CK, outcomes_CS)[3], ""


def _cell(rate: PooledRate | None) -> str:
    if rate is None:
        return "–"
    ends = ", {:.0%} to {:.0%}".format(*rate.interval) if rate.interval else ""
    return f"{rate.grokked} of {rate.n} ({rate.rate:.0%}{ends})"
