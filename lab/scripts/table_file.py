"""A table that grows: rows are added to a CSV file, which gets its header with the first of them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, str]]:
    """The rows that are there; none without a file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> None:
    """Add rows. A file has the columns with which it began: those given, or the first row's."""
    there = read(path)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(there[0] if there else columns or rows[0]), lineterminator="\n")
        if not there:
            writer.writeheader()
        writer.writerows(rows)
