"""The split_subspace family as a proof sees it: model/submissions/split_subspace.py, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from adders.proof.net import Asked, Net, Norm, factors, turn_matrix
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
    asked = Asked.of(spec.task)
    base, columns = asked.base, asked.columns
    # a vocabulary of more than digits has tokens for plus, equals and the end; in another, digit 0 stands there
    has_delimiters = spec.tokens > base
    prompt = 2 * (columns + 1)
    steps = columns + 1 + has_delimiters
    plus, equals = (base, base + 1) if has_delimiters else (0, 0)
    places = prompt + steps - 1
    table = _token_table(spec, w, base)
    positions = _positions(spec, w, columns)[:places]
    tokens_TVK = table[None].broadcast((places, spec.tokens, spec.tok_dim))
    positions_TVC = positions[:, None].broadcast((places, spec.tokens, spec.pos_dim))
    residual = concatenate([tokens_TVK, positions_TVC])
    # the position's part is the same at all tokens of a place, and at all three places of a column
    shared = np.concatenate([np.zeros((places, spec.tok_dim)), positions.error], axis=1)
    query, key, value, scale = _projections(spec, w)
    out, channels, writes = _output(spec, w)
    norm1, norm2, norm3 = (Norm(weight) for weight in _norm_weights(spec, w))
    return Net(
        asked=asked,
        steps=steps,
        fixed=((columns, plus), (prompt - 1, equals)),
        starts=(0, columns + 1, prompt),
        units_first=True,
        heads=spec.heads,
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


def _token_table(spec: SplitSubspace, w: Tensors, base: int) -> Approx:
    """Return token vectors [V, K]."""
    if not spec.arc:
        return Approx(w["tokens"])
    # one radius, or one per axis
    *radii, start, stride = w["arc"]
    product = stride * np.arange(float(base))
    # the sum may be fused with the product, which is not rounded then
    angle = one_of(single(start + single(product)), single(start + product))
    sine, cosine = sincos(angle)
    across = Approx(np.full(base, radii[0]))
    along = Approx(np.full(base, radii[-1]))
    return stack([cosine * across, sine * along])


def _spiral(spec: SplitSubspace, w: Tensors, index: Array, columns: int) -> Approx:
    """Return points [N, C] on the spiral. What is the same product of the same numbers everywhere is exact."""
    index = single(index)
    ones = np.ones_like(index)
    if spec.frozen_spiral:
        amp = float(single(spec.spiral_amp))
        slope = 0.0 if spec.flat_spiral else float(single(spec.spiral_slope))
        angle = _turn(index, None, columns)
        height = Approx(single(slope * index))
    else:
        if spec.flat_spiral:
            amp, phase, offset = w["spiral"]
            slope = 0.0
        else:
            amp, phase, slope, offset = w["spiral"]
        angle = _turn(index, phase, columns)
        height = rounded(slope * index, 0.0) + Approx(offset * ones)
    sine, cosine = sincos(angle)
    radius = Approx(amp * ones)
    flat = [Approx(0 * ones)] * (spec.pos_dim - 3)
    return stack([radius * cosine, radius * sine, height, *flat])


def _turn(index: Array, phase: float | None, columns: int) -> Approx:
    """Return angles of the spiral [N], 2π · index / columns + phase."""
    turns = single(single(2 * math.pi) * index)
    product = turns * single(1 / columns)
    # a program may divide, or multiply by the inverse
    ways = [single(turns / columns), single(product)]
    if phase is None:
        return one_of(*ways)
    # and the sum may be fused with the product, which is not rounded then
    return one_of(*ways, product) + Approx(np.full(len(index), phase))


def _positions(spec: SplitSubspace, w: Tensors, columns: int) -> Approx:
    """Return position vectors [T, C]."""
    index = np.arange(float(columns))
    digits = _spiral(spec, w, index, columns) if spec.spiral else Approx(w["digits"])
    if "correction" in w:
        if spec.linear_correction:
            slope, intercept = w["correction"]
            factor = rounded(np.full(columns, 1 + intercept), 0.0) + rounded(slope * index, 0.0)
        else:
            factor = rounded(1 + w["correction"], 0.0)
        digits = digits * factor[:, None].broadcast(digits.value.shape)

    def learned(name: str) -> Approx:
        """Return the vector of one place; zeros where a net has none of its own."""
        return Approx(w.get(name, np.zeros(spec.pos_dim))[None])

    if spec.equals_on_ring:
        equals = _spiral(spec, w, np.array([spec.equals_index]), columns)
    else:
        equals = learned("equals")
    # both operands and the answer have the same vectors
    parts = [digits, learned("plus"), digits, equals, digits, learned("z_hi"), learned("eos")]
    return concatenate(parts, axis=0)


def _norm_weights(spec: SplitSubspace, w: Tensors) -> list[Approx]:
    """Return the weights of the three norms, each [D]."""
    width = spec.width
    if spec.parameterless_norm:
        return [Approx(np.ones(width))] * 3
    norm = w["norm"]
    # all three norms have one weight, or each its own
    if not (spec.structured_norm3 or spec.structured_norm2 or spec.structured_norm1):
        return [Approx(row) for row in np.broadcast_to(norm, (3, width))]
    base = 1.0 if spec.structured_norm1 else norm[0]
    added = np.zeros(width)
    added[-1] = norm[-1]
    if spec.structured_norm3:
        added[1] = norm[1]
    # a sum with zeros alone is exact
    weight = rounded(base + added, 0.0) if added.any() else Approx(base + added)
    return [weight] * 3


def _projections(spec: SplitSubspace, w: Tensors) -> tuple[Chain, Chain, Chain, float]:
    """Return queries, keys and values as maps of the normed residual [D, heads · n], and the scores' scale."""
    turns: list[Approx] = []
    if spec.direct_forms:
        # scores are a form of two positions and the output reads tokens, so queries and values are read as they are
        query = Approx(np.tile(np.eye(spec.pos_dim), spec.heads))
        key = Approx(w["form"].T)
        value = Approx(np.tile(np.eye(spec.tok_dim), spec.heads))
        scale = 1.0
    else:
        query = _projection(spec, w, "q_proj").T
        key = query if spec.tie_qk else _projection(spec, w, "k_proj").T
        value = Approx(w["head"] if spec.tie_vo else w["v_proj"].T)
        size = query.value.shape[1] // spec.heads
        if spec.tie_qk and not spec.unturned:
            turns = [turn_matrix(w["phase"], size)]
        scale = 1 / math.sqrt(size)

    # tokens lie in the first dimensions of the residual, positions in the last
    def of_positions(matrix: Approx) -> Approx:
        return concatenate([_zeros(spec.tok_dim, matrix), matrix], axis=0)

    of_tokens = concatenate([value, _zeros(spec.pos_dim, value)], axis=0)
    return Chain(of_positions(query), *turns), Chain(of_positions(key)), Chain(of_tokens), scale


def _zeros(rows: int, matrix: Approx) -> Approx:
    """Return rows of zeros, as wide as a matrix."""
    return Approx(np.zeros((rows, matrix.value.shape[1])))


def _projection(spec: SplitSubspace, w: Tensors, name: str) -> Approx:
    """Return the query or key projection [heads · n, C]."""
    columns = spec.pos_dim
    rows = spec.query_dim
    if spec.rank1_q:
        product = w["q_A"][:, :, None] * w["q_B"][:, None]
        return rounded(product.reshape(-1, columns), 0.0)
    entries = w[name]
    if not (spec.toeplitz_q or spec.circulant_q):
        return Approx(entries)
    # each column is the one before it, moved down by one place
    shifted = []
    for j in range(columns):
        if spec.toeplitz_q:
            first = columns - 1 - j
            shifted.append(entries[:, first : first + rows])
        else:
            shifted.append(np.roll(entries, j, axis=1)[:, :rows])
    return Approx(np.stack(shifted, axis=-1).reshape(-1, columns))


def _output(spec: SplitSubspace, w: Tensors) -> tuple[Chain, Array, Array]:
    """Return the attention output [E, D], and two real factors of it [E, R], [R, D]."""
    if not spec.out_rank:
        out = w["out"].T
        return Chain(Approx(out)), *factors(out, _reach(spec, w))
    first = w["out_A"]
    if spec.onehot_out:
        row = np.eye(spec.width)[1:2]
    else:
        row = w.get("out_B", np.zeros((spec.out_rank, 0)))
        if spec.unit_out:
            row = np.concatenate([np.ones((len(row), 1)), row], 1)
        if spec.opposite_out:
            row = np.concatenate([row[:, :1], -row[:, :1], row[:, 1:]], 1)
        row = np.pad(row, ((0, 0), (0, spec.width - row.shape[1])))
    # the program multiplies the factors first, so float32 has one matrix; in real numbers they are its factors
    matrix = Linear(Approx(row))(Approx(first))
    return Chain(matrix), first, row


def _reach(spec: SplitSubspace, w: Tensors) -> Array:
    """Return the projector [E, E] on what values can be: in each head the range of its rows of the projection."""
    if spec.direct_forms:
        return np.eye(spec.heads * spec.tok_dim)
    # combinations of a head's values that are always 0 are nothing that the output could read
    value = w["head"].T if spec.tie_vo else w["v_proj"]
    size = len(value) // spec.heads
    projector = np.zeros((len(value), len(value)))
    for i in range(0, len(value), size):
        basis, _ = np.linalg.qr(value[i : i + size])
        projector[i : i + size, i : i + size] = basis @ basis.T
    return projector
