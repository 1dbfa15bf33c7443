"""Schedules: pure functions of a seed's recipe and its own step, one entry a slot.

Axes: S slot, C curriculum stage. `hyper` is a dictionary of tensors [S], one for each number of the
recipe, plus `stage_digits` and `stage_ends` [S, C]. Learning rate and weight decay have files of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from model.layout import Layout
from trainer import weight_decay
from trainer.learning_rate import learning_rate
from trainer.optimisers.factors import entries
from trainer.recipe import Recipe
from trainer.weight_decay import drops_of

STAGES = 4
FOREVER = 1 << 62
Hyper = dict[str, Tensor]


def hyper_of(
    recipes: Sequence[Recipe], layout: Layout | None = None, device: torch.device | str = "cpu"
) -> Hyper:
    """The recipes of a bank's slots as tensors [S] (float32; steps as int64).

    Names are no numbers, but for a schedule's where it is switched on: its place among the valid ones.
    Factors of tensors, which need a layout of θ, are [S, P].
    """
    numbers = [f.name for f in dataclasses.fields(Recipe) if type(f.default) in (int, float)]
    hyper = {name: torch.tensor([getattr(r, name) for r in recipes], device=device) for name in numbers}
    stages = [_stages(r) for r in recipes]
    for i, name in enumerate(("stage_digits", "stage_ends")):
        hyper[name] = torch.tensor([s[i] for s in stages], dtype=torch.int64, device=device)
    for name in recipes[0].switched_on():
        hyper |= {key: torch.tensor(t, device=device) for key, t in _switched(name, recipes, layout).items()}
    return hyper


def _switched(name: str, recipes: Sequence[Recipe], layout: Layout | None) -> dict[str, list[Any]]:
    """What a switch that is on adds to the numbers of a bank."""
    values = Recipe.__dataclass_fields__[name].metadata["values"]
    given = [getattr(r, name) for r in recipes]
    added = {name: [values.index(value) for value in given]} if values else {}
    if name == "wd_schedule":
        drops = [drops_of(r) for r in recipes]
        added |= {"wd_drop_steps": [d[0] for d in drops], "wd_drop_factors": [d[1] for d in drops]}
    if name == "fold_step":
        added["folded_at"] = given
    if isinstance(given[0], tuple) and layout is not None:
        added[name] = [entries(layout, name, value) for value in given]
    return added


def _stages(recipe: Recipe) -> tuple[list[int], list[int]]:
    digits, ends, end = [], [], 0
    for stage_digits, steps in recipe.curriculum:
        end += steps
        digits.append(stage_digits)
        ends.append(end)
    missing = STAGES - len(digits)
    return digits + [10] * missing, ends + [FOREVER] * missing


def now(state: Mapping[str, Tensor], hyper: Hyper) -> Hyper:
    """The numbers of the step that each slot is at: the recipe's, `lr` as scheduled, `decay`, the share of θ
    that decoupled weight decay takes off, and `l2`, θ's share in a gradient that weight decay is a part of.
    Where tensors have factors of their own, [S, P].
    """
    lr = learning_rate(state["step"], hyper)
    l2, decay = hyper["weight_decay"] * state["wd_scale"], lr * hyper["weight_decay"] * state["wd_scale"]
    if "wd_schedule" in hyper:
        l2, decay = (t * weight_decay.factor(state["step"], hyper) for t in (l2, decay))
    if "lr_factors" in hyper:
        lr, decay = (t[:, None] * hyper["lr_factors"] for t in (lr, decay))
    if "wd_factors" in hyper:
        l2, decay = (t.reshape(len(t), -1) * hyper["wd_factors"] for t in (l2, decay))
    return {**hyper, "lr": lr, "decay": decay, "l2": l2}


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
