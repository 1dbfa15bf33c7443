"""A bank's eager programs by torch, on a CPU or a GPU: the reference, and the engine of families without a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from model.spec import Spec
from trainer.data import hard_examples
from trainer.data.problems import selection
from trainer.optimisers import optimiser_of
from trainer.recipe import Recipe
from trainer.recipe.ramp import largest_divisor
from trainer.step import step
from trainer.step.objective import Objective, answer_logits
from trainer.step.schedule import Hyper
from trainer.step.step import State

BLOCK = 20  # most steps whose problems are made at once: 11 MB for 16 seeds of 57p


class TorchBackend:
    """Training and evaluation by torch, for one spec, one device and recipes of one `program()`."""

    name = "programs"
    """The name in records."""
    supports_partial_bank = False
    """All slots are trained."""
    compile_s = 0.0
    about: Mapping[str, str] = {}
    """Facts that records have beside the name."""

    def __init__(self, spec: Spec, recipe: Recipe, device: str):
        self.spec = spec
        self.device = device
        if device == "cuda":
            self.about = {"device": torch.cuda.get_device_name()}
        self.optimiser = optimiser_of(recipe)
        self.block = largest_divisor(recipe.eval_every, BLOCK)
        self._draw = partial(
            step.draw,
            batch=recipe.batch,
            block=self.block,
            mixed=bool(recipe.targeted),
            task=spec.task,
        )
        self.train_step = partial(step.train_step, spec, self.optimiser, objective=Objective.of(recipe))
        self.problems = step.tokens_of(spec, *selection(spec.task)).to(device)

    def make_block(self, state: State, hyper: Hyper) -> Tensor:
        """Return tokens [K, S, T + 1, B] of the next K steps."""
        return step.tokens_of(self.spec, *self._draw(state, hyper))

    def train(self, state: State, hyper: Hyper, steps: int) -> tuple[State, Tensor]:
        """Train every slot by whole blocks of steps. Return the new state and the summed losses [S]."""
        # Problems are made for a block of steps at once, so that torch is called less often.
        loss_S = torch.zeros_like(state["wd_scale"])
        for _ in range(steps // self.block):
            block_loss_S = torch.zeros_like(loss_S)
            for tokens_STB in self.make_block(state, hyper):
                state, step_loss_S = self.train_step(state, hyper, tokens_STB)
                block_loss_S += step_loss_S
            loss_S += block_loss_S
        return state, loss_S

    def evaluate(self, theta_SP: Tensor, tokens_1TB: Tensor | None = None) -> dict[str, Tensor]:
        """Return exact match, token accuracy and loss [S] on the selection problems, or on others."""
        tokens_1TB = self.problems if tokens_1TB is None else tokens_1TB
        return step.evaluate(self.spec, theta_SP, tokens_1TB)

    def is_wrong(self, theta_SP: Tensor, tokens_STN: Tensor) -> Tensor:
        """Mark the wrong answers among each slot's own problems [S, N]."""
        with torch.no_grad():
            logits = answer_logits(self.spec, theta_SP, tokens_STN)
        return hard_examples.is_wrong(logits, tokens_STN[:, self.spec.prompt :], self.spec.task.answers)

    def warm_up(self, state: State, hyper: Hyper) -> None:
        """Do nothing: nothing is compiled."""
