"""Checkpoints of Qwen-like adders: tbukic's and vijec's settings and tensors, or tensors named as Qwen3's alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from adders.foreign.file import (
    Choices,
    State,
    all_chosen,
    integer,
    number,
    shown,
    unknown,
)
from model.families.rope.spec import HEAD, Rope

SWITCHES = {
    "tie_kv": "tie_kv",
    "tie_qo": "tie_oq",
    "share_norms": "shared_norms",
    "share_block_norms": "shared_block_norms",
    "share_qk_norm": "shared_qk_norm",
}
TABLES = {"": {}, "standard": {}, "qwen3": {}, "arc": {"arc": True}}
CHOICES: Choices = {
    "model_class": TABLES,
    "n_kv_heads": {1: {}},
    "head_dim": {HEAD: {}},
    "vocab_size": {10: {}},
    "repeats": {1: {}},
    "qk_norm": {True: {}},
    "use_swiglu": {True: {}},
    **{theirs: {False: {}, True: {ours: True}} for theirs, ours in SWITCHES.items()},
}
SIZES = {"d_model": ("width", 3), "ff": ("ffn", 2), "n_heads": ("heads", 1)}
UNREAD = {
    "rope_theta",
    "max_len",
    "arc_init_A",
    "arc_init_start",
    "arc_init_stride",
    "tie_groups",
}
GROUPS = {
    "q_proj, scalar:k_proj": "scaled_k",
    "q_proj, rotation:k_proj": "turned_k",
    "q_proj, k_proj": "tie_qk",
    "q_proj, v_proj": "tie_vq",
    "k_proj, v_proj": "tie_kv",
    "q_proj, transpose:o_proj": "tie_oq",
    "up_proj, scalar:gate_proj": "tie_gate",
    "up_proj, rottranspose:down_proj": "turned_down",
    "gate_proj, transpose:down_proj": "tie_down_gate",
    "q_norm, k_norm": "shared_qk_norm",
}
"""Ties of two modules, the second one after what is done to it -> ours."""
PLACES = {
    "tokens": "embed.weight",
    "q": "block.attn.q_proj.weight",
    "k": "block.attn.k_proj.weight",
    "kv": "block.attn.k_proj.weight",
    "v": "block.attn.v_proj.weight",
    "o": "block.attn.o_proj.weight",
    "q_norm": "block.attn.q_norm.weight",
    "k_norm": "block.attn.k_norm.weight",
    "qk_norm": "block.attn.q_norm.weight",
    "gate": "block.mlp.gate_proj.weight",
    "up": "block.mlp.up_proj.weight",
    "down": "block.mlp.down_proj.weight",
    "norm": "block.ln1.weight",
    "norm12": "block.ln1.weight",
    "norm1": "block.ln1.weight",
    "norm2": "block.ln2.weight",
    "norm3": "final_norm.weight",
    "k_scale": "block.attn.k_proj.alpha",
    "k_angle": "block.attn.k_proj.theta",
    "gate_scale": "block.mlp.gate_proj.alpha",
    "down_angle": "block.mlp.down_proj.theta",
}
SCALARS = ("k_scale", "k_angle", "gate_scale", "down_angle")
ARC = ("arc_A", "arc_start", "arc_stride")
LAYER = "model.layers.0."
QWEN = {
    "tokens": "model.embed_tokens.weight",
    "norm1": LAYER + "input_layernorm.weight",
    "norm2": LAYER + "post_attention_layernorm.weight",
    "norm3": "model.norm.weight",
    **{name: f"{LAYER}self_attn.{name}_proj.weight" for name in "qkvo"},
    **{name: f"{LAYER}self_attn.{name}.weight" for name in ("q_norm", "k_norm")},
    **{name: f"{LAYER}mlp.{name}_proj.weight" for name in ("gate", "up", "down")},
}


def read(config: Mapping[str, Any], state: State) -> tuple[Rope, Tensor]:
    """Return spec and θ [P] of settings and tensors. Raises ValueError for settings no spec can express and tensors
    that do not fit; a tied tensor may be stored twice and must then be equal.
    """
    options = all_chosen(config, CHOICES, {*SIZES, *UNREAD}) | _grouped(config.get("tie_groups"))
    options |= {ours: integer(config, theirs, default) for theirs, (ours, default) in SIZES.items()}
    spec = _spec(**options, rope_base=number(config, "rope_theta", 3.0))
    slices: dict[str, Tensor] = {}
    for name, shape in spec.shapes().items():
        if name == "arc":
            slices[name] = state.numbers(ARC)
        else:
            slices[name] = state.take(PLACES[name], () if name in SCALARS else shape)
    for place, expected, why in _repeated(spec, slices):
        state.check(place, expected, f"equal to {why}, to which it is tied")
    state.end()
    return spec, spec.layout.join(slices)


def read_qwen(config: Mapping[str, Any], state: State) -> tuple[Rope, Tensor]:
    """Return spec and θ [P] of tensors alone, whose shapes say the sizes; config is empty."""
    tokens, q, k, gate = (_shape(state, QWEN[name]) for name in ("tokens", "q", "k", "gate"))
    if k[0] != HEAD or q[0] % HEAD:
        raise ValueError(
            f"architecture not known here: heads are {HEAD} wide and share keys, found {q[0]} rows of queries, "
            f"{k[0]} of keys"
        )
    spec = _spec(width=tokens[1], heads=q[0] // HEAD, ffn=gate[0], half_split=True)
    slices = {name: state.take(QWEN[name], shape) for name, shape in spec.shapes().items()}
    state.check(
        "lm_head.weight",
        slices["tokens"],
        f"equal to {state.place(QWEN['tokens'])}, to which it is tied",
    )
    state.end()
    return spec, spec.layout.join(slices)


def _shape(state: State, name: str) -> tuple[int, int]:
    """Return a matrix's shape."""
    shape = state.shape(name)
    if len(shape) != 2:
        raise ValueError(f"tensor {name} must be a matrix, found shape {shape}")
    return shape[0], shape[1]


def _spec(**options: Any) -> Rope:
    try:
        return Rope(**options)
    except ValueError as error:
        raise ValueError(f"architecture not known here: {error}") from None


def _grouped(groups: Any) -> dict[str, bool]:
    """Return the constraints of groups of modules: lists of a module and of what is tied to it."""
    options: dict[str, bool] = {}
    if groups is not None and type(groups) is not list:
        raise ValueError(f"tie_groups must be a list, got {shown(groups)}")
    for group in groups or []:
        if type(group) is not list or not group or not all(type(name) is str for name in group):
            raise unknown("tie_groups", group)
        first, *others = (_module(name) for name in group)
        for module in others:
            if f"{first}, {module}" not in GROUPS:
                raise unknown("tie_groups", f"{first}, {module}")
            options[GROUPS[f"{first}, {module}"]] = True
    return options


def _module(name: str) -> str:
    """Return a module's last name, after what is done to it: `scalar:k_proj` of `scalar:block.attn.k_proj`."""
    change, colon, path = name.rpartition(":")
    return change.rpartition(".")[2] + colon + path.rpartition(".")[2]


def _repeated(spec: Rope, slices: Mapping[str, Tensor]) -> list[tuple[str, Tensor, str]]:
    """Return tensors that may be stored again: place, numbers, and place of the first."""
    again: list[tuple[str, str]] = []
    if not spec.arc:
        again.append(("lm_head_weight", "tokens"))
        again.append(("lm_head.weight", "tokens"))
    again += [("block.attn.v_proj.weight", "kv")] if spec.tie_kv else []
    again += [("block.attn.v_proj.weight", "q")] if spec.tie_vq else []
    again += [("block.attn.k_proj.weight", "q")] if spec.tie_qk else []
    again += [("block.attn.k_norm.weight", "qk_norm")] if spec.shared_qk_norm else []
    again += [("block.ln2.weight", "norm"), ("final_norm.weight", "norm")] if spec.shared_norms else []
    again += [("block.ln2.weight", "norm12")] if spec.shared_block_norms else []
    repeated = [(place, slices[name], PLACES[name]) for place, name in again]
    if spec.tie_oq:
        repeated.append(
            (
                "block.attn.o_proj.weight",
                slices["q"].T,
                f"the transpose of {PLACES['q']}",
            )
        )
    if spec.tie_down_gate:
        gate = slices["up"] * slices["gate_scale"] if spec.tie_gate else slices["gate"]
        repeated.append(("block.mlp.down_proj.weight", gate.T, f"the transpose of {PLACES['gate']}"))
    return repeated
