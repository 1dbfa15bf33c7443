"""A graph that has operations on rows beside those on numbers, and its text for C++ (recorded.h)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import chain
from typing import Any

from torch import Tensor

from trainer.engine.tape_graph import Graph, Work

NO_TABLE = -1


@dataclass(frozen=True)
class Row:
    """An operation of `Rowwise` in recorded.h: registers that it reads, and how many numbers it makes.

    table, starts: numbers of lists of registers (`RowGraph.table`), or NO_TABLE. A table has `stride` columns.
    """

    kind: str
    reads: tuple[int, ...]
    width: int
    table: int = NO_TABLE
    stride: int = 0
    starts: int = NO_TABLE


@dataclass(frozen=True)
class Part:
    """A number that a row makes."""

    row: int
    index: int


@dataclass(frozen=True)
class Program:
    """A recorded net: the text of "recording.h", and its size in registers and in products of a problem."""

    text: str
    registers: int
    products: int


@dataclass(frozen=True)
class _Step:
    """The struct of recorded.h, by its fields."""

    kind: str
    count: int
    reads: int
    width: int
    read: int
    out: int
    table: int
    rows: int
    stride: int
    starts: int


class RowGraph(Graph):
    """Recorded operations on numbers and rows. The first inputs are the wide tensors' numbers, the others tokens."""

    def __init__(self, work: Work, wide: int) -> None:
        super().__init__(work)
        self.wide = wide
        self.tables: dict[tuple[int, ...], int] = {}
        self.lists: list[tuple[int, ...]] = []

    def table(self, registers: Sequence[int]) -> int:
        """Return the number of a list of registers, each list once."""
        key = tuple(registers)
        if key not in self.tables:
            self.tables[key] = len(self.lists)
            self.lists.append(key)
        return self.tables[key]

    def row(self, kind: str, reads: Sequence[int], width: int, **tables: int) -> list[int]:
        """Return the registers of the numbers that a `Row` makes. tables: its fields `table`, `stride` and `starts`."""
        row = Row(kind, tuple(reads), width, **tables)
        register = self._add(row, row)
        parts = [Part(register, n) for n in range(width)]
        return [self._add(part, part) for part in parts]

    def is_wide(self, registers: Tensor) -> bool:
        """True if all registers are the wide tensors' own."""
        return bool(((registers >= 0) & (registers < self.wide)).all())

    def _simplified(self, name: str, *reads: int) -> int | None:
        # A mask that is added is one that is chosen: softmax leaves it out.
        if name == "add" and -math.inf in [self.value(r) for r in reads]:
            return self.constant(-math.inf)
        return super()._simplified(name, *reads)

    def program(self, outputs: list[int]) -> Program:
        """Return the program that makes some registers; operations that they do not need are left out."""
        widths = self._widths(outputs)
        steps = self._steps(widths)
        read = set(outputs)
        for register, width in widths.items():
            read |= self._needs(self._row(register, width))
        constants = sorted(r for r in read if self.value(r) is not None)

        # Registers in the order of the text, so that a step writes one range: inputs, constants, step after step.
        registers = [*range(self.inputs), *constants]
        for register in chain.from_iterable(steps):
            registers += self._made(register, widths[register])
        place = {register: n for n, register in enumerate(registers)}

        text = _Text(self, place)
        for step in steps:
            first, *_ = self._made(step[0], 1)
            rows = [self._row(register, widths[register]) for register in step]
            text.add(rows, place[first])
        return text.program(self, outputs, constants)

    def _widths(self, outputs: list[int]) -> dict[int, int]:
        """Return how many numbers each operation makes that the outputs need, from the first to the last of them."""
        needed = set(outputs)
        widths = dict[int, int]()
        # Readers come before what they read.
        for register in range(-len(self.nodes), 0):
            node: Any = self.nodes[-1 - register]
            if isinstance(node, Part) and register in needed:
                widths[node.row] = max(widths.get(node.row, 0), node.index + 1)
            elif isinstance(node, Row) and register in widths:
                # Only these make each number by itself; a softmax or a norm is of its whole row.
                if node.kind not in ("AFFINE", "LOOKUP"):
                    widths[register] = node.width
                needed |= self._needs(self._row(register, widths[register]))
            elif isinstance(node, tuple) and register in needed:
                widths[register] = 1
                needed.update(node[1:])
        return widths

    def _row(self, register: int, width: int) -> Row:
        """Return an operation as a row, as far as it is needed."""
        node: Any = self.nodes[-1 - register]
        if not isinstance(node, Row):
            name, *reads = node
            return Row(name.upper(), tuple(reads), 1)
        kind = node.kind
        # A table of wide numbers alone is the same for all problems of a block, and has an operation of its own.
        if node.table != NO_TABLE and all(0 <= r < self.wide for r in self.lists[node.table]):
            kind += "_WIDE"
        return Row(kind, node.reads, width, node.table, node.stride, node.starts)

    def _needs(self, row: Row) -> set[int]:
        """Return the registers that an operation reads."""
        needs = set(row.reads)
        if row.table != NO_TABLE:
            table = self.lists[row.table]
            # Of each row of a table as many numbers as are made: a program may need fewer than were recorded.
            for n in range(0, len(table), row.stride):
                needs.update(table[n : n + row.width])
        if row.starts != NO_TABLE:
            needs.update(self.lists[row.starts][: row.width])
        return needs

    def _made(self, register: int, width: int) -> list[int]:
        """Return the registers of the numbers that an operation makes."""
        if not isinstance(self.nodes[-1 - register], Row):
            return [register]
        return [self.register_of[Part(register, n)] for n in range(width)]

    def _steps(self, widths: dict[int, int]) -> list[list[int]]:
        """Return the operations in an order in which they can be done. One step has what is alike and independent."""
        depth_of = dict[int, int]()
        steps = dict[Any, list[int]]()
        for register in sorted(widths, reverse=True):  # as recorded
            row = self._row(register, widths[register])
            # One step after the last of those that make what it reads; inputs and constants are there before all.
            depth = 1 + max(depth_of.get(self._owner(r), 0) for r in self._needs(row))
            depth_of[register] = depth
            alike = (row.kind, len(row.reads), row.width, row.table, row.stride, row.starts)
            steps.setdefault((depth, *alike), []).append(register)
        return [steps[key] for key in sorted(steps)]

    def _owner(self, register: int) -> int:
        """Return the operation that makes a register."""
        node: Any = None if register >= 0 else self.nodes[-1 - register]
        return node.row if isinstance(node, Part) else register


class _Text:
    """What recorded.h includes, written step by step."""

    def __init__(self, graph: RowGraph, place: dict[int, int]) -> None:
        self.lists = graph.lists
        self.place = place
        self.begins = {NO_TABLE: NO_TABLE}
        self.tables = list[int]()
        self.reads = list[int]()
        self.steps = list[_Step]()
        self.products = 0

    def add(self, rows: list[Row], out: int) -> None:
        """Write a step: rows that are alike, and of which none reads what another makes.

        out: the place of the first number that they make.
        """
        row = rows[0]
        step = _Step(
            kind=row.kind,
            count=len(rows),
            reads=len(row.reads),
            width=row.width,
            read=len(self.reads),
            out=out,
            table=self._begin(row.table),
            rows=len(self.lists[row.table]) // row.stride if row.stride else 0,
            stride=row.stride,
            starts=self._begin(row.starts),
        )
        self.steps.append(step)
        # An affine row multiplies each number that it reads, for each that it makes.
        products_each = step.reads if row.kind.startswith("AFFINE") else 1
        self.products += step.count * step.width * products_each
        for each in rows:
            self.reads += [self.place[r] for r in each.reads]

    def _begin(self, table: int) -> int:
        """Return where a list begins among all that are written down. Registers that nobody needs have no place."""
        if table not in self.begins:
            self.begins[table] = len(self.tables)
            self.tables += [self.place.get(r, 0) for r in self.lists[table]]
        return self.begins[table]

    def program(self, graph: RowGraph, outputs: list[int], constants: list[int]) -> Program:
        """Return the program of all steps that were written."""
        registers = len(self.place)
        steps = []
        for step in self.steps:
            fields = ", ".join(map(str, astuple(step)))
            steps.append(f"{{{fields}}}")
        lines = [
            f"constexpr int SIZE = {graph.wide};",
            f"constexpr int TOKENS = {graph.inputs - graph.wide};",
            f"constexpr int CONSTANTS = {len(constants)};",
            f"constexpr int REGISTERS = {registers};",
            f"constexpr int STEPS = {len(steps)};",
            _array("float", "KNOWN", [_number(graph.value(r)) for r in constants]),
            _array("int32_t", "READ", self.reads),
            _array("int32_t", "TABLE", self.tables),
            _array("int32_t", "LOGIT", [self.place[r] for r in outputs]),
            _array("Step", "STEP", steps),
        ]
        return Program("\n".join(lines) + "\n", registers, self.products)


def _number(value: float | None) -> str:
    """Return a constant as C++ reads it."""
    special = {"inf": "__builtin_inff()", "-inf": "-__builtin_inff()", "nan": '__builtin_nanf("")'}
    return special.get(repr(value), f"{value!r}f")


def _array(kind: str, name: str, values: Sequence[object]) -> str:
    """Return the text of an array, which in C++ is never empty."""
    listed = ", ".join(map(str, values)) or "{}"
    return f"static const {kind} {name}[] = {{{listed}}};"
