"""Schedules: pure functions of a seed's recipe and its own step, one entry per slot.

Axes: S slot, C curriculum stage, N point of the carry schedule, R row (a slot at a step). `hyper` is a dictionary of
tensors [S], one for each number of the recipe, plus `stage_digits` and `stage_ends` [S, C], and those of `_carry`
[S, N]. Learning rate and weight decay have files of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from model.layout import Layout
from model.tasks import ADDITION, Columns, Task
from trainer.data.problems import Kinds
from trainer.optimisers.factors import entries
from trainer.optimisers.freeze import frozen_from
from trainer.optimisers.l1 import penalty_mask
from trainer.recipe import Recipe, weight_decay
from trainer.recipe.carry import KINDS, POINTS
from trainer.recipe.learning_rate import learning_rate
from trainer.recipe.weight_decay import drops_of

STAGES = 4
MOST_DIGITS = 20
"""Operand length after a curriculum: no task has longer ones."""
FOREVER = 1 << 62
Hyper = dict[str, Tensor]


def hyper_of(recipes: Sequence[Recipe], layout: Layout) -> Hyper:
    """Return the recipes of a bank's slots as tensors [S] (float32; steps as int64).

    The name of a schedule that is switched on becomes its place among the valid ones; other names are left
    out. What is of single entries of θ is [S, P]. layout: of θ.
    """
    fields = dataclasses.fields(Recipe)
    # A name, a list or a flag is no number of a seed: those are the program's, or handled below.
    numbers = [f.name for f in fields if type(f.default) in (int, float)]
    rows = []
    for recipe in recipes:
        row = {name: getattr(recipe, name) for name in numbers}
        rows.append(row | _stages(recipe) | _carry(recipe))
    hyper = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
    for name in recipes[0].switched_on():
        added = _switched(name, recipes, layout)
        hyper |= {key: torch.tensor(entries) for key, entries in added.items()}
    return hyper


def _switched(name: str, recipes: Sequence[Recipe], layout: Layout) -> dict[str, list[Any]]:
    """Return the numbers that a field which is switched on adds, one entry per recipe."""
    values = Recipe.__dataclass_fields__[name].metadata["values"]
    chosen = [getattr(r, name) for r in recipes]
    added = dict[str, list[Any]]()
    if values:
        added[name] = [values.index(value) for value in chosen]
    if name == "wd_schedule":
        steps, factors = zip(*map(drops_of, recipes), strict=True)
        added["wd_drop_steps"] = list(steps)
        added["wd_drop_factors"] = list(factors)
    # The following name tensors or entries of θ.
    if name == "l1_lambda":
        added["l1_entries"] = [penalty_mask(layout, r.l1_entries) for r in recipes]
    if name == "freeze":
        added[name] = [frozen_from(layout, rows) for rows in chosen]
    if name == "lr_factors":
        added[name] = [entries(layout, pairs) for pairs in chosen]
    return added


def _stages(recipe: Recipe) -> dict[str, list[int]]:
    """Return a curriculum's stages, filled up to STAGES: operand lengths, and the steps where they end."""
    digits = []
    ends = []
    end = 0
    for stage_digits, steps in recipe.curriculum:
        end += steps
        digits.append(stage_digits)
        ends.append(end)
    missing = STAGES - len(digits)
    return {
        "stage_digits": digits + [MOST_DIGITS] * missing,
        "stage_ends": ends + [FOREVER] * missing,
    }


def _carry(recipe: Recipe) -> dict[str, Any]:
    """Return the points of a recipe's carry schedule, the last one repeated.

    `by_share` is 1 if shares have points, `by_kind` if each kind has its own.
    """
    points = list(recipe.carry_shares)
    is_by_kind = bool(points) and len(points[0]) > 2
    if not points:
        points = [(0,) * (1 + len(KINDS))]
    elif not is_by_kind:  # the last kind holds the share of all
        points = [(step, 0.0, 0.0, 0.0, share) for step, share in points]
    # A row's numbers are as many for every seed of a bank, and at every step of a tape.
    points += [points[-1]] * (POINTS - len(points))
    steps, *by_kind = zip(*points, strict=True)
    numbers: dict[str, Any] = {
        "by_share": int(bool(recipe.carry_shares)),
        "by_kind": int(is_by_kind),
        "share_steps": list(map(int, steps)),
    }
    for kind, shares in zip(KINDS, by_kind, strict=True):
        numbers[f"share_{kind}"] = list(map(float, shares))
    return numbers


def now(state: Mapping[str, Tensor], hyper: Hyper) -> Hyper:
    """Return the numbers of each slot's step: the recipe's, with `lr` as scheduled, `decay` and `l2`.

    decay: the share of θ that decoupled weight decay takes off. l2: the factor of θ in a gradient that
    includes weight decay. Both [S]; `lr` and `decay` are [S, P] where tensors have factors of their own.
    """
    lr = learning_rate(state["step"], hyper)
    l2 = hyper["weight_decay"] * state["wd_scale"]
    decay = lr * hyper["weight_decay"] * state["wd_scale"]
    if "wd_schedule" in hyper:
        scheduled = weight_decay.factor(state["step"], hyper)
        l2 = l2 * scheduled
        decay = decay * scheduled
    if "lr_factors" in hyper:
        factors_SP = hyper["lr_factors"]
        lr = lr[:, None] * factors_SP
        decay = decay[:, None] * factors_SP
    return {**hyper, "lr": lr, "decay": decay, "l2": l2}


def carry_mix(step_R: Tensor, hyper: Hyper, task: Task = ADDITION) -> Tensor:
    """Return the share of carry problems [R]: constant, then a linear fade to 0 (57p paper, section 3.2).

    Where the recipe has `carry_shares`, it is their sum. It is 0 for a task that has no carries.
    """
    if not task.carries:
        return torch.zeros_like(step_R)
    start = hyper["fade_start"]
    end = hyper["fade_end"]
    left = end - step_R
    remaining = (left / (end - start).clamp(min=1)).clamp(0, 1)
    faded = hyper["carry_mix"] * torch.where(step_R < start, 1.0, remaining)
    has_points = hyper["by_share"] > 0
    return torch.where(has_points, _upto(KINDS, step_R, hyper), faded)


def kinds(step_R: Tensor, hyper: Hyper, scale_R: Tensor) -> Kinds:
    """Return the kinds of carry problems at a step; their shares are multiplied by `scale_R`."""
    # The last kind needs no bound: it has what the others leave of the carry problems.
    firsts = [KINDS[:count] for count in range(1, len(KINDS))]
    upto = [_upto(names, step_R, hyper) * scale_R for names in firsts]
    return Kinds(hyper["by_kind"], *upto)


def _upto(names: Sequence[str], step_R: Tensor, hyper: Hyper) -> Tensor:
    """Sum the shares of some kinds of carry problems."""
    first, *others = (_share(name, step_R, hyper) for name in names)
    return sum(others, first)


def _share(name: str, step_R: Tensor, hyper: Hyper) -> Tensor:
    """Interpolate a kind's points at a step: linear between two, constant before the first and after the last."""
    steps = hyper["share_steps"]
    levels = hyper[f"share_{name}"]
    # `...`: a seed's row on a tape has the points alone, a bank has slots before them.
    # A loop over the points and no search: the same operations for every seed, so that tapes can have them.
    level_R = levels[..., 0].expand_as(step_R)
    for begin, end in pairwise(range(POINTS)):
        start = steps[..., begin]
        low = levels[..., begin]
        since_R = step_R - start
        share_R = (since_R / (steps[..., end] - start).clamp(min=1)).clamp(max=1)
        is_after = step_R >= start
        between_R = low + share_R * (levels[..., end] - low)
        level_R = torch.where(is_after, between_R, level_R)
    return torch.where(step_R >= steps[..., -1], levels[..., -1], level_R)


def ramp(step_S: Tensor, hyper: Hyper) -> Tensor:
    """Return the strength of ties [S]: from 0 at `ramp_start` linearly to 1, `ramp` steps later; else 1."""
    since_S = step_S - hyper["ramp_start"]
    length_S = hyper["ramp"]
    is_rising = since_S < length_S
    share_S = (since_S / length_S.clamp(min=1)).clamp(min=0)
    return torch.where(is_rising, share_S, 1.0)


def digits(step_R: Tensor, hyper: Hyper, task: Columns) -> Tensor:
    """Return the largest operand length at a step, at most the task's (57p paper, section 3.5)."""
    most = task.digits
    over = step_R[..., None] >= hyper["stage_ends"]
    stage = hyper["stage_digits"]
    out = torch.full_like(step_R, most)  # after the last stage
    # Backwards, so that the first stage that has not ended is the one that stays.
    for c in reversed(range(STAGES)):
        out = torch.where(over[..., c], out, stage[..., c])
    return out.clamp(max=most)
