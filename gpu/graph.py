"""A seed's step as one graph of operations: its tapes, and the gradient of `expand` as operations of its own.

The gradient is that of trainer/engine/cpp/tape.h, operation by operation in its order, so that its bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trainer.engine.tape_graph import CODE, OPS, Array, Tape

MOVE = len(OPS)
"""A copy, after the operations of tapes (gpu/steps.h)."""
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
        """Add a number that lies in a slot. Return its value."""
        value = self._add(-1, ())
        self.slots[value] = slot
        return value

    def constant(self, number: float) -> Value:
        """Return a constant's value, the same one for the same bits: 0 and -0 differ."""
        bits = np.float32(number).tobytes()
        if bits not in self.constants:
            self.constants[bits] = self._add(-1, ())
        return self.constants[bits]

    def operation(self, kind: int, *reads: Value) -> Value:
        """Add an operation. Return its result's value."""
        filled = (*reads, reads[0], reads[0])  # every operation reads three
        return self._add(kind, filled[:3])

    def _add(self, kind: int, reads: tuple[Value, ...]) -> Value:
        self.kinds.append(kind)
        self.reads.append(reads)
        return len(self.kinds) - 1

    def tape(self, tape: Tape, inputs: Callable[[int], Value]) -> list[Value]:
        """Add a tape's operations. Return the values of its registers."""
        read = {*tape.reads.flatten().tolist(), *tape.outputs.tolist()}
        registers = [inputs(n) if n in read else -1 for n in range(tape.inputs)]
        registers += map(self.constant, tape.constants.tolist())
        for kind, reads in operations(tape):
            values = [registers[r] for r in reads]
            registers.append(self.operation(kind, *values))
        return registers


def operations(tape: Tape) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the kind of each operation and the registers that it reads."""
    kinds = np.zeros(tape.reads.shape[1], int)
    for kind, begin, end in tape.blocks.tolist():
        kinds[begin:end] = kind
    reads = map(tuple, tape.reads.T.tolist())
    yield from zip(kinds.tolist(), reads, strict=True)


Slopes = tuple[Value | None, ...]


class Pull:
    """The gradient through one operation on a, b and a third, by its name in tapes.

    y is its result, d the slope there. A method returns the slopes of what the operation reads, None for one without;
    through an operation that has no method no gradient passes.
    """

    def __init__(self, op: Op, reads: Sequence[Value], result: Value, slope: Value) -> None:
        self.op = op
        self.a, self.b, _ = reads
        self.y = result
        self.d = slope

    def add(self) -> Slopes:
        return self.d, self.d

    def sub(self) -> Slopes:
        return self.d, self.op("neg", self.d)

    def mul(self) -> Slopes:
        return self._times(self.b), self._times(self.a)

    def div(self) -> Slopes:
        quotient = self.op("div", self.d, self.b)
        return quotient, self.op("neg", self.op("mul", quotient, self.y))

    def neg(self) -> Slopes:
        return (self.op("neg", self.d),)

    def root(self) -> Slopes:
        half = self._times(self.op.half)
        return (self.op("div", half, self.y),)

    def exp(self) -> Slopes:
        return (self._times(self.y),)

    def log(self) -> Slopes:
        return (self.op("div", self.d, self.a),)

    def sin(self) -> Slopes:
        return (self._times(self.op("cos", self.a)),)

    def cos(self) -> Slopes:
        product = self._times(self.op("sin", self.a))
        return (self.op("neg", product),)

    def abs(self) -> Slopes:
        op, zero = self.op, self.op.zero
        others = op("choose", op("greater", zero, self.a), op("neg", self.d), zero)
        return (op("choose", op("greater", self.a, zero), self.d, others),)

    def max(self) -> Slopes:
        # Of equal numbers the second has the slope, as in tape.h.
        return self._of_choice(self.op("greater", self.a, self.b))

    def min(self) -> Slopes:
        return self._of_choice(self.op("greater", self.b, self.a))

    def choose(self) -> Slopes:
        return None, *self._of_choice(self.a)

    def _times(self, other: Value) -> Value:
        return self.op("mul", self.d, other)

    def _of_choice(self, which: Value) -> Slopes:
        op = self.op
        return op("choose", which, self.d, op.zero), op("choose", which, op.zero, self.d)


class Op:
    """Operations by name, and the constants that gradients need."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.zero = values.constant(0.0)
        self.half = values.constant(0.5)

    def __call__(self, name: str, *reads: Value) -> Value:
        return self.values.operation(CODE[name], *reads)


def gradient(values: Values, tape: Tape, registers: Sequence[Value], pulls: Sequence[Value]) -> list[Value]:
    """Add the gradient of a tape's outputs, which have a pull each. Return that of its inputs."""
    # Slopes begin at 0 and are added up in this order, as tape.h adds them.
    op = Op(values)
    slopes = [op.zero] * len(registers)
    for output, pull in zip(tape.outputs.tolist(), pulls, strict=True):
        slopes[output] = op("add", slopes[output], pull)
    first = len(registers) - tape.reads.shape[1]
    forwards = list(enumerate(operations(tape), start=first))
    for n, (kind, reads) in reversed(forwards):
        at = Pull(op, [registers[r] for r in reads], registers[n], slopes[n])
        rule = getattr(at, OPS[kind], None)
        if rule is None:  # comparisons and floor are flat
            continue
        for register, slope in zip(reads, rule(), strict=False):
            if slope is not None:
                slopes[register] = op("add", slopes[register], slope)
    return slopes[: tape.inputs]


def needed(values: Values, outputs: Sequence[Value], done: set[Value]) -> set[Value]:
    """Return the operations that `outputs` need, without those in `done`."""
    found: set[Value] = set()
    # With a stack and not by recursion, which a long chain would exceed.
    stack = list(outputs)
    while stack:
        value = stack.pop()
        is_operation = values.kinds[value] >= 0
        if is_operation and value not in found and value not in done:
            found.add(value)
            stack += values.reads[value]
    return found


def constants_of(values: Values) -> Array:
    """Return the constants in the order of their numbers, float32."""
    return np.frombuffer(b"".join(values.constants), np.float32)
