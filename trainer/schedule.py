"""Schedules: pure functions of a seed's recipe and its own step, one entry a slot.

Axes: S slot, C curriculum stage. `hyper` is a dictionary of tensors [S], one for each number of the
recipe, plus `stage_digits` and `stage_ends` [S, C].
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainer.recipe import Recipe

STAGES = 4
FOREVER = 1 << 62
Hyper = dict[str, Tensor]


def hyper_of(recipes: Sequence[Recipe], device: torch.device | str = "cpu") -> Hyper:
    """The recipes of a bank's slots as tensors [S] (float32; steps as int64). Names are no numbers."""
    numbers = [f.name for f in dataclasses.fields(Recipe) if type(f.default) in (int, float)]
    hyper = {name: torch.tensor([getattr(r, name) for r in recipes], device=device) for name in numbers}
    stages = [_stages(r) for r in recipes]
    for i, name in enumerate(("stage_digits", "stage_ends")):
        hyper[name] = torch.tensor([s[i] for s in stages], dtype=torch.int64, device=device)
    return hyper


def _stages(recipe: Recipe) -> tuple[list[int], list[int]]:
    digits, ends, end = [], [], 0
    for stage_digits, steps in recipe.curriculum:
        end += steps
        digits.append(stage_digits)
        ends.append(end)
    missing = STAGES - len(digits)
    return digits + [10] * missing, ends + [FOREVER] * missing


def learning_rate(step_S: Tensor, hyper: Hyper) -> Tensor:
    """Linear warm-up, then a cosine from `lr` to `lr` · `lr_floor` at the last step; after a fold, with which
    the optimiser begins anew, warmed up again.
    """
    warmup, last = hyper["warmup"], hyper["steps"] - 1
    rising = (step_S + 1) / warmup.clamp(min=1)
    progress = ((step_S - warmup) / (last - warmup).clamp(min=1)).clamp(0, 1)
    falling = hyper["lr_floor"] + (1 - hyper["lr_floor"]) * 0.5 * (1 + torch.cos(math.pi * progress))
    since_S = step_S - hyper["fold_step"]
    again = torch.where(since_S < 0, 1.0, ((since_S + 1) / warmup.clamp(min=1)).clamp(max=1))
    again = torch.where(hyper["fold_step"] > 0, again, 1.0)
    return hyper["lr"] * torch.where(step_S < warmup, rising, falling) * again


def now(state: Mapping[str, Tensor], hyper: Hyper) -> Hyper:
    """The numbers of the step that each slot is at: the recipe's, `lr` as scheduled, and `decay`, the share
    of θ that weight decay takes off.
    """
    lr_S = learning_rate(state["step"], hyper)
    return {**hyper, "lr": lr_S, "decay": lr_S * hyper["weight_decay"] * state["wd_scale"]}


def carry_mix(step_R: Tensor, hyper: Hyper) -> Tensor:
    """The share of carry problems: constant, then a linear fade to 0 (57p paper, section 3.2)."""
    start, end = hyper["fade_start"], hyper["fade_end"]
    left = ((end - step_R) / (end - start).clamp(min=1)).clamp(0, 1)
    return hyper["carry_mix"] * torch.where(step_R < start, 1.0, left)


def ramp(step_S: Tensor, hyper: Hyper) -> Tensor:
    """How much hold ties have on θ: from 0 at `ramp_start` linearly to 1, `ramp` steps later; without a
    ramp, 1.
    """
    since_S, length_S = step_S - hyper["ramp_start"], hyper["ramp"]
    return torch.where(since_S < length_S, (since_S / length_S.clamp(min=1)).clamp(min=0), 1.0)


def digits(step_R: Tensor, hyper: Hyper) -> Tensor:
    """The largest operand length at a step (57p paper, section 3.5)."""
    over = step_R[..., None] >= hyper["stage_ends"]
    stage = hyper["stage_digits"]
    out = torch.full_like(step_R, 10)
    for c in reversed(range(STAGES)):
        out = torch.where(over[..., c], out, stage[..., c])
    return out
