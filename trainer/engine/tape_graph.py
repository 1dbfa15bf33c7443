"""What a tape is, and the graph of operations from which it is made (trainer/engine/tape.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

OPS = (
    *("add", "sub", "mul", "div", "neg", "root", "exp", "log", "sin", "cos", "abs", "max", "min", "floor"),
    *("power", "greater", "not_less", "equal", "choose"),
)
"""In the order of trainer/engine/cpp/tape.h."""
CODE = {name: code for code, name in enumerate(OPS)}
SYMMETRIC = {"add", "mul", "max", "min", "equal"}
Array = np.ndarray[Any, Any]
Work = Callable[[int, float, float, float], float]
"""What the engine makes of an operation (by its number) on three numbers."""


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
    """Operations as they are met, each once. Inputs are the registers from 0 up; constants and operations, in
    the order in which they were made, those from -1 down.
    """

    def __init__(self, work: Work) -> None:
        self.inputs = 0
        self.made: list[float | tuple[Any, ...]] = []  # a constant, or an operation and its registers
        self.known: dict[Any, int] = {}
        self.work = work

    def input(self) -> int:
        self.inputs += 1
        return self.inputs - 1

    def constant(self, value: float) -> int:
        value = float(np.float32(value))
        return self._kept((math.copysign(1, value), repr(value)), value)

    def value(self, register: int) -> float | None:
        """A constant's value; None of what is none."""
        made = None if register >= 0 else self.made[-1 - register]
        return made if isinstance(made, float) else None

    def operation(self, name: str, *reads: int) -> int:
        """The register of an operation, or one that holds its result already."""
        simple = self._simplified(name, *reads)
        if simple is not None:
            return simple
        values = [self.value(r) for r in reads]
        if None not in values:
            return self.constant(self.work(CODE[name], *[*values, 0.0, 0.0][:3]))  # type: ignore[arg-type]
        made = (name, *(sorted(reads) if name in SYMMETRIC else reads))
        return self._kept(made, made)

    def _kept(self, key: Any, made: Any) -> int:
        if key not in self.known:
            self.made.append(made)
            self.known[key] = -len(self.made)
        return self.known[key]

    def _simplified(self, name: str, *reads: int) -> int | None:
        """Sums with 0, products with 0 and 1, the larger of -∞ and something, choices that are known."""
        values = [self.value(r) for r in reads]
        if name == "choose":
            known, same = values[0] is not None, reads[1] == reads[2]
            return reads[1 if values[0] or same else 2] if known or same else None
        if name in ("sub", "div"):
            return reads[0] if values[1] == (0 if name == "sub" else 1) else None
        if name == "mul" and 0 in values:
            return self.constant(0)
        neutral = {"add": 0.0, "mul": 1.0, "max": -math.inf, "min": math.inf}
        if name in neutral and neutral[name] in values:
            return reads[1 - values.index(neutral[name])]
        return None

    def registers(self, value: Any) -> Tensor:
        """The registers of a tensor's entries, int64 of its shape; of plain tensors and numbers, of
        constants."""
        if isinstance(value, Traced):
            return value.registers
        plain = torch.as_tensor(value)
        numbers = [self.constant(float(x)) for x in plain.flatten().tolist()]
        return torch.tensor(numbers, dtype=torch.int64).reshape(plain.shape)

    def tape(self, outputs: list[int]) -> Tape:
        """What the outputs need, by depth and kind, as arrays."""
        order = self._operations(outputs)
        reads: dict[int, tuple[int, ...]] = {r: self.made[-1 - r][1:] for _, _, r in order}  # type: ignore[index]
        read = {a for its in reads.values() for a in its} | set(outputs)
        constants = sorted(r for r in read if r < 0 and r not in reads)
        place = {r: r for r in range(self.inputs)}
        for r in (*constants, *reads):
            place[r] = len(place)
        starts = [n for n, (*kind, _) in enumerate(order) if n == 0 or tuple(kind) != order[n - 1][:2]]
        blocks = [(order[s][1], s, e) for s, e in zip(starts, [*starts[1:], len(order)], strict=False)]
        filled = [[place[a] for a in (*its, *its[:1] * 2)[:3]] for its in reads.values()]
        return Tape(
            self.inputs,
            np.array([self.value(r) for r in constants], dtype=np.float32),
            np.array(blocks, dtype=np.int32).reshape(-1, 3),
            np.ascontiguousarray(np.array(filled, dtype=np.int32).reshape(-1, 3).T),
            np.array([place[r] for r in outputs], dtype=np.int32),
        )

    def _operations(self, outputs: list[int]) -> list[tuple[int, int, int]]:
        """(depth, kind, register) of every operation that the outputs need, in the order of a tape."""
        needed, depth = set(outputs), dict[int, int]()
        for register in range(-len(self.made), 0):  # readers before what they read
            made = self.made[-1 - register]
            if register in needed and isinstance(made, tuple):
                needed.update(made[1:])
        for register in range(-1, -len(self.made) - 1, -1):
            made = self.made[-1 - register]
            if register in needed and isinstance(made, tuple):
                depth[register] = 1 + max(depth.get(a, 0) for a in made[1:])
        return sorted((d, CODE[self.made[-1 - r][0]], r) for r, d in depth.items())  # type: ignore[index]


class Traced(Tensor):
    """A tensor without numbers: a shape, a dtype, and the register of each entry."""

    registers: Tensor

    @staticmethod
    def __new__(cls, registers: Tensor, dtype: torch.dtype) -> Traced:
        made: Traced = Tensor._make_wrapper_subclass(cls, registers.shape, dtype=dtype)
        made.registers = registers
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{function} on a traced tensor outside of its recording")
