"""Folds of the split_subspace family: exact rewritings into fewer numbers (docs/compress.md)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from model.families.split_subspace.spec import SplitSubspace
from model.ops import Tensors
from model.spec import Fold


def folds(spec: SplitSubspace) -> list[Fold]:
    """Return every fold that applies to a spec, even if it saves nothing."""
    steps = []
    # `dict`: these drop a tensor, and leave the others as they are.
    if not spec.frozen_eos:
        steps.append(Fold("EOS's position is never read", replace(spec, frozen_eos=True), dict))
    if not spec.no_eos and spec.vocabulary == 10 and spec.frozen_eos:
        smaller = replace(spec, no_eos=True, frozen_z_hi=False)
        steps.append(Fold("only the end token's prediction reads z_hi", smaller, dict))
    if not spec.direct_forms:
        forms: dict[str, Any] = dict.fromkeys(("toeplitz_q", "circulant_q", "rank1_q", "unturned"), False)
        plain = replace(spec, direct_forms=True, **forms)
        text = "scores as one form, output from tokens"
        steps.append(Fold(text, plain, lambda t: direct(spec, t)))
    if spec.rank1_out and not (spec.unit_out or spec.onehot_out):
        text = "the first entry of the output's row is 1"
        steps.append(Fold(text, replace(spec, unit_out=True), unit))
    return steps


def direct(spec: SplitSubspace, t: Tensors) -> Tensors:
    """Multiply queries by keys, to a form [heads · pos_dim, pos_dim], and the output by the values.

    Without a norm on queries and keys a head's scores are pᵀ M p' with M = Qᵀ R(phase) Q / √qk_dim. Values
    are V t and the output is B A V t; with rank 1, u = Vᵀ A has as many numbers as tokens have dimensions.
    """
    values = t["head"].T if spec.tie_vo else t["v_proj"]
    size = spec.head_dim
    forms, outputs = [], []
    for h in range(spec.heads):
        queries = _projection(spec, t, "q", h)
        forms.append(queries.T @ _keys(spec, t, h))

        part = slice(h * size, (h + 1) * size)
        if spec.out_rank:
            outputs.append(values[part].T @ t["out_A"][part])
        else:
            outputs.append(t["out"][:, part] @ values[part])
    new = {"form": torch.cat(forms) / math.sqrt(spec.query_dim)}
    if spec.out_rank:
        new["out_A"] = torch.cat(outputs)
    else:
        new["out"] = torch.cat(outputs, dim=1)
    return t | new


def unit(t: Tensors) -> Tensors | None:
    """Fix the first entry of the output's row to 1: u B = (u c)(B / c). None where that is not exact."""
    first = t["out_B"][0, 0]
    # A small c leaves a row that float32 cannot hold: then the rewriting would be another function.
    column = t["out_A"] * first
    row = t["out_B"][:, 1:] / first
    is_exact = _is_exact_in_float32(column) and _is_exact_in_float32(row)
    if first == 0 or not is_exact:
        return None
    return t | {"out_A": column, "out_B": row}


def _is_exact_in_float32(t: Tensor) -> bool:
    """True if float32 holds these numbers at full precision."""
    limits = torch.finfo(torch.float32)
    size = t.abs()
    # Below `tiny` numbers have fewer bits, and the engine takes them for 0.
    is_normal = (size >= limits.tiny) | (size == 0)
    return bool(((size <= limits.max) & is_normal).all())


def _keys(spec: SplitSubspace, t: Tensors, h: int) -> Tensor:
    """Return K of head h such that scores are pᵀ Qᵀ K p: Q turned back by the phase where they are tied."""
    if not spec.tie_qk:
        return _projection(spec, t, "k", h)
    keys = _projection(spec, t, "q", h)
    return keys if spec.unturned else _rotate(keys, -t["phase"][h])


def _projection(spec: SplitSubspace, t: Tensors, kind: str, h: int) -> Tensor:
    """Return the query (kind q) or key (k) projection of head h, [query_dim, pos_dim]."""
    if spec.rank1_q:
        return torch.outer(t["q_A"][h], t["q_B"][h])
    rows = t[f"{kind}_proj"]
    q, c = spec.query_dim, spec.pos_dim

    # i - j numbers the diagonals of row i and column j
    i, j = torch.arange(q)[:, None], torch.arange(c)
    if spec.toeplitz_q:
        return rows[h][i - j + c - 1]
    if spec.circulant_q:
        return rows[h][(i - j) % max(q, c)]
    return rows[h * q : (h + 1) * q]


def _rotate(rows: Tensor, angle: Tensor) -> Tensor:
    """Rotate pairs of rows by an angle; an odd last row stays."""
    pairs = len(rows) // 2 * 2
    a, b = rows[0:pairs:2], rows[1:pairs:2]
    cos, sin = angle.cos(), angle.sin()
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=1)
    return torch.cat([turned.reshape(pairs, -1), rows[pairs:]])
