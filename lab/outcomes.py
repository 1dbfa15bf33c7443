"""Outcomes of a plan's parts in one table, each added when it has ended; several processes may train side by side."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import search

COLUMNS = ["init_seed", "outcome", "stages", "steps", "grok_step", "params", "best_exact", "verified"]


def has(table: Path, **part: object) -> bool:
    """True if a table has a part's rows. part: columns and values that they have in all of its rows."""
    if not table.exists():
        return False
    rows = pd.read_csv(table)
    is_its = pd.Series(True, rows.index)
    for column, value in part.items():
        is_its &= rows[column] == value
    return bool(is_its.any())


def add(table: Path, seeds: pd.DataFrame, **part: object) -> None:
    """Add a part's seeds, of which all have ended, to a table in one write: so `has` is true of all or of none.

    seeds: with COLUMNS, as `search.run` gives them. part: its columns, each a value or a series of the seeds'.
    """
    found = seeds[COLUMNS].copy()
    for place, (column, value) in enumerate(part.items()):
        found.insert(place, column, value)
    text = found.sort_values([*part, "init_seed"]).to_csv(index=False, header=False, lineterminator="\n")
    with table.open("a", encoding="utf-8", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0, 2)
        head = "" if file.tell() else ",".join([*part, *COLUMNS]) + "\n"
        file.write(head + text)


def train(study: Path | Mapping[str, Any], homes: Path, table: Path, titled: str | None = None, **part: object) -> None:
    """Train a study in a home of its name and add its seeds to a table; nothing if the table has its part.

    titled: the column that names each seed's configuration, where the study has several. Exits where the study was
    stopped before its end: a table has a part when all of it has ended.
    """
    if has(table, **part):
        return
    name = study.stem if isinstance(study, Path) else study["name"]
    trained = search.run(study, home=homes / name)
    if not trained.is_done:
        raise SystemExit(repr(trained))
    titles = {titled: trained.seeds["title"]} if titled else {}
    add(table, trained.seeds, **part, **titles)
