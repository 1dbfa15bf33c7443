"""Where the time of a bank goes: sampling problems, the rest of a step, the kernel in it, evaluation."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.ceilings import synchronize
from model.adderboard import DIGITS
from trainer import Bank, Recipe
from trainer.engine.native import EngineBackend, blocks, expansion, pointer, run
from trainer.engine.structures import Lesson
from trainer.engine.torch_backend import block_of

PARTS = ("sampling", "step", "evaluation")
ENGINE_STEPS = 100  # in a call: what a call costs is nothing beside them


def timings(bank: Bank, probe: float, seconds: float) -> dict[str, float | None]:
    """Seconds of one interval that sampling, the rest of the steps (of which the kernel) and evaluation take,
    from steps timed for `seconds`. What is not the whole step is timed alone, for `probe` seconds each.
    """
    programs, state, hyper, every = bank.backend, bank.state, bank.hyper, bank.eval_every
    native = isinstance(programs, EngineBackend)
    steps = min(every, ENGINE_STEPS) if native else block_of(every)
    train_s = timed(bank.device, lambda: programs.train(state, hyper, steps), seconds) / steps
    evaluation_s = timed(bank.device, lambda: programs.evaluate(state["theta"]), probe)
    if native:
        sampling_s, kernel_s = engine_parts(bank, probe)
    else:
        sampling_s = timed(bank.device, lambda: programs.make_block(state, hyper), probe) / steps
        kernel_s = None
    return {
        "sampling": every * sampling_s,
        "step": every * max(train_s - sampling_s, 0),
        "kernel": kernel_s and every * kernel_s,
        "evaluation": evaluation_s,
    }


def engine_parts(bank: Bank, probe: float) -> tuple[float, float]:
    """Seconds of a step of all seeds that sampling takes, and the kernel; threads share the seeds."""
    programs, spec = bank.backend, bank.spec
    assert isinstance(programs, EngineBackend)
    batch, engine, kernel = programs.program.batch, programs.engine, programs.kernel
    tokens = blocks(torch.zeros(1, programs.program.sequence.length, batch))
    wide = run(expansion(spec), bank.state["theta"][0].numpy())
    gradient = np.zeros_like(wide)
    asked = Lesson.some(carry_mix=Recipe().carry_mix, digits=DIGITS)
    lesson = ctypes.byref(programs.program), ctypes.byref(asked)
    to, numbers, back = (pointer(array) for array in (tokens, wide, gradient))
    sampling_s = timed("cpu", lambda: engine.engine_problems(*lesson, to), probe)
    kernel_s = timed("cpu", lambda: kernel.kernel_train(numbers, to, batch, back, None), probe)
    turns = bank.slots / min(torch.get_num_threads(), bank.slots)
    return sampling_s * turns, kernel_s * turns


def timed(device: str, call: Callable[[], object], seconds: float) -> float:
    """Mean seconds of a call, repeated for about `seconds` after two that tell how often that is."""

    def repeat(times: int) -> float:
        synchronize(device)
        start = time.perf_counter()
        for _ in range(times):
            call()
        synchronize(device)
        return (time.perf_counter() - start) / times

    repeat(1)
    return repeat(max(round(seconds / repeat(1)), 1))


def whole(interval: dict[str, float | None]) -> float:
    """Seconds of an interval; the kernel's are in the step's."""
    return sum(interval[part] or 0 for part in PARTS)


def shares(interval: dict[str, float | None]) -> dict[str, float | None]:
    return {name: s if s is None else s / whole(interval) for name, s in interval.items()}
