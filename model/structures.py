"""Groups of constraints to impose together: equal or opposite rows or columns, zero columns, rotations.

Each is a tuple of constraints as text, spelt as in model/tied.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from model.layout import Shapes

Words = tuple[str, ...]
STRUCTURES = ("rows", "columns", "empty", "rotation")


def of_matrices(shapes: Shapes) -> dict[str, list[Words]]:
    """Return the groups that any matrix can have: equal or opposite rows and columns, and empty columns."""
    return {
        "rows": [w for name, shape in _matrices(shapes) for w in _equal(name, shape, across=False)],
        "columns": [w for name, shape in _matrices(shapes) for w in _equal(name, shape, across=True)],
        "empty": [
            tuple(f"{name}[{r},{c}] = 0" for r in range(rows))
            for name, (rows, columns) in _matrices(shapes)
            for c in range(columns)
            if rows > 1
        ],
    }


def rotations(name: str, size: int) -> list[Words]:
    """Return for each pair of axes of a square matrix the two scaled rotations, one either way round."""
    return [
        (
            f"{name}[{i},{i}] = {a}{name}[{j},{j}]",
            f"{name}[{i},{j}] = {b}{name}[{j},{i}]",
        )
        for i, j in combinations(range(size), 2)
        for a, b in (("", "-"), ("-", ""))
    ]


def _matrices(shapes: Shapes) -> Iterator[tuple[str, tuple[int, int]]]:
    for name, shape in shapes.items():
        if len(shape) == 2:
            yield name, (shape[0], shape[1])


def _equal(name: str, shape: tuple[int, int], across: bool) -> Iterator[Words]:
    """Yield pairs of equal or opposite rows, or columns; with one entry each they are no structure."""
    rows, columns = shape if not across else shape[::-1]
    for i, j in combinations(range(rows) if columns > 1 else (), 2):
        for sign in ("", "-"):
            places = [((k, i), (k, j)) if across else ((i, k), (j, k)) for k in range(columns)]
            yield tuple(f"{name}[{a},{b}] = {sign}{name}[{c},{d}]" for (a, b), (c, d) in places)
