"""The forward pass of the split_subspace family, for every combination of its constraints.

It is divided where problems come in: `expand` makes the wide tensors from θ, with all constraints in them;
what follows is the same for all specs of a shape, `apply` here and kernel_body.h beside it. V and the output
projection are linear, so they are multiplied before anything is attended to: a head has as many channels as
the output's rank, or as tokens have dimensions where it is full. RMSNorm scales a position by a number that
depends on the token's length alone; on a circle all tokens are equally long, and attention's weights do not
depend on the problem (57p paper 2.1).

Axes: S seed, B problem, T position, A answer position, V vocabulary, P parameters.
Parameters are scalars [S, 1, 1]; see model/ops.py. Where a constraint fixes one, it is a Python number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from model.families.split_subspace.spec import DIGITS, SplitSubspace
from model.ops import (
    Matrix,
    Tensors,
    Vector,
    add,
    dot,
    lookup,
    matrix,
    normed,
    product,
    scalars,
    transposed,
)
from model.spec import Kernel

EPS = 1e-5
_NO_SCALARS = ("positions", "attention", "scale")
ALL = slice(None)


def sequence(spec: SplitSubspace, x: Vector, y: Vector, z: Vector) -> Vector:
    """Return the token sequence from digit columns, units first, with the vocabulary's delimiters."""
    plus, equals, eos = (torch.full_like(x[0], 0 if spec.vocabulary == DIGITS else DIGITS + i) for i in range(3))
    end = [eos] if len(z) == DIGITS + 1 and not spec.no_eos else []
    return [*x, plus, *y, equals, *z, *end]


def expand(spec: SplitSubspace, theta_SP: Tensor, asking: slice | None = None) -> Tensors:
    """Return everything that does not depend on the problem, as the kernel reads it: tensors [S, ...] by name.

    asking: the positions A that attend to others, by default those that answer.
    Norm weights are in the matrices that read what was normed. `attention` [S, heads, A, T] holds, on a
    circle, the weights with which an answer position reads the others' values, their norm's scale included;
    else the scores before that scale, which is then a table of its own [S, T, V].
    """
    raw, asking = spec.layout.split(theta_SP), asking or slice(spec.prompt - 1, None)
    p = {name: scalars(t) for name, t in raw.items()}
    norms, table, write = (
        _norm_weights(spec, p),
        _token_table(spec, p),
        _output_projection(spec, p),
    )
    pos = [c[:, : spec.prompt - 1 + spec.answers] for c in _position_vectors(spec, raw, p)]
    fc1 = [[f * w for f, w in zip(row, norms[1], strict=True)] for row in p["fc1"]]
    head = [[f * w for f, w in zip(row, norms[2], strict=True)] for row in p["head"]]
    wide = {
        "table": _stack_matrix(table),
        "positions": torch.stack([c[:, asking, 0] for c in pos], dim=1),
        "write": _stack_matrix(write, like=p["head"][0][0]),
        "fc1": _stack_matrix(fc1),
        "fc2": raw["head"].mT if spec.tie_fc2_head else raw["fc2"],
        "head": _stack_matrix(head),
    }
    wide |= {} if spec.no_ffn_bias else {name: raw[name] for name in ("fc1_bias", "fc2_bias")}
    return wide | _attention_tensors(spec, p, norms[0], table, pos, asking)


def apply(spec: SplitSubspace, wide: Tensors, tokens_STB: Tensor, first: int) -> list[Tensor]:
    """Return the logits after each position from `first` on, V tensors [S, A, B], as the kernel does."""
    p = {name: scalars(t) for name, t in wide.items() if name not in _NO_SCALARS}
    answers = slice(first - spec.prompt + 1, tokens_STB.shape[1] - spec.prompt + 1)
    stream, inputs = _attention_block(spec, wide, p, tokens_STB, answers)
    stream = add(stream, matrix(p["fc2"], [F.gelu(h) for h in inputs]))
    stream = stream if spec.no_ffn_bias else add(stream, p["fc2_bias"])
    out = matrix(p["head"], normed(stream, EPS))
    return [dot(entry, out) for entry in transposed(p["table"])]


def _attention_block(
    spec: SplitSubspace,
    wide: Tensors,
    p: Any,
    tokens_STB: Tensor,
    answers: slice,
    read: Any = lookup,
) -> tuple[Vector, Vector]:
    """Return the residual after attention and the inputs of the hidden units: lists of tensors [S, A, B].

    The last tokens are those of the positions A, which are `answers` of the ones that `expand` was asked for.
    """
    attention = wide["attention"][:, :, answers, : tokens_STB.shape[1], None]
    first = tokens_STB.shape[1] - attention.shape[2]
    channels = _attention(spec, wide, p["values"], tokens_STB, attention, read)
    stream = [read(axis, tokens_STB[:, first:]) for axis in p["table"]]
    stream += [c[:, answers, None] for c in wide["positions"].unbind(1)]
    stream = add(stream, matrix(p["write"], channels))
    inputs = matrix(p["fc1"], normed(stream, EPS))
    return stream, inputs if spec.no_ffn_bias else add(inputs, p["fc1_bias"])


def ffn_inputs(spec: SplitSubspace, theta_SP: Tensor, tokens_TB: Tensor) -> Tensor:
    """Return the inputs of the hidden units [S, FFN, B] at the last token, an answer position or EQUALS."""
    last = len(tokens_TB) - 1
    wide = expand(spec, theta_SP, slice(last, last + 1))
    p = {name: scalars(t) for name, t in wide.items() if name not in _NO_SCALARS}
    _, inputs = _attention_block(spec, wide, p, tokens_TB[None], slice(1), _gather)
    return torch.stack([h[:, 0] for h in inputs], dim=1)


def _gather(entries: Vector, tokens_1TB: Tensor) -> Tensor:
    """Return what `lookup` does where all seeds see the same tokens: faster, but for a gradient."""
    table_STV = torch.cat(entries, dim=2).expand(-1, tokens_1TB.shape[1], -1)
    return table_STV.gather(2, tokens_1TB.long().expand(len(table_STV), -1, -1))


def kernel(spec: SplitSubspace) -> Kernel:
    """Return the shape for which kernel.cpp is compiled."""
    shape = {
        "TOK": spec.tok_dim,
        "POS": spec.pos_dim,
        "VOCABULARY": spec.vocabulary,
        "HEADS": spec.heads,
        "CHANNELS": spec.out_rank or spec.tok_dim,
        "SUMMED": int(spec.out_rank > 0),
        "CIRCLE": int(spec.circular),
        "FFN": spec.units,
        "BIAS": int(not spec.no_ffn_bias),
        "ANSWERS": spec.answers,
    }
    return Kernel(Path(__file__).with_name("kernel.cpp"), shape)


def _attention(
    spec: SplitSubspace,
    wide: Tensors,
    values: Matrix,
    tokens_STB: Tensor,
    attention: Tensor,
    read: Any,
) -> list[Tensor]:
    """Return the attention weights applied to the values, before the output projection: channels [S, A, B]."""
    length = tokens_STB.shape[1]
    first = length - attention.shape[2]
    seen = [read(row, tokens_STB)[:, None] for row in values]
    if spec.circular:
        heads = [[(weights * v).sum(2) for v in part] for weights, part in _by_head(spec, attention, seen)]
    else:
        scale = read([c[..., None] for c in wide["scale"][:, :length].unbind(2)], tokens_STB)
        future = _future_positions(slice(first, None), attention)[..., None]
        heads = []
        for form, part in _by_head(spec, attention, seen):
            scores = form * scale[:, first:, None] * scale[:, None]
            scores = scores.masked_fill(future, -torch.inf)
            weights = torch.exp(scores - scores.detach().amax(2, keepdim=True))
            total = weights.sum(2)
            heads.append([(weights * (v * scale[:, None])).sum(2) / total for v in part])
    if spec.out_rank:
        return [sum(channel[1:], channel[0]) for channel in zip(*heads, strict=True)]
    return [channel for head in heads for channel in head]


def _by_head(spec: SplitSubspace, attention: Tensor, read: list[Tensor]) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Pair each head's weights or scores [S, A, T, 1] with its values [S, 1, T, B]."""
    count = len(read) // spec.heads
    return ((attention[:, h], read[h * count : (h + 1) * count]) for h in range(spec.heads))


def _future_positions(asking: slice, attention: Tensor) -> Tensor:
    """Return the causal mask [A, T] of attention [S, heads, A, T ...]: True where an asking position may not read."""
    position_T = torch.arange(attention.shape[3], device=attention.device)
    return position_T[asking, None] < position_T


def _attention_tensors(spec: SplitSubspace, p: Any, norm: Any, table: Matrix, pos: Vector, asking: slice) -> Tensors:
    """Return the wide tensors of attention: values, weights or scores, and scale."""
    scale = _rms_scale(spec, p, table, pos)
    weighted = [c * w for c, w in zip(pos, norm[spec.tok_dim :], strict=True)]
    heads, values = [], []
    for h in range(spec.heads):
        form = _attention_scores(spec, p, h, weighted, asking)
        heads.append(form if spec.direct_forms else form / math.sqrt(spec.query_dim))
        values += _token_values(spec, p, h, norm, table)
    attention = torch.stack(heads, dim=1)
    wide = {"values": _stack_matrix(values), "attention": attention}
    if not spec.circular:
        return wide | {"scale": torch.cat(scale, dim=2)}
    scale_S1T = scale[0].mT
    scores = attention * scale[0][:, None, asking] * scale_S1T[:, None]
    future = _future_positions(asking, attention)
    largest = scores.masked_fill(future, -torch.inf).detach().amax(3, keepdim=True)
    weights = torch.exp(scores - largest)
    weights = torch.where(future, 0.0, weights)
    return wide | {"attention": weights / weights.sum(3, keepdim=True) * scale_S1T[:, None]}


def _token_values(spec: SplitSubspace, p: Any, h: int, norm: Any, table: Matrix) -> Matrix:
    """Return head h's value of each token before the norm's scale, [channel][V]."""
    read = [[r * w for r, w in zip(row, norm, strict=False)] for row in _value_matrix(spec, p, h)]
    return [[dot(row, entry) for entry in transposed(table)] for row in read]


def token_values(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return the first head's value of each token before the norm's scale [S, channels, V]."""
    p = _select(spec, theta_SP, "tokens", "arc", "norm", "head", "v_proj", "out_A")
    return _stack_matrix(_token_values(spec, p, 0, _norm_weights(spec, p)[0], _token_table(spec, p)))


def ffn_weights(spec: SplitSubspace, theta_SP: Tensor) -> tuple[Tensor, Tensor]:
    """Return two matrices over the token axes: what hidden units read, norm weights included [S, FFN, tok_dim],
    and what the attention output writes [S, tok_dim, channels].
    """
    p = _select(spec, theta_SP, "norm", "fc1", "out_B", "head")
    weights = _norm_weights(spec, p)[1][: spec.tok_dim]
    reads = [[f * w for f, w in zip(row, weights, strict=False)] for row in p["fc1"]]
    return _stack_matrix(reads), _stack_matrix(_output_projection(spec, p)[: spec.tok_dim], like=p["head"][0][0])


def position_form(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return the first head's scores as a bilinear form [S, pos_dim, pos_dim], norm weights included."""
    p = _select(spec, theta_SP, "norm", "form", "phase", "q_proj", "q_A", "q_B", "k_proj")
    weights = _norm_weights(spec, p)[0][spec.tok_dim :]
    axes = torch.eye(spec.pos_dim, dtype=theta_SP.dtype, device=theta_SP.device)[:, None, :, None]
    return _attention_scores(spec, p, 0, [axis * w for axis, w in zip(axes, weights, strict=True)], ALL)


def _select(spec: SplitSubspace, theta_SP: Tensor, *names: str) -> Any:
    """Return the named tensors that the spec has, as scalars."""
    return {name: scalars(t) for name, t in spec.layout.split(theta_SP).items() if name in names}


def _stack_matrix(rows: Any, like: Tensor | None = None) -> Tensor:
    """Stack a matrix of scalars [S, 1, 1] into [S, rows, columns]; numbers become like `like`, None 0."""

    def entry(x: Any) -> Any:
        if isinstance(x, Tensor):
            return x
        assert like is not None
        return torch.full_like(like, 0.0 if x is None else x)

    count = max(len(row) for row in rows if row is not None)
    filled = [[entry(x) for x in (row or [None] * count)] for row in rows]
    return torch.stack([torch.cat(row, dim=1)[..., 0] for row in filled], dim=1)


def _rms_scale(spec: SplitSubspace, p: Any, table: Matrix, pos: Vector) -> list[Tensor]:
    """Return 1 / rms of the residual before the block: [S, T, 1] for each token, or one where all agree."""
    if spec.circular:
        lengths = [p["arc"][0] * p["arc"][0]]
    else:
        lengths = [dot(entry, entry) for entry in transposed(table)]
    pos_length = dot(pos, pos)
    return [torch.rsqrt((n + pos_length) / spec.width + EPS) for n in lengths]


def _attention_scores(spec: SplitSubspace, p: Any, h: int, pos: Vector, asking: slice) -> Tensor:
    """Return the attention scores of head h before the norm's scale: a bilinear form of positions [S, A, T]."""
    if spec.direct_forms:
        rows = p["form"][h * spec.pos_dim : (h + 1) * spec.pos_dim]
        queries, keys = [c[:, asking] for c in pos], matrix(rows, pos)
    else:
        keys = matrix(_query_key_projection(spec, p, "q" if spec.tie_qk else "k", h), pos)
        if not spec.tie_qk:
            queries = matrix(_query_key_projection(spec, p, "q", h), [c[:, asking] for c in pos])
        else:
            queries = [k[:, asking] for k in keys]
            queries = queries if spec.unturned else _rotate(queries, p["phase"][h])
    return dot(queries, [k.transpose(1, 2) for k in keys])


def _query_key_projection(spec: SplitSubspace, p: Any, kind: str, h: int) -> Matrix:
    """Return the query (q) or key (k) projection of head h, [query_dim][pos_dim]."""
    q, c = spec.query_dim, spec.pos_dim
    if spec.rank1_q:
        return [[a * b for b in p["q_B"][h]] for a in p["q_A"][h]]
    rows = p[f"{kind}_proj"]
    if spec.toeplitz_q:
        return [[rows[h][i - j + c - 1] for j in range(c)] for i in range(q)]
    if spec.circulant_q:
        return [[rows[h][(i - j) % max(q, c)] for j in range(c)] for i in range(q)]
    return list(rows[h * q : (h + 1) * q])


def _value_matrix(spec: SplitSubspace, p: Any, h: int) -> Any:
    """Return the matrix [channel][tok_dim] by which head h reads normed tokens: values, then the output's column."""
    if not spec.out_rank:  # each token dimension is a channel
        one = torch.ones_like(p["head"][0][0])
        return [[one * (i == j) for j in range(spec.tok_dim)] for i in range(spec.tok_dim)]
    if spec.direct_forms:
        return transposed(p["out_A"][h * spec.tok_dim : (h + 1) * spec.tok_dim])
    part = slice(h * spec.head_dim, (h + 1) * spec.head_dim)
    return product(transposed(p["out_A"][part]), _value_projection(spec, p)[part])


def _value_projection(spec: SplitSubspace, p: Any) -> Matrix:
    """Return the value projection [width][tok_dim], all heads."""
    return transposed(p["head"]) if spec.tie_vo else list(p["v_proj"])


def _output_projection(spec: SplitSubspace, p: Any) -> list[Any]:
    """Return the output projection: channel weights by residual dimension, None where nothing is written."""
    if spec.onehot_out:
        return [[1.0] if i == 1 else None for i in range(spec.width)]
    if spec.out_rank:
        rows: list[Any] = [[1.0]] if spec.unit_out else []
        rows += transposed(p["out_B"]) if "out_B" in spec.layout.budget() else []
        if spec.opposite_out:
            rows.insert(1, [-w for w in rows[0]])
        return rows + [None] * (spec.width - len(rows))
    if spec.direct_forms:
        return list(p["out"])
    values, size = _value_projection(spec, p), spec.head_dim
    parts = [slice(h * size, (h + 1) * size) for h in range(spec.heads)]
    by_head = [product([row[part] for row in p["out"]], values[part]) for part in parts]
    return [[w for head in by_head for w in head[i]] for i in range(spec.width)]


def _norm_weights(spec: SplitSubspace, p: Any) -> list[Any]:
    """Return the weights of the three norms: before attention, before the FFN, and the last."""
    if spec.parameterless_norm:
        weights: list[Any] = [1.0] * spec.width
    elif spec.structured_norm3:
        base, second, last = p["norm"]
        weights = [base, base + second, *[base] * (spec.width - 3), base + last]
    elif spec.structured_norm2:
        base, last = p["norm"]
        weights = [base] * (spec.width - 1) + [base + last]
    elif spec.structured_norm1:
        weights = [1.0] * (spec.width - 1) + [1.0 + p["norm"][0]]
    elif spec.scalar_norm:
        weights = list(p["norm"]) * spec.width
    else:
        return list(p["norm"]) * (3 if spec.shared_norm else 1)
    return [weights] * 3


def _token_table(spec: SplitSubspace, p: Any) -> Matrix:
    """Return the token table, [tok_dim][V]."""
    if not spec.arc:
        return transposed(p["tokens"])
    *radii, start, stride = p["arc"]
    angles = [start + v * stride for v in range(DIGITS)]
    return [
        [radii[0] * torch.cos(a) for a in angles],
        [radii[-1] * torch.sin(a) for a in angles],
    ]


def _position_vectors(spec: SplitSubspace, raw: dict[str, Tensor], p: Any) -> Vector:
    """Return position vectors, pos_dim tensors [S, 34, 1]: X, Y and Z share the digits'; Z10 is z_hi."""
    like = raw["head"]
    index = torch.arange(DIGITS, dtype=like.dtype, device=like.device)[None, :, None]
    one, zero = torch.ones_like(like[:, :1, :1]), torch.zeros_like(like[:, :1, :1])
    zeros = [zero] * spec.pos_dim
    if spec.spiral:
        digits = [c * one for c in _spiral(spec, p, index)]
        digits = [c * (1 + _position_scale(spec, raw, index)) for c in digits] if "correction" in raw else digits
    else:
        digits = [c[..., None] for c in raw["digits"].unbind(2)]
    on_ring = _spiral(spec, p, torch.full_like(one, spec.equals_index)) if spec.equals_on_ring else zeros
    equals = p.get("equals", [c * one for c in on_ring])
    specials = zip(*(p.get(name, zeros) for name in ("plus", "z_hi", "eos")), strict=True)
    return [
        torch.cat([d, plus, d, equal, d, z_hi, eos], dim=1)
        for d, equal, (plus, z_hi, eos) in zip(digits, equals, specials, strict=True)
    ]


def _spiral(spec: SplitSubspace, p: Any, index: Tensor) -> list[Any]:
    """Return points of the spiral, pos_dim tensors [S or 1, ., 1]: a circle, a ramp, then zeros."""
    amp, phase, slope, offset = spec.spiral_start
    if not spec.frozen_spiral:
        amp, phase, *ramp, offset = p["spiral"]
        slope = ramp[0] if ramp else slope
    angle = 2 * math.pi * index / DIGITS + phase
    points = [amp * torch.cos(angle), amp * torch.sin(angle), slope * index + offset]
    return points + [torch.zeros_like(index)] * (spec.pos_dim - 3)


def _position_scale(spec: SplitSubspace, raw: dict[str, Tensor], index: Tensor) -> Tensor:
    """Return the learned part of each digit position's scale [S, 10, 1]."""
    correction = raw["correction"][..., None]
    return correction[:, 1:] + correction[:, :1] * index if spec.linear_correction else correction


def _rotate(q: Vector, angle: Tensor) -> Vector:
    """Rotate the pairs (0,1), (2,3) ... by one angle; an odd last entry stays (57p paper 2.3)."""
    cos, sin = torch.cos(angle), torch.sin(angle)
    turned = [part for a, b in zip(q[::2], q[1::2], strict=False) for part in (a * cos - b * sin, a * sin + b * cos)]
    return turned + q[len(turned) :]
