"""The schedule of a seed's step: its operations as steps for a team of 16 threads, and a slot for each number.

A step has up to ROUNDS x 16 operations of one kind that do not need each other (trainer/engine/cuda/steps.h). Slots lie
in memory that the team shares: first what lasts (a row's numbers, constants, wide tensors and their gradient), then
what operations leave for each other, in places that are used again. The latter lie where the kernel has its
working memory: what `expand` leaves for its gradient is put aside meanwhile.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainer.engine.cuda.graph import MOVE, Value, Values, constants_of, gradient, needed
from trainer.engine.structures import ASKED
from trainer.engine.tape_graph import Array, Tape

TEAM, ROUNDS, AHEAD = 16, 4, 4
"""Threads; operations of a step for each; steps that are fetched before they are wanted."""
PARKED_AT_ONCE = 8
"""Numbers that a thread puts aside together: it waits for their places once."""
MOST_SLOTS = 1 << 16  # two bytes each
PARTS = ("lesson", "expand", "back", "probe", "take")


@dataclass
class Schedule:
    """steps: [N] kinds; places [N, ROUNDS, TEAM, 4]: slots that are read, and written; uint16.

    parts: first and last step by name. inputs: places in a row of the first slots. parked: slots that are put aside,
    filled up by idle ones.
    at: first slot by name. slots: their number.
    """

    kinds: Array
    places: Array
    constants: Array
    inputs: Array
    parked: Array
    parts: dict[str, tuple[int, int]]
    at: dict[str, int]
    slots: int
    slot_of: dict[int, int] = field(default_factory=dict)
    """Place in a row -> slot, of the numbers that are asked for by place."""


def schedule(tapes: Sequence[Tape], places: Mapping[str, slice], asked: Sequence[int]) -> Schedule:
    """Return the schedule of a seed's tapes: lesson, expand, probe and take.

    places: of a row's tensors. asked: places in a row whose slots are wanted beside those that tapes read.
    Raise ValueError where the slots are too many.
    """
    lesson, expand, probe, take = tapes
    theta, updated, pulled = places["theta"], places["step"].start, places["gradient"]
    assert theta.start == 0 and len(lesson.outputs) == len(ASKED) and len(take.outputs) == updated
    params, wide = theta.stop, len(expand.outputs)

    used = {*range(updated + 1), *asked}
    for tape in tapes:
        used |= {r for r in (*tape.reads.flatten().tolist(), *tape.outputs.tolist()) if r < tape.inputs}
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

    registers = {
        name: values.tape(t, number) for name, t in zip(("lesson", "expand", "probe", "take"), tapes, strict=True)
    }
    pulls = [values.given(at["pull"] + n) for n in range(wide)]
    slopes = gradient(values, expand, registers["expand"], pulls)[:params]
    outputs = {
        "lesson": ([registers["lesson"][r] for r in lesson.outputs.tolist()], at["asked"]),
        "expand": ([registers["expand"][r] for r in expand.outputs.tolist()], at["wide"]),
        "back": (slopes, at["gradient"]),
        "probe": ([registers["probe"][r] for r in probe.outputs.tolist()], at.get("there", 0)),
        "take": ([registers["take"][r] for r in take.outputs.tolist()], 0),
    }
    return _Writer(values, at, inputs, slot_of).written(outputs)


def _lay_out(inputs: int, params: int, wide: int, probes: bool) -> dict[str, int]:
    """Return the first slot of what lasts; constants come last, when their number is known."""
    at, end = {}, inputs
    for name, size in (
        ("asked", len(ASKED)),
        ("gradient", params),
        ("there", params * probes),
        ("wide", wide),
        ("pull", wide),
    ):
        at[name] = end = -(-end // 4) * 4
        end += size
    return {**at, "constants": end}


class _Writer:
    """Steps and slots, part by part."""

    def __init__(self, values: Values, at: dict[str, int], inputs: list[int], slot_of: dict[int, int]) -> None:
        self.values, self.at, self.inputs, self.slot_of = values, at, inputs, slot_of
        self.one = values.constant(1.0)
        constants = list(values.constants.values())
        self.slots = values.slots | {value: at["constants"] + n for n, value in enumerate(constants)}
        self.at["room"] = -(-(at["constants"] + len(constants)) // 4) * 4
        self.steps: list[tuple[int, list[Value]]] = []
        self.parts: dict[str, tuple[int, int]] = {}
        self.made: dict[str, set[Value]] = {}

    def written(self, outputs: Mapping[str, tuple[list[Value], int]]) -> Schedule:
        done: set[Value] = set()
        for name in PARTS:
            begin = len(self.steps)
            targets = self._targets(name, *outputs[name])
            self.made[name] = needed(self.values, outputs[name][0], done)
            done |= self.made[name]
            self.steps += listed(self.values, self.made[name])
            # What is to be moved from where another number is moved to is taken aside first.
            ends = {slot for _, slot in targets}
            aside = {v: self.values.operation(MOVE, v) for v, _ in targets if self.slots.get(v) in ends}
            self._append_moves(list(aside.values()))
            self._append_moves([self._move(aside.get(value, value), slot) for value, slot in targets])
            self.parts[name] = begin, len(self.steps)
        crossing = self._crossing()
        slots = self._allocate()
        if slots > MOST_SLOTS:
            raise ValueError(f"a step needs {slots} slots, more than {MOST_SLOTS}")
        kinds, places = self._arrays(slots)
        parked = sorted({self.slots[value] for value in crossing})
        parked += [slots + n % TEAM for n in range(-len(parked) % (TEAM * PARKED_AT_ONCE))]
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

    def _targets(self, name: str, outputs: list[Value], first: int) -> list[tuple[Value, int]]:
        """Give outputs their slots, where an operation may write there at once. Return those to be moved."""
        moves = []
        for slot, value in enumerate(outputs, start=first):
            if name != "take" and self.values.kinds[value] >= 0 and value not in self.slots:
                self.slots[value] = slot
            elif self.slots.get(value) != slot:
                moves.append((value, slot))
        return moves

    def _append_moves(self, moves: list[Value]) -> None:
        self.steps += [(MOVE, moves[n : n + TEAM * ROUNDS]) for n in range(0, len(moves), TEAM * ROUNDS)]

    def _move(self, value: Value, slot: int) -> Value:
        self.slots[move := self.values.operation(MOVE, value)] = slot
        return move

    def _crossing(self) -> set[Value]:
        """Return what `expand` leaves for its gradient in slots where the kernel has its memory."""
        read = {r for value in self.made["back"] for r in self.values.reads[value]}
        return {value for value in read & self.made["expand"] if value not in self.slots}

    def _allocate(self) -> int:
        """Give every other value a slot, from its step to the last that reads it. Return the end of all slots."""
        last: dict[Value, int] = {}
        for n, (_, values) in enumerate(self.steps):
            last |= {r: n for value in values for r in self.values.reads[value]}
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
                self.slots[value] = slot = heapq.heappop(free)
                ending[last.get(value, n) + 1].append(slot)
        return end

    def _arrays(self, slots: int) -> tuple[Array, Array]:
        """Return kinds and places; an idle thread reads 1 and writes to a slot of its own."""
        count = len(self.steps) + AHEAD
        kinds = np.full(count, MOVE, np.uint16)
        places = np.full((count, ROUNDS * TEAM, 4), self.slots[self.one], np.uint16)
        places[..., 3] = slots + np.arange(ROUNDS * TEAM) % TEAM
        for n, (kind, values) in enumerate(self.steps):
            kinds[n] = kind
            rows = [[*(self.slots[r] for r in self.values.reads[v]), self.slots[v]] for v in values]
            places[n, : len(rows)] = rows
        assert int(places.max()) < slots + TEAM
        return kinds, places.reshape(count, ROUNDS, TEAM, 4)


def listed(values: Values, operations: set[Value]) -> list[tuple[int, list[Value]]]:
    """Return steps of some operations: those first on which the longest chains wait."""
    users = defaultdict[Value, list[Value]](list)
    missing: dict[Value, int] = {}
    for value in operations:
        reads = {r for r in values.reads[value] if r in operations}
        missing[value] = len(reads)
        for r in reads:
            users[r].append(value)
    height: dict[Value, int] = {}
    for value in sorted(operations, reverse=True):
        height[value] = 1 + max((height[u] for u in users[value]), default=0)
    ready = defaultdict[int, list[tuple[int, Value]]](list)
    for value in operations:
        if not missing[value]:
            heapq.heappush(ready[values.kinds[value]], (-height[value], value))
    steps = []
    while any(ready.values()):
        kind = max(ready, key=lambda kind: _worth(ready, kind))
        step = [heapq.heappop(ready[kind])[1] for _ in range(min(TEAM * ROUNDS, len(ready[kind])))]
        steps.append((kind, step))
        for value in step:
            for u in users[value]:
                missing[u] -= 1
                if not missing[u]:
                    heapq.heappush(ready[values.kinds[u]], (-height[u], u))
    return steps


def _worth(ready: Mapping[int, list[tuple[int, Value]]], kind: int) -> tuple[float, int]:
    """Rank a kind of step: by the threads that it fills, more where the longest chain waits for it."""
    queue = ready[kind]
    if not queue:
        return (-1, 0)
    longest = min(q[0][0] for q in ready.values() if q)
    fills = min(TEAM * ROUNDS, len(queue))
    return (fills + TEAM * ROUNDS * 0.75 * (queue[0][0] == longest), -queue[0][0])
