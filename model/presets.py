"""Rungs: specs with a published name. A new one is one line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache

from model.families.low_rank import LowRank
from model.families.split_subspace import SplitSubspace
from model.fields import did_you_mean, spelt
from model.spec import Spec
from model.tied import Tied

# Where a learned spiral starts in the code that trained the rungs above 74p.
_242p = SplitSubspace(spiral_amp=1.0, spiral_slope=1 / 9)
_226p = replace(_242p, spiral=True)
_214p = replace(_226p, rank2_out=True)
_203p = replace(_214p, linear_correction=True, frozen_eos=True)
_187p = replace(_203p, tie_qk=True)
_170p = replace(_187p, tok_dim=2, pos_dim=4)
_141p = replace(_170p, pos_dim=3, heads=1)
_133p = replace(_141p, vocabulary=10)
_100p = replace(_133p, arc=True, rank2_out=False, rank1_out=True, no_ffn_bias=True)
_90p = replace(_100p, shared_norm=True)
_80p = replace(_90p, tie_vo=True)
_78p = replace(_80p, linear_correction=False, plain_spiral=True)
_75p = replace(_78p, frozen_plus=True)
_74p = replace(_75p, circular=True, spiral_amp=3.5, spiral_slope=0.15)
_72p = replace(_75p, frozen_z_hi=True)
_71p = replace(_72p, flat_spiral=True)
_70p = replace(_74p, frozen_spiral=True, spiral_amp=1.0, spiral_slope=1 / 9)
_67p = replace(_74p, frozen_spiral=True, qk_dim=4)
_64p = replace(_67p, qk_dim=3)
_61p = replace(_67p, qk_dim=2)
_57p = replace(_67p, tie_fc2_head=True)
_54p = replace(_57p, no_eos=True)
_47p = replace(_54p, direct_forms=True)

_777p = LowRank(positions=35)
_763p = LowRank()
_582p = replace(_763p, pos_rank=3, qkv_rank=3, out_rank=3)
_512p = replace(_582p, ffn_rank=3)
_491p = replace(_512p, rms_norm=True)
_456p = replace(_491p, out_rank=2, tie_qkv="shareA_tieKV")
_311p = replace(_456p, width=4, ffn=8, out_rank=3)

PRESETS: dict[str, Spec] = {
    "242p": _242p,
    "226p": _226p,
    "214p": _214p,
    "203p": _203p,
    "187p": _187p,
    "170p": _170p,
    "141p": _141p,
    "133p": _133p,
    "100p": _100p,
    "90p": _90p,
    "80p": _80p,
    "78p": _78p,
    "75p": _75p,
    "74p": _74p,
    "72p": _72p,
    "71p": _71p,
    "70p": _70p,
    "67p": _67p,
    "64p": _64p,
    "61p": _61p,
    "57p": _57p,
    "54p": _54p,
    "47p": _47p,
    "46p": replace(_47p, unit_out=True),
    "777p": _777p,
    "763p": _763p,
    "582p": _582p,
    "512p": _512p,
    "491p": _491p,
    "456p": _456p,
    "311p": _311p,
    "262p": replace(_311p, ffn=6, pos_rank=2),
}


def preset(name: str) -> Spec:
    """The spec of a published rung. Raises ValueError for an unknown name, with the nearest ones."""
    if name not in PRESETS:
        raise ValueError(f"unknown rung {name!r}; {did_you_mean(name, PRESETS)}")
    return PRESETS[name]


@cache
def preset_name(spec: Spec) -> str:
    """The rung's name; where there is none, that of a rung which one constraint separates from the spec, and
    that constraint; else family and parameter count. A tied spec has its base's name and the numbers.
    """
    if isinstance(spec, Tied):
        return f"{preset_name(spec.base)} tied to {spec.params}"
    named = (name for name, s in PRESETS.items() if s.trained() == spec.trained())
    near = (f"{name} {how}" for name, s in PRESETS.items() if (how := _one_apart(s, spec)))
    return next(named, None) or next(near, f"{spec.family} {spec.params}p")


def _one_apart(base: Spec, spec: Spec) -> str:
    """`with` or `without` the one constraint that separates a spec from a base, empty if it is not one."""
    if spec.family != base.family:
        return ""
    mine, its = spec.applied(), base.applied()
    for name in sorted(mine.keys() ^ its.keys()):
        with suppress(ValueError):  # the constraint is impossible there
            if base.toggled(name, mine.get(name)) == spec:
                return f"with {spelt(name, mine[name])}" if name in mine else f"without {name}"
    return ""
