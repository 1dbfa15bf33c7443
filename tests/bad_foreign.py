"""Settings and tensors that are refused, each with the words: rows for the tests of other people's files."""

from __future__ import annotations

from typing import Any

import torch

from model import PRESETS
from model.families.low_rank import LowRank
from tests.published import File, newer, noisy, older

OLD, NEW = PRESETS["75p"], PRESETS["57p"]
SMALL = LowRank(pos_rank=3, qkv_rank=3, out_rank=2, ffn_rank=3, rms_norm=True, tie_qkv="shareA_tieKV")


def old(**config: Any) -> File:
    content = older(OLD, noisy(OLD))
    content["config"] |= config
    return content


def new(**config: Any) -> File:
    content = newer(NEW, noisy(NEW))
    content["config"] |= config
    return content


UNKNOWN = "architecture not known here: "
BAD_SETTINGS: dict[str, tuple[File, str]] = {
    **{
        f"{name}={value}": (old(**{name: value}), f"{UNKNOWN}{name}={value}")
        for name, value in [
            ("n_layers", 2), ("alibi", True), ("softmax1", True), ("qk_source", "tok"), ("vocab_size", 12),
            ("norm_mode", "scalar"), ("norm_mode", "no_ln2"), ("norm_mode", "spiral"), ("ffn_dim", 3),
            ("freeze_spiral", "slope,offset"), ("freeze_spiral", "slopes"), ("freeze_special", "all"),
            ("q_proj_rank", 1), ("num_kv_heads", 2), ("share_layers", True), ("freeze_pad", True),
            ("attn_mode", "offset"), ("attn_out_rank", 3), ("pos_mode", "zero"), ("d_model", 6),
            ("v_section_mode", "learned"), ("max_seq_len", 36), ("novelty", 1), ("novelty", "yes"),
            ("tie_fc2_head", True), ("freeze_tok_arc", "A"), ("head_dim", 4),
        ]
    },
    **{
        f"newer {name}={value}": (new(**{name: value}), f"{UNKNOWN}{name}={value}")
        for name, value in [
            ("norm_mode", "spiral"), ("norm_mode", "shared"), ("qk_input", "full"), ("n_heads", 2),
            ("freeze_spiral", "amp,phase"), ("vocab_size", 14), ("freeze_tok_arc", "start"), ("n_layers", 2),
            ("novelty", 0.5), ("alibi", True),
        ]
    },
    "no phase": (old(q_phase=False), f"{UNKNOWN}q_phase=False with tie_qk=True"),
    "untied phase": (old(tie_qk=False), f"{UNKNOWN}q_phase=True with tie_qk=False"),
    "two toeplitz": (
        old(q_proj_mode="toeplitz", n_heads=5, head_dim=1), f"{UNKNOWN}q_proj_mode=toeplitz with n_heads=5",
    ),
    "arc of 14": (old(vocab_size=14), f"{UNKNOWN}arc needs vocabulary=10"),
    "narrow": (old(pos_dim=2, d_model=4, head_dim=4), f"{UNKNOWN}pos_dim must be from 3 to 8, got 2"),
    "huge": (old(pos_dim=10**9, d_model=10**9 + 2, head_dim=10**9 + 2), f"{UNKNOWN}pos_dim must be from 3 *"),
    "learned ring": (
        new(equals_spiral_idx=9.5, freeze_spiral=""),
        f"{UNKNOWN}equals_spiral_idx=9.5 with a learned spiral",
    ),
    "huge step": (old() | {"step": 2**2000}, "step is beyond any use: 1148*..."),
    "string": (old(n_layers="1"), "n_layers must be like 1, got '1'"),
    "list": (old(norm_mode=["shared"]), "norm_mode must be like 'full', got a list"),
    "bool": (old(n_layers=True), "n_layers must be like 1, got True"),
    "float": (old(pos_dim=3.0), "pos_dim must be an integer, got 3.0"),
    "nan": (new(spiral_init_amp=float("nan")), "spiral_init_amp must be a finite number, got nan"),
    "huge amp": (new(spiral_init_amp=2**2000), "spiral_init_amp must be a finite number, got 1148*"),
    "nan index": (new(equals_spiral_idx=float("nan")), "equals_spiral_idx must be a finite number, got nan"),
    "frozen list": (new(freeze_spiral=[1]), f"{UNKNOWN}freeze_spiral=a list"),
    "newlines": (old(norm_mode="a\nb" * 50), f"{UNKNOWN}norm_mode='a\\nb*'..."),
    "config list": (old() | {"config": [1]}, "config must be a dictionary, got a list"),
    "config None": (old() | {"config": None}, "config must be a dictionary, got None"),
    "number key": (old() | {"config": {1: 2}}, "config must have names for keys, got 1"),
    "step": (old() | {"step": "84000"}, "step must be an integer, got '84000'"),
}  # fmt: skip


# Settings of the 456p report's files.
BAD_REPORT: list[tuple[dict[str, Any], str]] = [
    ({"n_layer": 2}, f"{UNKNOWN}n_layer=2"),
    ({"n_head": 7}, f"{UNKNOWN}n_head=7"),
    ({"vocab_size": 13}, f"{UNKNOWN}vocab_size=13"),
    ({"max_seq_len": 34}, f"{UNKNOWN}max_seq_len=34"),
    ({"tie_qkv": "vk"}, f"{UNKNOWN}tie_qkv=vk"),
    ({"use_rmsnorm": 1}, "use_rmsnorm must be like False, got 1"),
    ({"qkv_rank": None}, "qkv_rank must be an integer, got None"),
    ({"qkv_rank": 0}, f"{UNKNOWN}tie_qkv=shareA_tieKV needs a qkv_rank above 0, got qkv_rank=0"),
    ({"d_model": 700}, f"{UNKNOWN}width must be from 2 to 16, got 700"),
    ({"moe": 2}, f"{UNKNOWN}moe=2"),
    ({"attn_out_rank": 3}, "tensor blocks.0.attn.proj.A must have shape (7, 3), found (7, 2)"),
]

ARC = torch.tensor(2.0)
BAD_TENSORS: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"fc1.weight": None}, "tensor fc1.weight is missing"),
    "shape": ({"fc1.weight": torch.ones(5, 2)}, "tensor fc1.weight must have shape (2, 5), found (5, 2)"),
    "flat": ({"tok_arc_A": torch.ones(1)}, "tensor tok_arc_A must have shape (), found (1,)"),
    "nan": ({"tok_arc_A": ARC * torch.nan}, "tensor tok_arc_A has numbers that are not finite in float32"),
    "large": ({"tok_arc_A": ARC.double() * 1e300}, "tensor tok_arc_A has numbers that are not finite *"),
    "exact": ({"tok_arc_A": ARC.double() / 3}, "tensor tok_arc_A has torch.float64 numbers that *"),
    "integer": ({"tok_arc_A": ARC.long()}, "tensor tok_arc_A must have real floating *, found torch.int64"),
    "complex": ({"tok_arc_A": ARC * 1j}, "its pickle asks for torch.ComplexFloatStorage, *"),
    "sparse": ({"fc1.weight": torch.ones(2, 5).to_sparse()}, "its pickle asks for torch.*, *"),
    "meta": ({"fc1.weight": torch.ones(2, 5, device="meta")}, "its pickle asks for *_rebuild_meta*"),
    "terabyte": ({"fc1.weight": ARC.expand(10**6, 10**6)}, "tensor fc1.weight must have shape (2, 5), *"),
    "no tensor": ({"fc1.weight": [1.0]}, "fc1.weight must be a dense tensor, got a list"),
    "left over": (dict.fromkeys(("w\n", "x", "y", "z"), ARC), "tensors that are *: 'w\\n', x, y and 1 more"),
    "untied": ({"fc2.weight": torch.ones(5, 2)}, "tensors that are no part of this architecture: fc2.weight"),
    "norms": ({"norm2.weight": torch.ones(5)}, "tensor norm2.weight must be equal to the other norms', *"),
    "eos": ({"_eos_pos": torch.ones(1, 3)}, "tensor _eos_pos must be zero where it is frozen, and is not"),
    "phase": ({"spiral_phase": ARC}, "tensor spiral_phase must be zero where it is frozen, and is not"),
    "offset": ({"spiral_offset": ARC}, "tensor spiral_offset must be zero where it is frozen, and is not"),
    "no spiral": ({"spiral_amp": None}, "tensor spiral_amp is missing"),
    "name": ({7: ARC}, "model_state_dict must have names for keys, got 7"),
}  # fmt: skip
