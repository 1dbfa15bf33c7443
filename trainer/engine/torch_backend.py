"""A bank's programs by torch: compiled for a GPU, eager where neither a GPU nor the engine is wanted.

torch.compile keeps what it has built on disk, in the user's cache (trainer/files/installed.py).
"""

from __future__ import annotations

import os
import time
from functools import partial

import torch
from torch import Tensor

from model.spec import Spec
from trainer.data import hard_examples
from trainer.data.hard_examples import BatchParts
from trainer.data.problems import selection
from trainer.engine.replay import Replay
from trainer.files.installed import CACHE, cache_folder
from trainer.optimisers import optimiser_of
from trainer.recipe import Recipe
from trainer.step import step
from trainer.step.objective import Objective
from trainer.step.schedule import Hyper
from trainer.step.step import State

BLOCK = 20  # steps whose problems are made at once: 11 MB for 16 seeds of 57p


def block_of(eval_every: int) -> int:
    """Return the largest block of steps, at most BLOCK, that divides a distance."""
    return next(k for k in range(min(BLOCK, eval_every), 0, -1) if eval_every % k == 0)


class TorchBackend:
    """Training and evaluation by torch, for one spec, one device and recipes of one `program()`."""

    name = "programs"
    """As records have it."""
    supports_partial_bank = False
    """All slots are trained: programs are compiled for their number."""
    graphs: bool
    """True if blocks of steps are recorded and played back, as CUDA graphs."""

    def __init__(self, spec: Spec, recipe: Recipe, device: str, compiled: bool):
        self.spec, self.compile_s, self.cache_misses = spec, 0.0, 0
        self.optimiser = optimiser_of(recipe)
        self.block = block_of(recipe.eval_every)
        self._batch = recipe.batch
        self._draw = partial(step.draw, batch=recipe.batch, block=self.block, which=BatchParts.of(recipe))
        self._tokens = partial(step.tokens_of, spec)
        objective = Objective.of(spec, recipe)
        self._train = partial(step.train_step, spec, self.optimiser, objective=objective)
        self._evaluate = partial(step.evaluate, spec)
        self.problems = step.tokens_of(spec, *selection()).to(device)
        self._compiled, self.graphs = compiled, compiled and device == "cuda"
        self._replay: Replay | None = None
        if compiled:
            os.environ[CACHE] = str(cache_folder())  # torch's own choice is a folder of /tmp
            # Isolated: else all partials share one function's limit of eight recompilations.
            how = {"fullgraph": True, "dynamic": False, "isolate_recompiles": True}
            for name in ("_draw", "_tokens", "_train", "_evaluate"):
                setattr(self, name, torch.compile(getattr(self, name), **how))

    def make_block(self, state: State, hyper: Hyper) -> Tensor:
        """Return tokens [K, S, T + 1, B] of the next K steps."""
        return self._tokens(*self._draw(state, hyper))

    def train_step(self, state: State, hyper: Hyper, tokens_STB: Tensor) -> tuple[State, Tensor]:
        return self._train(state, hyper, tokens_STB)

    def train_block(self, state: State, hyper: Hyper) -> tuple[State, Tensor]:
        """Train every slot by `block` steps, problems included. Return the new state and the summed losses [S]."""
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
        if self.graphs:
            self._replay = self._replay or Replay(self.train_block, state, hyper)
            return self._replay.run(state, hyper, blocks)
        loss_S = torch.zeros_like(state["wd_scale"])
        for _ in range(blocks):
            state, block_loss_S = self.train_block(state, hyper)
            loss_S += block_loss_S
        return state, loss_S

    def evaluate(self, theta_SP: Tensor, tokens_1TB: Tensor | None = None) -> dict[str, Tensor]:
        """Return exact match, token accuracy and loss [S] on the selection problems, or on others."""
        return self._evaluate(theta_SP, self.problems if tokens_1TB is None else tokens_1TB)

    def is_wrong(self, theta_SP: Tensor, tokens_STN: Tensor) -> Tensor:
        """Mark the wrong answers among each slot's own problems [S, N]."""
        with torch.no_grad():
            logits = self.spec.forward(theta_SP, tokens_STN[:, :-1], first=self.spec.prompt - 1)
        return hard_examples.is_wrong(logits, tokens_STN[:, self.spec.prompt :])

    def warm_up(self, state: State, hyper: Hyper) -> None:
        """Compile everything by calling it once; the results are dropped.

        Sets `compile_s` and `cache_misses`, the graphs that the cache did not have.
        """
        if not self._compiled:
            return
        start, before = time.perf_counter(), _cache_misses()
        example_STB = self.problems[..., :1].repeat(len(state["theta"]), 1, self._batch)
        self._train(state, hyper, example_STB)
        self.make_block(state, hyper)
        self.evaluate(state["theta"])
        self.compile_s = time.perf_counter() - start
        self.cache_misses = _cache_misses() - before


def _cache_misses() -> int:
    return int(torch._dynamo.utils.counters["inductor"]["fxgraph_cache_miss"])
