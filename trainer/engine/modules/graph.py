"""A graph that has operations on rows beside those on numbers, and its text for C++ (recorded.h)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import groupby
from typing import Any

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

    def row(self, kind: str, reads: Sequence[int], width: int, **more: int) -> list[int]:
        """Return the registers of the numbers that an operation on a row makes."""
        row = Row(kind, tuple(reads), width, **more)
        register = self._add(row, row)
        return [self._add(part, part) for n in range(width) for part in [Part(register, n)]]

    def is_wide(self, registers: Sequence[int]) -> bool:
        """True if all registers are the wide tensors' own."""
        return all(0 <= r < self.wide for r in registers)

    def program(self, outputs: list[int]) -> Program:
        """Return the program that makes some registers; operations that they do not need are left out."""
        widths = self._widths(outputs)
        order = self._by_depth(widths)
        rows = [self._row(r, widths[r]) for r in order]
        read = set(outputs).union(*(self._needs(row) for row in rows))
        constants = sorted(r for r in read if self.value(r) is not None)

        place = {r: r for r in range(self.inputs)}
        for r in constants:
            place[r] = len(place)
        end = len(place)
        for r, row in zip(order, rows, strict=True):
            if isinstance(self.nodes[-1 - r], Row):
                place |= {self.register_of[Part(r, n)]: end + n for n in range(row.width)}
            else:
                place[r] = end
            end += row.width
        return self._text(rows, place, constants, outputs, end)

    def _widths(self, outputs: list[int]) -> dict[int, int]:
        """Return how many numbers each operation makes that the outputs need, from the first to the last of them."""
        needed = set(outputs)
        widths = dict[int, int]()
        recorded = list(enumerate(self.nodes, start=1))
        for n, node in reversed(recorded):  # readers before what they read
            if isinstance(node, Part):
                if -n in needed:
                    widths[node.row] = max(widths.get(node.row, 0), node.index + 1)
            elif isinstance(node, Row):
                if -n in widths:
                    if node.kind not in ("AFFINE", "LOOKUP"):
                        widths[-n] = node.width
                    needed |= self._needs(self._row(-n, widths[-n]))
            elif isinstance(node, tuple) and -n in needed:
                widths[-n] = 1
                needed.update(node[1:])
        return widths

    def _row(self, register: int, width: int) -> Row:
        """Return an operation as a row, as far as it is needed."""
        node: Any = self.nodes[-1 - register]
        if not isinstance(node, Row):
            name, *reads = node
            return Row(name.upper(), tuple(reads), 1)
        kind = node.kind
        if node.table != NO_TABLE and self.is_wide(self.lists[node.table]):
            kind += "_WIDE"
        return Row(kind, node.reads, width, node.table, node.stride, node.starts)

    def _needs(self, row: Row) -> set[int]:
        """Return the registers that an operation reads."""
        needs = set(row.reads)
        if row.table != NO_TABLE:
            table = self.lists[row.table]
            for n in range(0, len(table), row.stride):
                needs.update(table[n : n + row.width])
        if row.starts != NO_TABLE:
            needs.update(self.lists[row.starts][: row.width])
        return needs

    def _by_depth(self, widths: dict[int, int]) -> list[int]:
        """Return the operations in an order in which they can be done, those that are alike together."""
        depth = dict[int, int]()
        key = dict[int, Any]()
        for register in sorted(widths, reverse=True):  # as recorded
            row = self._row(register, widths[register])
            depths = [depth.get(self._owner(r), 0) for r in self._needs(row)]
            depth[register] = 1 + max(depths)
            key[register] = (depth[register], _alike(row), -register)
        return sorted(widths, key=lambda register: key[register])

    def _owner(self, register: int) -> int:
        """Return the operation that makes a register."""
        node: Any = None if register >= 0 else self.nodes[-1 - register]
        return node.row if isinstance(node, Part) else register

    def _text(
        self,
        rows: list[Row],
        place: dict[int, int],
        constants: list[int],
        outputs: list[int],
        registers: int,
    ) -> Program:
        tables = list[int]()
        begins = dict[int, int]()

        def begin(table: int) -> int:
            """Return where a list begins among all that are written down. Those that nobody needs have no place."""
            if table == NO_TABLE:
                return NO_TABLE
            if table not in begins:
                begins[table] = len(tables)
                tables.extend(place.get(r, 0) for r in self.lists[table])
            return begins[table]

        reads = list[int]()
        steps = list[_Step]()
        out = self.inputs + len(constants)
        products = 0
        for _, group in groupby(rows, key=_alike):
            alike = list(group)
            row = alike[0]
            height = len(self.lists[row.table]) // row.stride if row.stride else 0
            step = _Step(
                kind=row.kind,
                count=len(alike),
                reads=len(row.reads),
                width=row.width,
                read=len(reads),
                out=out,
                table=begin(row.table),
                rows=height,
                stride=row.stride,
                starts=begin(row.starts),
            )
            steps.append(step)
            out += step.count * step.width
            products += step.count * step.width * (len(row.reads) if row.kind.startswith("AFFINE") else 1)
            for each in alike:
                reads += [place[r] for r in each.reads]
        assert out == registers
        sizes = {
            "SIZE": self.wide,
            "TOKENS": self.inputs - self.wide,
            "CONSTANTS": len(constants),
            "REGISTERS": registers,
            "STEPS": len(steps),
        }
        values = [repr(self.value(r)) for r in constants]
        written = [f"{{{', '.join(map(str, astuple(step)))}}}" for step in steps]
        lines = [
            *(f"constexpr int {name} = {value};" for name, value in sizes.items()),
            _array("float", "KNOWN", [_number(v) for v in values]),
            _array("int32_t", "READ", map(str, reads)),
            _array("int32_t", "TABLE", map(str, tables)),
            _array("int32_t", "LOGIT", [str(place[r]) for r in outputs]),
            _array("Step", "STEP", written),
        ]
        return Program("\n".join(lines) + "\n", registers, products)


def _alike(row: Row) -> tuple[Any, ...]:
    """Return what rows of one step have in common."""
    return row.kind, len(row.reads), row.width, row.table, row.stride, row.starts


def _number(text: str) -> str:
    """Return a float's text as C++ reads it."""
    special = {"inf": "__builtin_inff()", "-inf": "-__builtin_inff()", "nan": '__builtin_nanf("")'}
    return special.get(text, f"{text}f")


def _array(kind: str, name: str, values: Any) -> str:
    """Return the text of an array, which in C++ is never empty."""
    return f"static const {kind} {name}[] = {{{', '.join(values) or '{}'}}};"
