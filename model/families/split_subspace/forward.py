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

from model.families.split_subspace.spec import SplitSubspace
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
from model.spec import Kernel, sizes
from model.tasks import in_columns

EPS = 1e-5
_NO_SCALARS = ("positions", "attention", "scale")
ALL = slice(None)


def sequence(spec: SplitSubspace, *columns: Vector) -> Vector:
    """Return the token sequence from digit columns of numbers and answer, units first.

    Delimiters are the vocabulary's.
    """
    *numbers, answer = columns
    digits = in_columns(spec.task).base
    # A vocabulary of digits alone writes 0 for each: their positions tell them apart.
    is_apart = spec.tokens > digits
    first = digits if is_apart else 0
    step = int(is_apart)
    plus, equals, eos = (torch.full_like(numbers[0][0], first + i * step) for i in range(3))

    asked = []
    behind = [plus] * (len(numbers) - 1) + [equals]
    for number, mark in zip(numbers, behind, strict=True):
        asked += [*number, mark]
    is_whole = len(answer) == spec.task.answers
    end = [eos] if is_whole and not spec.no_eos else []
    return [*asked, *answer, *end]


def expand(spec: SplitSubspace, theta_SP: Tensor, asking: slice | None = None) -> Tensors:
    """Return everything that does not depend on the problem, as the kernel reads it: tensors [S, ...] by name.

    asking: the positions A that attend to others, by default those that answer.
    Norm weights are in the matrices that read what was normed. `attention` [S, heads, A, T] holds, on a
    circle, the weights with which an answer position reads the others' values, their norm's scale included;
    else the scores before that scale, which is then a table of its own [S, T, V].
    """
    raw = spec.layout.split(theta_SP)
    asking = asking or slice(spec.prompt - 1, None)
    # A seed's bits hang on the order of these lines, not only on what they say: gradients are summed backwards by it.
    p = {name: scalars(t) for name, t in raw.items()}
    norms = _norm_weights(spec, p)
    table = _token_table(spec, p)
    length = spec.prompt - 1 + spec.answers
    pos = [c[:, :length] for c in _position_vectors(spec, raw, p)]
    wide = {
        "table": _stack_matrix(table),
        "positions": torch.stack([c[:, asking, 0] for c in pos], dim=1),
        "write": _stack_matrix(_output_projection(spec, p), like=p["head"][0][0]),
        "fc1": _stack_matrix(_weighted(p["fc1"], norms[1])),
        "fc2": raw["head"].mT if spec.tie_fc2_head else raw["fc2"],
        "head": _stack_matrix(_weighted(p["head"], norms[2])),
    }
    if not spec.no_ffn_bias:
        wide |= {name: raw[name] for name in ("fc1_bias", "fc2_bias")}
    return wide | _attention_tensors(spec, p, norms[0], table, pos, asking)


def _weighted(rows: Any, weights: Any) -> Matrix:
    """Return a matrix that reads what was normed, the norm's weights in it.

    weights: of the norm; rows may read only its first dimensions.
    """
    return [[entry * weight for entry, weight in zip(row, weights, strict=False)] for row in rows]


def apply(spec: SplitSubspace, wide: Tensors, tokens_STB: Tensor, first: int) -> list[Tensor]:
    """Return the logits after each position from `first` on, V tensors [S, A, B], as the kernel does."""
    p = _wide_scalars(wide)
    before = spec.prompt - 1
    answers = slice(first - before, tokens_STB.shape[1] - before)
    stream, inputs = _attention_block(spec, wide, p, tokens_STB, answers)
    stream = add(stream, matrix(p["fc2"], [F.gelu(h) for h in inputs]))
    if not spec.no_ffn_bias:
        stream = add(stream, p["fc2_bias"])
    out = matrix(p["head"], normed(stream, EPS))
    return [dot(entry, out) for entry in transposed(p["table"])]


def _wide_scalars(wide: Tensors) -> Any:
    """Return the wide tensors that are matrices of parameters, as scalars."""
    return {name: scalars(t) for name, t in wide.items() if name not in _NO_SCALARS}


def _attention_block(
    spec: SplitSubspace,
    wide: Tensors,
    p: Any,
    tokens_STB: Tensor,
    answers: slice,
    read: Any = lookup,
) -> tuple[Vector, Vector]:
    """Return the residual after attention and the inputs of the hidden units: lists of tensors [S, A, B].

    answers: which of the positions A that `expand` was asked for the last tokens have.
    read: how a token's entry of a table is found.
    """
    length = tokens_STB.shape[1]
    attention = wide["attention"][:, :, answers, :length, None]
    first = length - attention.shape[2]
    channels = _attention(spec, wide, p["values"], tokens_STB, attention, read)

    # token dimensions, then position dimensions: the two subspaces
    stream = [read(axis, tokens_STB[:, first:]) for axis in p["table"]]
    stream += [c[:, answers, None] for c in wide["positions"].unbind(1)]
    stream = add(stream, matrix(p["write"], channels))
    inputs = matrix(p["fc1"], normed(stream, EPS))
    if not spec.no_ffn_bias:
        inputs = add(inputs, p["fc1_bias"])
    return stream, inputs


def ffn_inputs(spec: SplitSubspace, theta_SP: Tensor, tokens_TB: Tensor) -> Tensor:
    """Return the inputs of the hidden units [S, FFN, B] at the last token, an answer position or EQUALS."""
    last = len(tokens_TB) - 1
    wide = expand(spec, theta_SP, slice(last, last + 1))
    p = _wide_scalars(wide)
    _, inputs = _attention_block(spec, wide, p, tokens_TB[None], slice(1), _gather)
    return torch.stack([h[:, 0] for h in inputs], dim=1)


def _gather(entries: Vector, tokens_1TB: Tensor) -> Tensor:
    """Do as `lookup` does where all seeds see the same tokens: faster, but not for a gradient."""
    length = tokens_1TB.shape[1]
    table_STV = torch.cat(entries, dim=2).expand(-1, length, -1)
    index_STB = tokens_1TB.long().expand(len(table_STV), -1, -1)
    return table_STV.gather(2, index_STB)


def kernel(spec: SplitSubspace) -> Kernel:
    """Return the shape for which kernel.cpp is compiled."""
    shape = {
        "TOK": spec.tok_dim,
        "POS": spec.pos_dim,
        "VOCABULARY": spec.tokens,
        "HEADS": spec.heads,
        "CHANNELS": spec.out_rank or spec.tok_dim,
        "SUMMED": int(spec.out_rank > 0),
        "CIRCLE": int(spec.circular),
        "FFN": spec.units,
        "BIAS": int(not spec.no_ffn_bias),
        "ANSWERS": spec.answers,
        **sizes(spec, vocabulary=spec.tokens),
    }
    source = Path(__file__).with_name("kernel.cpp")
    return Kernel(source, shape)


def _attention(
    spec: SplitSubspace,
    wide: Tensors,
    values: Matrix,
    tokens_STB: Tensor,
    attention: Tensor,
    read: Any,
) -> list[Tensor]:
    """Return the attention weights applied to the values, before the output projection: channels [S, A, B].

    values: of each token, by channel; attention: weights on a circle, else scores [S, heads, A, T, 1].
    """
    seen = [read(row, tokens_STB)[:, None] for row in values]
    if spec.circular:  # `attention` holds weights: no softmax is left to do
        heads = []
        for weights, part in _by_head(spec, attention, seen):
            heads.append([(weights * v).sum(2) for v in part])
    else:
        heads = _weigh_by_problem(spec, wide["scale"], tokens_STB, attention, seen, read)
    if spec.out_rank:  # all heads write through the same channels
        return [sum(channel[1:], channel[0]) for channel in zip(*heads, strict=True)]
    return [channel for head in heads for channel in head]


def _weigh_by_problem(
    spec: SplitSubspace,
    scale_STV: Tensor,
    tokens_STB: Tensor,
    attention: Tensor,
    seen: Vector,
    read: Any,
) -> Matrix:
    """Return each head's channels [S, A, B], its weights made anew for each problem.

    scale_STV: what the norm scales a position by, for each token that may stand there.
    """
    length = tokens_STB.shape[1]
    first = length - attention.shape[2]
    by_token = [c[..., None] for c in scale_STV[:, :length].unbind(2)]
    scale = read(by_token, tokens_STB)
    future = _future_positions(slice(first, None), attention)[..., None]
    heads = []
    for form, part in _by_head(spec, attention, seen):
        scores = form * scale[:, first:, None] * scale[:, None]
        scores = scores.masked_fill(future, -torch.inf)
        # The largest cancels in weights / total, so that no gradient need pass through it.
        largest = scores.detach().amax(2, keepdim=True)
        weights = torch.exp(scores - largest)
        total = weights.sum(2)
        # Divided after the sum: one quotient per channel, not one per position.
        heads.append([(weights * (v * scale[:, None])).sum(2) / total for v in part])
    return heads


def _by_head(spec: SplitSubspace, attention: Tensor, read: list[Tensor]) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Pair each head's weights or scores [S, A, T, 1] with its values [S, 1, T, B]."""
    count = len(read) // spec.heads
    for h in range(spec.heads):
        yield attention[:, h], read[h * count : (h + 1) * count]


def _future_positions(asking: slice, attention: Tensor) -> Tensor:
    """Return the causal mask [A, T] of attention [S, heads, A, T ...]: True where an asking position may not read."""
    position_T = torch.arange(attention.shape[3], device=attention.device)
    return position_T[asking, None] < position_T


def _attention_tensors(
    spec: SplitSubspace,
    p: Any,
    norm: Any,
    table: Matrix,
    pos: Vector,
    asking: slice,
) -> Tensors:
    """Return the wide tensors of attention: values, weights or scores, and scale.

    norm: weights of the norm before attention; asking: positions that attend to others.
    """
    scale = _rms_scale(spec, p, table, pos)
    weighted = [c * w for c, w in zip(pos, norm[spec.tok_dim :], strict=True)]
    heads, values = [], []
    for h in range(spec.heads):
        form = _attention_scores(spec, p, h, weighted, asking)
        if not spec.direct_forms:
            form = form / math.sqrt(spec.query_dim)
        heads.append(form)
        values += _token_values(spec, p, h, norm, table)
    attention = torch.stack(heads, dim=1)
    wide = {"values": _stack_matrix(values), "attention": attention}
    if not spec.circular:
        return wide | {"scale": torch.cat(scale, dim=2)}

    # on a circle a position's scale is the same for all tokens, so the weights are known here
    (scale_ST1,) = scale
    scale_S1T = scale_ST1.mT
    scores = attention * scale_ST1[:, None, asking] * scale_S1T[:, None]
    future = _future_positions(asking, attention)
    largest = scores.masked_fill(future, -torch.inf).detach().amax(3, keepdim=True)
    weights = torch.exp(scores - largest)
    # Masked after the exponential, so that a tape leaves out those that nobody reads.
    weights = torch.where(future, 0.0, weights)
    total = weights.sum(3, keepdim=True)
    return wide | {"attention": weights / total * scale_S1T[:, None]}


def _token_values(spec: SplitSubspace, p: Any, h: int, norm: Any, table: Matrix) -> Matrix:
    """Return head h's value of each token before the norm's scale, [channel][V]."""
    entries = transposed(table)
    rows = _weighted(_value_matrix(spec, p, h), norm)
    return [[dot(row, entry) for entry in entries] for row in rows]


def token_values(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return the first head's value of each token before the norm's scale [S, channels, V]."""
    p = _select(spec, theta_SP, "tokens", "arc", "norm", "head", "v_proj", "out_A")
    norm, *_ = _norm_weights(spec, p)
    return _stack_matrix(_token_values(spec, p, 0, norm, _token_table(spec, p)))


def ffn_weights(spec: SplitSubspace, theta_SP: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the FFN reads and what attention writes, both over the token axes alone.

    The hidden units' matrix [S, FFN, tok_dim] has the norm's weights in it; the output's is [S, tok_dim, channels].
    """
    p = _select(spec, theta_SP, "norm", "fc1", "out_B", "head")
    _, norm, _ = _norm_weights(spec, p)
    reads = _weighted(p["fc1"], norm[: spec.tok_dim])
    writes = _output_projection(spec, p)[: spec.tok_dim]
    return _stack_matrix(reads), _stack_matrix(writes, like=p["head"][0][0])


def position_form(spec: SplitSubspace, theta_SP: Tensor) -> Tensor:
    """Return the first head's scores as a bilinear form [S, pos_dim, pos_dim], norm weights included."""
    p = _select(spec, theta_SP, "norm", "form", "phase", "q_proj", "q_A", "q_B", "k_proj")
    norm, *_ = _norm_weights(spec, p)

    # unit vectors in place of positions: the scores of two of them are an entry of the form
    identity = torch.eye(spec.pos_dim, dtype=theta_SP.dtype, device=theta_SP.device)
    axes = identity[:, None, :, None]
    weighted = [axis * w for axis, w in zip(axes, norm[spec.tok_dim :], strict=True)]
    return _attention_scores(spec, p, 0, weighted, ALL)


def _select(spec: SplitSubspace, theta_SP: Tensor, *names: str) -> Any:
    """Return the named tensors that the spec has, as scalars."""
    tensors = spec.layout.split(theta_SP)
    return {name: scalars(t) for name, t in tensors.items() if name in names}


def _stack_matrix(rows: Any, like: Tensor | None = None) -> Tensor:
    """Stack a matrix of scalars [S, 1, 1] into [S, rows, columns].

    like: a scalar, needed where entries are numbers.
    """
    stacked = []
    for row in rows:
        entries = [x if isinstance(x, Tensor) else torch.full_like(like, x) for x in row]
        stacked.append(torch.cat(entries, dim=1)[..., 0])
    return torch.stack(stacked, dim=1)


def _rms_scale(spec: SplitSubspace, p: Any, table: Matrix, pos: Vector) -> list[Tensor]:
    """Return 1 / rms of the residual before the block: [S, T, 1] for each token, or one where all agree."""
    if spec.circular:  # all its points are as far from the centre
        radius = p["arc"][0]
        lengths = [radius * radius]
    else:
        lengths = [dot(entry, entry) for entry in transposed(table)]
    pos_length = dot(pos, pos)
    return [torch.rsqrt((n + pos_length) / spec.width + EPS) for n in lengths]


def _attention_scores(spec: SplitSubspace, p: Any, h: int, pos: Vector, asking: slice) -> Tensor:
    """Return the attention scores of head h before the norm's scale: a bilinear form of positions [S, A, T]."""
    if spec.direct_forms:
        rows = p["form"][h * spec.pos_dim : (h + 1) * spec.pos_dim]
        queries = [c[:, asking] for c in pos]
        keys = matrix(rows, pos)
    elif spec.tie_qk:
        keys = matrix(_query_key_projection(spec, p, "q", h), pos)
        queries = [k[:, asking] for k in keys]
        if not spec.unturned:
            queries = _rotate(queries, p["phase"][h])
    else:
        # keys first: gradients are added in the order of these lines
        keys = matrix(_query_key_projection(spec, p, "k", h), pos)
        asked = [c[:, asking] for c in pos]
        queries = matrix(_query_key_projection(spec, p, "q", h), asked)
    return dot(queries, [k.transpose(1, 2) for k in keys])


def _query_key_projection(spec: SplitSubspace, p: Any, kind: str, h: int) -> Matrix:
    """Return the query (kind q) or key (k) projection of head h, [query_dim][pos_dim]."""
    q, c = spec.query_dim, spec.pos_dim
    if spec.rank1_q:
        return [[a * b for b in p["q_B"][h]] for a in p["q_A"][h]]
    rows = p[f"{kind}_proj"]
    # i - j numbers the diagonals of row i and column j.
    if spec.toeplitz_q:  # one entry per diagonal, from the top right to the bottom left
        return [[rows[h][i - j + c - 1] for j in range(c)] for i in range(q)]
    if spec.circulant_q:  # the first column, as long as the longer side
        return [[rows[h][(i - j) % max(q, c)] for j in range(c)] for i in range(q)]
    return list(rows[h * q : (h + 1) * q])


def _value_matrix(spec: SplitSubspace, p: Any, h: int) -> Any:
    """Return the matrix [channel][tok_dim] by which head h reads normed tokens: values, then the output's column."""
    tok, size = spec.tok_dim, spec.head_dim
    if not spec.out_rank:  # each token dimension is a channel
        one = torch.ones_like(p["head"][0][0])
        return [[one * (i == j) for j in range(tok)] for i in range(tok)]
    if spec.direct_forms:
        return transposed(p["out_A"][h * tok : (h + 1) * tok])
    # At low rank the output's column is multiplied into the values: few channels instead of a head's width.
    part = slice(h * size, (h + 1) * size)
    column = transposed(p["out_A"][part])
    return product(column, _value_projection(spec, p)[part])


def _value_projection(spec: SplitSubspace, p: Any) -> Matrix:
    """Return the value projection [width][tok_dim], all heads."""
    return transposed(p["head"]) if spec.tie_vo else list(p["v_proj"])


def _output_projection(spec: SplitSubspace, p: Any) -> list[Any]:
    """Return the output projection: channel weights by residual dimension."""
    if spec.onehot_out:
        return [[float(i == 1)] for i in range(spec.width)]
    if spec.out_rank:
        rows: list[Any] = [[1.0]] if spec.unit_out else []
        if "out_B" in p:
            rows += transposed(p["out_B"])
        if spec.opposite_out:
            rows.insert(1, [-w for w in rows[0]])
        return rows + [[0.0]] * (spec.width - len(rows))  # of rank 1: only its rows are cut short
    if spec.direct_forms:
        return list(p["out"])

    # at full rank the channels are token dimensions, so each head's values are multiplied in
    values, size = _value_projection(spec, p), spec.head_dim
    heads = []  # one after another: channels of the first head come first, as `_attention` lists them
    for h in range(spec.heads):
        part = slice(h * size, (h + 1) * size)
        out = [row[part] for row in p["out"]]
        heads.append(product(out, values[part]))
    return [[w for head in heads for w in head[i]] for i in range(spec.width)]


def _norm_weights(spec: SplitSubspace, p: Any) -> list[Any]:
    """Return the weights of the three norms: before attention, before the FFN, and the last."""
    width = spec.width
    if spec.parameterless_norm:
        weights: list[Any] = [1.0] * width
    elif spec.structured_norm3:
        base, second, last = p["norm"]
        middle = [base] * (width - 3)
        weights = [base, base + second, *middle, base + last]
    elif spec.structured_norm2:
        base, last = p["norm"]
        weights = [base] * (width - 1) + [base + last]
    elif spec.structured_norm1:
        weights = [1.0] * (width - 1) + [1.0 + p["norm"][0]]
    elif spec.scalar_norm:
        weights = list(p["norm"]) * width
    else:
        return list(p["norm"]) * (3 if spec.shared_norm else 1)
    return [weights] * 3


def _token_table(spec: SplitSubspace, p: Any) -> Matrix:
    """Return the token table, [tok_dim][V]; an arc has two radii, a circle one (57p paper 2.1)."""
    if not spec.arc:
        return transposed(p["tokens"])
    *radii, start, stride = p["arc"]  # of a circle the first radius is the last too
    angles = [start + v * stride for v in range(in_columns(spec.task).base)]
    return [
        [radii[0] * torch.cos(a) for a in angles],
        [radii[-1] * torch.sin(a) for a in angles],
    ]


def _position_vectors(spec: SplitSubspace, raw: dict[str, Tensor], p: Any) -> Vector:
    """Return position vectors, pos_dim tensors [S, T, 1].

    The columns of numbers and answer share those of digits; the answer's last column is z_hi.
    """
    like = raw["head"]
    index = torch.arange(spec.columns, dtype=like.dtype, device=like.device)[None, :, None]
    entry = like[:, :1, :1]
    one, zero = torch.ones_like(entry), torch.zeros_like(entry)
    zeros = [zero] * spec.pos_dim

    if spec.spiral:
        digits = [c * one for c in _spiral(spec, p, index)]
        if "correction" in raw:
            digits = [c * (1 + _position_scale(spec, raw, index)) for c in digits]
    else:
        digits = [c[..., None] for c in raw["digits"].unbind(2)]

    on_ring = zeros
    if spec.equals_on_ring:
        place = torch.full_like(one, spec.equals_index)
        on_ring = _spiral(spec, p, place)
    equals = p.get("equals", [c * one for c in on_ring])

    # A special position that has been taken away stands at the origin.
    plus, z_hi, eos = (p.get(name, zeros) for name in ("plus", "z_hi", "eos"))
    before = in_columns(spec.task).numbers - 1
    vectors = []
    for d, sign, equal, last, end in zip(digits, plus, equals, z_hi, eos, strict=True):
        parts = [*[d, sign] * before, d, equal, d, last, end]
        vectors.append(torch.cat(parts, dim=1))
    return vectors


def _spiral(spec: SplitSubspace, p: Any, index: Tensor) -> list[Any]:
    """Return points of the spiral, pos_dim tensors [S or 1, ., 1]: a circle, a ramp, then zeros (57p paper 2.2)."""
    amp, phase, slope, offset = spec.spiral_start
    if not spec.frozen_spiral:
        amp, phase, *ramp, offset = p["spiral"]  # three numbers where the slope is fixed
        slope = ramp[0] if ramp else slope
    angle = 2 * math.pi * index / spec.columns + phase
    plane = [amp * torch.cos(angle), amp * torch.sin(angle)]
    height = slope * index + offset
    flat = [torch.zeros_like(index)] * (spec.pos_dim - 3)
    return [*plane, height, *flat]


def _position_scale(spec: SplitSubspace, raw: dict[str, Tensor], index: Tensor) -> Tensor:
    """Return the learned part of each digit position's scale [S, digits, 1]."""
    correction = raw["correction"][..., None]
    if not spec.linear_correction:
        return correction
    slope, intercept = correction[:, :1], correction[:, 1:]
    return intercept + slope * index


def _rotate(q: Vector, angle: Tensor) -> Vector:
    """Rotate the pairs (0,1), (2,3) ... by one angle; an odd last entry stays (57p paper 2.3)."""
    cos, sin = torch.cos(angle), torch.sin(angle)
    turned = []
    for a, b in zip(q[::2], q[1::2], strict=False):
        turned += [a * cos - b * sin, a * sin + b * cos]
    return turned + q[len(turned) :]
