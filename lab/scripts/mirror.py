"""Mirror images: the same adder with its axes reversed, so that seeds can share a set of ties.

Ties across tensors fix signs and axes; a seed that learnt the mirror image of a form cannot take them on.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from model.families.split_subspace.spec import SplitSubspace
from model.ops import Tensors

TENSORS_46P = {"arc", "equals", "form", "out_A", "out_B", "fc1", "head", "norm"}
"""The tensors of the one spec that is supported: 46p."""


def mirrored(spec: SplitSubspace, theta_P: Tensor) -> Tensor:
    """Return θ [P] of 46p with a positive stride of the digits' arc and positive norms of position axes.

    The first change is exact. The second is not where the FFN writes to a flipped axis: train from there.
    Raises ValueError for other specs.
    """
    tensors = {name: t[0].double() for name, t in spec.layout.split(theta_P[None]).items()}
    usual = spec.unit_out and spec.tie_fc2_head and spec.tok_dim == 2 and not spec.opposite_out
    if tensors.keys() != TENSORS_46P or not usual:
        raise ValueError(f"mirror images are known for 46p alone, not for {spec.params} numbers like these")
    if float(tensors["arc"][2]) < 0 and float(tensors["out_B"][0, 0]):
        tensors = _swap_token_axes(tensors)
    return spec.layout.join(_flip_position_axes(spec, tensors)).to(theta_P.dtype)


def _swap_token_axes(t: Tensors) -> Tensors:
    """Swap the two token axes in each tensor; the function stays the same."""
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


def _flip_position_axes(spec: SplitSubspace, t: Tensors) -> Tensors:
    """Flip position axes with a negative norm, in every tensor that reads them through the norm."""
    sign = torch.where(t["norm"][0] < 0, -1.0, 1.0).double()
    sign[: spec.tok_dim] = 1
    places = sign[spec.tok_dim :]
    flipped = {"form": t["form"] * torch.outer(places, places), "norm": t["norm"] * sign}
    return t | flipped | {name: t[name] * sign for name in ("fc1", "head")}
