"""A seed's step as one graph of operations: its tapes, and the gradient of `expand` as operations of its own.

The gradient is that of trainer/engine/cpp/tape.h, operation by operation in its order, so that its bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trainer.engine.tape_graph import CODE, OPS, Array, Tape

MOVE = len(OPS)
"""A copy, after the operations of tapes (trainer/engine/cuda/steps.h)."""
Value = int
"""The number of an operation's result, of a number in a slot, or of a constant."""


class Values:
    """Values by number: operations on others, numbers that have a slot (`given`), and constants."""

    def __init__(self) -> None:
        self.kinds: list[int] = []  # an operation, or -1
        self.reads: list[tuple[Value, ...]] = []
        self.slots: dict[Value, int] = {}
        self.constants: dict[bytes, Value] = {}

    def given(self, slot: int) -> Value:
        self.slots[value := self._add(-1, ())] = slot
        return value

    def constant(self, number: float) -> Value:
        bits = np.float32(number).tobytes()
        if bits not in self.constants:
            self.constants[bits] = self._add(-1, ())
        return self.constants[bits]

    def operation(self, kind: int, *reads: Value) -> Value:
        return self._add(kind, (*reads, *reads[:1] * 2)[:3])

    def _add(self, kind: int, reads: tuple[Value, ...]) -> Value:
        self.kinds.append(kind)
        self.reads.append(reads)
        return len(self.kinds) - 1

    def tape(self, tape: Tape, inputs: Callable[[int], Value]) -> list[Value]:
        """Add a tape's operations. Return the values of its registers."""
        read = {*tape.reads.flatten().tolist(), *tape.outputs.tolist()}
        registers = [inputs(n) if n in read else -1 for n in range(tape.inputs)]
        registers += [self.constant(number) for number in tape.constants.tolist()]
        for kind, reads in operations(tape):
            registers.append(self.operation(kind, *(registers[r] for r in reads)))
        return registers


def operations(tape: Tape) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the kind of each operation and the registers that it reads."""
    kinds = np.zeros(tape.reads.shape[1], int)
    for kind, begin, end in tape.blocks.tolist():
        kinds[begin:end] = kind
    yield from zip(kinds.tolist(), map(tuple, tape.reads.T.tolist()), strict=True)


class Op:
    """Operations by name, and the constants that gradients need."""

    def __init__(self, values: Values) -> None:
        self.values, self.zero, self.half = values, values.constant(0.0), values.constant(0.5)

    def __call__(self, name: str, *reads: Value) -> Value:
        return self.values.operation(CODE[name], *reads)


def _of_quotient(op: Op, a: Value, b: Value, y: Value, d: Value) -> tuple[Value, ...]:
    quotient = op("div", d, b)
    return quotient, op("neg", op("mul", quotient, y))


def _of_choice(op: Op, which: Value, d: Value) -> tuple[Value, Value]:
    return op("choose", which, d, op.zero), op("choose", which, op.zero, d)


GRADIENTS: dict[str, Callable[[Op, Value, Value, Value, Value], tuple[Value | None, ...]]] = {
    "add": lambda op, a, b, y, d: (d, d),
    "sub": lambda op, a, b, y, d: (d, op("neg", d)),
    "mul": lambda op, a, b, y, d: (op("mul", d, b), op("mul", d, a)),
    "div": _of_quotient,
    "neg": lambda op, a, b, y, d: (op("neg", d),),
    "root": lambda op, a, b, y, d: (op("div", op("mul", d, op.half), y),),
    "exp": lambda op, a, b, y, d: (op("mul", d, y),),
    "log": lambda op, a, b, y, d: (op("div", d, a),),
    "sin": lambda op, a, b, y, d: (op("mul", d, op("cos", a)),),
    "cos": lambda op, a, b, y, d: (op("neg", op("mul", d, op("sin", a))),),
    "abs": lambda op, a, b, y, d: (op("choose", op("not_less", a, op.zero), d, op("neg", d)),),
    "max": lambda op, a, b, y, d: _of_choice(op, op("greater", a, b), d),
    "min": lambda op, a, b, y, d: _of_choice(op, op("greater", b, a), d),
    "choose": lambda op, a, b, y, d: (None, *_of_choice(op, a, d)),
}
"""(a and b that an operation reads, its result y, and the slope d there) -> the slopes of what it reads, or None.

Through an operation that is not here no gradient passes.
"""


def gradient(values: Values, tape: Tape, registers: Sequence[Value], pulls: Sequence[Value]) -> list[Value]:
    """Add the gradient of a tape's outputs, of which each has a pull. Return that of its inputs."""
    op = Op(values)
    slopes = [op.zero] * len(registers)
    for output, pull in zip(tape.outputs.tolist(), pulls, strict=True):
        slopes[output] = op("add", slopes[output], pull)
    first = len(registers) - tape.reads.shape[1]
    for n, (kind, reads) in reversed(list(enumerate(operations(tape), start=first))):
        rule = GRADIENTS.get(OPS[kind])
        a, b, _ = (registers[r] for r in reads)
        for register, slope in zip(reads, rule(op, a, b, registers[n], slopes[n]) if rule else (), strict=False):
            if slope is not None:
                slopes[register] = op("add", slopes[register], slope)
    return slopes[: tape.inputs]


def needed(values: Values, outputs: Sequence[Value], done: set[Value]) -> set[Value]:
    """Return the operations that some values need, beside those that are done."""
    found: set[Value] = set()
    stack = list(outputs)
    while stack:
        value = stack.pop()
        if values.kinds[value] < 0 or value in found or value in done:
            continue
        found.add(value)
        stack += values.reads[value]
    return found


def constants_of(values: Values) -> Array:
    """Return the constants in the order of their numbers, float32."""
    return np.frombuffer(b"".join(values.constants), np.float32)
