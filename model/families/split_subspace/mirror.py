"""Mirror images: the same adder with its axes the other way round, so that seeds can share a set of ties.

Ties across tensors name signs and axes; a seed that has learnt the mirror image of a form cannot enter them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from model.families.split_subspace.spec import SplitSubspace
from model.ops import Tensors

OTHERS = {"arc", "equals", "form", "out_A", "out_B", "fc1", "head", "norm"}
"""The tensors of a spec that is known here: 46p's."""


def mirrored(spec: SplitSubspace, theta_P: Tensor) -> Tensor:
    """θ [P] of 46p with the codes of the digits turning the usual way round, and position axes with norms
    that are positive.

    The first is exact. The second is, but for what the FFN writes on such an axis: a place to train from.
    Raises ValueError for other specs.
    """
    tensors = {name: t[0].double() for name, t in spec.layout.split(theta_P[None]).items()}
    usual = spec.unit_out and spec.tie_fc2_head and spec.tok_dim == 2 and not spec.opposite_out
    if tensors.keys() != OTHERS or not usual:
        raise ValueError(f"mirror images are known for 46p alone, not for {spec.params} numbers like these")
    if float(tensors["arc"][2]) < 0 and float(tensors["out_B"][0, 0]):
        tensors = _swapped(tensors)
    return spec.layout.join(_turned(spec, tensors)).to(theta_P.dtype)


def _swapped(t: Tensors) -> Tensors:
    """The two axes of tokens for each other: what they are called in each tensor, so nothing else changes."""
    radius, start, stride = t["arc"]
    axes = [1, 0, *range(2, t["fc1"].shape[1])]
    first = t["out_B"][0, 0]  # the row of the output is 1, this, ...
    row = torch.cat([torch.ones_like(t["out_B"][:, :1]), t["out_B"]], dim=1)[:, axes]
    return t | {
        "arc": torch.stack([radius, math.pi / 2 - start, -stride]),
        "out_A": t["out_A"].flip(0) * first,
        "out_B": row[:, 1:] / first,
        "fc1": t["fc1"].flip(0)[:, axes],  # the units too: what they write is what the head reads
        "head": t["head"].flip(0)[:, axes],
        "norm": t["norm"][:, axes],
    }


def _turned(spec: SplitSubspace, t: Tensors) -> Tensors:
    """Position axes with a negative norm the other way round, for all that read them through the norm."""
    sign = torch.where(t["norm"][0] < 0, -1.0, 1.0).double()
    sign[: spec.tok_dim] = 1
    places = sign[spec.tok_dim :]
    turned = {"form": t["form"] * torch.outer(places, places), "norm": t["norm"] * sign}
    return t | turned | {name: t[name] * sign for name in ("fc1", "head")}
