"""The initial values of the split_subspace family: the published draws in the published order.

Axes: P parameters.
"""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from model import draws
from model.families.split_subspace.folds import direct
from model.families.split_subspace.spec import SplitSubspace
from model.layout import Shapes
from model.tasks import in_columns

# Close to the trained geometry: A, start, stride (field: arc).
ARC = (2.5, -1.2, 0.29)


def initial(spec: SplitSubspace, seed: int) -> Tensor:
    """Draw θ [P] of a seed with torch's CPU generator.

    The training code's modules draw default values when they are constructed, and Xavier draws overwrite them;
    both are drawn here, because the generator moves on. Tensors that a constraint of ours leaves out are drawn
    too, so that the others start as they would without it.
    """
    drawn = _draws(spec, torch.Generator().manual_seed(seed))
    shapes, spiral = spec.shapes(), spec.spiral_start
    fixed = {
        "arc": torch.tensor(ARC if spec.circular else (ARC[0], *ARC)),
        "tokens": _first_table(in_columns(spec.task).base, spec.tokens, spec.tok_dim),
        "spiral": torch.tensor(spiral[:2] + spiral[2 + spec.flat_spiral :]),
        "correction": torch.zeros(shapes.get("correction", (0,))),
        "phase": torch.zeros(spec.heads),
        "fc1_bias": torch.zeros(spec.units),
        "fc2_bias": torch.zeros(spec.width),
        "norm": torch.ones(shapes.get("norm", (0,))),
    }
    # Of structured norms the first number is the common weight, but for one whose common weight is a fixed 1.
    if spec.norm_numbers:
        fixed["norm"][not spec.structured_norm1 :] = 0
    return spec.layout.join(_reshape(spec, drawn | fixed))


@cache
def _drawn_shapes(spec: SplitSubspace) -> Shapes:
    """Return the shapes that are drawn: constraints on what is read of them change none."""
    ignored: tuple[str, ...] = (
        "direct_forms",
        "unit_out",
        "opposite_out",
        "token_out",
        "onehot_out",
        "rank1_q",
        "one_unit",
    )
    off: dict[str, Any] = dict.fromkeys(ignored, False)
    return dataclasses.replace(spec, **off).shapes()


def _draws(spec: SplitSubspace, gen: torch.Generator) -> dict[str, Tensor]:
    """Draw every random tensor, in the order of the training code."""
    shapes = _drawn_shapes(spec)
    matrices = ("q_proj", "k_proj", "v_proj", "out", "out_A", "fc1", "fc2", "head")
    names = [n for n in matrices if n in shapes]

    # what the modules draw when they are constructed, then positions, then Xavier draws in place of the first
    drawn: dict[str, Tensor] = {name: draws.kaiming(shapes[name], gen) for name in names}
    for place in ("digits", "z_hi", "equals", "plus", "eos"):
        shape = (spec.columns, spec.pos_dim) if place == "digits" else (spec.pos_dim,)
        # z_hi is drawn where it is left out too: what is drawn after it would else be other numbers.
        if place in shapes or place == "z_hi":
            drawn[place] = draws.normal(shape, 0.02, gen)
    for name in names:
        if name != "out_A":
            drawn[name] = draws.xavier(shapes[name], gen)
    if spec.out_rank:
        drawn["out_B"] = torch.zeros(spec.out_rank, spec.width)  # attention is silent at step 0
    return drawn


def _reshape(spec: SplitSubspace, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Convert drawn tensors to the form of a spec whose output or scores have another one."""
    if spec.direct_forms:
        # Drawn as the factors of the published form, so that a seed starts with the same scores as there.
        drawn_for = dataclasses.replace(spec, direct_forms=False)
        double = {name: t.double() for name, t in tensors.items()}
        exact = direct(drawn_for, double)
        tensors = {name: t.float() for name, t in exact.items()}
    if spec.unit_out or spec.onehot_out:  # the row is not zero, so the column has to be
        tensors["out_A"] = torch.zeros_like(tensors["out_A"])
    if spec.rank1_q:  # the product of the first column and the first row that were drawn
        of_heads = tensors["q_proj"].unflatten(0, (spec.heads, -1))
        tensors |= {"q_A": of_heads[:, :, 0], "q_B": of_heads[:, 0]}
    if spec.one_unit:
        tensors |= {"fc1": tensors["fc1"][:1], "fc2": tensors["fc2"][:, :1]}
    if spec.rank1_out:
        end = spec.tok_dim if spec.token_out else spec.width
        first = spec.unit_out + spec.opposite_out  # whichever are left out, the row is zero
        tensors["out_B"] = tensors["out_B"][:, first:end]
    return tensors


@cache
def _first_table(digits: int, tokens: int, tok_dim: int) -> Tensor:
    """Return the first token table: digits on a spiral, delimiters away from it.

    It is the 242-parameter model's, cut to `tokens` tokens and tok_dim dimensions.
    """
    spiral = []
    for digit in range(digits):
        turn = 2 * math.pi * digit / digits
        spiral.append([math.cos(turn), math.sin(turn), digit / (digits - 1)])
    special = [[2.0, 0, -1], [0, 2, -1], [-2, 0, -1], [0, -2, -1]]
    table = torch.zeros(digits + len(special), max(tok_dim, 3))
    table[:, :3] = torch.tensor(spiral + special)
    return table[:tokens, :tok_dim]
