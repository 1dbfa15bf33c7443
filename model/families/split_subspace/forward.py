"""The forward pass of the split_subspace family, for every combination of its constraints.

V and the output projection are linear, so they are multiplied before anything is attended to: a head has as
many channels as the output's rank, or as tokens have dimensions where it is full. RMSNorm scales a position
by a number that depends on the token's length alone; on a circle all tokens are equally long, the problem
axis of the scores keeps size 1, and broadcasting does the rest (57p paper 2.1).

Axes: S seed, B problem, T position, A answer position, V vocabulary, P parameters.
Parameters are scalars [S, 1, 1]; see model/ops.py. Where a constraint fixes one, it is a Python number.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from model.families.split_subspace.spec import DIGITS, SplitSubspace
from model.ops import (
    Matrix,
    Vector,
    add,
    apply,
    attend,
    dot,
    lookup,
    product,
    rmsnorm,
    scalars,
    stored,
    transposed,
)

EPS = 1e-5


def sequence(spec: SplitSubspace, x: Vector, y: Vector, z: Vector) -> Vector:
    """The whole token sequence from digit columns, units first; the delimiters as the vocabulary has them."""
    plus, equals, eos = (
        torch.full_like(x[0], 0 if spec.vocabulary == DIGITS else DIGITS + i) for i in range(3)
    )
    end = [eos] if len(z) == DIGITS + 1 and not spec.no_eos else []
    return [*x, plus, *y, equals, *z, *end]


def forward(spec: SplitSubspace, theta_SP: Tensor, tokens_STB: Tensor, first: int) -> list[Tensor]:
    """Logits after each position from `first` on: V tensors [S, A, B]."""
    raw = spec.layout.split(theta_SP)
    p = {name: scalars(t) for name, t in raw.items()}
    norms = _norms(spec, p)
    table = _table(spec, p)
    pos = [c[:, : tokens_STB.shape[1]] for c in _positions(spec, raw, p)]
    channels = _attend(spec, p, norms[0], table, pos, tokens_STB, first)

    stream = [lookup(axis, tokens_STB[:, first:]) for axis in table] + [c[:, first:] for c in pos]
    write = _write(spec, p)
    stream = [h if w is None else h + dot(w, channels) for h, w in zip(stream, write, strict=True)]

    hidden = apply(p["fc1"], rmsnorm(stream, norms[1], EPS))
    hidden = stored([F.gelu(h) for h in (hidden if spec.no_ffn_bias else add(hidden, p["fc1_bias"]))])
    stream = add(stream, apply(transposed(p["head"]) if spec.tie_fc2_head else p["fc2"], hidden))
    stream = stream if spec.no_ffn_bias else add(stream, p["fc2_bias"])

    out = apply(p["head"], rmsnorm(stream, norms[2], EPS))
    return [dot([axis[v] for axis in table], out) for v in range(spec.vocabulary)]


def _attend(
    spec: SplitSubspace, p: Any, norm: Any, table: Matrix, pos: Vector, tokens_STB: Tensor, first: int
) -> Vector:
    """What the heads read, before it is written to the residual: channels [S, A, B]."""
    scale = _scale(spec, p, table, pos, tokens_STB)
    weighted = [c * w for c, w in zip(pos, norm[spec.tok_dim :], strict=True)]
    entries = [[axis[v] for axis in table] for v in range(spec.vocabulary)]
    heads = []
    for h in range(spec.heads):
        form_SAT = _form(spec, p, h, weighted, first)
        scores = form_SAT[..., None] * scale[:, first:, None] * scale[:, None]
        scores = scores if spec.direct_forms else scores / math.sqrt(spec.query_dim)
        read = [[r * w for r, w in zip(row, norm, strict=False)] for row in _read(spec, p, h, norm)]
        values = [stored([dot(row, entry) for entry in entries]) for row in read]
        heads.append(attend(scores, first, [lookup(v, tokens_STB) * scale for v in values]))
    if spec.out_rank:
        return [sum(channel[1:], channel[0]) for channel in zip(*heads, strict=True)]
    return [channel for head in heads for channel in head]


def _scale(spec: SplitSubspace, p: Any, table: Matrix, pos: Vector, tokens_STB: Tensor) -> Tensor:
    """1 / rms of the residual before the block, for each position and, unless it is the same, token."""
    if spec.circular:
        lengths = [p["arc"][0] * p["arc"][0]]
    else:
        columns = transposed(table)
        lengths = [dot(entry, entry) for entry in columns]
    pos_length = dot(pos, pos)
    return lookup([torch.rsqrt((n + pos_length) / spec.width + EPS) for n in lengths], tokens_STB)


def _form(spec: SplitSubspace, p: Any, h: int, pos: Vector, first: int) -> Tensor:
    """The scores of head h before the norm's scale: a bilinear form of two positions [S, A, T]."""
    if spec.direct_forms:
        rows = p["form"][h * spec.pos_dim : (h + 1) * spec.pos_dim]
        queries, keys = [c[:, first:] for c in pos], apply(rows, pos)
    else:
        keys = apply(_projection(spec, p["q_proj" if spec.tie_qk else "k_proj"], h), pos)
        if spec.tie_qk:
            queries = _rotate([k[:, first:] for k in keys], p["phase"][h])
        else:
            queries = apply(_projection(spec, p["q_proj"], h), [c[:, first:] for c in pos])
    return dot(queries, [k.transpose(1, 2) for k in keys])


def _projection(spec: SplitSubspace, rows: Any, h: int) -> Matrix:
    """The query or key projection of head h, [query_dim][pos_dim]."""
    q, c = spec.query_dim, spec.pos_dim
    if spec.toeplitz_q:
        return [[rows[h][i - j + c - 1] for j in range(c)] for i in range(q)]
    if spec.circulant_q:
        return [[rows[h][(i - j) % max(q, c)] for j in range(c)] for i in range(q)]
    return list(rows[h * q : (h + 1) * q])


def _read(spec: SplitSubspace, p: Any, h: int, norm: Any) -> Any:
    """The matrix [channel][tok_dim] with which head h reads normed tokens."""
    if not spec.out_rank:  # each token dimension is a channel
        one = torch.ones_like(p["head"][0][0])
        return [[one * (i == j) for j in range(spec.tok_dim)] for i in range(spec.tok_dim)]
    if spec.direct_forms:
        return transposed(p["out_A"][h * spec.tok_dim : (h + 1) * spec.tok_dim])
    part = slice(h * spec.head_dim, (h + 1) * spec.head_dim)
    return product(transposed(p["out_A"][part]), _values(spec, p)[part])


def _values(spec: SplitSubspace, p: Any) -> Matrix:
    """The value projection [width][tok_dim], all heads."""
    return transposed(p["head"]) if spec.tie_vo else list(p["v_proj"])


def _write(spec: SplitSubspace, p: Any) -> list[Any]:
    """For each dimension of the residual, the weights of the channels; None where nothing is written."""
    if spec.onehot_out:
        return [[1.0] if i == 1 else None for i in range(spec.width)]
    if spec.out_rank:
        first = [[1.0]] if spec.unit_out else []
        rows: list[Any] = first + transposed(p["out_B"])
        return rows + [None] * (spec.width - len(rows))
    if spec.direct_forms:
        return list(p["out"])
    values, size = _values(spec, p), spec.head_dim
    parts = [slice(h * size, (h + 1) * size) for h in range(spec.heads)]
    by_head = [product([row[part] for row in p["out"]], values[part]) for part in parts]
    return [[w for head in by_head for w in head[i]] for i in range(spec.width)]


def _norms(spec: SplitSubspace, p: Any) -> list[Any]:
    """The weights of the three norms: before attention, before the FFN, and the last."""
    if spec.parameterless_norm:
        weights: list[Any] = [1.0] * spec.width
    elif spec.structured_norm3:
        base, second, last = p["norm"]
        weights = [base, base + second, *[base] * (spec.width - 3), base + last]
    elif spec.structured_norm2:
        base, last = p["norm"]
        weights = [base] * (spec.width - 1) + [base + last]
    else:
        return list(p["norm"]) * (3 if spec.shared_norm else 1)
    return [weights] * 3


def _table(spec: SplitSubspace, p: Any) -> Matrix:
    """The token table, [tok_dim][V]."""
    if not spec.arc:
        return transposed(p["tokens"])
    *radii, start, stride = p["arc"]
    angles = [start + v * stride for v in range(DIGITS)]
    return [
        stored([radii[0] * torch.cos(a) for a in angles]),
        stored([radii[-1] * torch.sin(a) for a in angles]),
    ]


def _positions(spec: SplitSubspace, raw: dict[str, Tensor], p: Any) -> Vector:
    """Position vectors, pos_dim tensors [S, 34, 1]: X, Y and Z share the digits'; Z10 is z_hi."""
    like = raw["head"]
    index = torch.arange(DIGITS, dtype=like.dtype, device=like.device)[None, :, None]
    one, zero = torch.ones_like(like[:, :1, :1]), torch.zeros_like(like[:, :1, :1])
    nowhere = [zero] * spec.pos_dim
    if spec.spiral:
        digits = [c * one for c in _spiral(spec, p, index)]
        digits = [c * (1 + _correction(spec, raw, index)) for c in digits] if "correction" in raw else digits
    else:
        digits = [c[..., None] for c in raw["digits"].unbind(2)]
    on_ring = _spiral(spec, p, torch.full_like(one, spec.equals_index)) if spec.equals_on_ring else nowhere
    equals = p.get("equals", [c * one for c in on_ring])
    specials = zip(*(p.get(name, nowhere) for name in ("plus", "z_hi", "eos")), strict=True)
    return [
        torch.cat([d, plus, d, equal, d, z_hi, eos], dim=1)
        for d, equal, (plus, z_hi, eos) in zip(digits, equals, specials, strict=True)
    ]


def _spiral(spec: SplitSubspace, p: Any, index: Tensor) -> list[Any]:
    """Points of the spiral [S or 1, ., 1], pos_dim of them: a circle, a ramp, and nothing beyond."""
    amp, phase, slope, offset = spec.spiral_start
    if not spec.frozen_spiral:
        amp, phase, *ramp, offset = p["spiral"]
        slope = ramp[0] if ramp else slope
    angle = 2 * math.pi * index / DIGITS + phase
    points = [amp * torch.cos(angle), amp * torch.sin(angle), slope * index + offset]
    return points + [torch.zeros_like(index)] * (spec.pos_dim - 3)


def _correction(spec: SplitSubspace, raw: dict[str, Tensor], index: Tensor) -> Tensor:
    """The learned part of each digit position's scale [S, 10, 1]."""
    correction = raw["correction"][..., None]
    return correction[:, 1:] + correction[:, :1] * index if spec.linear_correction else correction


def _rotate(q: Vector, angle: Tensor) -> Vector:
    """Rotate the pairs (0,1), (2,3) ... by one angle; an odd last entry stays (57p paper 2.3)."""
    cos, sin = torch.cos(angle), torch.sin(angle)
    turned = [
        part for a, b in zip(q[::2], q[1::2], strict=False) for part in (a * cos - b * sin, a * sin + b * cos)
    ]
    return turned + q[len(turned) :]
