"""The bank's programs, eager or compiled. Compilation is shared between processes through its cache.

torch.compile keeps what it has built on disk; a lock a program makes sure that of several processes
that need the same one, a single one builds it while the others build the rest or wait.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from model.spec import Spec
from trainer import step
from trainer.installed import CACHE, cache_folder
from trainer.optimisers import OPTIMISERS
from trainer.problems import selection
from trainer.recipe import Recipe
from trainer.replay import Replay
from trainer.schedule import Hyper
from trainer.step import State

BLOCK = 20  # steps whose problems are made at once: 11 MB for 16 seeds of 57p
OPTIONS = {
    "max_pointwise_cat_inputs": 0
}  # what is concatenated is stored and not computed again (model/ops.py)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt's names for its numbers


def block_of(eval_every: int) -> int:
    """The largest block of steps, at most BLOCK, that divides the distance of evaluations."""
    return next(k for k in range(min(BLOCK, eval_every), 0, -1) if eval_every % k == 0)


def keep_memory() -> None:
    """Have glibc keep freed arrays up to 1 GiB: it gives a step's arrays back to the kernel and takes page
    faults for them in the next, a fifth of the time of 16 slots.
    """
    with suppress(AttributeError, OSError):  # no glibc
        for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            ctypes.CDLL(None).mallopt(option, 1 << 30)


def initialise_once() -> None:
    """Have torch 2.13 fill its only table of dtypes once, and not for each operation that it writes, which
    is a fifth of a compilation.
    """
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler as Handler

    fill = Handler.__init__

    def fill_if_empty(self: Handler) -> None:
        if not vars(self):
            fill(self)

    if not hasattr(fill, "__wrapped__"):
        Handler.__init__ = wraps(fill)(fill_if_empty)


class Programs:
    """Training and evaluation by torch, for one spec, one device and recipes of one `program()`."""

    elastic = False
    """Whether any number of slots may be trained: these are compiled for all of a bank's."""

    def __init__(self, spec: Spec, recipe: Recipe, device: str, compiled: bool):
        self.compile_s, self.cache_misses = 0.0, 0
        self.block = block_of(recipe.eval_every)
        self._key = repr((spec, recipe.program(), device, torch.__version__))
        self._batch = recipe.batch
        self._draw = partial(step.draw, batch=recipe.batch, block=self.block)
        self._tokens = partial(step.tokens_of, spec)
        self._train = partial(step.train_step, spec, OPTIMISERS[recipe.optimiser])
        self._evaluate = partial(step.evaluate, spec)
        self.problems = step.tokens_of(spec, *selection()).to(device)
        self._compiled, self._on_gpu = compiled, device == "cuda"
        self._replay: Replay | None = None
        if compiled:
            os.environ[CACHE] = str(cache_folder())  # torch's own choice is a folder of /tmp
            keep_memory()
            initialise_once()
            # Isolated: else all partials share one function's limit of eight recompilations.
            how = {"fullgraph": True, "dynamic": False, "isolate_recompiles": True, "options": OPTIONS}
            for name in ("_draw", "_tokens", "_train", "_evaluate"):
                setattr(self, name, torch.compile(getattr(self, name), **how))

    def make_block(self, state: State, hyper: Hyper) -> Tensor:
        """Tokens [K, S, T + 1, B] of the next K steps."""
        return self._tokens(*self._draw(state, hyper))

    def train_step(self, state: State, hyper: Hyper, tokens_STB: Tensor) -> tuple[State, Tensor]:
        return self._train(state, hyper, tokens_STB)

    def train_block(self, state: State, hyper: Hyper) -> tuple[State, Tensor]:
        """`block` steps of every slot, problems included. Returns the new state and the summed losses [S]."""
        loss_S = torch.zeros_like(state["wd_scale"])
        for tokens_STB in self.make_block(state, hyper):
            state, step_loss_S = self.train_step(state, hyper, tokens_STB)
            loss_S = loss_S + step_loss_S
        return state, loss_S

    def train(self, state: State, hyper: Hyper, steps: int) -> tuple[State, Tensor]:
        """`steps` steps, whole blocks of them; on a GPU a block is recorded once and played back, so that
        launches cost nothing. Returns the new state and the summed losses [S].
        """
        blocks = steps // self.block
        if self._on_gpu and self._compiled:
            self._replay = self._replay or Replay(self.train_block, state, hyper)
            return self._replay.run(state, hyper, blocks)
        loss_S = torch.zeros_like(state["wd_scale"])
        for _ in range(blocks):
            state, block_loss_S = self.train_block(state, hyper)
            loss_S += block_loss_S
        return state, loss_S

    def evaluate(self, theta_SP: Tensor) -> dict[str, Tensor]:
        """Exact match, token accuracy and loss [S] on the selection problems."""
        return self._evaluate(theta_SP, self.problems)

    def warm_up(self, state: State, hyper: Hyper) -> None:
        """Compile everything by calling it once; the results are dropped.

        Sets `compile_s` and `cache_misses`, the graphs that the cache did not have.
        """
        if not self._compiled:
            return
        start, before = time.perf_counter(), _cache_misses()
        slots = len(state["theta"])
        example_STB = self.problems[..., :1].repeat(slots, 1, self._batch)
        jobs: dict[str, Callable[[], Any]] = {
            "train": lambda: self._train(state, hyper, example_STB),
            "problems": lambda: self.make_block(state, hyper),
            "evaluate": lambda: self.evaluate(state["theta"]),
        }
        _share(jobs, self._key + repr(tuple(state["theta"].shape)))
        self.compile_s = time.perf_counter() - start
        self.cache_misses = _cache_misses() - before


def _cache_misses() -> int:
    return int(torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"])


def _share(jobs: dict[str, Callable[[], Any]], key: str) -> None:
    """Run every job under its lock; those whose lock is taken come last, and wait."""
    folder, digest = cache_folder(), hashlib.sha256(key.encode()).hexdigest()[:16]
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
