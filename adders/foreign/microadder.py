"""MicroAdder's checkpoints: its settings as a split_subspace spec, its tensors as θ.

Two source trees wrote them. The older one (242 to 67 parameters) keeps its tensors under `blocks.0.` and has
a switch for each constraint; the newer one has flat names and fewer switches. A missing setting has the default
of its tree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from adders.foreign.file import (
    Choices,
    State,
    all_chosen,
    check_agreement,
    integer,
    number,
    shortest,
    unknown,
)
from model.families.split_subspace.spec import SplitSubspace

OLDER: Choices = {
    "n_layers": {1: {}},
    "share_layers": {False: {}},
    "ffn_bias": {True: {}, False: {"no_ffn_bias": True}},
    "vocab_size": {14: {}, 10: {"vocabulary": 10}},
    "max_seq_len": {34: {}},
    "tok_emb_mode": {"learned": {}, "parametric": {"arc": True}},
    "freeze_pad": {False: {}},
    "pos_mode": {"learned": {}, "spiral_correct": {"spiral": True}},
    "freeze_special": {
        "none": {},
        "eos": {"frozen_eos": True},
        "plus_eos": {"frozen_eos": True, "frozen_plus": True},
        "plus_eos_equals": {"frozen_eos": True, "frozen_plus": True},
    },
    "freeze_z_hi": {False: {}, True: {}},
    "alibi": {False: {}},
    "softmax1": {False: {}},
    "attn_mode": {"split": {}},
    "v_section_mode": {"none": {}},
    "qk_source": {"pos": {}},
    "tie_qk": {False: {}, True: {"tie_qk": True}},
    "q_proj_rank": {0: {}},
    "q_proj_mode": {"full": {}, "toeplitz": {"toeplitz_q": True}},
    "tie_vo": {False: {}, True: {"tie_vo": True}},
    "attn_out_rank": {0: {}, 1: {"rank1_out": True}, 2: {"rank2_out": True}},
    "norm_mode": {
        "full": {},
        "shared": {"shared_norm": True},
        "fixed": {"shared_norm": True, "parameterless_norm": True},
    },
}
OF_ARC: Choices = {
    "tie_tok_arc_ab": {False: {}, True: {"circular": True}},
}
OF_SPIRAL: Choices = {
    "pos_correction_mode": {
        "full": {},
        "linear": {"linear_correction": True},
        "none": {"plain_spiral": True},
    }
}
NEWER: Choices = {
    "n_layers": {1: {}},
    "n_heads": {1: {}},
    "vocab_size": {10: {}},
    "max_seq_len": {34: {}},
    "qk_input": {"pos": {}},
    "tie_fc2_head": {False: {}, True: {"tie_fc2_head": True}},
    "norm_mode": {
        "weighted": {},
        "parameterless": {"parameterless_norm": True},
        "structured": {"structured_norm3": True},
    },
}
NEWER_FIXED: dict[str, Any] = {
    "vocabulary": 10,
    "arc": True,
    "circular": True,
    "spiral": True,
    "plain_spiral": True,
    "frozen_eos": True,
    "frozen_plus": True,
    "tie_qk": True,
    "tie_vo": True,
    "rank1_out": True,
    "shared_norm": True,
    "no_ffn_bias": True,
}
OLDER_SIZES = {
    "tok_dim": 3,
    "pos_dim": 3,
    "n_heads": 2,
    "head_dim": 3,
    "qk_dim": 0,
    "ffn_dim": 2,
}
NEWER_SIZES = {
    "tok_dim": 2,
    "pos_dim": 3,
    "n_heads": 1,
    "head_dim": 5,
    "qk_dim": 0,
    "ffn_dim": 2,
}
SIZES = {"d_model", *OLDER_SIZES}
SPIRAL = {"freeze_tok_arc", "freeze_spiral", "spiral_init_amp", "spiral_init_slope"}
# Initial values, which do not matter to a trained model.
START = {
    "token_init",
    "tok_arc_init_A",
    "tok_arc_init_start",
    "tok_arc_init_stride",
    "spiral_init_phase",
    "spiral_init_offset",
    "v_gain_x_init",
    "v_gain_y_init",
}

# The older tree's modules, by the newer tree's names.
PLACES = {
    **{name: f"blocks.0.attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "out_proj", "q_phase_angle")},
    "causal_mask": "blocks.0.attn.causal_mask",
    "fc1": "blocks.0.ffn.fc1",
    "fc2": "blocks.0.ffn.fc2",
    "norm1": "blocks.0.ln1",
    "norm2": "blocks.0.ln2",
    "norm_f": "ln_f",
}
# Those of JackCai1206's program, MicroAdder's ancestor, whose settings are the older tree's defaults.
ANCESTORS_PLACES = {
    "digit_pos": "digit_enc",
    "z_hi_pos": "z10_enc",
    "special_pos": "special_enc",
    "fc1": "ffn.0",
    "fc2": "ffn.2",
    "norm1": "ln1",
    "norm2": "ln2",
    "norm_f": "ln_f",
    **{f"spiral_{name}": f"pos_spiral_{name}" for name in ("amp", "phase", "slope", "offset")},
}
# Our slices that are one tensor of the same shape there.
SAME = {
    "tokens": "tok_emb.weight",
    "digits": "digit_pos",
    "phase": "q_phase_angle",
    "q_proj": "q_proj.weight",
    "k_proj": "k_proj.weight",
    "v_proj": "v_proj.weight",
    "out": "out_proj.weight",
    "out_A": "out_proj.A",
    "out_B": "out_proj.B",
    "fc1": "fc1.weight",
    "fc1_bias": "fc1.bias",
    "fc2": "fc2.weight",
    "fc2_bias": "fc2.bias",
    "head": "head_proj.weight",
}
NORMS = ("norm1", "norm2", "norm_f")
SHORT = 4
"""Significant digits of a number that somebody chose; one that was learned needs about eight."""
ARC = ("tok_arc_A", "tok_arc_B", "tok_arc_start", "tok_arc_stride")
TURN = ("spiral_amp", "spiral_phase", "spiral_slope", "spiral_offset")
EQUALS = "special_pos_equals"
LINE = ("pos_corr_slope", "pos_corr_intercept")


def read(config: Mapping[str, Any], state: State) -> tuple[SplitSubspace, Tensor]:
    """Return spec and θ [P], with numbers that were learned and then frozen among θ's, as they count.

    Raises ValueError for settings no spec can express and tensors that do not fit.
    """
    older = any(name.startswith("blocks.") for name in state.names())
    if older:
        state.places = PLACES
    elif "z10_enc" in state:
        older = True
        state.places = ANCESTORS_PLACES
        config = _ancestors(config, state)
    _names(config, "freeze_tok_arc", ARC)
    options = _older(config, state) if older else _newer(config)
    options |= _sizes(config, older) | _spiral(config, options, state, older)
    try:
        spec = SplitSubspace(**options)
    except ValueError as error:
        raise ValueError(f"architecture not known here: {error}") from None
    # theirs names the second number and the fifth, ours the second and the last
    if spec.structured_norm3 and spec.width != 5:
        raise unknown("d_model", spec.width)
    _check_frozen(spec, state)
    theta_P = spec.layout.join(_slices(spec, state))
    state.ignore("causal_mask", "_pos_sources", "_pos_indices")
    state.end()
    return spec, theta_P


# ---- settings


def _ancestors(config: Mapping[str, Any], state: State) -> dict[str, Any]:
    """Return the settings of the ancestor's file, whose tensors say what its settings do not.

    Raises ValueError where its settings say otherwise.
    """
    if "ln_f.bias" in state:
        raise ValueError(
            "architecture not known here: LayerNorm, and its family here has RMSNorm, without means and biases; "
            "adder-search verify --run-code tries its submission"
        )
    found = dict[str, Any]()
    if "fc1.bias" in state:
        found["ffn_dim"] = math.prod(state.shape("fc1.bias"))
    if "spiral_amp" in state:
        found |= {"pos_mode": "spiral_correct", "pos_correction_mode": "none"}
    check_agreement(config, found)
    return {**config, **found}


def frozen_on_the_way(config: Mapping[str, Any], spec: SplitSubspace) -> list[str]:
    """Return the parts of θ that training held at values which earlier training had found."""
    held = [f"arc {name}" for name in _names(config, "freeze_tok_arc", ARC)] if spec.arc else []
    if spec.spiral and not (spec.frozen_spiral or spec.flat_spiral):
        held += [f"spiral {name}" for name in _names(config, "freeze_spiral", TURN)]
    if config.get("freeze_z_hi") and not spec.frozen_z_hi:
        held.append("z_hi")
    if config.get("freeze_special") == "plus_eos_equals":
        held.append("equals")
    return held


def _names(config: Mapping[str, Any], setting: str, tensors: Sequence[str]) -> list[str]:
    """Return what a setting freezes, in the order of its tensors. Raises ValueError for a name of none."""
    value = config.get(setting, "")
    # what is no text names nothing that is known
    asked = set(value.split(",")) - {""} if type(value) is str else {None}
    known = [tensor.rpartition("_")[2] for tensor in tensors]
    if not asked <= set(known):
        raise unknown(setting, value)
    return [name for name in known if name in asked]


def _older(config: Mapping[str, Any], state: State) -> dict[str, Any]:
    """Return fields of the spec, of settings of the older tree."""
    choices = dict(OLDER)
    # without an arc or a spiral its settings are there, and say nothing
    if config.get("tok_emb_mode") == "parametric":
        choices |= OF_ARC
    if config.get("pos_mode") == "spiral_correct":
        choices |= OF_SPIRAL
    others = {*OF_ARC, *OF_SPIRAL, *SIZES, *SPIRAL, *START, "num_kv_heads", "q_phase"}
    options = all_chosen(config, choices, others)
    zero = torch.zeros(1, integer(config, "pos_dim", OLDER_SIZES["pos_dim"]))
    if config.get("freeze_z_hi") and state.equals("z_hi_pos", zero):
        options["frozen_z_hi"] = True
    if "arc" in options and "tok_arc_B" not in state:
        options["circular"] = True
    # an angle is a parameter, and here a tied Q/K has it and no other
    phase = config.get("q_phase", False)
    tied = "tie_qk" in options
    if phase is not tied:
        raise ValueError(f"{unknown('q_phase', phase)} with tie_qk={tied}")
    heads = integer(config, "n_heads", 2)
    if integer(config, "num_kv_heads", 0) not in (0, heads):
        raise unknown("num_kv_heads", config["num_kv_heads"])
    # theirs is one matrix for all heads
    if "toeplitz_q" in options and heads != 1:
        raise ValueError(f"{unknown('q_proj_mode', 'toeplitz')} with n_heads={heads}")
    return options


def _newer(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of the spec, of settings of the newer tree."""
    others = {*SIZES, *SPIRAL, *START, "equals_spiral_idx"}
    return NEWER_FIXED | all_chosen(config, NEWER, others)


def _sizes(config: Mapping[str, Any], older: bool) -> dict[str, Any]:
    """Return the spec's sizes. Raises ValueError where theirs do not add up to one residual."""
    defaults = OLDER_SIZES if older else NEWER_SIZES
    size = {name: integer(config, name, default) for name, default in defaults.items()}
    width = size["tok_dim"] + size["pos_dim"]
    if integer(config, "d_model", width) != width:
        raise unknown("d_model", config["d_model"])
    if size["head_dim"] * size["n_heads"] != width:
        raise unknown("head_dim", size["head_dim"])
    same = {name: size[name] for name in ("tok_dim", "pos_dim", "qk_dim")}
    return {"heads": size["n_heads"], "hidden": size["ffn_dim"], **same}


def _spiral(config: Mapping[str, Any], options: Mapping[str, Any], state: State, older: bool) -> dict[str, Any]:
    """Return fields for where the spiral starts or is frozen, and for EQUALS on it."""
    # a slope below 0 is theirs for the default, in the newer tree only where it is not set
    slope = number(config, "spiral_init_slope", -1.0)
    if slope < 0 and (older or "spiral_init_slope" not in config):
        slope = 1 / 9
    start = {
        "spiral_amp": number(config, "spiral_init_amp", 1.0),
        "spiral_slope": slope,
    }
    if "spiral" not in options:
        return start
    frozen = _names(config, "freeze_spiral", TURN)
    index = number(config, "equals_spiral_idx", -1.0)
    chosen = {"amp": start["spiral_amp"], "phase": 0.0, "slope": start["spiral_slope"], "offset": 0.0}
    if frozen == list(chosen) and all(_is_chosen(state, name, value) for name, value in chosen.items()):
        fixed: dict[str, Any] = {"frozen_spiral": True}
        for name in start:
            fixed[name] = shortest(state.take(name, ()))
        if index >= 0:
            fixed |= {"equals_on_ring": True, "equals_index": index}
        return fixed
    # theirs stays where the spiral began, ours would move with it
    if index >= 0:
        raise ValueError(f"{unknown('equals_spiral_idx', index)} with a learned spiral")
    is_flat = frozen == ["slope"] and state.equals("spiral_slope", torch.zeros(()))
    return start | ({"flat_spiral": True} if is_flat else {})


def _is_chosen(state: State, name: str, value: float) -> bool:
    """True if a frozen number of the spiral is where it began, or has so few digits that nothing learned it."""
    if state.equals(f"spiral_{name}", torch.tensor(value)):
        return True
    found = state.number(f"spiral_{name}")
    return found != 0 and found == float(f"{found:.{SHORT}g}")


# ---- tensors


def _check_frozen(spec: SplitSubspace, state: State) -> None:
    """Raise ValueError if a frozen tensor is not where the spec has it."""
    origin = torch.zeros(1, spec.pos_dim)
    zero = torch.zeros(())
    frozen = {
        "_eos_pos": (spec.frozen_eos, origin),
        "_plus_pos": (spec.frozen_plus, origin),
        "z_hi_pos": (spec.frozen_z_hi, origin),
        "spiral_phase": (spec.frozen_spiral, zero),
        "spiral_offset": (spec.frozen_spiral, zero),
        "spiral_slope": (spec.flat_spiral, zero),
    }
    for name, (is_frozen, value) in frozen.items():
        if is_frozen:
            state.check(name, value, "zero where it is frozen")
    if spec.equals_on_ring:
        turn = 2 * math.pi * spec.equals_index / spec.columns
        ring = [spec.spiral_amp * math.cos(turn), spec.spiral_amp * math.sin(turn)]
        height = spec.spiral_slope * spec.equals_index
        rest = [0.0] * (spec.pos_dim - 3)
        point = torch.tensor([[*ring, height, *rest]])
        # theirs was computed in float32, in an order of its own
        state.check("special_pos_equals", point, "on the spiral where it is frozen", 1e-5)


def _slices(spec: SplitSubspace, state: State) -> dict[str, Tensor]:
    """Return the spec's tensors, each with as many numbers as its slice."""
    shapes = spec.shapes()
    slices = dict[str, Tensor]()
    if spec.toeplitz_q:
        # the same diagonals from the other end
        slices["q_proj"] = state.take("q_proj.vals", shapes["q_proj"][1:]).flip(0)
    if spec.arc:
        # a circle has one radius, A, which may be stored a second time
        slices["arc"] = state.numbers(n for n in ARC if not (spec.circular and n == "tok_arc_B"))
        state.check("tok_arc_B", slices["arc"][0], "tok_arc_A where they are tied")
    if "spiral" in shapes:
        slices["spiral"] = state.numbers(n for n in TURN if not (spec.flat_spiral and n == "spiral_slope"))
    if "correction" in shapes:
        if spec.linear_correction:
            slices["correction"] = state.numbers(LINE)
        else:
            slices["correction"] = state.take("pos_correction", (spec.columns,))
    if "z_hi" in shapes:
        slices["z_hi"] = state.take("z_hi_pos", (1, spec.pos_dim))
    slices |= _specials(spec, state) | _norms(spec, state)
    for name, shape in shapes.items():
        if name not in slices:
            slices[name] = state.take(SAME[name], shape)
    return slices


def _specials(spec: SplitSubspace, state: State) -> dict[str, Tensor]:
    """Return the learned positions of PLUS, EQUALS and EOS: rows of one table."""
    learned = [name for name in ("plus", "equals", "eos") if name in spec.shapes()]
    if not learned:
        return {}
    # their table's name says how many rows it has
    table = {1: "special_pos_equals", 2: "special_pos_learned", 3: "special_pos"}[len(learned)]
    return dict(zip(learned, state.take(table, (len(learned), spec.pos_dim)), strict=True))


def _norms(spec: SplitSubspace, state: State) -> dict[str, Tensor]:
    """Return the norms' weights. A shared one is in the file three times."""
    if spec.parameterless_norm:
        return {}
    if not spec.shared_norm:
        return {"norm": torch.stack([state.take(f"{norm}.weight", (spec.width,)) for norm in NORMS])}
    parts = {"b": (), "d1": (), "d4": ()} if spec.structured_norm3 else {"weight": (spec.width,)}
    first, *copies = NORMS
    shared = {part: state.take(f"{first}.{part}", shape) for part, shape in parts.items()}
    for norm in copies:
        for part, value in shared.items():
            state.check(f"{norm}.{part}", value, "equal to the other norms', being shared")
    return {"norm": torch.cat([value.reshape(-1) for value in shared.values()])}
