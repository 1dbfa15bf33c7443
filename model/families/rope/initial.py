"""The initial values of the rope family: normal numbers, norms of 1, an arc near a trained one.

Axes: P parameters.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from model import draws
from model.families.rope.spec import Rope

DEVIATION = 0.02


def initial(spec: Rope, seed: int) -> Tensor:
    """Draw θ [P] of a seed with torch's CPU generator.

    What folds leave out is drawn too, so that the others start as they would without them.
    """
    generator = torch.Generator().manual_seed(seed)
    full = dataclasses.replace(spec, arc_inputs=False, arc_logits=False, flat_down=False)
    # An arc is near a trained one from the start; angles are what the spec says.
    fixed = {
        "arc": torch.tensor([spec.arc_radius, spec.arc_start, spec.arc_stride]),
        "k_angle": torch.tensor([spec.first_k_angle]),
        "down_angle": torch.tensor([spec.first_down_angle]),
    }
    tensors = {}
    for name, shape in full.shapes().items():
        if name in fixed:
            tensors[name] = fixed[name]
        elif "norm" in name or name.endswith("_scale"):
            tensors[name] = torch.ones(shape)
        else:
            tensors[name] = draws.normal(shape, DEVIATION, generator)
    cut = {name: tuple(map(slice, shape)) for name, shape in spec.shapes().items()}
    return spec.layout.join({name: tensors[name][part] for name, part in cut.items()})
