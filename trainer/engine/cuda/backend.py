"""The engine on a GPU, with the face of the CPU's and its bits (trainer/engine/native.py).

A seed is a team of 16 threads; all steps between two evaluations are one launch. The CPU's engine is there too: it
does what is small, and checks the GPU.

Axes: S slot, R numbers of a seed's row, T position, N problem of a slot, B problem.
"""

from __future__ import annotations

import ctypes
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from model.spec import Kernel, Spec
from trainer.data.hard_examples import CAPACITY
from trainer.engine.cuda.machine import TEAMS, Machine, Memory
from trainer.engine.cuda.schedule import PARKED_AT_ONCE, PARTS, schedule
from trainer.engine.cuda.structures import Exam, Part, Program, Seeds
from trainer.engine.cuda.structures import Schedule as CSchedule
from trainer.engine.native import LANES, EngineBackend, Measures, Slots, blocks, sources
from trainer.engine.tape_graph import Array
from trainer.recipe import Recipe

CHUNK = 16  # blocks of problems that a circle's kernel has the channels of (model/families/split_subspace)
BANKS = 32  # of a GPU's shared memory


class CudaBackend(EngineBackend):
    """Training and evaluation by a machine that runs the CUDA engine."""

    name = "cuda"

    def __init__(self, spec: Spec, recipe: Recipe, machine: Machine):
        """Raise CudaError; ValueError for a recipe that the CUDA engine does not have."""
        if recipe.teacher:
            raise ValueError("the CUDA engine has no teacher")
        kernel = spec.kernel()
        assert kernel is not None
        with ThreadPoolExecutor(1) as pool:  # compiled beside the CPU's engine
            module = pool.submit(machine.module, kernel, macros_of(spec, kernel, recipe))
            super().__init__(spec, recipe)
        self.module = module.result()
        self.machine, self.memory = machine, Memory(machine)
        weakref.finalize(self, self.memory.free).atexit = False
        self.cuda_program = self._cuda_program(recipe)
        self._packed = packed(self._blocks)

    def run_steps(self, slots: Slots, steps: int) -> Array:
        losses, count = np.zeros(len(slots.rows), np.float32), len(slots.rows)
        links = None if slots.ties is None else links_of(slots.ties)
        operands, errors = slots.errors or (None, None)
        with Memory(self.machine) as memory:
            yard = memory.room(4 * self.cuda_program.yard_words * -(-count // TEAMS) * TEAMS)
            seeds = self._seeds(
                memory, slots.rows, data_seeds=memory.put(slots.data_seeds), ties=memory.put(links), yard=yard,
                errors=memory.put(operands), error_count=memory.put(errors), losses=memory.put(losses),
            )  # fmt: skip
            self.module.train(self.cuda_program, seeds, steps)
            self.machine.read(seeds.rows, slots.rows)
            self.machine.read(seeds.losses, losses)
        return losses

    def measure(self, rows: Array, problems: Array, count: int) -> ctypes.Array[Measures]:
        tokens = self._packed if problems is self._blocks else packed(problems)
        return self._examine(rows, tokens, count)[0]

    def is_wrong(self, theta_SP: Tensor, tokens_STN: Tensor) -> Tensor:
        count = tokens_STN.shape[-1]
        tokens = np.stack([packed(blocks(tokens_TN[None])) for tokens_TN in tokens_STN])
        _, right = self._examine(self._theta_rows(theta_SP), tokens, count, each=True)
        return torch.from_numpy(right.reshape(len(right), -1)[:, :count] == 0)

    def _examine(
        self, rows: Array, tokens: Array, count: int, each: bool = False
    ) -> tuple[ctypes.Array[Measures], Array]:
        """Return sums over problems of each row's θ, and with `each` marks of right answers [S, blocks, 16]."""
        sums = (Measures * len(rows))()
        numbers = np.frombuffer(memoryview(sums).cast("B"), np.uint8)
        right = np.zeros((len(rows), -(-count // LANES), LANES) if each else (0,), np.int32)
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
        empty = dict.fromkeys(field[0] for field in Seeds._fields_)
        return Seeds(**(empty | addresses | {"rows": memory.put(rows), "kept": CAPACITY, "count": len(rows)}))

    def _cuda_program(self, recipe: Recipe) -> Program:
        """Return the program, with its arrays on the machine."""
        asked = [self.places["targeted"].start] if recipe.targeted else []
        made = schedule(self.tapes, self.places, asked)
        sizes, put = self.module.sizes, self.memory.put
        if sizes.wide != 4 * len(self.tapes[1].outputs):
            raise AssertionError(f"{self.spec.family}: kernel_body.h reads {sizes.wide} bytes of wide tensors")
        words = max(made.slots, made.at["room"] + sizes.shared // 4)
        return Program(
            schedule=CSchedule(kinds=put(made.kinds), places=put(made.places)),
            **{name: Part(first=made.parts[name][0], last=made.parts[name][1]) for name in PARTS},
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
            **{
                f"{name}_at": made.at[name]
                for name in ("constants", "asked", "gradient", "there", "wide", "pull", "room")
            },
            team_words=words + (BANKS // TEAMS - words) % BANKS,  # so that the teams of a warp meet no bank twice
            yard_words=len(made.parked) + self.spec.params + sizes.far // 4,
            targeted=made.slot_of[asked[0]] if asked else -1,
        )


def macros_of(spec: Spec, kernel: Kernel, recipe: Recipe) -> dict[str, int | str]:
    """Return what the engine is compiled for."""
    one_chunk = kernel.shape.get("CIRCLE", 0) and -(-recipe.batch // LANES) <= CHUNK
    source = ",".join(map(str, sources(spec)))
    return {
        **kernel.shape,
        "SUMS_OF_CHUNK": int(one_chunk),
        "SOURCE": source,
        "PARKED_AT_ONCE": PARKED_AT_ONCE,
    }


def links_of(ties: Array) -> Array:
    """Return ties [S, P] as the CUDA engine walks them [S, 2, P]: for each entry the first one of its number, with
    its own sign, and the next one; entries count from 1, 0 is none.
    """
    return np.stack([_links(tuple(row)) for row in ties.tolist()])


@lru_cache(4_096)  # a bank's seeds have few, the same ones at every evaluation
def _links(ties: tuple[int, ...]) -> Array:
    links, places = np.zeros((2, len(ties)), np.int16), dict[int, list[int]]()
    for n, number in enumerate(ties):
        if number:
            places.setdefault(abs(number), []).append(n)
    for same in places.values():
        for n, after in zip(same, [*same[1:], -1], strict=True):
            links[:, n] = np.sign(ties[n]) * (same[0] + 1), after + 1
    return links


def packed(problems: Array) -> Array:
    """Return blocks of tokens [blocks, T, 16] with two in a byte."""
    even, odd = problems[:, 0::2], problems[:, 1::2]
    pairs = even.astype(np.uint8)
    pairs[:, : odd.shape[1]] |= odd.astype(np.uint8) << 4
    return pairs
