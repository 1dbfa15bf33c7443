"""The low_rank family as a proof sees it: model/submissions/low_rank.py, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from adders.proof.net import Asked, Net, Norm
from adders.proof.rounding import Approx, Array, Chain, Linear

if TYPE_CHECKING:
    from model.families.low_rank import LowRank

Tensors = dict[str, Array]


def view(spec: LowRank, w: Tensors) -> Net:
    """Return the view of a net whose tensors w are float32 numbers."""
    asked = Asked.of(spec.task)
    base, columns = asked.base, asked.columns
    prompt, steps = 2 * (columns + 1), columns + 1
    read = prompt + steps - 1  # positions
    if "pos_A" in w:
        positions = Linear(Approx(w["pos_B"]))(Approx(w["pos_A"][:read]))
    else:
        positions = Approx(w["positions"][:read])
    shape = (read, spec.vocabulary, spec.width)
    placed = positions[:, None].broadcast(shape)
    query, key, value = _projections(spec, w)
    return Net(
        asked=asked,
        steps=steps,
        fixed=((columns, base), (prompt - 1, base + 1)),
        starts=(0, columns + 1, prompt),
        units_first=False,
        heads=1,
        residual=Approx(w["tokens"]).broadcast(shape) + placed,
        shared=np.zeros((read, spec.width)),
        alike=False,
        norms=(_norm(spec, w, 1), _norm(spec, w, 2), _norm(spec, w, 3)),
        query=query,
        key=key,
        value=value,
        scale=1 / math.sqrt(spec.width),
        out=_chain(w, "out"),
        channels=w["out_A"] if "out_A" in w else w["out"].T,
        writes=w.get("out_B", np.eye(spec.width)),
        fc1=_chain(w, "fc1"),
        fc1_bias=None,
        fc2=_chain(w, "fc2"),
        fc2_bias=None,
        head=None,
        table=Approx(w["tokens"]),
    )


def _norm(spec: LowRank, w: Tensors, number: int) -> Norm:
    """Return the norm before attention (1), before the MLP (2) or at the end (3)."""
    weight = Approx(w[f"norm{number}"])
    if spec.rms_norm:
        return Norm(weight, eps=1e-8)
    # else LayerNorm, with torch's own ε
    return Norm(weight, Approx(w[f"norm{number}_bias"]), 1e-5, centre=True)


def _chain(w: Tensors, name: str) -> Chain:
    """Return a matrix without bias, full or in two factors."""
    if name in w:
        return Chain(Approx(w[name].T))
    return Chain(Approx(w[f"{name}_A"]), Approx(w[f"{name}_B"]))


def _projections(spec: LowRank, w: Tensors) -> tuple[Chain, Chain, Chain]:
    """Return queries, keys and values as maps of the normed residual."""

    def chain(first: str, second: str) -> Chain:
        return Chain(Approx(w[first]), Approx(w[second]))

    names = spec.projections
    if spec.shared == "A":
        chains = [chain("qkv_A", f"qkv_B{name}") for name in names]
    elif spec.shared:
        chains = [chain(f"qkv_A{name}", "qkv_B") for name in names]
    elif spec.tie_qkv != "none":
        chains = [_chain(w, name) for name in names]
    else:
        chains = []
        for i in range(3):
            # one matrix has all three side by side
            part = slice(i * spec.width, (i + 1) * spec.width)
            if "qkv" in w:
                chains.append(Chain(Approx(w["qkv"][part].T)))
            else:
                chains.append(Chain(Approx(w["qkv_A"]), Approx(w["qkv_B"][:, part])))
    query, key, value = chains
    return query, key, value
