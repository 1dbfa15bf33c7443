"""The 456p report's checkpoints: its settings as a low_rank spec, its tensors as θ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from adders.foreign.file import Choices, State, all_chosen, integer, number
from model.families.low_rank.spec import SHARED, TIES, LowRank

CHOICES: Choices = {
    "n_layer": {1: {}},
    "n_head": {1: {}},
    "vocab_size": {14: {}},
    "max_seq_len": {33: {}, 35: {"positions": 35}},
    "use_rmsnorm": {False: {}, True: {"rms_norm": True}},
    "tie_qkv": {tie: {"tie_qkv": tie} for tie in (*TIES, *SHARED)},
    "pe_type": {"learned": {}},
}
# Size -> ours and its default.
SIZES = {
    "d_model": ("width", 7),
    "d_ff": ("ffn", 14),
    "pos_rank": ("pos_rank", 0),
    "qkv_rank": ("qkv_rank", 0),
    "attn_out_rank": ("out_rank", 0),
    "ffn_rank": ("ffn_rank", 0),
}
# Used in training only, or to begin it.
UNREAD = ("dropout", "pe_init_period")
# Our matrices -> their modules.
MODULES = {
    "tokens": "token_emb",
    "positions": "pos_emb",
    "pos": "pos_emb",
    "qkv": "blocks.0.attn.qkv",
    "qkv_shared": "blocks.0.attn.qkv_shared",
    "qk": "blocks.0.attn.qk_shared",
    "kv": "blocks.0.attn.kv_shared",
    "q": "blocks.0.attn.q_proj",
    "v": "blocks.0.attn.v_proj",
    "out": "blocks.0.attn.proj",
    "fc1": "blocks.0.mlp.fc1",
    "fc2": "blocks.0.mlp.fc2",
    "norm1": "blocks.0.ln1",
    "norm2": "blocks.0.ln2",
    "norm3": "ln_f",
}


def read(config: Mapping[str, Any], state: State) -> tuple[LowRank, Tensor]:
    """Return spec and θ [P]. Raises ValueError for settings no spec can express and tensors that do not fit."""
    options = all_chosen(config, CHOICES, {*SIZES, *UNREAD})
    for name in UNREAD:
        number(config, name, 0.0)
    options |= {ours: integer(config, theirs, default) for theirs, (ours, default) in SIZES.items()}
    try:
        spec = LowRank(**options)
    except ValueError as error:
        raise ValueError(f"architecture not known here: {error}") from None
    slices = {name: state.take(_place(spec, name), shape) for name, shape in spec.shapes().items()}
    state.check("lm_head.weight", slices["tokens"], "token_emb.weight, to which it is tied")
    state.ignore("blocks.0.attn.mask")
    state.end()
    return spec, spec.layout.join(slices)


def _place(spec: LowRank, name: str) -> str:
    """Return the name in the file of one of our tensors."""
    if spec.shared and name.startswith("qkv_"):
        return f"blocks.0.attn.{name}"
    matrix, _, part = name.partition("_")
    module = "qkv_shared" if spec.tie_qkv == "all" and matrix == "qkv" else matrix
    return f"{MODULES[module]}.{part or 'weight'}"
