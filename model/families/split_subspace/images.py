"""Mirror images: the same adder, or nearly, with its axes the other way round.

Ties across tensors fix signs and axes. A seed that learnt the mirror image of a form cannot take them on, but its own
mirror image can.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from model.families.split_subspace.spec import SplitSubspace
from model.ops import Tensors

TENSORS = {"arc", "equals", "form", "out_A", "out_B", "fc1", "head", "norm"}


def images(spec: SplitSubspace, theta_P: Tensor) -> list[Tensor]:
    """Return the mirror images of θ [P] that are others than itself; none for forms in which they are not known."""
    if not has_images(spec):
        return []
    tensors = spec.layout.split_one(theta_P.double())
    ways = [tensors]
    # Swapping divides by the output's entry on the second axis.
    if spec.opposite_out or float(tensors["out_B"][0, 0]):
        ways.append(swap_token_axes(spec, tensors))
    ways += [flip_position_axes(spec, way) for way in ways]
    found: list[Tensor] = []
    for way in ways:
        image_P = spec.layout.join(way).to(theta_P.dtype)
        # The first way is θ itself, and a flip of no axis is none.
        if not any(torch.equal(image_P, other_P) for other_P in (theta_P, *found)):
            found.append(image_P)
    return found


def has_images(spec: SplitSubspace) -> bool:
    """True if mirror images are known: for 46p, and with opposite_out."""
    shapes = spec.shapes()
    if shapes.keys() != TENSORS or shapes["norm"] != (1, spec.width) or not spec.circular:
        return False
    return spec.unit_out and not spec.token_out and spec.heads == 1


def swap_token_axes(spec: SplitSubspace, t: Tensors) -> Tensors:
    """Swap the two token axes in each tensor. The function stays the same."""
    radius, start, stride = t["arc"]
    axes = [1, 0, *range(2, t["fc1"].shape[1])]
    fixed = [1.0, -1.0] if spec.opposite_out else [1.0]
    whole = torch.cat([t["arc"].new_tensor([fixed]), t["out_B"]], dim=1)
    first = whole[0, 1]  # the row of the output is 1, this, ...
    row = whole[:, axes] / first
    return (
        t
        | {
            "arc": torch.stack([radius, math.pi / 2 - start, -stride]),  # cos and sin trade places
            "out_A": t["out_A"].flip(0) * first,
            "out_B": row[:, len(fixed) :],
            "fc1": t["fc1"].flip(0)[:, axes],  # the units too: what they write is what the head reads
            "head": t["head"].flip(0)[:, axes],
            "norm": t["norm"][:, axes],
        }
    )


def flip_position_axes(spec: SplitSubspace, t: Tensors) -> Tensors:
    """Flip position axes with a negative norm, in every tensor that reads them through the norm.

    Not exact where the FFN writes to a flipped axis: train from there.
    """
    sign = torch.where(t["norm"][0] < 0, -1.0, 1.0).double()
    sign[: spec.tok_dim] = 1  # token axes stay
    places = sign[spec.tok_dim :]
    flipped = {"form": t["form"] * torch.outer(places, places), "norm": t["norm"] * sign}
    return t | flipped | {name: t[name] * sign for name in ("fc1", "head")}
