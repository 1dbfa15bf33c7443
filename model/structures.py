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
    groups: dict[str, list[Words]] = {"rows": [], "columns": [], "empty": []}
    for name, shape in shapes.items():
        if len(shape) != 2:
            continue
        rows, columns = shape
        groups["rows"] += _equal(rows, columns, f"{name}[{{line}},{{k}}]")
        groups["columns"] += _equal(columns, rows, f"{name}[{{k}},{{line}}]")
        if rows > 1:  # of a single row that would be any entry
            for c in range(columns):
                zeros = [f"{name}[{r},{c}] = 0" for r in range(rows)]
                groups["empty"].append(tuple(zeros))
    return groups


def rotations(name: str, size: int) -> list[Words]:
    """Return for each pair of axes of a square matrix the two scaled rotations, one either way round."""
    groups: list[Words] = []
    for i, j in combinations(range(size), 2):
        # [[a, b], [-b, a]] and its mirror image [[a, b], [b, -a]]
        for diagonal, other in (("", "-"), ("-", "")):
            cosine = f"{name}[{i},{i}] = {diagonal}{name}[{j},{j}]"
            sine = f"{name}[{i},{j}] = {other}{name}[{j},{i}]"
            groups.append((cosine, sine))
    return groups


def _equal(lines: int, length: int, entry: str) -> Iterator[Words]:
    """Yield pairs of equal or opposite lines, which are rows or columns.

    entry: how the k-th entry of a line is written. With one entry each, lines are no structure.
    """
    if length < 2:
        return
    for i, j in combinations(range(lines), 2):
        for sign in ("", "-"):
            firsts = [entry.format(line=i, k=k) for k in range(length)]
            seconds = [entry.format(line=j, k=k) for k in range(length)]
            yield tuple(f"{a} = {sign}{b}" for a, b in zip(firsts, seconds, strict=True))
