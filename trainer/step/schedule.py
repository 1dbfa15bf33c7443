"""Schedules: pure functions of a seed's recipe and its own step, one entry a slot.

Axes: S slot, C curriculum stage. `hyper` is a dictionary of tensors [S], one for each number of the
recipe, plus `stage_digits` and `stage_ends` [S, C], and those of `_carry` [S, N], N points of its schedule.
Learning rate and weight decay have files of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from model.layout import Layout
from trainer.data.problems import Kinds
from trainer.optimisers.factors import entries
from trainer.optimisers.freeze import frozen_from
from trainer.optimisers.l1 import penalty_mask
from trainer.recipe import Recipe, weight_decay
from trainer.recipe.carry import KINDS, POINTS
from trainer.recipe.learning_rate import learning_rate
from trainer.recipe.weight_decay import drops_of

STAGES = 4
FOREVER = 1 << 62
Hyper = dict[str, Tensor]


def hyper_of(recipes: Sequence[Recipe], layout: Layout | None = None) -> Hyper:
    """Return the recipes of a bank's slots as tensors [S] (float32; steps as int64).

    The name of a schedule that is switched on becomes its place among the valid ones; other names are left
    out. Factors of tensors, which need a layout of θ, are [S, P].
    """
    numbers = [f.name for f in dataclasses.fields(Recipe) if type(f.default) in (int, float)]
    hyper = {name: torch.tensor([getattr(r, name) for r in recipes]) for name in numbers}
    stages = [_stages(r) for r in recipes]
    for i, name in enumerate(("stage_digits", "stage_ends")):
        hyper[name] = torch.tensor([s[i] for s in stages], dtype=torch.int64)
    carries = [_carry(r) for r in recipes]
    hyper |= {n: torch.tensor([c[n] for c in carries]) for n in carries[0]}
    for name in recipes[0].switched_on():
        hyper |= {key: torch.tensor(t) for key, t in _switched(name, recipes, layout).items()}
    return hyper


def _switched(name: str, recipes: Sequence[Recipe], layout: Layout | None) -> dict[str, list[Any]]:
    """Return the numbers that a switch adds to a bank's where it is on."""
    values = Recipe.__dataclass_fields__[name].metadata["values"]
    chosen = [getattr(r, name) for r in recipes]
    added = {name: [values.index(value) for value in chosen]} if values else {}
    if name == "wd_schedule":
        drops = [drops_of(r) for r in recipes]
        added |= {"wd_drop_steps": [d[0] for d in drops], "wd_drop_factors": [d[1] for d in drops]}
    if name == "l1_lambda" and layout is not None:
        added["l1_entries"] = [penalty_mask(layout, r.l1_entries) for r in recipes]
    if name == "freeze" and layout is not None:
        added[name] = [frozen_from(layout, rows) for rows in chosen]
    if name == "lr_factors" and layout is not None:
        added[name] = [entries(layout, pairs) for pairs in chosen]
    return added


def _stages(recipe: Recipe) -> tuple[list[int], list[int]]:
    digits, ends, end = [], [], 0
    for stage_digits, steps in recipe.curriculum:
        end += steps
        digits.append(stage_digits)
        ends.append(end)
    missing = STAGES - len(digits)
    return digits + [10] * missing, ends + [FOREVER] * missing


def _carry(recipe: Recipe) -> dict[str, Any]:
    """Return the points of a recipe's carry schedule, the last one repeated.

    `by_share` is 1 if shares have points, `by_kind` if each kind has its own.
    """
    shares = recipe.carry_shares
    by_kind = bool(shares) and len(shares[0]) > 2
    points = [p if by_kind else (p[0], 0.0, 0.0, 0.0, p[1]) for p in shares] or [(0,) * (1 + len(KINDS))]
    points += [points[-1]] * (POINTS - len(points))
    numbers: dict[str, Any] = {"by_share": int(bool(shares)), "by_kind": int(by_kind)}
    numbers["share_steps"] = [int(p[0]) for p in points]
    return numbers | {f"share_{kind}": [float(p[i]) for p in points] for i, kind in enumerate(KINDS, start=1)}


def now(state: Mapping[str, Tensor], hyper: Hyper) -> Hyper:
    """Return the numbers of each slot's step: the recipe's, with `lr` as scheduled, `decay` and `l2`.

    decay: the share of θ that decoupled weight decay takes off; l2: the factor of θ in a gradient that
    includes weight decay. [S, P] where tensors have factors of their own.
    """
    lr = learning_rate(state["step"], hyper)
    l2, decay = hyper["weight_decay"] * state["wd_scale"], lr * hyper["weight_decay"] * state["wd_scale"]
    if "wd_schedule" in hyper:
        l2, decay = (t * weight_decay.factor(state["step"], hyper) for t in (l2, decay))
    if "lr_factors" in hyper:
        lr, decay = (t[:, None] * hyper["lr_factors"] for t in (lr, decay))
    return {**hyper, "lr": lr, "decay": decay, "l2": l2}


def carry_mix(step_R: Tensor, hyper: Hyper) -> Tensor:
    """Return the share of carry problems: constant, then a linear fade to 0 (57p paper, section 3.2)."""
    start, end = hyper["fade_start"], hyper["fade_end"]
    remaining = ((end - step_R) / (end - start).clamp(min=1)).clamp(0, 1)
    faded = hyper["carry_mix"] * torch.where(step_R < start, 1.0, remaining)
    return torch.where(hyper["by_share"] > 0, _upto(KINDS, step_R, hyper), faded)


def kinds(step_R: Tensor, hyper: Hyper, scale_R: Tensor) -> Kinds:
    """Return the kinds of carry problems at a step; their shares are multiplied by `scale_R`."""
    single, chain, place = (_upto(KINDS[: i + 1], step_R, hyper) * scale_R for i in range(len(KINDS) - 1))
    return Kinds(hyper["by_kind"], single, chain, place)


def _upto(names: Sequence[str], step_R: Tensor, hyper: Hyper) -> Tensor:
    """Sum the shares of some kinds of carry problems."""
    first, *others = (_share(name, step_R, hyper) for name in names)
    return sum(others, first)


def _share(name: str, step_R: Tensor, hyper: Hyper) -> Tensor:
    """Interpolate a kind's points at a step: linear between two, constant before the first and after the last."""
    steps, levels = hyper["share_steps"], hyper[f"share_{name}"]
    level_R = levels[..., 0].expand_as(step_R)
    for i in range(POINTS - 1):
        (begin, end), (low, high) = ((t[..., i], t[..., i + 1]) for t in (steps, levels))
        share_R = ((step_R - begin) / (end - begin).clamp(min=1)).clamp(max=1)
        level_R = torch.where(step_R >= begin, low + share_R * (high - low), level_R)
    return torch.where(step_R >= steps[..., -1], levels[..., -1], level_R)


def ramp(step_S: Tensor, hyper: Hyper) -> Tensor:
    """Return the strength of ties [S]: from 0 at `ramp_start` linearly to 1, `ramp` steps later; else 1."""
    since_S, length_S = step_S - hyper["ramp_start"], hyper["ramp"]
    return torch.where(since_S < length_S, (since_S / length_S.clamp(min=1)).clamp(min=0), 1.0)


def digits(step_R: Tensor, hyper: Hyper) -> Tensor:
    """Return the largest operand length at a step (57p paper, section 3.5)."""
    over = step_R[..., None] >= hyper["stage_ends"]
    stage = hyper["stage_digits"]
    out = torch.full_like(step_R, 10)
    for c in reversed(range(STAGES)):
        out = torch.where(over[..., c], out, stage[..., c])
    return out
