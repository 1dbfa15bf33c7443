"""The initial values of the low_rank family: the published draws in the published order.

Axes: P parameters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from model import draws
from model.families.low_rank.spec import LowRank
from model.ops import Tensors


def initial(spec: LowRank, seed: int) -> Tensor:
    """Draw θ [P] of a seed with torch's CPU generator.

    The training code's modules draw default values when they are constructed; then every embedding and full
    matrix is drawn again, the token table twice, because the output head holds it too.
    """
    return spec.layout.join(_draws(spec, torch.Generator().manual_seed(seed)))


def _draws(spec: LowRank, gen: torch.Generator) -> Tensors:
    """Draw every tensor of one seed. The last position is drawn even without the EOS target."""
    shapes = spec.shapes()
    rows = spec.position_shapes(spec.rows)
    drawn = {name: torch.empty(shape) for name, shape in (shapes | rows).items()}
    norms = [n for n in shapes if n.startswith("norm")]
    # Tables by name: a full position table is a matrix by its shape alone.
    tables = {"tokens", *rows}
    matrices = [n for n in shapes if n not in tables and n not in norms]
    full = [n for n in matrices if not _is_factor(n)]

    # what the modules draw when they are constructed
    drawn["tokens"] = draws.normal(shapes["tokens"], 1, gen)
    for name in rows:
        drawn[name] = draws.normal(rows[name], 0.02 if spec.pos_rank else 1, gen)
    for name in matrices:
        if _is_factor(name):
            deviation = math.sqrt(2 / sum(shapes[name]))
            drawn[name] = draws.normal(shapes[name], deviation, gen)
        else:
            drawn[name] = draws.kaiming(shapes[name], gen)
    # The output head's, which nobody keeps: it is the token table. But the generator moves on.
    draws.kaiming((spec.vocabulary, spec.width), gen)

    # what is drawn again, over the first values
    positions = [] if spec.pos_rank else rows
    for name in ["tokens", *positions, *full, "tokens"]:
        drawn[name] = draws.normal(tuple(drawn[name].shape), 0.02, gen)
    for name in norms:
        drawn[name].fill_(0 if name.endswith("bias") else 1)
    return {name: t[: shapes[name][0]] for name, t in drawn.items()}  # without rows that the spec leaves out


def _is_factor(name: str) -> bool:
    """True if a tensor is one of a matrix's two factors."""
    return "_A" in name or "_B" in name
