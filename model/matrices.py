"""Arithmetic on matrices along problems: for families too wide for the feature lists of model/ops.py.

A stream is [S, D, N]: features, then every reading position and problem, so that a layer is one product. A
matrix is applied once to each possible input, a token at a position, and the results are looked up by a product
with one-hot tokens.

BLAS adds in an order that depends on where in memory a matrix begins, which for small ones depends on the
seed's slot. So a seed's own small matrices are multiplied without it, `product`, and along problems all begin
alike: `aligned` makes their number a multiple of 16.

Axes: S seed, B problem, T position, A answer position, N reading positions × problems, V vocabulary, C any
channels, R those that attention reads, D features.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from model.ops import attend, dot

ALIGNED = 16  # numbers in 64 bytes


def aligned(tokens_STB: Tensor) -> Tensor:
    """Pad tokens with problems to a multiple of 16; the caller cuts their logits off."""
    return F.pad(tokens_STB, (0, -tokens_STB.shape[2] % ALIGNED))


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return a · b for matrices of one seed each, [..., m, k] and [..., k, n], without BLAS."""
    return (a[..., None] * b[..., None, :, :]).sum(-2)


def matrix(p: Mapping[str, Tensor], name: str) -> Tensor:
    """Return a matrix in torch's orientation, its factors (see `layout.linear`) multiplied out."""
    if name in p:
        return p[name]
    return product(p[f"{name}_A"], p[f"{name}_B"]).mT


def one_hot(tokens_STB: Tensor, vocabulary: int, dtype: torch.dtype) -> Tensor:
    """Return one-hot tokens [S, T, V, B]."""
    every_V1 = torch.arange(vocabulary, dtype=tokens_STB.dtype, device=tokens_STB.device)[:, None]
    return (tokens_STB[:, :, None] == every_V1).to(dtype)


def look_up(entries_SCTV: Tensor, hot_STVB: Tensor) -> Tensor:
    """Return the entry of each position's token [S, C, T, B]."""
    return (entries_SCTV.transpose(1, 2) @ hot_STVB).transpose(1, 2)


def attention(queries_SRAB: Tensor, keys_SRTB: Tensor, values_SCTB: Tensor, first: int) -> Tensor:
    """Apply causal attention of one head [S, C, A, B], scores unscaled; row a sees positions 0 .. first + a."""
    queries_R = queries_SRAB[:, :, :, None].unbind(1)
    keys_R = keys_SRTB[:, :, None].unbind(1)
    scores_SATB = dot(queries_R, keys_R)
    channels = attend(scores_SATB, first, values_SCTB.unbind(1))
    return torch.stack(channels, dim=1)


def unit(x_SDN: Tensor, eps: float) -> Tensor:
    """Return x / sqrt(mean(x²) + eps) over the features: RMSNorm without a weight."""
    return x_SDN * torch.rsqrt(x_SDN.square().mean(1, keepdim=True) + eps)


def centred(x_SDN: Tensor) -> Tensor:
    """Return x less its mean over the features, as LayerNorm does before it scales."""
    return x_SDN - x_SDN.mean(1, keepdim=True)
