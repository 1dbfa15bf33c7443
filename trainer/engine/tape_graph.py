"""The tape, and the graph of operations from which it is made (trainer/engine/tape.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

OPS = (
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "root",
    "exp",
    "log",
    "sin",
    "cos",
    "abs",
    "max",
    "min",
    "floor",
    "power",
    "greater",
    "not_less",
    "equal",
    "choose",
)
"""Names in the order of `EACH_OPERATION` in trainer/engine/cpp/operations.h."""
CODE = {name: code for code, name in enumerate(OPS)}
SYMMETRIC = {"add", "mul", "max", "min", "equal"}
Array = np.ndarray[Any, Any]
Work = Callable[[int, float, float, float], float]
"""(operation's number, three numbers) -> the engine's result."""


@dataclass(frozen=True)
class Tape:
    """Arrays as trainer/engine/cpp/tape.h takes them; registers are inputs, constants, then operations [N] in order.

    constants: float32. blocks [B, 3]: operation, begin, end; reads [3, N] and outputs: registers; int32.
    """

    inputs: int
    constants: Array
    blocks: Array
    reads: Array
    outputs: Array


class Graph:
    """Recorded operations, each once. Inputs have registers from 0 up, constants and operations from -1 down."""

    def __init__(self, work: Work) -> None:
        self.inputs = 0
        self.nodes: list[float | tuple[Any, ...]] = []  # a constant, or an operation and its registers
        self.register_of: dict[Any, int] = {}
        self.work = work

    def input(self) -> int:
        """Add an input. Return its register."""
        self.inputs += 1
        return self.inputs - 1

    def constant(self, value: float) -> int:
        """Return the register of a constant, rounded to float32. 0 and -0 are two."""
        value = float(np.float32(value))
        return self._add((math.copysign(1, value), repr(value)), value)

    def value(self, register: int) -> float | None:
        """Return a constant's value; None for other registers."""
        node = None if register >= 0 else self.nodes[-1 - register]
        return node if isinstance(node, float) else None

    def operation(self, name: str, *reads: int) -> int:
        """Return the register of an operation, or an existing one with its result."""
        simple = self._simplified(name, *reads)
        if simple is not None:
            return simple
        known = [value for r in reads if (value := self.value(r)) is not None]
        if len(known) == len(reads):
            # By the engine, once: Python rounds to double precision, and has other polynomials.
            a, b, c = [*known, 0.0, 0.0][:3]
            return self.constant(self.work(CODE[name], a, b, c))
        if name in SYMMETRIC:  # so that a + b and b + a are one operation
            reads = tuple(sorted(reads))
        node = (name, *reads)
        return self._add(node, node)

    def _add(self, key: Any, node: Any) -> int:
        if key not in self.register_of:
            self.nodes.append(node)
            self.register_of[key] = -len(self.nodes)
        return self.register_of[key]

    def _simplified(self, name: str, *reads: int) -> int | None:
        """Return the register of a result that needs no operation, or None.

        These are sums with 0, products with 0 and 1, the larger of -∞ and a number, and known choices.
        """
        values = [self.value(r) for r in reads]
        if name == "choose":
            which, yes, no = reads
            if yes == no:
                return yes
            known = self.value(which)
            if known is None:
                return None
            return yes if known else no
        if name in ("sub", "div"):
            neutral_there = 0 if name == "sub" else 1
            return reads[0] if values[1] == neutral_there else None
        if name == "mul" and 0 in values:
            return self.constant(0)
        neutral = {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}
        if name in neutral and neutral[name] in values:
            return reads[1 - values.index(neutral[name])]
        return None

    def registers(self, value: Any) -> Tensor:
        """Return the registers of a tensor's entries, int64 of its shape; plain numbers become constants."""
        if isinstance(value, Traced):
            return value.registers
        plain = torch.as_tensor(value)
        numbers = [self.constant(float(x)) for x in plain.flatten().tolist()]
        return torch.tensor(numbers, dtype=torch.int64).reshape(plain.shape)

    def tape(self, outputs: list[int]) -> Tape:
        """Return the operations that the outputs need, by depth and kind, as arrays."""
        order = self._operations(outputs)
        reads: dict[int, tuple[int, ...]] = {}
        for _, _, register in order:
            _, *registers = self.nodes[-1 - register]  # type: ignore[misc]
            reads[register] = tuple(registers)
        read = set(outputs).union(*reads.values())
        constants = sorted(r for r in read if r < 0 and r not in reads)
        # The tape's registers: inputs, constants, then operations in order.
        place = {r: r for r in range(self.inputs)}
        for r in (*constants, *reads):
            place[r] = len(place)

        # The engine looks at a kind once per block, not once per operation.
        blocks: list[tuple[int, int, int]] = []
        end = 0
        for (_, code), block in groupby(order, key=lambda row: row[:2]):
            begin = end
            end += len(list(block))
            blocks.append((code, begin, end))
        filled = list[list[int]]()
        for row in reads.values():
            three = (*row, row[0], row[0])[:3]  # every operation reads three registers
            filled.append([place[r] for r in three])
        return Tape(
            inputs=self.inputs,
            constants=np.array([self.value(r) for r in constants], dtype=np.float32),
            blocks=np.array(blocks, dtype=np.int32).reshape(-1, 3),
            reads=np.ascontiguousarray(np.array(filled, dtype=np.int32).reshape(-1, 3).T),
            outputs=np.array([place[r] for r in outputs], dtype=np.int32),
        )

    def _operations(self, outputs: list[int]) -> list[tuple[int, int, int]]:
        """Return (depth, kind, register) of every operation that the outputs need, in the order of a tape."""
        needed = set(outputs)
        recorded = list(enumerate(self.nodes, start=1))  # the first node's register is -1
        for n, node in reversed(recorded):  # readers before what they read
            if -n in needed and isinstance(node, tuple):
                needed.update(node[1:])
        depth = dict[int, int]()
        order = list[tuple[int, int, int]]()
        for n, node in recorded:
            if -n in needed and isinstance(node, tuple):
                name, *reads = node
                # By depth, so that operations of one block do not wait for each other.
                depth[-n] = 1 + max(depth.get(r, 0) for r in reads)
                order.append((depth[-n], CODE[name], -n))
        return sorted(order)


class Traced(Tensor):
    """A tensor without numbers: a shape, a dtype, and the register of each entry."""

    registers: Tensor

    @staticmethod
    def __new__(cls, registers: Tensor, dtype: torch.dtype) -> Traced:
        traced: Traced = Tensor._make_wrapper_subclass(cls, registers.shape, dtype=dtype)
        traced.registers = registers
        return traced

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{function} on a traced tensor outside of its recording")
