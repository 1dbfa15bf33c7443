"""Rungs: specs with a published name. A new one is one line."""

from __future__ import annotations

from dataclasses import replace

from model.fields import nearest
from model.spec import Spec
from model.split_subspace import SplitSubspace

_74p = SplitSubspace(circular=True, shared_norm=True, rank1_out=True, tie_vo=True)
_67p = replace(_74p, frozen_spiral=True, qk_dim=4)

RUNGS: dict[str, Spec] = {
    "74p": _74p,
    "67p": _67p,
    "57p": replace(_67p, tie_fc2_head=True),
}


def rung(name: str) -> Spec:
    """The spec of a published rung. Raises ValueError for an unknown name, with the nearest ones."""
    if name not in RUNGS:
        raise ValueError(f"unknown rung {name!r}; {nearest(name, RUNGS)}")
    return RUNGS[name]


def name_of(spec: Spec) -> str:
    """The rung's name, or family and parameter count where the spec has none."""
    return next((n for n, s in RUNGS.items() if s == spec), f"{spec.family} {spec.params}p")
