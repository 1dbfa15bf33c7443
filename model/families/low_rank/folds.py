"""Folds of the low_rank family: factors multiplied out, unread positions cut off."""

from __future__ import annotations

from dataclasses import replace

import torch

from model.families.low_rank.forward import qkv_projections
from model.families.low_rank.spec import INPUTS, LowRank
from model.matrices import matrix
from model.ops import Tensors
from model.spec import Fold


def folds(spec: LowRank) -> list[Fold]:
    """Return every fold that applies to a spec, even if it saves nothing."""
    steps = []
    if spec.positions > INPUTS:
        text = "no position after the 33rd is read"
        fewer = replace(spec, positions=INPUTS)
        steps.append(Fold(text, fewer, lambda t: _cut(t, fewer.rows)))
    elif not spec.no_eos:
        text = "only the end token's prediction reads the last position"
        without_end = replace(spec, no_eos=True)
        steps.append(Fold(text, without_end, lambda t: _cut(t, without_end.rows - 1)))
    # Multiplying out takes more numbers: a transfer to a spec without the factors goes by it.
    if spec.pos_rank:
        full = replace(spec, pos_rank=0)
        steps.append(Fold("the position table multiplied out", full, _full_positions))
    if spec.out_rank:
        full = replace(spec, out_rank=0)
        text = "the attention output multiplied out"
        steps.append(Fold(text, full, lambda t: _full(t, "out")))
    if spec.ffn_rank:
        full = replace(spec, ffn_rank=0)
        steps.append(Fold("the FFN multiplied out", full, lambda t: _full(t, "fc1", "fc2")))
    if spec.qkv_rank:
        full = replace(spec, qkv_rank=0, tie_qkv=_tie_without_factors(spec))
        text = "queries, keys and values multiplied out"
        steps.append(Fold(text, full, lambda t: _full_projections(spec, t)))
    return steps


def _tie_without_factors(spec: LowRank) -> str:
    """Return the tie of full matrices under which the same projections are equal."""
    different = len(set(spec.projections))
    if different == 2:
        return "kv" if spec.projections[1] == spec.projections[2] else "qk"
    return "none" if different == 3 else "all"


def _cut(t: Tensors, rows: int) -> Tensors:
    """Keep the first rows of the position table."""
    return t | {name: t[name][:rows] for name in ("positions", "pos_A") if name in t}


def _full_positions(t: Tensors) -> Tensors:
    """Multiply the position table out."""
    return t | {"positions": t["pos_A"] @ t["pos_B"]}


def _full(t: Tensors, *names: str) -> Tensors:
    """Multiply the factors of matrices out."""
    return t | {name: matrix(t, name) for name in names}


def _full_projections(spec: LowRank, t: Tensors) -> Tensors:
    """Multiply the query, key and value projections out, to one matrix where they all differ."""
    full = {}
    for part, (_, A, B) in zip(spec.projections, qkv_projections(spec, t), strict=True):
        full[part] = (A @ B).mT
    new = t | full
    if len(full) == 3:
        new["qkv"] = torch.cat(list(full.values()))
    return new
