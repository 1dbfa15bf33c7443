"""The rope family as a proof sees it: model/submissions/rope.py, step by step.

Queries and keys have a norm of their own and turn with their positions, so a score's error is bounded from what is in
error in each of their entries, beyond one common shift.

Axes: T position, V vocabulary, D width, N the four entries of a head, F hidden units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adders.proof.intervals import SwiGLU
from adders.proof.net import Asked, Net, Norm, factors, normed, turn_matrix
from adders.proof.rounding import (
    ANY,
    Approx,
    Array,
    Chain,
    Linear,
    U,
    concatenate,
    one_of,
    rounded,
    sincos,
    single,
    stack,
)

if TYPE_CHECKING:
    from model.families.rope import Rope

Tensors = dict[str, Array]
HEAD, EPS = 4, 1e-6


def view(spec: Rope, w: Tensors) -> Net:
    """Return the view of a net whose tensors w are float32 numbers."""
    asked = Asked.of(spec.task)
    base, columns = asked.base, asked.columns
    prompt, steps = 2 * (columns + 2), columns + 1
    places = prompt + steps - 1
    w = {name: _wide(spec, name, tensor) for name, tensor in w.items()}
    table = _table(spec, w, base)
    norms = _norms(spec, w)
    residual = table[None].broadcast((places, base, spec.width))
    if spec.sine_input:
        # the table's third dimension is 0
        ramp = _ramp(places).broadcast((places, base))[..., None]
        residual = concatenate([residual[..., :2], ramp, residual[..., 3:]])
    q, k, v = _projections(spec, w)
    read = normed(residual, norms[0], ANY).value

    # a dimension that is 0 at all tokens and places takes no part, so it is left out of what values can be
    inputs = (np.abs(residual.value) > 0).any((0, 1))
    seen = v * inputs
    # all heads have the same values
    values = Chain(Approx(np.tile(seen.T, spec.heads)))
    if spec.rank1_out:
        channels = w["o_A"]
        writes = w["o_B"]
        out = Chain(Approx(channels), Approx(writes))
    else:
        matrix = q if spec.tie_oq else w["o"].T
        basis, _ = np.linalg.qr(seen)
        reach = np.kron(np.eye(spec.heads), basis @ basis.T)
        out = Chain(Approx(matrix))
        channels, writes = factors(matrix, reach)
    fc1, fc2 = _mlp(spec, w)
    return Net(
        asked=asked,
        steps=steps,
        starts=(1, columns + 3, prompt),
        fixed=((0, 0), (columns + 1, 0), (columns + 2, 0), (prompt - 1, 0)),
        units_first=True,
        heads=spec.heads,
        residual=residual,
        shared=np.zeros((places, spec.width)),
        alike=False,
        norms=norms,
        query=Chain(Approx(q.T)),
        key=Chain(k.T),
        value=values,
        turned=_turned(spec, w, read, q, k),
        scale=0.5,
        out=out,
        channels=channels,
        writes=writes,
        fc1=fc1,
        fc1_bias=None,
        fc2=fc2,
        fc2_bias=None,
        head=None,
        table=table,
        bend=SwiGLU(),
    )


def _wide(spec: Rope, name: str, tensor: Array) -> Array:
    """Return a tensor with zeros for the dimensions of the residual that are left out of it."""
    if name in ("q", "k", "kv", "v", "norm1", "norm3"):
        left_out = spec.width - tensor.shape[-1]
        return np.pad(tensor, [(0, 0)] * (tensor.ndim - 1) + [(0, left_out)])
    if name == "down":
        return np.pad(tensor, ((0, spec.width - len(tensor)), (0, 0)))
    return tensor


def _table(spec: Rope, w: Tensors, base: int) -> Approx:
    """Return the token table [V, D]."""
    if not spec.arc:
        return Approx(w["tokens"])
    constants = single([spec.arc_radius, spec.arc_start, spec.arc_stride])
    radius, start, stride = w.get("arc", constants)
    product = stride * np.arange(float(base))
    # the sum may be fused with the product, which is not rounded then
    angle = one_of(single(start + single(product)), single(start + product))
    sine, cosine = sincos(angle)
    size = Approx(np.full(base, radius))
    flat = [Approx(np.zeros(base))] * (spec.width - 2)
    return stack([cosine * size, sine * size, *flat])


def _ramp(places: int) -> Approx:
    """Return the third input of each position [T, 1]."""
    index = np.arange(float(places))[:, None]
    # a program may have 1e-4 in float32 or in float64
    angle = one_of(single(single(1e-4) * index), single(1e-4 * index))
    sine, _ = sincos(angle)
    return sine


def _norms(spec: Rope, w: Tensors) -> tuple[Norm, Norm, Norm]:
    """Return the norms before attention, before the MLP and at the end."""
    if spec.shared_norms:
        names = ["norm"] * 3
    elif spec.shared_block_norms:
        names = ["norm12", "norm12", "norm3"]
    else:
        names = ["norm1", "norm2", "norm3"]
    first, second, third = (Norm(Approx(w[name]), eps=EPS) for name in names)
    return first, second, third


def _projections(spec: Rope, w: Tensors) -> tuple[Array, Approx, Array]:
    """Return queries [H · N, D], keys [N, D] and values [N, D] of the normed residual."""
    q = w["q"]
    if spec.turned_k:
        angle = w.get("k_angle", single([spec.first_k_angle]))
        k = _turn(Approx(q.T), Approx(angle), spec.half_split).T
    elif spec.scaled_k:
        k = rounded(w["k_scale"] * q, 0.0)
    elif spec.tie_qk:
        k = Approx(q)
    else:
        k = Approx(w["kv" if spec.tie_kv else "k"])
    if spec.tie_vq:
        return q, k, q
    return q, k, k.value if spec.tie_kv else w["v"]


def _turned(spec: Rope, w: Tensors, read: Approx, q: Array, k: Approx) -> tuple[Approx, Approx]:
    """Return queries and keys of each position and token [T, V, H · N], normed and turned."""
    # numbers that are frozen stand behind those that are trained
    shared = w.get("qk_norm", np.zeros(0))
    if spec.fixed_qk_norm:
        shared = np.concatenate([shared, single([spec.qk_norm_1, spec.qk_norm_2, spec.qk_norm_3])])
    weights = (shared, shared) if spec.shared_qk_norm else (w["q_norm"], w["k_norm"])
    # the first pair of a head turns by the position's index, the second one more slowly
    speed = spec.rope_base**-0.5
    is_rounded = single(spec.rope_base) != spec.rope_base
    index = Approx(np.arange(float(len(read.value)))[:, None])
    slower = index * Approx([[speed]], (ANY.power + is_rounded) * U * speed)
    angle = concatenate([index, slower])[:, None, None]

    def turned(matrix: Approx, weight: Array) -> Approx:
        rows = Linear(matrix.T)(read)
        by_head = rows.moved(lambda part: part.reshape(*part.shape[:2], -1, HEAD))
        scaled = normed(by_head, Norm(Approx(weight), eps=EPS), ANY).value
        result = _turn(scaled, angle, spec.half_split)
        # one head's keys are those of all heads
        count = spec.heads // result.value.shape[2]
        return result.moved(lambda part: np.tile(part.reshape(*part.shape[:2], -1), count))

    return turned(Approx(q), weights[0]), turned(k, weights[1])


def _turn(x: Approx, angle: Approx, half_split: bool) -> Approx:
    """Turn pairs of the last axis by angles: (0, 1), (2, 3), or (0, 2), (1, 3) of four."""
    if half_split:
        half = x.value.shape[-1] // 2
        a = x[..., :half]
        b = x[..., half:]
    else:
        a = x[..., ::2]
        b = x[..., 1::2]
    sine, cosine = sincos(angle)
    minus_b = Approx(-b.value, b.error)
    first = a * cosine + minus_b * sine
    second = a * sine + b * cosine
    if half_split:
        return concatenate([first, second])
    return stack([first, second]).moved(lambda part: part.reshape(x.value.shape))


def _mlp(spec: Rope, w: Tensors) -> tuple[Chain, Chain]:
    """Return gates and first layer side by side [D, 2 F], and the second layer [F, D]."""
    up = Approx(w["up"])
    if spec.tie_gate:
        gate = rounded(w["gate_scale"] * w["up"], 0.0)
    else:
        gate = Approx(w["gate"])
    fc1 = Chain(concatenate([gate.T, up.T]))
    if spec.turned_down:
        angle = w.get("down_angle", single([spec.first_down_angle]))
        return fc1, Chain(turn_matrix(angle, spec.ffn), up)
    return fc1, Chain(gate if spec.tie_down_gate else Approx(w["down"].T))
