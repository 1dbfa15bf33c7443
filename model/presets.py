"""Presets: specs with a published name. A new one is one line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from model.families.low_rank import LowRank
from model.families.rope import Rope
from model.families.split_subspace import SplitSubspace
from model.fields import did_you_mean, spelt
from model.spec import Spec
from model.tasks import ADDITION, make_task
from model.tied import Tied

PRESETS: dict[str, Spec] = {}


def _derive(name: str, base: str, **changes: Any) -> None:
    """Add a preset: another one with changed fields."""
    PRESETS[name] = replace(PRESETS[base], **changes)


# MicroAdder's ladder, from JackCai's model down. Each rung is a constraint more, or a size less (57p paper, 4.1).
# The code that trained the presets above 74p starts a learned spiral with these values.
PRESETS["242p"] = SplitSubspace(spiral_amp=1.0, spiral_slope=1 / 9)
_derive("226p", "242p", spiral=True)
_derive("214p", "226p", rank2_out=True)
_derive("203p", "214p", linear_correction=True, frozen_eos=True)
_derive("187p", "203p", tie_qk=True)
_derive("170p", "187p", tok_dim=2, pos_dim=4)
_derive("141p", "170p", pos_dim=3, heads=1)
_derive("133p", "141p", vocabulary=10)
_derive("100p", "133p", arc=True, rank2_out=False, rank1_out=True, no_ffn_bias=True)
_derive("90p", "100p", shared_norm=True)
_derive("80p", "90p", tie_vo=True)
_derive("78p", "80p", linear_correction=False, plain_spiral=True)
_derive("75p", "78p", frozen_plus=True)
_derive("74p", "75p", circular=True, spiral_amp=3.5, spiral_slope=0.15)
_derive("72p", "75p", frozen_z_hi=True)
_derive("71p", "72p", flat_spiral=True)
_derive("70p", "74p", frozen_spiral=True, spiral_amp=1.0, spiral_slope=1 / 9)
_derive("67p", "74p", frozen_spiral=True, qk_dim=4)
_derive("64p", "67p", qk_dim=3)
_derive("61p", "67p", qk_dim=2)
_derive("57p", "67p", tie_fc2_head=True)
_derive("54p", "57p", no_eos=True)
_derive("47p", "54p", direct_forms=True)
_derive("46p", "47p", unit_out=True)

# The ladder of the 456p report. Its 777p has two positions that no problem reaches.
PRESETS["777p"] = LowRank(positions=35)
PRESETS["763p"] = LowRank()
_derive("582p", "763p", pos_rank=3, qkv_rank=3, out_rank=3)
_derive("512p", "582p", ffn_rank=3)
_derive("491p", "512p", rms_norm=True)
_derive("456p", "491p", out_rank=2, tie_qkv="shareA_tieKV")
_derive("311p", "456p", width=4, ffn=8, out_rank=3)
_derive("262p", "311p", ffn=6, pos_rank=2)

# AdderBoard's Qwen-like nets: first those that turn as staghado's do (half_split), then those near tbukic's 113p.
PRESETS["228p"] = Rope(width=4, heads=2, ffn=6, half_split=True)
_derive("200p", "228p", width=3, ffn=9)
_derive("173p", "200p", ffn=6)
_derive("155p", "173p", ffn=4)
_derive("146p", "155p", ffn=3)
_derive("137p", "146p", ffn=2)
PRESETS["122p"] = Rope(ffn=3)
_derive("113p", "122p", ffn=2)
_derive("101p", "113p", tie_oq=True)
_derive("96p", "113p", tie_kv=True, rank1_out=True)
_derive("95p", "122p", arc=True)
_derive("89p", "101p", tie_kv=True)
_derive("86p", "89p", shared_block_norms=True)
_derive("83p", "89p", shared_norms=True)
_derive("62p", "89p", arc=True)
_derive("58p", "62p", tie_kv=False, scaled_k=True, tie_gate=True)
_derive("55p", "58p", shared_block_norms=True)
_derive("58p-kv", "62p", shared_qk_norm=True, sine_input=True)
_derive("52p-gate", "58p-kv", tie_down_gate=True)
_derive("49p", "52p-gate", shared_block_norms=True)
_derive("52p", "62p", shared_norms=True, shared_qk_norm=True)
_derive("45p", "62p", tie_kv=False, turned_k=True, tie_vq=True, shared_norms=True)
_derive("44p", "45p", turned_k=False, tie_qk=True)
_derive("41p", "45p", shared_qk_norm=True)
_derive("36p", "41p", turned_down=True)


def preset(name: str) -> Spec:
    """Return the spec of a preset.

    name: a published one, or with a task behind it: the same constraints and sizes for another task.
    Raises ValueError for an unknown name, with the nearest ones.

    >>> preset("57p").params
    57
    >>> preset("57p subtraction base=3").task.base
    3
    """
    published, _, task = name.partition(" ")  # a task's text has spaces of its own
    if published not in PRESETS:
        raise ValueError(f"unknown preset {published!r}; {did_you_mean(published, PRESETS)}")
    return replace(PRESETS[published], task=make_task(task)) if task else PRESETS[published]


def is_preset(spec: Spec) -> bool:
    """True if a spec equals a preset, whatever its task."""
    return preset_name(spec).partition(" ")[0] in PRESETS


def is_called(name: str, asked: str) -> bool:
    """True if a model's name is the one asked for: names of one model may differ in the commas of its number.

    >>> is_called("1,608 parameters (low_rank)", "1608 parameters (low_rank)")
    True
    """
    return name.replace(",", "") == asked.replace(",", "")


@cache
def preset_name(spec: Spec) -> str:
    """Return the name of the preset that equals a spec, or a description.

    It is the parameter count and the preset that is one constraint away, or one size, or else the family. A tied
    spec has its base's name and the count of its numbers. Behind it stands a task that is not ten-digit addition.

    >>> preset_name(preset("57p").without("tie_vo"))
    '67 parameters (57p without tie_vo)'
    """
    if isinstance(spec, Tied):
        return f"{preset_name(spec.base)} tied to {spec.params:,}"
    if spec.label != spec.family:
        applied = ", ".join(spelt(*item) for item in spec.applied().items())
        called = f"{spec.label} with {applied}" if applied else spec.label
        task = "" if spec.task == ADDITION else f" {spec.task.title}"
        return f"{spec.params:,} parameters ({called}){task}"
    if spec.task != ADDITION:
        # Named as the adder of the same form, whose count may be another: a task has tokens of its own.
        usual = replace(spec, task=ADDITION)
        adder = preset_name(usual).replace(f"{usual.params:,} parameters", f"{spec.params:,} parameters")
        return f"{adder} {spec.task.title}"
    for name, candidate in PRESETS.items():
        if candidate.trained() == spec.trained():
            return name

    # A constraint tells more than a size, so all presets are asked about it before any about the other.
    for describe in (_single_change, _single_size):
        for name, candidate in PRESETS.items():
            if candidate.family != spec.family:
                continue
            change = describe(candidate, spec)
            if change:
                return f"{spec.params:,} parameters ({name} {change})"
    return f"{spec.params:,} parameters ({spec.family})"


def _single_change(base: Spec, spec: Spec) -> str:
    """Return `with` or `without` the one constraint that separates a spec from a base; empty if several do."""
    applied = spec.applied()
    # Any one of the differing constraints may have brought or taken the others: each is tried.
    for name in sorted(applied.keys() ^ base.applied().keys()):
        with suppress(ValueError):  # the constraint is impossible there
            if base.toggled(name, applied.get(name)) == spec:
                return f"with {spelt(name, applied[name])}" if name in applied else f"without {name}"
    return ""


def _single_size(base: Spec, spec: Spec) -> str:
    """Return `with` the one field that separates a spec from a base; empty if several do."""
    changed = []
    for name, value in spec.as_dict().items():
        if value != getattr(base, name):
            changed.append(spelt(name, value))
    return f"with {changed[0]}" if len(changed) == 1 else ""
