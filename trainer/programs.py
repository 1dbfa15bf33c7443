"""The bank's programs, eager or compiled. Compilation is shared between processes through its cache.

torch.compile keeps what it has built on disk; a lock a program makes sure that of several processes
that need the same one, a single one builds it while the others build the rest or wait.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sysconfig
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from model.spec import Spec
from trainer import step
from trainer.problems import selection
from trainer.schedule import Hyper
from trainer.step import State

BLOCK = 20  # steps whose problems are made at once: 11 MB for 16 seeds of 57p


def block_of(eval_every: int) -> int:
    """The largest block of steps, at most BLOCK, that divides the distance of evaluations."""
    return next(k for k in range(min(BLOCK, eval_every), 0, -1) if eval_every % k == 0)


def missing_for_compilation() -> str | None:
    """What torch.compile lacks on this machine to build CPU programs, or None."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(shlex.split(compiler)[0]) is None:
        return f"a C++ compiler ({compiler})"
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return None if headers.exists() else f"Python's headers ({headers})"


class Programs:
    """make_block, train_step and evaluate for one spec, batch, block and device."""

    def __init__(self, spec: Spec, batch: int, block: int, device: str, compiled: bool):
        self.compile_s = 0.0
        self.block = block
        self._key = repr((spec, batch, block, device, torch.__version__))
        self._batch = batch
        self._draw = partial(step.draw, batch=batch, block=block)
        self._tokens = partial(step.tokens_of, spec)
        self._train = partial(step.train_step, spec)
        self._evaluate = partial(step.evaluate, spec)
        self.problems = step.tokens_of(spec, *selection()).to(device)
        self._compiled = compiled
        if compiled:
            # Isolated: else all partials share one function's limit of eight recompilations.
            options = {"fullgraph": True, "dynamic": False, "isolate_recompiles": True}
            for name in ("_draw", "_tokens", "_train", "_evaluate"):
                setattr(self, name, torch.compile(getattr(self, name), **options))

    def make_block(self, state: State, hyper: Hyper) -> Tensor:
        """Tokens [K, S, T + 1, B] of the next K steps."""
        return self._tokens(*self._draw(state, hyper))

    def train_step(self, state: State, hyper: Hyper, tokens_STB: Tensor) -> tuple[State, Tensor]:
        return self._train(state, hyper, tokens_STB)

    def evaluate(self, theta_SP: Tensor) -> dict[str, Tensor]:
        """Exact match, token accuracy and loss [S] on the selection problems."""
        return self._evaluate(theta_SP, self.problems)

    def warm_up(self, state: State, hyper: Hyper) -> None:
        """Compile everything by calling it once; the results are dropped. Sets `compile_s`."""
        if not self._compiled:
            return
        start = time.perf_counter()
        slots = len(state["theta"])
        example_STB = self.problems[..., :1].repeat(slots, 1, self._batch)
        jobs: dict[str, Callable[[], Any]] = {
            "train": lambda: self._train(state, hyper, example_STB),
            "problems": lambda: self.make_block(state, hyper),
            "evaluate": lambda: self.evaluate(state["theta"]),
        }
        _share(jobs, self._key + repr(tuple(state["theta"].shape)))
        self.compile_s = time.perf_counter() - start


def _share(jobs: dict[str, Callable[[], Any]], key: str) -> None:
    """Run every job under its lock; those whose lock is taken come last, and wait."""
    folder = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", Path.home() / ".cache" / "adder-search"))
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    locks = {name: FileLock(folder / f"{digest}-{name}.lock") for name in jobs}
    waiting = []
    for name, job in jobs.items():
        try:
            with locks[name].acquire(blocking=False):
                job()
        except Timeout:
            waiting.append(name)
    for name in waiting:
        with locks[name]:
            jobs[name]()
