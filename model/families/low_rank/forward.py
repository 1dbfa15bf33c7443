"""The forward pass of the low_rank family.

There are at most 33 · 14 different inputs, a token at a position, so what the block reads of its input is
worked out once for each of them and looked up. Attention works on what is read, x · A, before any B: the B of
queries and keys meet in one small matrix, the values' B in the output. Along problems all of it is matrix
products (model/matrices.py): as lists of 7 and 14 features (model/ops.py) the same took eight times as long
to compile and a third longer to train.

Axes: S seed, B problem, T position, A answer position, N answer positions × problems, M positions × tokens,
V vocabulary, D width, F width of the FFN, R rank, P parameters.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from model.families.low_rank.spec import DIGITS, EOS, EQUALS, PLUS, VOCABULARY, LowRank
from model.matrices import aligned, attention, layernorm, look_up, matrix, one_hot, product, rmsnorm
from model.ops import Tensors

LAYER_EPS, RMS_EPS = 1e-5, 1e-8


def sequence(spec: LowRank, x: list[Tensor], y: list[Tensor], z: list[Tensor]) -> list[Tensor]:
    """The whole token sequence from digit columns, units first."""
    plus, equals, eos = (torch.full_like(x[0], token) for token in (PLUS, EQUALS, EOS))
    end = [eos] if len(z) == DIGITS + 1 and not spec.no_eos else []
    return [*x[::-1], plus, *y[::-1], equals, *z, *end]


def apply(spec: LowRank, p: Tensors, tokens_STB: Tensor, first: int) -> list[Tensor]:
    """Logits after each position from `first` on: V tensors [S, A, B]."""
    length, batch = tokens_STB.shape[1:]
    tokens_STB = aligned(tokens_STB)
    table_SVD, positions_STD = p["tokens"], _positions(spec, p)[:, :length]
    hot_STVB = one_hot(tokens_STB, VOCABULARY, p["tokens"].dtype)

    x_SDTV = positions_STD.mT[..., None] + table_SVD.mT[:, :, None]
    x_SDN = look_up(x_SDTV[:, :, first:], hot_STVB[:, first:]).flatten(2)
    x_SDN = x_SDN + _attend(spec, p, _norm(spec, p, 1, x_SDTV.flatten(2)), hot_STVB, first)
    hidden_SFN = F.gelu(matrix(p, "fc1") @ _norm(spec, p, 2, x_SDN))
    x_SDN = x_SDN + matrix(p, "fc2") @ hidden_SFN
    logits_SVN = table_SVD @ _norm(spec, p, 3, x_SDN)
    logits_SVAB = logits_SVN.unflatten(2, (length - first, -1))[..., :batch]
    return list(logits_SVAB.unbind(1))


def _attend(spec: LowRank, p: Tensors, normed_SDM: Tensor, hot_STVB: Tensor, first: int) -> Tensor:
    """What attention adds to the residual [S, D, N], from every input after its norm."""
    (query, Aq, Bq), (key, Ak, Bk), (value, Av, Bv) = projections(spec, p)

    def read(A_SDR: Tensor, start: int = 0) -> Tensor:
        entries_SRTV = product(A_SDR.mT, normed_SDM).unflatten(2, (-1, VOCABULARY))
        return look_up(entries_SRTV[:, :, start:], hot_STVB[:, start:])

    keys_SRTB = read(Ak)
    values_SRTB = keys_SRTB if value == key else read(Av)
    queries_SRAB = keys_SRTB[:, :, first:] if query == key else read(Aq, first)
    form_SRR = product(Bk, Bq.mT) / math.sqrt(spec.width)
    queries_SRAB = (form_SRR @ queries_SRAB.flatten(2)).unflatten(2, queries_SRAB.shape[2:])
    attended_SRAB = attention(queries_SRAB, keys_SRTB, values_SRTB, first)
    return product(matrix(p, "out"), Bv.mT) @ attended_SRAB.flatten(2)


def projections(spec: LowRank, p: Tensors) -> list[tuple[str, Tensor, Tensor]]:
    """For queries, keys and values: a name for x · A, A [..., D, R] and B [..., R, D]."""
    if spec.shared == "A":
        return [("qkv", p["qkv_A"], p[f"qkv_B{part}"]) for part in spec.parts]
    if spec.shared == "B":
        return [(part, p[f"qkv_A{part}"], p["qkv_B"]) for part in spec.parts]
    if spec.qkv_rank and spec.tie_qkv == "none":
        return [("qkv", p["qkv_A"], B) for B in p["qkv_B"].chunk(3, dim=-1)]
    if spec.qkv_rank:
        return [(part, p[f"{part}_A"], p[f"{part}_B"]) for part in spec.parts]
    full = p["qkv"].chunk(3, dim=-2) if spec.tie_qkv == "none" else [p[part] for part in spec.parts]
    itself = torch.eye(spec.width, dtype=full[0].dtype, device=full[0].device).expand_as(full[0])
    return [("x", itself, whole.mT) for whole in full]


def _positions(spec: LowRank, p: Tensors) -> Tensor:
    return product(p["pos_A"], p["pos_B"]) if spec.pos_rank else p["positions"]


def _norm(spec: LowRank, p: Tensors, n: int, x_SDN: Tensor) -> Tensor:
    """RMSNorm or LayerNorm over the features."""
    weight_SD = p[f"norm{n}"]
    if spec.rms_norm:
        return rmsnorm(x_SDN, weight_SD, RMS_EPS)
    return layernorm(x_SDN, weight_SD, p[f"norm{n}_bias"], LAYER_EPS)
