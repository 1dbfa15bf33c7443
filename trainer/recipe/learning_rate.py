"""The learning rate: its fields, and its value at a step. Axes: S slot."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from model.fields import option
from trainer.fields import PAPER, Group, dependent_option

if TYPE_CHECKING:
    from torch import Tensor

SCHEDULES = ("cosine", "wsd", "restarts")
MOST_CYCLES = 24  # of growing length: 2^24 times the first is past every budget


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningRate(Group):
    lr: float = option(0.02, "peak learning rate", unit="per step", ge=0.0, source=PAPER)
    lr_floor: float = option(0.1, "learning rate at the last step, of the peak", unit="fraction", ge=0, le=1)
    warmup: int = option(1_000, "linear warm-up of the learning rate", unit="steps", ge=0)
    lr_schedule: str = option(
        "cosine",
        "after the warm-up: cosine to the floor, wsd (stable, then linear to it) or restarts (cosine to it, "
        "again and again)",
        unit="name", values=SCHEDULES, switch=True,
        source="wsd: Hu et al., MiniCPM, 2024, section 4; restarts: Loshchilov and Hutter, SGDR, ICLR 2017",
    )  # fmt: skip
    lr_decay: float = dependent_option(
        "lr_schedule=wsd", 0.1, "how much of the budget the fall takes, at its end", unit="fraction", ge=0,
        le=1,
    )  # fmt: skip
    lr_cycle: int = dependent_option(
        "lr_schedule=restarts", 10_000, "length of the first cycle", unit="steps", ge=1
    )
    lr_cycle_growth: int = dependent_option(
        "lr_schedule=restarts", 1, "length of a cycle, of the one before", unit="factor", ge=1, le=100
    )


def learning_rate(step_S: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    """Return the learning rate [S]: a linear warm-up, then the schedule between `lr` and `lr` · `lr_floor`."""
    import torch

    warmup = hyper["warmup"]
    rising = (step_S + 1) / warmup.clamp(min=1)
    falling = _cosine(step_S, hyper)
    if "lr_schedule" in hyper:
        kinds = {"wsd": _stable(step_S, hyper), "restarts": _restarts(step_S, hyper)}
        for name, factor in kinds.items():
            falling = torch.where(hyper["lr_schedule"] == SCHEDULES.index(name), factor, falling)
    rate: Tensor = hyper["lr"] * torch.where(step_S < warmup, rising, falling)
    return rate


def _down(progress: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    """Return half a cosine from 1 to the floor as progress goes from 0 to 1."""
    floor = hyper["lr_floor"]
    factor: Tensor = floor + (1 - floor) * 0.5 * (1 + (math.pi * progress).cos())
    return factor


def _cosine(step_S: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    warmup, last = hyper["warmup"], hyper["steps"] - 1
    return _down(((step_S - warmup) / (last - warmup).clamp(min=1)).clamp(0, 1), hyper)


def _stable(step_S: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    last, floor = hyper["steps"] - 1, hyper["lr_floor"]
    remaining = (last - step_S) / (hyper["lr_decay"] * hyper["steps"]).clamp(min=1)
    return floor + (1 - floor) * remaining.clamp(0, 1)


def _restarts(step_S: Tensor, hyper: Mapping[str, Tensor]) -> Tensor:
    import torch

    since, length, growth = step_S - hyper["warmup"], hyper["lr_cycle"] + 0 * step_S, hyper["lr_cycle_growth"]
    equal = since - (since / length).floor() * length
    for _ in range(MOST_CYCLES):
        over = since >= length
        since, length = torch.where(over, since - length, since), torch.where(over, length * growth, length)
    return _down(torch.where(growth == 1, equal / hyper["lr_cycle"], since / length), hyper)
