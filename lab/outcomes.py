"""Outcomes of a plan's parts in one table, each added when it has ended; several processes may train side by side."""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import search

COLUMNS = ["init_seed", "outcome", "stages", "steps", "grok_step", "params", "best_exact", "verified"]


@dataclass(frozen=True)
class Part:
    """Some seeds of a plan's study. columns: what the table's rows say besides of it, as of its scale."""

    study: Mapping[str, Any]
    columns: Mapping[str, object]


def parts(study: Path | Mapping[str, Any], at_once: int, **columns: object) -> list[Part]:
    """Return a study in parts of `at_once` seeds, all configurations in each: what has ended is kept part by part."""
    values = yaml.safe_load(study.read_text(encoding="utf-8")) if isinstance(study, Path) else study
    seeds = values["seeds"]
    if isinstance(seeds, Mapping):
        after = seeds["first"] + seeds["count"]
        seeds = range(seeds["first"], after)
    found = []
    for start in range(0, len(seeds), at_once):
        end = start + at_once
        its = list(seeds[start:end])
        name = f"{values['name']}-{its[0]}"
        part = {**values, "name": name, "seeds": its}
        found.append(Part(part, columns))
    return found


def has(table: Path, part: Part) -> bool:
    """True if a table has a part's rows."""
    if not table.exists():
        return False
    rows = pd.read_csv(table)
    first = part.study["seeds"][0]
    is_its = rows["init_seed"] == first
    for column, value in part.columns.items():
        is_its &= rows[column] == value
    return bool(is_its.any())


def add(table: Path, part: Part, seeds: pd.DataFrame, titled: str | None = None) -> None:
    """Add a part's seeds, of which all have ended, to a table in one write: so `has` is true of all or of none.

    seeds: with COLUMNS and title, as `search.run` gives them. titled: the column that names each seed's configuration.
    """
    columns: dict[str, object] = dict(part.columns)
    if titled:
        columns[titled] = seeds["title"]
    found = seeds[COLUMNS].copy()
    for place, (column, value) in enumerate(columns.items()):
        found.insert(place, column, value)
    found = found.sort_values([*columns, "init_seed"])
    text = found.to_csv(index=False, header=False, lineterminator="\n")
    with table.open("a", encoding="utf-8", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0, 2)
        head = "" if file.tell() else ",".join([*columns, *COLUMNS]) + "\n"
        file.write(head + text)


def train(
    planned: Iterable[Part],
    table: Path,
    homes: str | Path,
    first: str = "0",
    step: str = "1",
    *,
    titled: str | None = None,
) -> None:
    """Train the parts of a plan that a table has not, each in a home of its name, and add each to it when it has ended.

    homes: the folder of the homes, each of which goes on where it was stopped. first, step: every step-th part from
    first on, so that several processes can train side by side. titled: the column that names each seed's configuration,
    where studies have several. Exits where a part was stopped before its end.
    """
    for part in list(planned)[int(first) :: int(step)]:
        if has(table, part):
            continue
        trained = search.run(part.study, home=Path(homes) / part.study["name"])
        if not trained.is_done:
            raise SystemExit(repr(trained))
        add(table, part, trained.seeds, titled)
