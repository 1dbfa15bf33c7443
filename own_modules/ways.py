"""Ways from one module to another of its class: what its parameters are called, and constraints that can be taken off.

Axes: S seed, B problem, T position, P and R parameters.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from model.spec import Fold
from own_modules.loading import problems_of, template

if TYPE_CHECKING:
    from model.ops import Tensors
    from model.spec import Spec
    from own_modules.spec import Module

CLOSE = 1e-5
"""Relative and absolute difference of logits that are called the same."""


def aliases(spec: Module) -> dict[str, str]:
    """Return all names of a module's parameters, with the name by which each is a tensor of θ."""
    # By identity, as torch hashes tensors: a tied parameter is one object.
    firsts: dict[Tensor, str] = {}
    names = {}
    for name, parameter in template(spec).named_parameters(remove_duplicate=False):
        own = name.replace(".", "_")
        names[own] = firsts.setdefault(parameter, own)
    return names


def all_tensors(spec: Module, theta_SP: Tensor) -> Tensors:
    return _renamed(spec, spec.layout.split(theta_SP))


def _renamed(spec: Module, tensors: Tensors) -> Tensors:
    return {name: tensors[first] for name, first in aliases(spec).items()}


def answers_as(spec: Module, theta_SP: Tensor, other: Spec, other_SR: Tensor) -> bool:
    """True if two models give the same logits on some problems."""
    tokens_1TB = problems_of(spec.task).T[None].int()
    first = spec.prompt - 1
    logits: Tensor = spec.forward(theta_SP, tokens_1TB, first)
    others: Tensor = other.forward(other_SR, tokens_1TB, first)
    return logits.shape == others.shape and torch.allclose(logits, others, rtol=CLOSE, atol=CLOSE)


def folds(spec: Module) -> list[Fold]:
    """Return a fold for each constraint without which the same numbers, some of them twice, compute the same."""
    found = []
    for name in spec.applied():
        freer = spec.without(name)
        shapes = {alias: spec.shapes()[first] for alias, first in aliases(spec).items()}
        # What needs other tensors, or others' shapes, is no mere tie.
        if not freer.shapes().items() <= shapes.items():
            continue
        # Tried, since any code may stand behind a constraint: freed, the same numbers must answer alike.
        # And not at its first values alone: what begins at zero hides whatever comes before it.
        theta_1P = (spec.initial(0) + torch.linspace(0, 0.1, spec.params))[None]
        tensors = {alias: t_1[0] for alias, t_1 in all_tensors(spec, theta_1P).items()}
        freer_1R = freer.layout.join(tensors)[None]
        if answers_as(spec, theta_1P, freer, freer_1R):
            found.append(Fold(f"{name} taken off", freer, partial(_renamed, spec)))
    return found
