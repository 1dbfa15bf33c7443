"""The rope family as a proof sees it: model/submissions/rope.py, step by step.

Queries and keys have a norm of their own and turn with their positions, so a score's error is bounded from what is in
error in each of their entries, beyond one common shift.

Axes: T position, V vocabulary, D width, N the four entries of a head, F hidden units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adders.proof.intervals import SwiGLU
from adders.proof.net import Net, Norm, factors, normed, turn_matrix
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
HEAD, DIGITS, EPS = 4, 10, 1e-6
PROMPT, STEPS = 24, 11
READ = PROMPT + STEPS - 1
"""Positions that are read."""


def view(spec: Rope, w: Tensors) -> Net:
    """Return the view of a net whose tensors w are float32 numbers."""
    w = {name: _wide(spec, name, tensor) for name, tensor in w.items()}
    table, norms = _table(spec, w), _norms(spec, w)
    shape = (READ, DIGITS, spec.width)
    residual = Approx(table.value[None], table.error[None]).broadcast(shape)
    if spec.sine_input:  # the table's third dimension is 0
        residual = concatenate(
            [
                residual[..., :2],
                _ramp().broadcast(shape[:2])[..., None],
                residual[..., 3:],
            ]
        )
    q, k, v = _projections(spec, w)
    read = normed(residual, norms[0], ANY).value
    inputs = (np.abs(residual.value) > 0).any((0, 1))
    first = Chain(Approx(v * inputs).T)
    heads = Chain(Approx(np.tile(first.matrix, spec.heads)))
    if spec.rank1_out:
        out, channels, writes = (
            Chain(Approx(w["o_A"]), Approx(w["o_B"])),
            w["o_A"],
            w["o_B"],
        )
    else:
        matrix = q if spec.tie_oq else w["o"].T
        basis, _ = np.linalg.qr(v * inputs)
        reach = np.kron(np.eye(spec.heads), basis @ basis.T)
        out, (channels, writes) = Chain(Approx(matrix)), factors(matrix, reach)
    fc1, fc2 = _mlp(spec, w)
    return Net(
        steps=STEPS,
        starts=(1, 13, PROMPT),
        fixed=((0, 0), (11, 0), (12, 0), (PROMPT - 1, 0)),
        units_first=True,
        heads=spec.heads,
        residual=residual,
        shared=np.zeros((READ, spec.width)),
        alike=False,
        norms=norms,
        query=Chain(Approx(q.T)),
        key=Chain(k.T),
        value=heads,
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
    """Return a tensor with zeros for the dimensions that are left out of it."""
    if name in ("q", "k", "kv", "v", "norm1", "norm3"):
        return np.pad(tensor, [(0, 0)] * (tensor.ndim - 1) + [(0, spec.width - tensor.shape[-1])])
    return np.pad(tensor, ((0, spec.width - len(tensor)), (0, 0))) if name == "down" else tensor


def _table(spec: Rope, w: Tensors) -> Approx:
    """Return the token table [V, D]."""
    if not spec.arc:
        return Approx(w["tokens"])
    constants = single([spec.arc_radius, spec.arc_start, spec.arc_stride])
    radius, start, stride = w.get("arc", constants)
    product = stride * np.arange(float(DIGITS))
    sine, cosine = sincos(one_of(single(start + single(product)), single(start + product)))
    size, flat = Approx(np.full(DIGITS, radius)), Approx(np.zeros(DIGITS))
    return stack([cosine * size, sine * size, *[flat] * (spec.width - 2)])


def _ramp() -> Approx:
    """Return the third input of each position [T, 1]."""
    index = np.arange(float(READ))[:, None]
    sine, _ = sincos(one_of(single(single(1e-4) * index), single(1e-4 * index)))
    return sine


def _norms(spec: Rope, w: Tensors) -> tuple[Norm, Norm, Norm]:
    """Return the norms before attention, before the MLP and at the end."""
    names = ("norm",) * 3 if spec.shared_norms else ("norm12", "norm12", "norm3")
    names = names if spec.shared_norms or spec.shared_block_norms else ("norm1", "norm2", "norm3")
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
    else:
        k = Approx(q if spec.tie_qk else w["kv" if spec.tie_kv else "k"])
    return q, k, q if spec.tie_vq else k.value if spec.tie_kv else w["v"]


def _turned(spec: Rope, w: Tensors, read: Approx, q: Array, k: Approx) -> tuple[Approx, Approx]:
    """Return queries and keys of each position and token [T, V, H · N], normed and turned."""
    shared = w.get("qk_norm", np.zeros(0))
    if spec.fixed_qk_norm:
        shared = np.concatenate([shared, single([spec.qk_norm_1, spec.qk_norm_2, spec.qk_norm_3])])
    weights = (shared, shared) if spec.shared_qk_norm else (w["q_norm"], w["k_norm"])
    speed = spec.rope_base**-0.5
    is_rounded = single(spec.rope_base) != spec.rope_base
    index = Approx(np.arange(float(READ))[:, None])
    other = index * Approx([[speed]], (ANY.power + is_rounded) * U * speed)
    angle = concatenate([index, other])
    parts = []
    for matrix, weight in zip((Approx(q), k), weights, strict=True):
        rows = Linear(matrix.T)(read)
        split = Approx(*(part.reshape(*part.shape[:2], -1, HEAD) for part in (rows.value, rows.error)))
        scaled = normed(split, Norm(Approx(weight), eps=EPS), ANY).value
        turned = _turn(
            scaled,
            Approx(angle.value[:, None, None], angle.error[:, None, None]),
            spec.half_split,
        )
        count = 1 if turned.value.shape[2] == spec.heads else spec.heads
        flat = (np.tile(part.reshape(*part.shape[:2], -1), count) for part in (turned.value, turned.error))
        parts.append(Approx(*flat))
    return parts[0], parts[1]


def _turn(x: Approx, angle: Approx, half_split: bool) -> Approx:
    """Turn pairs of the last axis by angles: (0, 1), (2, 3), or (0, 2), (1, 3) of four."""
    half = x.value.shape[-1] // 2
    a, b = (x[..., :half], x[..., half:]) if half_split else (x[..., ::2], x[..., 1::2])
    sine, cosine = sincos(angle)
    first, second = a * cosine + Approx(-b.value, b.error) * sine, a * sine + b * cosine
    if half_split:
        return concatenate([first, second])
    pairs = stack([first, second])
    return Approx(*(part.reshape(x.value.shape) for part in (pairs.value, pairs.error)))


def _mlp(spec: Rope, w: Tensors) -> tuple[Chain, Chain]:
    """Return gates and first layer side by side [D, 2 F], and the second layer [F, D]."""
    up = Approx(w["up"])
    gate = rounded(w["gate_scale"] * w["up"], 0.0) if spec.tie_gate else Approx(w["gate"])
    fc1 = Chain(concatenate([gate.T, up.T]))
    if spec.turned_down:
        angle = w.get("down_angle", single([spec.first_down_angle]))
        return fc1, Chain(turn_matrix(angle, spec.ffn), up)
    return fc1, Chain(gate if spec.tie_down_gate else Approx(w["down"].T))
