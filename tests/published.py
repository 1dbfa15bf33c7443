"""θ in the key layouts that other programs publish, written after their source, to be read back."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from model import Spec

File = dict[str, Any]


def noisy(spec: Spec) -> Tensor:
    """θ [P] away from every special value."""
    gen = torch.Generator().manual_seed(spec.params)
    return spec.initial(1) + 0.3 * torch.randn(spec.params, generator=gen)


def parts(spec: Spec, theta_P: Tensor) -> dict[str, Tensor]:
    return {name: t[0].clone() for name, t in spec.layout.split(theta_P[None]).items()}


# ---- MicroAdder


def older(spec: Any, theta_P: Tensor) -> File:
    """As the older tree writes it, all settings of its last version among them."""
    p, d = parts(spec, theta_P), spec.pos_dim
    state = _positions(spec, p)
    if spec.arc:
        names = ("A", "start", "stride") if spec.circular else ("A", "B", "start", "stride")
        state |= {f"tok_arc_{name}": number for name, number in zip(names, p["arc"], strict=True)}
        state |= {"tok_arc_B": p["arc"][0].clone()} if spec.circular else {}
    else:
        state["tok_emb.weight"] = p["tokens"]
    if "correction" in p and spec.linear_correction:
        state["pos_corr_slope"], state["pos_corr_intercept"] = p["correction"]
    elif "correction" in p:
        state["pos_correction"] = p["correction"]
    if spec.frozen_plus:
        state |= {"special_pos_equals": p["equals"][None], "_plus_pos": torch.zeros(1, d)}
        state |= {"_eos_pos": torch.zeros(1, d)}
    elif spec.frozen_eos:
        state["special_pos_learned"] = torch.stack([p["plus"], p["equals"]])
        state["_eos_pos"] = torch.zeros(1, d)
    else:
        state["special_pos"] = torch.stack([p["plus"], p["equals"], p["eos"]])
    block = {"attn.causal_mask": torch.ones(34, 34).tril()[None, None]}
    if spec.toeplitz_q:  # row i, column j reads vals[rows - 1 - i + j]
        rows, (diagonals,) = spec.query_dim, p["q_proj"]
        block["attn.q_proj.vals"] = torch.stack(
            [diagonals[(rows - 1 - k) + d - 1] for k in range(rows + d - 1)]
        )
    else:
        block["attn.q_proj.weight"] = p["q_proj"]
    for name in ("k_proj", "v_proj"):
        block |= {f"attn.{name}.weight": p[name]} if name in p else {}
    block |= {"attn.q_phase_angle": p["phase"]} if spec.tie_qk else {}
    if spec.out_rank:
        block |= {"attn.out_proj.A": p["out_A"], "attn.out_proj.B": p["out_B"]}
    else:
        block["attn.out_proj.weight"] = p["out"]
    block |= {"ffn.fc1.weight": p["fc1"], "ffn.fc2.weight": p["fc2"]}
    if not spec.no_ffn_bias:
        block |= {"ffn.fc1.bias": p["fc1_bias"], "ffn.fc2.bias": p["fc2_bias"]}
    if not spec.parameterless_norm:
        norms = [p["norm"][0].clone() for _ in range(3)] if spec.shared_norm else list(p["norm"])
        block["ln1.weight"], block["ln2.weight"], state["ln_f.weight"] = norms
    state |= {f"blocks.0.{name}": tensor for name, tensor in block.items()}
    state["head_proj.weight"] = p["head"]
    return _microadder(_older_config(spec), state)


def _older_config(spec: Any) -> dict[str, Any]:
    norm = "fixed" if spec.parameterless_norm else "shared" if spec.shared_norm else "full"
    frozen = "amp,phase,slope,offset" if spec.frozen_spiral else "slope" if spec.flat_spiral else ""
    correction = "linear" if spec.linear_correction else "none" if spec.plain_spiral else "full"
    return {
        "d_model": spec.width, "tok_dim": spec.tok_dim, "pos_dim": spec.pos_dim, "n_heads": spec.heads,
        "head_dim": spec.head_dim, "n_layers": 1, "ffn_dim": 2, "ffn_bias": not spec.no_ffn_bias,
        "pos_mode": "spiral_correct" if spec.spiral else "learned", "pos_correction_mode": correction,
        "freeze_special": "plus_eos" if spec.frozen_plus else "eos" if spec.frozen_eos else "none",
        "alibi": False, "qk_source": "pos", "tie_qk": spec.tie_qk, "attn_out_rank": spec.out_rank,
        "num_kv_heads": 0, "q_phase": spec.tie_qk, "share_layers": False, "norm_mode": norm,
        "tie_vo": spec.tie_vo, "freeze_pad": False, "freeze_z_hi": spec.frozen_z_hi, "freeze_spiral": frozen,
        "spiral_init_amp": spec.spiral_amp, "spiral_init_phase": 0.0, "spiral_init_offset": 0.0,
        "spiral_init_slope": spec.spiral_slope if spec.spiral_slope != 1 / 9 else -1.0, "freeze_tok_arc": "",
        "tie_tok_arc_ab": spec.circular, "qk_dim": spec.qk_dim, "q_proj_rank": 0,
        "q_proj_mode": "toeplitz" if spec.toeplitz_q else "full", "softmax1": False, "attn_mode": "split",
        "v_section_mode": "none", "v_gain_x_init": 1.0, "v_gain_y_init": -1.0, "token_init": "spiral",
        "tok_emb_mode": "parametric" if spec.arc else "learned", "vocab_size": spec.vocabulary,
        "max_seq_len": 34,
    }  # fmt: skip


def newer(spec: Any, theta_P: Tensor) -> File:
    """As the newer tree writes it: a circular arc, one head, tied Q/K and V/O, a rank-1 output, no bias."""
    p, d = parts(spec, theta_P), spec.pos_dim
    state = _positions(spec, p)
    state["tok_arc_A"], state["tok_arc_start"], state["tok_arc_stride"] = p["arc"]
    if spec.equals_on_ring:
        angle = 2.0 * math.pi * spec.equals_index / 10.0
        ring = [math.cos(angle), math.sin(angle), spec.spiral_slope / spec.spiral_amp * spec.equals_index]
        state["special_pos_equals"] = spec.spiral_amp * torch.tensor([ring])
    else:
        state["special_pos_equals"] = p["equals"][None]
    state |= {"_plus_pos": torch.zeros(1, d), "_eos_pos": torch.zeros(1, d)}
    state |= {"q_phase_angle": p["phase"], "causal_mask": torch.ones(34, 34).tril()[None, None]}
    state |= {"q_proj.weight": p["q_proj"], "out_proj.A": p["out_A"], "out_proj.B": p["out_B"]}
    state |= {"fc1.weight": p["fc1"], "head_proj.weight": p["head"]}
    state |= {} if spec.tie_fc2_head else {"fc2.weight": p["fc2"]}
    for norm in ("norm1", "norm2", "norm_f"):
        if spec.structured_norm3:
            state |= {f"{norm}.{n}": t.clone() for n, t in zip(("b", "d1", "d4"), p["norm"], strict=True)}
        elif not spec.parameterless_norm:
            state[f"{norm}.weight"] = p["norm"][0].clone()
    structured = "structured" if spec.structured_norm3 else "weighted"
    config = {
        "d_model": spec.width, "tok_dim": 2, "pos_dim": d, "n_heads": 1, "head_dim": spec.width, "ffn_dim": 2,
        "vocab_size": 10, "max_seq_len": 34, "qk_dim": spec.qk_dim, "qk_input": "pos", "freeze_tok_arc": "",
        "norm_mode": "parameterless" if spec.parameterless_norm else structured, "tok_arc_init_A": 2.5,
        "tok_arc_init_start": -1.2, "tok_arc_init_stride": 0.29, "tie_fc2_head": spec.tie_fc2_head,
        "freeze_spiral": "amp,phase,slope,offset" if spec.frozen_spiral else "",
        "spiral_init_amp": spec.spiral_amp, "spiral_init_phase": 0.0, "spiral_init_slope": spec.spiral_slope,
        "spiral_init_offset": 0.0, "equals_spiral_idx": spec.equals_index if spec.equals_on_ring else -1.0,
    }  # fmt: skip
    return _microadder(config, state)


def _positions(spec: Any, p: dict[str, Tensor]) -> dict[str, Tensor]:
    """What both trees call the same."""
    state = {"z_hi_pos": torch.zeros(1, spec.pos_dim) if spec.frozen_z_hi else p["z_hi"][None]}
    if not spec.spiral:
        return state | {"digit_pos": p["digits"]}
    numbers = [torch.tensor(n) for n in (spec.spiral_amp, 0.0, spec.spiral_slope, 0.0)]
    if spec.flat_spiral:
        amp, phase, offset = p["spiral"]
        numbers = [amp, phase, torch.tensor(0.0), offset]
    elif not spec.frozen_spiral:
        numbers = list(p["spiral"])
    names = ("spiral_amp", "spiral_phase", "spiral_slope", "spiral_offset")
    return state | dict(zip(names, numbers, strict=True))


def _microadder(config: dict[str, Any], state: dict[str, Tensor]) -> File:
    return {
        "step": 84_000,
        "model_state_dict": state,
        "optimizer_state_dict": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 0.02}]},
        "config": config,
        "metrics": {"exact_match": 1.0},
        "args": {"seed": 42, "lr": 0.02, "resume": None},
    }


# ---- the 456p report


def report(spec: Any, theta_P: Tensor) -> File:
    """As the 456p report's training code writes it."""
    p = parts(spec, theta_P)
    attn = "blocks.0.attn"
    state = {"token_emb.weight": p["tokens"], "lm_head.weight": p["tokens"].clone()}
    state |= _linear(p, "pos_emb", "pos" if spec.pos_rank else "positions")
    state |= _linear(p, f"{attn}.proj", "out")
    state |= _linear(p, "blocks.0.mlp.fc1", "fc1") | _linear(p, "blocks.0.mlp.fc2", "fc2")
    for theirs, ours in (("blocks.0.ln1", "norm1"), ("blocks.0.ln2", "norm2"), ("ln_f", "norm3")):
        state[f"{theirs}.weight"] = p[ours]
        state |= {} if spec.rms_norm else {f"{theirs}.bias": p[f"{ours}_bias"]}
    modules = {
        "none": {"qkv": "qkv"},
        "all": {"qkv": "qkv_shared"},
        "qk": {"qk": "qk_shared", "v": "v_proj"},
        "kv": {"q": "q_proj", "kv": "kv_shared"},
    }
    for ours, theirs in modules.get(spec.tie_qkv, {}).items():
        state |= _linear(p, f"{attn}.{theirs}", ours)
    if spec.tie_qkv.startswith("share"):
        state |= {f"{attn}.{name}": tensor for name, tensor in p.items() if name.startswith("qkv_")}
    config = {
        "n_layer": 1, "d_model": spec.width, "n_head": 1, "d_ff": spec.ffn, "dropout": 0.0,
        "max_seq_len": spec.positions, "vocab_size": 14, "pos_rank": spec.pos_rank, "qkv_rank": spec.qkv_rank,
        "attn_out_rank": spec.out_rank, "ffn_rank": spec.ffn_rank, "use_rmsnorm": spec.rms_norm,
        "tie_qkv": spec.tie_qkv,
    }  # fmt: skip
    train = {"seed": 43, "lr": 0.02, "curriculum": ""}
    return {
        "model_state": state, "model_config": config, "train_config": train, "step": 34_000, "val_exact": 1.0,
        "params": spec.params,
    }  # fmt: skip


def _linear(p: dict[str, Tensor], theirs: str, ours: str) -> dict[str, Tensor]:
    if ours in p:
        return {f"{theirs}.weight": p[ours]}
    return {f"{theirs}.A": p[f"{ours}_A"], f"{theirs}.B": p[f"{ours}_B"]}
