"""Checkpoints of Qwen-like adders: tbukic's and vijec's settings and tensors, or tensors named as Qwen3's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from adders.foreign.file import (
    Choices,
    State,
    all_chosen,
    check_agreement,
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
QWEN_CHOICES: Choices = {
    **{name: values for name, values in CHOICES.items() if name not in {*SWITCHES, "model_class"}},
    "model_type": {"qwen3": {}},
    "num_hidden_layers": {1: {}},
    "num_key_value_heads": {1: {}},
    "hidden_act": {"silu": {}},
    "rms_norm_eps": {1e-6: {}},
    "tie_word_embeddings": {True: {}, False: {}},
    "attention_bias": {False: {}},
}
SIZES = {"d_model": ("width", 3), "ff": ("ffn", 2), "n_heads": ("heads", 1)}
"""Their name of a size -> ours, and their default."""
# Read elsewhere, or where training began.
UNREAD = {
    "rope_theta",
    "max_len",
    "arc_init_A",
    "arc_init_start",
    "arc_init_stride",
    "tie_groups",
}
QWEN_SIZES = {
    **{"d_model": "width", "ff": "ffn", "n_heads": "heads"},
    **{"hidden_size": "width", "intermediate_size": "ffn", "num_attention_heads": "heads"},
}
# Read elsewhere, or of training, tokens' names and how transformers continues a text.
QWEN_UNREAD = {
    *("rope_theta", "max_len", "max_position_embeddings", "max_window_layers", "attention_dropout", "use_cache"),
    *("initializer_range", "dtype", "torch_dtype", "architectures", "transformers_version", "_name_or_path"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "id2label", "label2id", "return_dict", "max_length"),
    *("num_beams", "num_beam_groups", "num_return_sequences", "temperature", "top_k", "top_p", "typical_p"),
    *("repetition_penalty", "length_penalty"),
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
    """Return spec and θ [P] of settings and tensors. A tied tensor may be stored twice, and must then be equal.

    Raises ValueError for settings no spec can express, and for tensors that do not fit.
    """
    options = all_chosen(config, CHOICES, {*SIZES, *UNREAD})
    options |= _grouped(config.get("tie_groups"))
    for theirs, (ours, default) in SIZES.items():
        options[ours] = integer(config, theirs, default)
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
    """Return spec and θ [P] of tensors, whose shapes say the sizes. Settings may be missing; none may say otherwise.

    Raises ValueError for settings no spec can express, and for tensors that do not fit.
    """
    _, width = _shape(state, QWEN["tokens"])
    queries, _ = _shape(state, QWEN["q"])
    keys, _ = _shape(state, QWEN["k"])
    hidden, _ = _shape(state, QWEN["gate"])
    if keys != HEAD or queries % HEAD:
        raise ValueError(
            f"architecture not known here: heads are {HEAD} wide and share keys, found {queries} rows of queries, "
            f"{keys} of keys"
        )
    # Qwen3's rope turns the first half of a head with the second one
    base = number(config, "rope_theta", 3.0)
    spec = _spec(width=width, heads=queries // HEAD, ffn=hidden, half_split=True, rope_base=base)
    layers = config.get("layer_types")
    is_usual = type(layers) is list and layers == ["full_attention"] * len(layers)
    all_chosen(config, QWEN_CHOICES, {*QWEN_SIZES, *QWEN_UNREAD, *(["layer_types"] * is_usual)})
    check_agreement(config, {theirs: getattr(spec, ours) for theirs, ours in QWEN_SIZES.items()})
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
    """Return a spec. Raises ValueError, in words for users, where its fields do not go together."""
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
            tie = f"{first}, {module}"
            if tie not in GROUPS:
                raise unknown("tie_groups", tie)
            options[GROUPS[tie]] = True
    return options


def _module(name: str) -> str:
    """Return a module's last name, after what is done to it: `scalar:k_proj` of `scalar:block.attn.k_proj`."""
    change, colon, path = name.rpartition(":")
    return change.rpartition(".")[2] + colon + path.rpartition(".")[2]


def _repeated(spec: Rope, slices: Mapping[str, Tensor]) -> list[tuple[str, Tensor, str]]:
    """Return tensors that may be stored again: place, numbers, and place of the first."""
    again = [
        (not spec.arc, "lm_head_weight", "tokens"),
        (not spec.arc, "lm_head.weight", "tokens"),
        (spec.tie_kv, "block.attn.v_proj.weight", "kv"),
        (spec.tie_vq, "block.attn.v_proj.weight", "q"),
        (spec.tie_qk, "block.attn.k_proj.weight", "q"),
        (spec.shared_qk_norm, "block.attn.k_norm.weight", "qk_norm"),
        (spec.shared_norms, "block.ln2.weight", "norm"),
        (spec.shared_norms, "final_norm.weight", "norm"),
        (spec.shared_block_norms, "block.ln2.weight", "norm12"),
    ]
    repeated = [(place, slices[name], PLACES[name]) for is_tied, place, name in again if is_tied]
    if spec.tie_oq:
        transposed = slices["q"].T
        repeated.append(("block.attn.o_proj.weight", transposed, f"the transpose of {PLACES['q']}"))
    if spec.tie_down_gate:
        gate = slices["up"] * slices["gate_scale"] if spec.tie_gate else slices["gate"]
        repeated.append(("block.mlp.down_proj.weight", gate.T, f"the transpose of {PLACES['gate']}"))
    return repeated
