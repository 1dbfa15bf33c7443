"""The forward pass of the rope family, for every combination of its constraints.

It is divided where problems come in: `expand` makes the wide tensors from θ, with all constraints in them;
what follows is the same for all specs of a shape, `apply` here and kernel_body.h beside it. A position's input is
its token's alone (its own too, with `sine_input`), so queries, keys and values are worked out once for each
token and looked up. Norm weights are in the matrices that read what was normed; the attention output is in the
values, so that a head reads as many channels as the residual has dimensions.

Axes: S seed, B problem, T position, A answer position, R positions whose inputs differ, V vocabulary, D width,
P parameters. Parameters are scalars [S, 1, 1]; see model/ops.py.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from model.families.rope.spec import HEAD, PLANE, Rope
from model.matrices import matrix as stored_matrix
from model.matrices import product
from model.ops import Tensors, Vector, add, attend, dot, lookup, matrix, normed, scalars
from model.spec import Kernel, sizes

EPS, SINE_STEP = 1e-6, 1e-4
_NO_SCALARS = ("tokens", "turns", "ramp")


def sequence(spec: Rope, *columns: Vector) -> Vector:
    """Return the token sequence from digit columns of numbers and answer, units first."""
    *numbers, answer = columns
    zero = torch.zeros_like(numbers[0][0])
    asked = []
    for number in numbers:
        asked += [zero, *number, zero]
    return [*asked, *answer]


def expand(spec: Rope, theta_SP: Tensor) -> Tensors:
    """Return everything that does not depend on the problem, as kernel_body.h reads it: tensors [S, ...] by name.

    `turns` [S, T, 4] has the cosines and the sines of a position's two angles; pairs that turn are (0, 1) and
    (2, 3) here. `query_norm` has the scores' scale too. `values` [S, heads · D, D] write to the residual.
    """
    p = spec.layout.split(theta_SP)
    norm1, norm2, norm3 = _norm_weights(spec, p)
    q, k, v, o = _projections(spec, p)
    gate, up, down = _mlp(spec, p)
    q_norm, k_norm = _qk_norms(spec, p)
    table = _token_table(spec, p)
    # Pairs that turn together stand side by side from here on, whichever convention the spec has.
    pairs = [0, 2, 1, 3] if spec.half_split else [0, 1, 2, 3]
    rows, values = [], []
    for h in range(spec.heads):
        rows += [h * HEAD + i for i in pairs]
        output = o[:, :, h * HEAD : (h + 1) * HEAD]
        values.append(product(output, v))
    wide = {
        "tokens": table,
        "queries": q[:, rows] * norm1[:, None],
        "query_norm": q_norm[:, pairs] / math.sqrt(HEAD),
        "keys": k[:, pairs] * norm1[:, None],
        "key_norm": k_norm[:, pairs],
        "values": torch.cat(values, dim=1) * norm1[:, None],
        "gate": gate * norm2[:, None],
        "up": up * norm2[:, None],
        "down": down,
        "head": table * norm3[:, None],
        "turns": _turns(spec, theta_SP),
    }
    if spec.sine_input:
        wide["ramp"] = _ramp(spec, theta_SP)
    return wide


def apply(spec: Rope, wide: Tensors, tokens_STB: Tensor, first: int) -> list[Tensor]:
    """Return the logits after each position from `first` on, V tensors [S, A, B], as kernel_body.h does."""
    p = {name: scalars(t) for name, t in wide.items() if name not in _NO_SCALARS}
    length = tokens_STB.shape[1]
    table_D = [axis[:, None] for axis in wide["tokens"].unbind(2)]  # [S, R, V] each
    if spec.sine_input:
        ramp = wide["ramp"][:, :length, None]
        table_D[PLANE] = table_D[PLANE] + ramp
    # Of each token, and not of each position of each problem: R is 1 unless inputs depend on the position.
    inputs = normed(table_D, EPS)
    cos_sin = [turn[:, :length, None] for turn in wide["turns"].unbind(2)]

    def read(features: Vector, start: int = 0) -> Vector:
        """Look up features [S, R, V] of the tokens from a position on: [S, T, B] each."""
        parts = [x[:, start:] if x.shape[1] > 1 else x for x in features]  # one row serves all positions
        tokens = tokens_STB[:, start:]
        return [lookup([entry[..., None] for entry in x.unbind(2)], tokens) for x in parts]

    keys = _scaled(matrix(p["keys"], inputs), p["key_norm"])
    keys = _turned(read(keys), cos_sin)
    stream = read(table_D, first)
    # All heads read one head of keys; each has values of its own, since the output is in them.
    for h in range(spec.heads):
        rows = p["queries"][h * HEAD : (h + 1) * HEAD]
        queries = _scaled(matrix(rows, inputs), p["query_norm"])
        asked = _turned(read(queries, first), [turn[:, first:] for turn in cos_sin])
        queries_SA1B = [q[:, :, None] for q in asked]
        keys_S1TB = [k[:, None] for k in keys]
        scores_SATB = dot(queries_SA1B, keys_S1TB)
        rows = p["values"][h * spec.width : (h + 1) * spec.width]
        values = read(matrix(rows, inputs))
        stream = add(stream, attend(scores_SATB, first, values))

    normed_stream = normed(stream, EPS)
    gates = matrix(p["gate"], normed_stream)
    hidden = matrix(p["up"], normed_stream)
    units = [_silu(g) * u for g, u in zip(gates, hidden, strict=True)]
    stream = add(stream, matrix(p["down"], units))
    return matrix(p["head"], normed(stream, EPS))


def kernel(spec: Rope) -> Kernel:
    """Return the shape for which kernel.cpp is compiled."""
    shape = {
        "WIDTH": spec.width,
        "HEADS": spec.heads,
        "FFN": spec.ffn,
        "POSITIONAL": int(spec.sine_input),
        "ANSWERS": spec.answers,
        "PROMPT_TOKENS": spec.prompt,
        **sizes(spec, vocabulary=10, prompt=spec.prompt),
    }
    return Kernel(Path(__file__).with_name("kernel.cpp"), shape)


def _norm_weights(spec: Rope, p: Tensors) -> list[Tensor]:
    """Return the weights [S, D] of the norms before attention, before the MLP and at the end."""
    if spec.shared_norms:
        return [p["norm"]] * 3
    names = ["norm1", "norm2", "norm3"]
    if spec.shared_block_norms:
        names = ["norm12", "norm12", "norm3"]
    return [_padded(p[name], spec.width) for name in names]


def _qk_norms(spec: Rope, p: Tensors) -> tuple[Tensor, Tensor]:
    """Return the weights [S, 4] of the norms of queries and keys."""
    if not spec.shared_qk_norm:
        return p["q_norm"], p["k_norm"]
    weights = p["qk_norm"]
    if spec.fixed_qk_norm:  # one weight is learned, three are the spec's
        numbers = [spec.qk_norm_1, spec.qk_norm_2, spec.qk_norm_3]
        fixed = _constant(numbers, weights).expand(len(weights), -1)
        weights = torch.cat([weights, fixed], dim=1)
    return weights, weights


def _projections(spec: Rope, p: Tensors) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the matrices of queries, keys and values, [S, rows, D], and of the output [S, D, heads · 4]."""
    # What a fold has cut off is 0: `expand` makes the same wide tensors as without the fold.
    q = _padded(p["q"], spec.width)
    if spec.turned_k:
        fixed = _constant([spec.first_k_angle], q)
        angle = fixed.expand(len(q), 1) if spec.frozen_k_angle else p["k_angle"]
        pairs = ((0, 2), (1, 3)) if spec.half_split else ((0, 1), (2, 3))
        k = _rotated(q, angle, pairs)
    elif spec.scaled_k:
        k = q * p["k_scale"][:, :, None]
    elif spec.tie_qk:
        k = q
    else:
        k = _padded(p["kv" if spec.tie_kv else "k"], spec.width)

    if spec.tie_vq:
        v = q
    elif spec.tie_kv:
        v = k
    else:
        v = _padded(p["v"], spec.width)
    o = q.mT if spec.tie_oq else stored_matrix(p, "o")
    return q, k, v, o


def _mlp(spec: Rope, p: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    """Return the MLP's gates and first layer [S, units, D] and its second layer [S, D, units]."""
    up = p["up"]
    gate = up * p["gate_scale"][:, :, None] if spec.tie_gate else p["gate"]
    if spec.turned_down:
        fixed = _constant([spec.first_down_angle], up)
        angle = fixed.expand(len(up), 1) if spec.frozen_down_angle else p["down_angle"]
        pairs = tuple((i, i + 1) for i in range(0, spec.ffn - 1, 2))
        down = _rotated(up, -angle, pairs).mT  # units turn before upᵀ, which turns its rows back
    elif spec.tie_down_gate:
        down = gate.mT
    else:
        down = _padded(p["down"].mT, spec.width).mT
    return gate, up, down


def _token_table(spec: Rope, p: Tensors) -> Tensor:
    """Return the token table [S, V, D]."""
    if not spec.arc:
        return p["tokens"]
    like = next(iter(p.values()))  # any tensor: a frozen arc leaves none of the table's
    if spec.frozen_arc:
        numbers = [spec.arc_radius, spec.arc_start, spec.arc_stride]
        arc = _constant(numbers, like).expand(len(like), 3)
    else:
        arc = p["arc"]
    radius, start, stride = (x[:, None] for x in arc.unbind(1))
    digits = _constant(list(range(spec.vocabulary)), like)
    angle_SV = start + stride * digits
    plane = [radius * angle_SV.cos(), radius * angle_SV.sin()]
    return _padded(torch.stack(plane, dim=2), spec.width)


def _turns(spec: Rope, theta_SP: Tensor) -> Tensor:
    """Return cosines and sines of each position's two angles [S, T, 4]."""
    # Su et al. (arXiv 2104.09864): pair n of a head turns by base^(-2n / width), here of two pairs.
    speeds = _constant([1.0, spec.rope_base**-0.5], theta_SP)
    position_T = _constant(list(range(spec.inputs)), theta_SP)
    angle_T2 = position_T[:, None] * speeds
    turns = torch.cat([angle_T2.cos(), angle_T2.sin()], dim=1)
    return turns.expand(len(theta_SP), -1, -1)


def _ramp(spec: Rope, theta_SP: Tensor) -> Tensor:
    """Return the third input of each position [S, T]."""
    angle_T = SINE_STEP * _constant(list(range(spec.inputs)), theta_SP)
    return angle_T.sin().expand(len(theta_SP), -1)


def _scaled(features: Vector, weights: Vector) -> Vector:
    """Apply RMSNorm with weights."""
    return [x * w for x, w in zip(normed(features, EPS), weights, strict=True)]


def _turned(features: Vector, cos_sin: Vector) -> Vector:
    """Turn the pairs (0, 1) and (2, 3) of features by their positions' angles."""
    a, b, c, d = features
    cos0, cos1, sin0, sin1 = cos_sin
    return [
        a * cos0 - b * sin0,
        a * sin0 + b * cos0,
        c * cos1 - d * sin1,
        c * sin1 + d * cos1,
    ]


def _silu(x: Tensor) -> Tensor:
    """Return x / (1 + exp -x).

    torch's own rounds otherwise at a tensor's end, so that a seed's bits would depend on its slot.
    """
    return x / (1 + torch.exp((-x).clamp(max=80)))  # e^88.7 is float32's infinity


def _rotated(rows: Tensor, angle: Tensor, pairs: tuple[tuple[int, int], ...]) -> Tensor:
    """Turn pairs of rows [S, rows, D] by an angle [S, 1]; a row without a pair stays."""
    out = list(rows.unbind(1))
    cos, sin = angle.cos(), angle.sin()
    for i, j in pairs:
        a, b = rows[:, i], rows[:, j]
        out[i] = a * cos - b * sin
        out[j] = a * sin + b * cos
    return torch.stack(out, dim=1)


def _padded(t: Tensor, width: int) -> Tensor:
    """Append zeros to the last axis, up to `width`."""
    missing = width - t.shape[-1]
    if not missing:
        return t
    zero = torch.zeros_like(t[..., :1])
    zeros = zero.expand(*t.shape[:-1], missing)
    return torch.cat([t, zeros], dim=-1)


def _constant(values: list[float] | list[int], like: Tensor) -> Tensor:
    """Return numbers in the precision and on the device of a tensor."""
    return torch.tensor(values, dtype=like.dtype, device=like.device)
