"""Published checkpoints as (spec, θ). They are not part of the repository: tests that need them skip.

The folder is `ADDER_SEARCH_GOLDEN`, by default `../shared/golden` beside the repository.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from model import RUNGS, Spec

FOLDER = Path(__file__).resolve().parents[1] / os.environ.get("ADDER_SEARCH_GOLDEN", "../shared/golden")
SPECS: dict[str, Spec] = {"57p": RUNGS["57p"], "75p": replace(RUNGS["74p"], circular=False)}
# Our names -> the published ones, concatenated; an absent one is not in that model.
PUBLISHED = {
    "arc": ("tok_arc_A", "tok_arc_B", "tok_arc_start", "tok_arc_stride"),
    "spiral": ("spiral_amp", "spiral_phase", "spiral_slope", "spiral_offset"),
    "z_hi": ("z_hi_pos",),
    "equals": ("special_pos_equals",),
    "phase": ("q_phase_angle",),
    "q_proj": ("q_proj.weight",),
    "out_A": ("out_proj.A",),
    "out_B": ("out_proj.B",),
    "fc1": ("fc1.weight",),
    "fc2": ("fc2.weight",),
    "head": ("head_proj.weight",),
    "norm": ("ln1.weight", "norm1.weight"),
}


def golden_theta(name: str) -> tuple[Spec, Tensor]:
    """The published checkpoint `57p` or `75p` as spec and θ [P]; skips the test where there is none."""
    file = FOLDER / f"microadder_{name}.pt"
    if not file.is_file():
        pytest.skip(f"no published checkpoint {file.name}: set ADDER_SEARCH_GOLDEN to its folder")
    spec, state = SPECS[name], torch.load(file, weights_only=True, map_location="cpu")["model_state_dict"]
    state = {
        key.removeprefix("blocks.0.").removeprefix("attn.").removeprefix("ffn."): t
        for key, t in state.items()
    }
    found = {
        ours: [state[key].reshape(-1) for key in keys if key in state] for ours, keys in PUBLISHED.items()
    }
    return spec, spec.layout.join({ours: torch.cat(parts) for ours, parts in found.items() if parts})
