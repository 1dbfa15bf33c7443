"""The CUDA engine under watch: the CPU engine trains the same again, one seed at a time.

A difference, or a call that fails, is one line in the log. The CPU engine then repeats the call and does all later
ones. Seeds whose turn had not come until then are not checked.
"""

from __future__ import annotations

import ctypes
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from threading import Thread
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from gpu.backend import CudaBackend
from gpu.card import Card
from gpu.check import verdict
from gpu.comparison import compare, first_difference
from gpu.driver import CudaError, gpus
from gpu.machine import Machine
from model.spec import Spec
from trainer.engine.accelerators import LOG
from trainer.engine.native import EngineBackend, Measures, Slots
from trainer.engine.tape_graph import Array
from trainer.recipe import Recipe
from trainer.step.schedule import Hyper
from trainer.step.step import State

FIRST_SEEDS = 2
"""Seeds of a bank that are trained by both engines before it begins."""
LONGEST_S = 600.0
"""Seconds that a GPU gets to answer; it needs a few."""
THREAD = "cuda"
"""The name of threads that wait for a GPU."""
HANGING: list[CudaBackend | None] = []
"""Engines whose GPU did not answer: to free their memory would hang too."""
log = logging.getLogger(LOG)
T = TypeVar("T")
Numbers = dict[str, Tensor]
"""Numbers of one seed by name, which both engines must agree on: tensors [1, ...]."""


class CheckedBackend(EngineBackend):
    """The CUDA engine, and the CPU's in its place once it has failed."""

    def __init__(self, spec: Spec, recipe: Recipe, machine: Machine):
        """Raise CudaError, BuildError; ValueError for a recipe that the CUDA engine does not have."""
        super().__init__(spec, recipe)
        self.cuda: CudaBackend | None = CudaBackend(spec, recipe, machine)
        self.name = self.cuda.name
        self.about = dict(machine.about)
        self._blocks = self.cuda._blocks
        self._turns = Counter[str]()
        self._trained = False
        self.compile_s += self.cuda.compile_s

    def warm_up(self, state: State, hyper: Hyper) -> None:
        """Train a bank's first seeds by both engines."""
        if not self.cuda:
            return
        # A few steps of a few seeds, before any of the bank is trained.
        first = {name: tensor[:FIRST_SEEDS] for name, tensor in state.items()}
        first_hyper = {name: tensor[:FIRST_SEEDS] for name, tensor in hyper.items()}
        # An engine of its own: `compare` calls its `train`, which here would call the GPU again.
        cpu = EngineBackend(self.spec, self.recipe)
        asked = self._asked(lambda cuda: compare(cuda, cpu, first, first_hyper))
        different = self._answer(asked)
        if different is not None:
            self._judge(different)

    def run_steps(self, slots: Slots, steps: int) -> Array:
        seed = self._next("train", len(slots.rows))
        # Both engines train copies: the rows stay as they are where the GPU fails.
        trained = replace(slots, rows=slots.rows.copy())
        one = slots.part(slice(seed, seed + 1))
        one = replace(one, rows=one.rows.copy())
        updated = self.places["step"].stop

        def on_gpu(cuda: CudaBackend) -> tuple[Array, Numbers]:
            losses = cuda.run_steps(trained, steps)
            return losses, _numbers(state=trained.rows[seed, :updated], loss=losses[seed])

        def on_cpu() -> Numbers:
            loss = EngineBackend.run_steps(self, one, steps)[0]
            return _numbers(state=one.rows[0, :updated], loss=loss)

        losses = self._both(on_gpu, on_cpu, f"within {steps} steps, slot {seed}, ")
        if losses is None:
            return super().run_steps(slots, steps)
        slots.rows[:] = trained.rows
        self._trained = True
        return losses

    def measure(self, rows: Array, problems: Array, count: int) -> ctypes.Array[Measures]:
        seed = self._next("measure", len(rows))
        one = rows[seed : seed + 1]

        def of(sums: Measures) -> Numbers:
            return _numbers(measures=np.array([sums.exact, sums.right, sums.loss]))

        def on_gpu(cuda: CudaBackend) -> tuple[ctypes.Array[Measures], Numbers]:
            sums = cuda.measure(rows, problems, count)
            return sums, of(sums[seed])

        def on_cpu() -> Numbers:
            return of(EngineBackend.measure(self, one, problems, count)[0])

        sums = self._both(on_gpu, on_cpu, f"evaluation, slot {seed}, ")
        return super().measure(rows, problems, count) if sums is None else sums

    def is_wrong(self, theta_SP: Tensor, tokens_STN: Tensor) -> Tensor:
        seed = self._next("is_wrong", len(theta_SP))
        part = slice(seed, seed + 1)

        def on_gpu(cuda: CudaBackend) -> tuple[Tensor, Numbers]:
            marks = cuda.is_wrong(theta_SP, tokens_STN)
            return marks, {"is_wrong": marks[part]}

        def on_cpu() -> Numbers:
            return {"is_wrong": EngineBackend.is_wrong(self, theta_SP[part], tokens_STN[part])}

        marks = self._both(on_gpu, on_cpu, f"answers, slot {seed}, ")
        return super().is_wrong(theta_SP, tokens_STN) if marks is None else marks

    def _both(
        self,
        on_gpu: Callable[[CudaBackend], tuple[T, Numbers]],
        on_cpu: Callable[[], Numbers],
        where: str,
    ) -> T | None:
        """Do the same on the GPU and, for one seed, on the CPU beside it.

        on_gpu: returns a result, and one seed's numbers. on_cpu: returns the same numbers. where: begins the message
        where they differ. Return the GPU's result, or None if it failed.
        """
        if not self.cuda:
            return None
        # The CPU's one seed takes its time while the GPU trains all of them.
        asked = self._asked(on_gpu)
        expected = on_cpu()
        answer = self._answer(asked)
        if answer is None:
            return None
        done, ours = answer
        different = first_difference(ours, expected)
        if different:  # its seed is the only one, so `where` names it
            different = where + different.partition(", ")[2]
        return done if self._judge(different) else None

    def _asked(self, function: Callable[[CudaBackend], T]) -> Future[T]:
        """Start `function` on the GPU, in a thread that nobody waits for if it hangs."""
        assert self.cuda
        future: Future[T] = Future()
        # Not a pool's thread: Python would wait for that one when it exits.
        Thread(target=_settle, args=(future, function, self.cuda), name=THREAD, daemon=True).start()
        return future

    def _answer(self, asked: Future[T]) -> T | None:
        """Return the GPU's answer, or None if it failed."""
        try:
            return asked.result(LONGEST_S)
        except CudaError as error:
            self._give_up(str(error))
        except TimeoutError:
            # Kept from the garbage collector, which would call the driver that hangs.
            HANGING.append(self.cuda)
            self._give_up(f"{self.about['device']} did not answer in {LONGEST_S:.0f} s")
        return None

    def _judge(self, different: str) -> bool:
        if different:
            self._give_up(f"the CUDA engine gave other bits on {self.about['device']} ({different})")
        return not different

    def _give_up(self, why: str) -> None:
        log.warning("%s; training by the CPU engine", why)
        self.cuda = None  # for good: a GPU that was wrong once is not asked again
        # A bank that the GPU has trained a part of is said to be both's.
        self.name = "cuda, then native" if self._trained else EngineBackend.name
        self.about = self.about if self._trained else {}

    def _next(self, work: str, count: int) -> int:
        """Return the seed whose turn it is. Each kind of work has turns of its own: they alternate."""
        self._turns[work] += 1
        return self._turns[work] % count


def _settle(future: Future[T], function: Callable[[CudaBackend], T], cuda: CudaBackend) -> None:
    try:
        future.set_result(function(cuda))
    except Exception as error:
        future.set_exception(error)


def _numbers(**arrays: Array) -> Numbers:
    return {name: torch.as_tensor(np.atleast_1d(a))[None] for name, a in arrays.items()}


def checked_backend(spec: Spec, recipe: Recipe) -> CheckedBackend | None:
    """Return the CUDA engine where a GPU is here and passed its test, or else None.

    A warning in the log says why a GPU that is here is not used. Raise BuildError where the CPU engine's C++ cannot be
    compiled.
    """
    visible, why = gpus()
    # Whatever fails here, the study goes on: by the CPU, with one line.
    try:
        if visible and not (why := verdict(visible[0], spec, recipe)):
            return CheckedBackend(spec, recipe, Card())
        if visible:
            why = f"the CUDA engine failed its test on {visible[0].name}: {why}"
    except (CudaError, ValueError, OSError) as error:
        why = str(error)
    if why:
        log.warning("%s; training by the CPU engine", why)
    return None
