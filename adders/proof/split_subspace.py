"""The split_subspace family as a proof sees it: model/submissions/split_subspace.py, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from adders.proof.net import COLUMNS, Net, Norm, factors, turn_matrix
from adders.proof.rounding import (
    Approx,
    Array,
    Chain,
    Linear,
    concatenate,
    one_of,
    rounded,
    sincos,
    single,
    stack,
)

if TYPE_CHECKING:
    from model.families.split_subspace import SplitSubspace

Tensors = dict[str, Array]


def view(spec: SplitSubspace, w: Tensors) -> Net:
    """Return the view of a net whose tensors w are float32 numbers."""
    tok, pos, heads = spec.tok_dim, spec.pos_dim, spec.heads
    steps = 12 if spec.vocabulary == 14 else 11
    table, positions = _token_table(spec, w), _positions(spec, w)
    shape = (22 + steps - 1, spec.vocabulary)
    tokens_TVK = Approx(table.value[None], table.error[None]).broadcast((*shape, tok))
    positions_TVC = Approx(positions.value[: shape[0], None], positions.error[: shape[0], None])
    residual = concatenate([tokens_TVK, positions_TVC.broadcast((*shape, pos))])
    shared = np.concatenate([np.zeros((shape[0], tok)), positions.error[: shape[0]]], axis=1)
    query, key, value, scale = _projections(spec, w)
    out, channels, writes = _output(spec, w)
    norm1, norm2, norm3 = (Norm(weight) for weight in _norm_weights(spec, w))
    plus, equals = (10, 11) if spec.vocabulary == 14 else (0, 0)
    return Net(
        steps=steps,
        fixed=((10, plus), (21, equals)),
        starts=(0, 11, 22),
        units_first=True,
        heads=heads,
        residual=residual,
        shared=shared,
        alike=True,
        norms=(norm1, norm2, norm3),
        query=query,
        key=key,
        value=value,
        scale=scale,
        out=out,
        channels=channels,
        writes=writes,
        fc1=Chain(Approx(w["fc1"].T)),
        fc1_bias=w.get("fc1_bias"),
        fc2=Chain(Approx(w["head"] if spec.tie_fc2_head else w["fc2"].T)),
        fc2_bias=w.get("fc2_bias"),
        head=Chain(Approx(w["head"].T)),
        table=table,
    )


def _token_table(spec: SplitSubspace, w: Tensors) -> Approx:
    if not spec.arc:
        return Approx(w["tokens"])
    *radii, start, stride = w["arc"]
    product = stride * np.arange(10.0)
    angle = one_of(single(start + single(product)), single(start + product))
    sine, cosine = sincos(angle)
    return stack([cosine * _constant(radii[0]), sine * _constant(radii[-1])])


def _constant(value: float, error: float = 0.0) -> Approx:
    return Approx(np.full(10, value), error)


def _spiral(spec: SplitSubspace, w: Tensors, index: Array) -> Approx:
    """Return points [N, C] on the spiral. What is the same product of the same numbers everywhere is exact."""
    index = single(index)
    if spec.frozen_spiral:
        amp, phase, slope, offset = (
            float(single(spec.spiral_amp)),
            0.0,
            float(single(spec.spiral_slope)),
            0.0,
        )
    elif spec.flat_spiral:
        (amp, phase, offset), slope = w["spiral"], 0.0
    else:
        amp, phase, slope, offset = w["spiral"]
    slope = 0.0 if spec.flat_spiral else slope
    ones = np.ones_like(index)
    angle, height = (
        _turn(index, None if spec.frozen_spiral else phase),
        Approx(single(slope * index)),
    )
    if not spec.frozen_spiral:
        height = rounded(slope * index, 0.0) + Approx(offset * ones)
    sine, cosine = sincos(angle)
    radius, flat = Approx(amp * ones), Approx(np.zeros_like(index))
    return stack([radius * cosine, radius * sine, height, *[flat] * (spec.pos_dim - 3)])


def _turn(index: Array, phase: float | None) -> Approx:
    """Return angles of the spiral [N], 2π · index / 10 + phase. A product, by 1 / 10, may be fused with the sum."""
    turns = single(single(2 * math.pi) * index)
    product = turns * single(1 / COLUMNS)
    ways = single(turns / COLUMNS), single(product)
    return one_of(*ways) if phase is None else one_of(*ways, product) + Approx(np.full(len(index), phase))


def _positions(spec: SplitSubspace, w: Tensors) -> Approx:
    """Return position vectors [34, C]."""
    index = np.arange(float(COLUMNS))
    digits = _spiral(spec, w, index) if spec.spiral else Approx(w["digits"])
    if spec.linear_correction:
        slope, intercept = w["correction"]
        factor = rounded(np.full(10, 1 + intercept), 0.0) + rounded(slope * index, 0.0)
    elif "correction" in w:
        factor = rounded(1 + w["correction"], 0.0)
    if "correction" in w:
        digits = digits * Approx(factor.value[:, None], factor.error[:, None]).broadcast(digits.value.shape)
    learned = {name: Approx(w.get(name, np.zeros(spec.pos_dim))[None]) for name in ("plus", "equals", "z_hi", "eos")}
    if spec.equals_on_ring:
        learned["equals"] = _spiral(spec, w, np.array([spec.equals_index]))
    parts = [
        digits,
        learned["plus"],
        digits,
        learned["equals"],
        digits,
        learned["z_hi"],
        learned["eos"],
    ]
    return concatenate(parts, axis=0)


def _norm_weights(spec: SplitSubspace, w: Tensors) -> list[Approx]:
    """Return the weights of the three norms, each [D]."""
    width = spec.width
    if spec.parameterless_norm:
        return [Approx(np.ones(width))] * 3
    norm = w["norm"]
    if not (spec.structured_norm3 or spec.structured_norm2 or spec.structured_norm1):
        return [Approx(row) for row in np.broadcast_to(norm, (3, width))]
    weight, base = np.zeros(width), 1.0 if spec.structured_norm1 else norm[0]
    weight[-1] = norm[-1]
    if spec.structured_norm3:
        weight[1] = norm[1]
    changed = weight != 0
    return [rounded(base + weight, 0.0) if changed.any() else Approx(base + weight)] * 3


def _projections(spec: SplitSubspace, w: Tensors) -> tuple[Chain, Chain, Chain, float]:
    """Return queries, keys and values as maps of the normed residual [D, heads · n], and the scores' scale."""
    tok, heads = spec.tok_dim, spec.heads
    if spec.direct_forms:
        query = Approx(np.tile(np.eye(spec.pos_dim), heads))
        value = Approx(np.tile(np.eye(tok), heads))
        key, scale = Approx(w["form"].T), 1.0
        return (
            Chain(_below(query, tok)),
            Chain(_below(key, tok)),
            Chain(_above(value, spec.pos_dim)),
            scale,
        )
    query = _projection(spec, w, "q_proj").T
    size = query.value.shape[1] // heads
    key = query if spec.tie_qk else _projection(spec, w, "k_proj").T
    turns = [turn_matrix(w["phase"], size)] if spec.tie_qk and not spec.unturned else []
    value = Approx(w["head"] if spec.tie_vo else w["v_proj"].T)
    chains = (
        Chain(_below(query, tok), *turns),
        Chain(_below(key, tok)),
        Chain(_above(value, spec.pos_dim)),
    )
    return *chains, 1 / math.sqrt(size)


def _below(matrix: Approx, rows: int) -> Approx:
    """Return a matrix that reads positions as one of the residual."""
    return concatenate([Approx(np.zeros((rows, matrix.value.shape[1]))), matrix], axis=0)


def _above(matrix: Approx, rows: int) -> Approx:
    """Return a matrix that reads tokens as one of the residual."""
    return concatenate([matrix, Approx(np.zeros((rows, matrix.value.shape[1])))], axis=0)


def _projection(spec: SplitSubspace, w: Tensors, name: str) -> Approx:
    """Return the query or key projection [heads · n, C]."""
    columns, rows = spec.pos_dim, spec.query_dim
    if spec.rank1_q:
        product = w["q_A"][:, :, None] * w["q_B"][:, None]
        return rounded(product.reshape(-1, columns), 0.0)
    entries = w[name]
    if spec.toeplitz_q:
        shifted = [entries[:, columns - 1 - j : columns - 1 - j + rows] for j in range(columns)]
    elif spec.circulant_q:
        shifted = [np.roll(entries, j, axis=1)[:, :rows] for j in range(columns)]
    else:
        return Approx(entries)
    return Approx(np.stack(shifted, axis=-1).reshape(-1, columns))


def _output(spec: SplitSubspace, w: Tensors) -> tuple[Chain, Array, Array]:
    """Return the attention output [E, D], and two real factors of it [E, R], [R, D]."""
    if not spec.out_rank:
        return Chain(Approx(w["out"].T)), *factors(w["out"].T, _reach(spec, w))
    if spec.onehot_out:
        row = np.eye(spec.width)[1:2]
    else:
        row = w.get("out_B", np.zeros((spec.out_rank, 0)))
        row = np.concatenate([np.ones((len(row), 1)), row], 1) if spec.unit_out else row
        row = np.concatenate([row[:, :1], -row[:, :1], row[:, 1:]], 1) if spec.opposite_out else row
        row = np.pad(row, ((0, 0), (0, spec.width - row.shape[1])))
    return Chain(Linear(Approx(row))(Approx(w["out_A"]))), w["out_A"], row


def _reach(spec: SplitSubspace, w: Tensors) -> Array:
    """Return the projector [E, E] on what values can be: in each head the range of its rows of the projection."""
    if spec.direct_forms:
        return np.eye(spec.heads * spec.tok_dim)
    value = w["head"].T if spec.tie_vo else w["v_proj"]
    size = len(value) // spec.heads
    projector = np.zeros((len(value), len(value)))
    for i in range(0, len(value), size):
        basis, _ = np.linalg.qr(value[i : i + size])
        projector[i : i + size, i : i + size] = basis @ basis.T
    return projector
