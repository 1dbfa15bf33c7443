"""What can be folded in the split_subspace family. Derivations are in docs/architecture.md, "Folds"."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from model.families.split_subspace.spec import SplitSubspace
from model.ops import Tensors
from model.spec import Fold


def folds(spec: SplitSubspace) -> list[Fold]:
    """Every fold that applies to a spec, whether or not it saves anything."""
    found = []
    if not spec.frozen_eos:
        found.append(Fold("EOS's position is never read", replace(spec, frozen_eos=True), dict))
    if not spec.no_eos and spec.vocabulary == 10 and spec.frozen_eos:
        smaller = replace(spec, no_eos=True, frozen_z_hi=False)
        found.append(Fold("only the end token's prediction reads z_hi", smaller, dict))
    if not spec.direct_forms:
        forms = dict.fromkeys(("toeplitz_q", "circulant_q", "rank1_q", "unturned"), False)
        plain = replace(spec, direct_forms=True, **forms)
        found.append(Fold("scores as one form, output from tokens", plain, lambda t: direct(spec, t)))
    if spec.rank1_out and not (spec.unit_out or spec.onehot_out):
        found.append(Fold("the first entry of the output's row is 1", replace(spec, unit_out=True), unit))
    return found


def direct(spec: SplitSubspace, t: Tensors) -> Tensors:
    """Queries and keys multiplied out, a form [heads · pos_dim, pos_dim]; values and output likewise."""
    heads = range(spec.heads)
    forms = [_projection(spec, t, "q", h).T @ _keys(spec, t, h) for h in heads]
    values = t["head"].T if spec.tie_vo else t["v_proj"]
    parts = [slice(h * spec.head_dim, (h + 1) * spec.head_dim) for h in heads]
    new = {"form": torch.cat(forms) / math.sqrt(spec.query_dim)}
    if spec.out_rank:
        new["out_A"] = torch.cat([values[part].T @ t["out_A"][part] for part in parts])
    else:
        new["out"] = torch.cat([t["out"][:, part] @ values[part] for part in parts], dim=1)
    return t | new


def unit(t: Tensors) -> Tensors | None:
    """The output's column times the first entry of its row, its row divided by it."""
    first = t["out_B"][0, 0]
    column, row = t["out_A"] * first, t["out_B"][:, 1:] / first
    return t | {"out_A": column, "out_B": row} if first != 0 and _single(column) and _single(row) else None


def _single(t: Tensor) -> bool:
    """Whether float32 can hold these numbers to its full precision."""
    size, limits = t.abs(), torch.finfo(torch.float32)
    return bool(((size <= limits.max) & ((size >= limits.tiny) | (size == 0))).all())


def _keys(spec: SplitSubspace, t: Tensors, h: int) -> Tensor:
    """The matrix K of head h such that scores are pᵀ Qᵀ K p: turned back by the phase where K is Q."""
    if not spec.tie_qk:
        return _projection(spec, t, "k", h)
    keys = _projection(spec, t, "q", h)
    return keys if spec.unturned else _turned(keys, -t["phase"][h])


def _projection(spec: SplitSubspace, t: Tensors, what: str, h: int) -> Tensor:
    """The query (q) or key (k) projection of head h, [query_dim, pos_dim]."""
    if spec.rank1_q:
        return torch.outer(t["q_A"][h], t["q_B"][h])
    q, c, name = spec.query_dim, spec.pos_dim, f"{what}_proj"
    i, j = torch.arange(q)[:, None], torch.arange(c)
    if spec.toeplitz_q:
        return t[name][h][i - j + c - 1]
    if spec.circulant_q:
        return t[name][h][(i - j) % max(q, c)]
    return t[name][h * q : (h + 1) * q]


def _turned(rows: Tensor, angle: Tensor) -> Tensor:
    """Pairs of rows rotated by an angle; an odd last row stays."""
    pairs = len(rows) // 2 * 2
    a, b = rows[0:pairs:2], rows[1:pairs:2]
    turned = torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=1)
    return torch.cat([turned.reshape(pairs, -1), rows[pairs:]])
