"""The learning rate: its fields, and its value at a step. Axes: S slot."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from model.fields import option
from trainer.fields import PAPER, Group

if TYPE_CHECKING:
    from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningRate(Group):
    lr: float = option(0.02, "peak learning rate", unit="per step", ge=0.0, source=PAPER)
    lr_floor: float = option(0.1, "learning rate at the last step, of the peak", unit="fraction", ge=0, le=1)
    warmup: int = option(1_000, "linear warm-up of the learning rate", unit="steps", ge=0)


def learning_rate(step_S: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    """Return the learning rate [S]: a linear warm-up, then half a cosine from `lr` to `lr` · `lr_floor`."""
    import torch

    warmup = hyper["warmup"]
    last = hyper["steps"] - 1
    floor = hyper["lr_floor"]
    # Step 0 already has a rate; the last step of the warm-up has the peak.
    rising = (step_S + 1) / warmup.clamp(min=1)
    since = step_S - warmup
    # Over one step at least: a warm-up may fill the budget.
    progress = (since / (last - warmup).clamp(min=1)).clamp(0, 1)
    falling = floor + (1 - floor) * 0.5 * (1 + (math.pi * progress).cos())
    return hyper["lr"] * torch.where(step_S < warmup, rising, falling)
