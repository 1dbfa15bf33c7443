"""The engine on a GPU, with the face of the CPU's and its bits (trainer/engine/native.py).

A seed is a team of 16 threads; all steps between two evaluations are one launch. The CPU's engine is there too: it
does small things, and checks the GPU.

Axes: S slot, R numbers of a seed's row, T position, N problem of a slot, B problem.
"""

from __future__ import annotations

import ctypes
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from gpu.machine import TEAMS, Machine, Memory
from gpu.schedule import PARKED_AT_ONCE, schedule
from gpu.structures import Exam, Part, Program, Seeds
from gpu.structures import Schedule as CSchedule
from model.spec import Kernel, Spec
from trainer.data.hard_examples import CAPACITY
from trainer.engine.build import Macros
from trainer.engine.native import LANES, EngineBackend, Measures, Slots, blocks, sources
from trainer.engine.tape_graph import Array
from trainer.recipe import Recipe

CHUNK = 16
"""Blocks of problems whose channels a circle's kernel holds at once (model/families/split_subspace)."""
BANKS = 32
"""Banks of a GPU's shared memory."""


class CudaBackend(EngineBackend):
    """Training and evaluation by a machine that runs the CUDA engine."""

    name = "cuda"

    def __init__(self, spec: Spec, recipe: Recipe, machine: Machine):
        """Raise CudaError; ValueError for a recipe that the CUDA engine does not have."""
        if recipe.teacher:
            raise ValueError("the CUDA engine has no teacher")
        kernel = spec.kernel()
        assert isinstance(kernel, Kernel)
        with ThreadPoolExecutor(1) as pool:  # compiled beside the CPU's engine
            module = pool.submit(machine.module, kernel, macros_of(spec, kernel, recipe))
            super().__init__(spec, recipe)
        self.module = module.result()
        self.machine = machine
        self.memory = Memory(machine)
        # Not at exit: then the driver may be gone, and frees all memory anyway.
        weakref.finalize(self, self.memory.free).atexit = False
        self.cuda_program = self._cuda_program(recipe)
        self._packed = packed(self._blocks)

    def run_steps(self, slots: Slots, steps: int) -> Array:
        count = len(slots.rows)
        losses = np.zeros(count, np.float32)
        links = None if slots.ties is None else links_of(slots.ties)
        operands, errors = slots.errors or (None, None)
        teams = -(-count // TEAMS) * TEAMS  # those of the last block too that have no seed
        # Rows go to the GPU and come back at every interval: between two the bank changes them on the CPU.
        with Memory(self.machine) as memory:
            seeds = self._seeds(
                memory,
                slots.rows,
                data_seeds=memory.put(slots.data_seeds),
                ties=memory.put(links),
                yard=memory.room(4 * self.cuda_program.yard_words * teams),
                errors=memory.put(operands),
                error_count=memory.put(errors),
                losses=memory.put(losses),
            )
            self.module.train(self.cuda_program, seeds, steps)
            self.machine.read(seeds.rows, slots.rows)
            self.machine.read(seeds.losses, losses)
        return losses

    def measure(self, rows: Array, problems: Array, count: int) -> ctypes.Array[Measures]:
        tokens = self._packed if problems is self._blocks else packed(problems)
        sums, _ = self._examine(rows, tokens, count)
        return sums

    def is_wrong(self, theta_SP: Tensor, tokens_STN: Tensor) -> Tensor:
        count = tokens_STN.shape[-1]
        of_slots = [packed(blocks(tokens_TN[None])) for tokens_TN in tokens_STN]
        tokens = np.stack(of_slots)
        _, right = self._examine(self._theta_rows(theta_SP), tokens, count, each=True)
        right_SN = right.reshape(len(right), -1)[:, :count]
        return torch.from_numpy(right_SN == 0)

    def _examine(
        self, rows: Array, tokens: Array, count: int, each: bool = False
    ) -> tuple[ctypes.Array[Measures], Array]:
        """Return sums over problems of each row's θ, and with `each` marks of right answers [S, blocks, 16].

        tokens: packed, the same for all rows, or with `each` one set per row. count: problems of a set.
        """
        sums = (Measures * len(rows))()
        # The same bytes as numbers, into which the machine's are read.
        numbers = np.frombuffer(memoryview(sums).cast("B"), np.uint8)
        shape = (len(rows), -(-count // LANES), LANES) if each else (0,)
        right = np.zeros(shape, np.int32)
        with Memory(self.machine) as memory:
            exam = Exam(
                tokens=memory.put(tokens),
                measures=memory.put(numbers),
                marks=memory.put(right),
                problems=count,
                each=each,
            )
            self.module.evaluate(self.cuda_program, self._seeds(memory, rows), exam)
            self.machine.read(exam.measures, numbers)
            if each:
                self.machine.read(exam.marks, right)
        return sums, right

    def _seeds(self, memory: Memory, rows: Array, **addresses: int | None) -> Seeds:
        """Return seeds with these rows; arrays whose address is not given are null."""
        fields: dict[str, int | None] = dict.fromkeys(field[0] for field in Seeds._fields_)
        fields |= addresses
        fields["rows"] = memory.put(rows)
        fields["kept"] = CAPACITY
        fields["count"] = len(rows)
        return Seeds(**fields)

    def _cuda_program(self, recipe: Recipe) -> Program:
        """Return the program, with its arrays on the machine."""
        asked = [self.places["targeted"].start] if recipe.targeted else []
        made = schedule(self.tapes, self.places, asked)
        sizes = self.module.sizes
        put = self.memory.put
        _, expand, *_ = self.tapes
        if sizes.wide != 4 * len(expand.outputs):
            raise AssertionError(f"{self.spec.family}: kernel_body.h reads {sizes.wide} bytes of wide tensors")
        # The kernel's working memory lies where numbers between operations lie: the larger one counts.
        words = max(made.slots, made.at["room"] + sizes.shared // 4)
        to_next_bank = (BANKS // TEAMS - words) % BANKS  # so that the teams of a warp meet no bank twice
        parts = {name: Part(first=first, last=last) for name, (first, last) in made.parts.items()}
        firsts = {f"{name}_at": slot for name, slot in made.at.items()}
        return Program(
            schedule=CSchedule(kinds=put(made.kinds), places=put(made.places)),
            **parts,
            constants=put(made.constants),
            inputs=put(made.inputs),
            parked=put(made.parked),
            input_count=len(made.inputs),
            constant_count=len(made.constants),
            parked_count=len(made.parked),
            row=self.program.row,
            updated=self.places["step"].start,
            parameters=self.spec.params,
            batch=recipe.batch,
            **firsts,
            team_words=words + to_next_bank,
            # In global memory: numbers put aside, θ without its ties, and what the kernel keeps far away.
            yard_words=len(made.parked) + self.spec.params + sizes.far // 4,
            targeted=made.slot_of[asked[0]] if asked else -1,
        )


def macros_of(spec: Spec, kernel: Kernel, recipe: Recipe) -> Macros:
    """Return the macros for which the engine is compiled."""
    # Where all blocks are one chunk, sums are complete when it ends and need no memory in between: they are added up at
    # once, and each thread of a team is left with that of an answer.
    is_one_chunk = -(-recipe.batch // LANES) <= CHUNK and kernel.shape["ANSWERS"] <= LANES
    source = ",".join(map(str, sources(spec)))
    return {
        **kernel.shape,
        **(spec.task.macros or {}),
        "SUMS_OF_CHUNK": int(is_one_chunk and kernel.shape.get("CIRCLE", 0)),
        "SOURCE": source,
        "PARKED_AT_ONCE": PARKED_AT_ONCE,
    }


def links_of(ties: Array) -> Array:
    """Return ties [S, P] as the CUDA engine walks them [S, 2, P], int16.

    For each entry: the first entry with its number, with its own sign, and the next one. Entries count from 1; 0: none.
    """
    return np.stack([_links(tuple(row)) for row in ties.tolist()])


@lru_cache(4_096)  # a bank's seeds share a few ties, and have the same ones at every evaluation
def _links(ties: tuple[int, ...]) -> Array:
    links = np.zeros((2, len(ties)), np.int16)
    places = dict[int, list[int]]()
    for n, number in enumerate(ties):
        if number:
            places.setdefault(abs(number), []).append(n)
    for same in places.values():
        for n, after in pairwise([*same, -1]):
            links[0, n] = np.sign(ties[n]) * (same[0] + 1)
            links[1, n] = after + 1
    return links


def packed(problems: Array) -> Array:
    """Return blocks of tokens [blocks, T, 16] with two in a byte."""
    even = problems[:, 0::2]
    odd = problems[:, 1::2]
    # A sequence of odd length has no odd partner for its last token, beside which zeros stay.
    pairs = even.astype(np.uint8)
    pairs[:, : odd.shape[1]] |= odd.astype(np.uint8) << 4
    return pairs
