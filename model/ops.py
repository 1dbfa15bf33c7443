"""Arithmetic on short feature lists: the building blocks of the families' forward passes.

Feature axes are 2 to 14 long, so they are Python lists and not tensor axes: the compiler then sees one flat
pointwise program along problems. A vector is a list of tensors, a matrix a list of rows.

Axes: S seed, B problem, T position, A answer position, V vocabulary. Parameters are scalars [S, 1, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

Vector = list[Tensor]
Matrix = list[Vector]
Tensors = dict[str, Tensor]


def scalars(t_S: Tensor) -> Any:
    """Turn a parameter tensor [S, *shape] into nested lists of scalars [S, 1, 1]."""
    if t_S.dim() == 1:
        return t_S[:, None, None]
    return [scalars(part) for part in t_S.unbind(1)]


def lookup(entries: Sequence[Tensor], tokens_STB: Tensor) -> Tensor:
    """Return entries[token] by selects instead of gathers, so that it vectorises along problems.

    A single entry stands for all tokens and keeps the problem axis at size 1.
    """
    out = entries[0]
    for v, entry in enumerate(entries[1:], start=1):
        out = torch.where(tokens_STB == v, entry, out)
    return out


def dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    """Return the sum of products of two vectors."""
    # From left to right, as the kernels add: the order is part of every bit of a seed.
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


def matrix(rows: Sequence[Sequence[Tensor]], vector: Sequence[Tensor]) -> Vector:
    """Return matrix · vector."""
    return [dot(row, vector) for row in rows]


def add(a: Sequence[Tensor], b: Sequence[Tensor]) -> Vector:
    """Return the sum of two vectors."""
    return [x + y for x, y in zip(a, b, strict=True)]


def transposed(matrix: Sequence[Sequence[Tensor]]) -> Matrix:
    """Return the transpose of a matrix."""
    return [list(column) for column in zip(*matrix, strict=True)]


def product(a: Sequence[Sequence[Tensor]], b: Sequence[Sequence[Tensor]]) -> Matrix:
    """Return a · b."""
    return [matrix(transposed(b), row) for row in a]


def normed(stream: Sequence[Tensor], eps: float) -> Vector:
    """Return x / sqrt(mean(x²) + eps) over the features (57p paper 2.6), without the norm's weights."""
    scale = torch.rsqrt(dot(stream, stream) / len(stream) + eps)
    return [h * scale for h in stream]


def attend(scores_SATB: Tensor, first: int, values_STB: Sequence[Tensor]) -> Vector:
    """Apply causal attention: average each channel of values over T with softmax weights [S, A, B].

    Row a sees positions 0 .. first + a. Where the scores are the same for all problems (B = 1), weights are
    normalised before they meet the values; where they are not, the sums are, which spares the backward pass a
    reduction over every problem's weights.
    """
    answers, length = scores_SATB.shape[1:3]
    future = torch.ones(answers, length, dtype=torch.bool, device=scores_SATB.device).triu(first + 1)
    scores_SATB = scores_SATB.masked_fill(future[..., None], -torch.inf)
    if scores_SATB.shape[-1] == 1:
        weights = torch.softmax(scores_SATB, dim=2)
        return [(weights * v[:, None]).sum(2) for v in values_STB]
    # The largest cancels, so that no gradient need pass through it.
    weights = torch.exp(scores_SATB - scores_SATB.detach().amax(2, keepdim=True))
    total_SAB = weights.sum(2)
    return [(weights * v[:, None]).sum(2) / total_SAB for v in values_STB]
