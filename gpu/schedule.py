"""The schedule of a seed's step: its operations as steps for a team of 16 threads, and a slot for each number.

A step has up to ROUNDS x 16 independent operations of one kind (gpu/steps.h). Slots lie in memory
that the team shares. First come those that last: a row's numbers, constants, wide tensors and their gradient. Then
come those that operations leave for each other, which are used again. They lie where the kernel has its working
memory, so numbers that `expand` leaves for its gradient are put aside while the kernel runs.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpu.graph import (
    MOVE,
    Value,
    Values,
    constants_of,
    gradient,
    needed,
)
from trainer.engine.structures import ASKED
from trainer.engine.tape_graph import Array, Tape

TEAM = 16
"""Threads of a seed."""
ROUNDS = 4
"""Operations of a step for each thread."""
AHEAD = 4
"""Steps that are fetched before they are wanted."""
PARKED_AT_ONCE = 8
"""Numbers that a thread puts aside together: it waits for their places once."""
MOST_SLOTS = 1 << 16  # two bytes each
PARTS = ("lesson", "expand", "back", "probe", "take")


@dataclass
class Schedule:
    """A schedule as the CUDA engine takes it (gpu/steps.h).

    kinds [N] and places [N, ROUNDS, TEAM, 4]: of N steps, the operation and three slots to read, one to write; uint16.
    constants: float32. inputs: places in a row of the first slots. parked: slots that are put aside, filled up with
    idle ones. parts: first and last step by name. at: first slot by name. slots: number of slots.
    """

    kinds: Array
    places: Array
    constants: Array
    inputs: Array
    parked: Array
    parts: dict[str, tuple[int, int]]
    at: dict[str, int]
    slots: int
    slot_of: dict[int, int]
    """Place in a row -> slot, of the numbers that are asked for by place."""


def schedule(tapes: Sequence[Tape], places: Mapping[str, slice], asked: Sequence[int]) -> Schedule:
    """Return the schedule of a seed's `tapes`: lesson, expand, probe and take.

    places: a row's tensors. asked: places in a row that get a slot although no tape reads them.
    Raise ValueError where a step needs more than MOST_SLOTS.
    """
    lesson, expand, probe, take = tapes
    theta = places["theta"]
    updated = places["step"].start
    pulled = places["gradient"]
    assert theta.start == 0
    assert len(lesson.outputs) == len(ASKED)
    assert len(take.outputs) == updated
    params = theta.stop
    wide = len(expand.outputs)

    # A row has more numbers than a step reads: only those get slots.
    used = {*range(updated + 1), *asked}
    for tape in tapes:
        registers = [*tape.reads.flatten().tolist(), *tape.outputs.tolist()]
        used.update(r for r in registers if r < tape.inputs)
    # The gradient is no input: it is made here, in slots of its own.
    inputs = sorted(used - set(range(pulled.start, pulled.stop)))
    slot_of = {place: slot for slot, place in enumerate(inputs)}
    at = _lay_out(len(inputs), params, wide, bool(len(probe.outputs)))
    slot_of |= {pulled.start + n: at["gradient"] + n for n in range(params)}

    values = Values()
    row: dict[int, Value] = {}

    def number(place: int) -> Value:
        if place not in row:
            row[place] = values.given(slot_of[place])
        return row[place]

    of_lesson = values.tape(lesson, number)
    of_expand = values.tape(expand, number)
    of_probe = values.tape(probe, number)
    of_take = values.tape(take, number)
    # The kernel's part of the gradient is written here; the rest goes backwards through `expand`.
    pulls = [values.given(at["pull"] + n) for n in range(wide)]
    slopes = gradient(values, expand, of_expand, pulls)[:params]
    outputs = {
        "lesson": (_outputs(lesson, of_lesson), at["asked"]),
        "expand": (_outputs(expand, of_expand), at["wide"]),
        "back": (slopes, at["gradient"]),
        "probe": (_outputs(probe, of_probe), at["there"]),
        "take": (_outputs(take, of_take), 0),  # a row's first numbers are those that a step changes
    }
    return _Writer(values, at, inputs, slot_of).written(outputs)


def _outputs(tape: Tape, registers: Sequence[Value]) -> list[Value]:
    return [registers[r] for r in tape.outputs.tolist()]


def _lay_out(inputs: int, params: int, wide: int, probes: bool) -> dict[str, int]:
    """Return the first slots of all that lasts, by name. Constants come last: their number is known later."""
    sizes = {
        "asked": len(ASKED),
        "gradient": params,
        "there": params * probes,
        "wide": wide,
        "pull": wide,
    }
    at = {}
    end = inputs
    for name, size in sizes.items():
        at[name] = _aligned(end)
        end = at[name] + size
    return {**at, "constants": end}


def _aligned(slot: int) -> int:
    """Return the first slot from this one on that begins four: threads load four numbers at once."""
    return -(-slot // 4) * 4


class _Writer:
    """Steps and slots, part by part."""

    def __init__(
        self,
        values: Values,
        at: dict[str, int],
        inputs: list[int],
        slot_of: dict[int, int],
    ) -> None:
        self.values = values
        self.at = at
        self.inputs = inputs
        self.slot_of = slot_of
        self.one = values.constant(1.0)
        constants = list(values.constants.values())
        first = at["constants"]
        self.slots = values.slots | {value: first + n for n, value in enumerate(constants)}
        self.at["room"] = _aligned(first + len(constants))
        self.steps: list[tuple[int, list[Value]]] = []
        self.parts: dict[str, tuple[int, int]] = {}
        self.made: dict[str, set[Value]] = {}

    def written(self, outputs: Mapping[str, tuple[list[Value], int]]) -> Schedule:
        """Return the schedule by which each part leaves its outputs in slots from a first one on."""
        # An operation that two parts need is done once, in the first of them.
        done: set[Value] = set()
        for name in PARTS:
            begin = len(self.steps)
            self._write_part(name, *outputs[name], done)
            self.parts[name] = begin, len(self.steps)
        crossing = self._crossing()
        slots = self._allocate()
        if slots > MOST_SLOTS:
            raise ValueError(f"a step needs {slots} slots, more than {MOST_SLOTS}")
        kinds, places = self._arrays(slots)
        parked = sorted({self.slots[value] for value in crossing})
        # Threads put PARKED_AT_ONCE slots aside each: idle slots fill the last turn up.
        missing = -len(parked) % (TEAM * PARKED_AT_ONCE)
        parked += [slots + n % TEAM for n in range(missing)]
        return Schedule(
            kinds=kinds,
            places=places,
            constants=constants_of(self.values),
            inputs=np.array(self.inputs, np.uint16),
            parked=np.array(parked, np.uint16),
            parts=self.parts,
            at=self.at,
            slots=slots + TEAM,
            slot_of=self.slot_of,
        )

    def _write_part(self, name: str, outputs: list[Value], first: int, done: set[Value]) -> None:
        """Append a part's steps. `done` holds the operations of the parts before, and gets this part's."""
        targets = self._targets(name, outputs, first)
        self.made[name] = needed(self.values, outputs, done)
        done |= self.made[name]
        self.steps += listed(self.values, self.made[name])

        # A number that lies where another one is moved to goes aside first.
        ends = {slot for _, slot in targets}
        sources = [value for value, _ in targets if self.slots.get(value) in ends]
        aside = {value: self.values.operation(MOVE, value) for value in sources}
        self._append_moves(list(aside.values()))
        moves = [self._move(aside.get(value, value), slot) for value, slot in targets]
        self._append_moves(moves)

    def _targets(self, name: str, outputs: list[Value], first: int) -> list[tuple[Value, int]]:
        """Give outputs their slots, where an operation may write there at once. Return those to be moved."""
        moves = []
        for slot, value in enumerate(outputs, start=first):
            is_operation = self.values.kinds[value] >= 0
            # `take` reads the slots to which it writes, so it writes elsewhere first.
            if name != "take" and is_operation and value not in self.slots:
                self.slots[value] = slot
            elif self.slots.get(value) != slot:
                moves.append((value, slot))
        return moves

    def _append_moves(self, moves: list[Value]) -> None:
        most = TEAM * ROUNDS
        for n in range(0, len(moves), most):
            self.steps.append((MOVE, moves[n : n + most]))

    def _move(self, value: Value, slot: int) -> Value:
        move = self.values.operation(MOVE, value)
        self.slots[move] = slot
        return move

    def _crossing(self) -> set[Value]:
        """Return the values that `expand` leaves for its gradient in slots where the kernel has its memory."""
        read = {r for value in self.made["back"] for r in self.values.reads[value]}
        left = read & self.made["expand"]
        return left - self.slots.keys()

    def _allocate(self) -> int:
        """Give every other value a slot, from its step to the last that reads it. Return the end of all slots."""
        last: dict[Value, int] = {}
        for n, (_, values) in enumerate(self.steps):
            for value in values:
                last |= dict.fromkeys(self.values.reads[value], n)

        # A heap, so that the lowest free slot is used first and memory stays small.
        free: list[int] = []
        ending = defaultdict[int, list[int]](list)
        end = self.at["room"]
        for n, (_, values) in enumerate(self.steps):
            for slot in ending.pop(n, ()):
                heapq.heappush(free, slot)
            for value in values:
                if value in self.slots:
                    continue
                if not free:
                    free.append(end)
                    end += 1
                slot = heapq.heappop(free)
                self.slots[value] = slot
                # Not in the step that reads it last: there other threads may write before this one has read.
                after = last.get(value, n) + 1
                ending[after].append(slot)
        return end

    def _arrays(self, slots: int) -> tuple[Array, Array]:
        """Return kinds and places; an idle thread reads 1 and writes to a slot of its own."""
        # Idle steps at the end: threads fetch AHEAD steps before they are wanted, the last ones' too.
        count = len(self.steps) + AHEAD
        kinds = np.full(count, MOVE, np.uint16)
        places = np.full((count, ROUNDS * TEAM, 4), self.slots[self.one], np.uint16)
        places[..., 3] = slots + np.arange(ROUNDS * TEAM) % TEAM
        for n, (kind, values) in enumerate(self.steps):
            kinds[n] = kind
            for thread, value in enumerate(values):
                reads = [self.slots[r] for r in self.values.reads[value]]
                places[n, thread] = [*reads, self.slots[value]]
        assert int(places.max()) < slots + TEAM
        return kinds, places.reshape(count, ROUNDS, TEAM, 4)


def listed(values: Values, operations: set[Value]) -> list[tuple[int, list[Value]]]:
    """Return steps of some operations, first those for which the longest chains wait."""
    # List scheduling: a step takes ready operations of one kind, those of the longest chain before others.
    users = defaultdict[Value, list[Value]](list)
    missing: dict[Value, int] = {}
    for value in operations:
        reads = operations.intersection(values.reads[value])
        missing[value] = len(reads)
        for r in reads:
            users[r].append(value)

    height: dict[Value, int] = {}  # operations of the longest chain that begins with this one
    for value in sorted(operations, reverse=True):  # users before what they read
        height[value] = 1 + max((height[u] for u in users[value]), default=0)

    ready = defaultdict[int, list[tuple[int, Value]]](list)  # by kind

    def push(value: Value) -> None:
        queue = ready[values.kinds[value]]
        heapq.heappush(queue, (-height[value], value))

    for value in operations:
        if not missing[value]:
            push(value)

    steps = []
    while any(ready.values()):
        kind = max(ready, key=lambda kind: _worth(ready, kind))
        queue = ready[kind]
        count = min(TEAM * ROUNDS, len(queue))
        step = [heapq.heappop(queue)[1] for _ in range(count)]
        steps.append((kind, step))
        for value in step:
            for user in users[value]:
                missing[user] -= 1
                if not missing[user]:
                    push(user)
    return steps


def _worth(ready: Mapping[int, list[tuple[int, Value]]], kind: int) -> tuple[float, int]:
    """Rank a kind of step: by the threads that it fills, more where the longest chain waits for it."""
    queue = ready[kind]
    if not queue:
        return (-1, 0)
    most = TEAM * ROUNDS
    first = queue[0][0]  # heights count down, so that the heap has the longest chain first
    longest = min(others[0][0] for others in ready.values() if others)
    bonus = 0.75 * most if first == longest else 0
    return (min(most, len(queue)) + bonus, -first)
