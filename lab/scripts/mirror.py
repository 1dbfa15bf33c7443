"""The usual way round of a 46p, so that seeds can share a set of ties (model/families/split_subspace/images.py)."""

from __future__ import annotations

from torch import Tensor

from model import preset
from model.families.split_subspace.images import flip_position_axes, swap_token_axes
from model.families.split_subspace.spec import SplitSubspace


def mirrored(spec: SplitSubspace, theta_P: Tensor) -> Tensor:
    """Return θ [P] of 46p with a positive stride of the digits' arc and positive norms of position axes.

    Raises ValueError for other specs.
    """
    if spec != preset("46p"):
        raise ValueError(f"mirror images are known for 46p alone, not for {spec.params} numbers like these")
    tensors = {name: t[0].double() for name, t in spec.layout.split(theta_P[None]).items()}
    if float(tensors["arc"][2]) < 0 and float(tensors["out_B"][0, 0]):
        tensors = swap_token_axes(spec, tensors)
    return spec.layout.join(flip_position_axes(spec, tensors)).to(theta_P.dtype)
