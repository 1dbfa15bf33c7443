"""Checkpoint files in the key layouts of other programs, written after their source, to be read back."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from adders.foreign.file import State
from adders.foreign.read import read_foreign
from model import PRESETS, Spec
from model.families.low_rank.spec import LowRank
from tests.commands import refusal
from tests.specs import some_theta
from trainer.checkpoints.checkpoint import Checkpoint

File = dict[str, Any]
FILE = Path("theirs.pt")
NEW = PRESETS["57p"]
SMALL = LowRank(pos_rank=3, qkv_rank=3, out_rank=2, ffn_rank=3, rms_norm=True, tie_qkv="shareA_tieKV")


def written(content: Any) -> Path:
    torch.save(content, FILE)
    return FILE


def repacked(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return an archive with a changed pickle and with right checksums."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(buffer, "w") as target:
        for info in source.infolist():
            content = source.read(info)
            target.writestr(info, change(content) if info.filename.endswith("data.pkl") else content)
    return buffer.getvalue()


def refused(file: Path) -> str:
    """The error for a file, which names it and is one line."""
    start, line = f"{file}: ", refusal(ValueError, read_foreign, file)
    assert line.startswith(start) and len(line) < 250, line
    return line.removeprefix(start)


def read_as(spec: Spec, file: Path) -> Checkpoint:
    """What is read of a file: a checkpoint of this spec, with the numbers of `some_theta`."""
    checkpoint = read_foreign(file)
    assert checkpoint.spec == spec and torch.equal(checkpoint.theta_P, some_theta(spec)[0])
    return checkpoint


def parts(spec: Spec) -> dict[str, Tensor]:
    return {name: t[0].clone() for name, t in spec.layout.split(some_theta(spec)).items()}


def microadder(**config: Any) -> File:
    """57p as MicroAdder's newer tree writes it, with other settings."""
    p = parts(NEW)
    state = dict(zip(("tok_arc_A", "tok_arc_start", "tok_arc_stride"), p["arc"], strict=True))
    spiral = {"amp": 3.5, "phase": 0.0, "slope": 0.15, "offset": 0.0}
    state |= {f"spiral_{name}": torch.tensor(number) for name, number in spiral.items()}
    state |= {"special_pos_equals": p["equals"][None], "z_hi_pos": p["z_hi"][None]}
    state |= {"_plus_pos": torch.zeros(1, 3), "_eos_pos": torch.zeros(1, 3)}
    state |= {"q_phase_angle": p["phase"], "causal_mask": torch.ones(34, 34).tril()[None, None]}
    state |= {"q_proj.weight": p["q_proj"], "out_proj.A": p["out_A"], "out_proj.B": p["out_B"]}
    state |= {"fc1.weight": p["fc1"], "head_proj.weight": p["head"]}
    state |= {f"{norm}.weight": p["norm"][0].clone() for norm in ("norm1", "norm2", "norm_f")}
    settings = {
        "d_model": 5, "tok_dim": 2, "pos_dim": 3, "n_heads": 1, "head_dim": 5, "ffn_dim": 2, "vocab_size": 10,
        "max_seq_len": 34, "qk_dim": 4, "qk_input": "pos", "norm_mode": "weighted", "tie_fc2_head": True,
        "freeze_tok_arc": "", "tok_arc_init_A": 2.5, "tok_arc_init_start": -1.2, "tok_arc_init_stride": 0.29,
        "freeze_spiral": "amp,phase,slope,offset", "equals_spiral_idx": -1.0,
        **{f"spiral_init_{name}": number for name, number in spiral.items()},
    }  # fmt: skip
    return {
        "step": 84_000,
        "model_state_dict": state,
        "optimizer_state_dict": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 0.02}]},
        "config": settings | config,
        "metrics": {"exact_match": 1.0},
        "args": {"seed": 42, "lr": 0.02, "resume": None},
    }


def report(spec: Any, **config: Any) -> File:
    """A spec of low_rank as the 456p report's training code writes it, with other settings."""
    p = parts(spec)
    attn = "blocks.0.attn"
    state = {"token_emb.weight": p["tokens"], "lm_head.weight": p["tokens"].clone()}
    modules = {
        "none": {"qkv": "qkv"},
        "all": {"qkv": "qkv_shared"},
        "qk": {"qk": "qk_shared", "v": "v_proj"},
        "kv": {"q": "q_proj", "kv": "kv_shared"},
    }.get(spec.tie_qkv, {})
    places = {ours: f"{attn}.{theirs}" for ours, theirs in modules.items()}
    places |= {"out": f"{attn}.proj", "fc1": "blocks.0.mlp.fc1", "fc2": "blocks.0.mlp.fc2"}
    places["pos" if spec.pos_rank else "positions"] = "pos_emb"
    for ours, theirs in places.items():
        names = {ours: "weight"} if ours in p else {f"{ours}_A": "A", f"{ours}_B": "B"}
        state |= {f"{theirs}.{part}": p[name] for name, part in names.items()}
    for ours, theirs in (("norm1", "blocks.0.ln1"), ("norm2", "blocks.0.ln2"), ("norm3", "ln_f")):
        state[f"{theirs}.weight"] = p[ours]
        state |= {} if spec.rms_norm else {f"{theirs}.bias": p[f"{ours}_bias"]}
    if spec.tie_qkv.startswith("share"):
        state |= {f"{attn}.{name}": tensor for name, tensor in p.items() if name.startswith("qkv_")}
    settings = {
        "n_layer": 1, "d_model": spec.width, "n_head": 1, "d_ff": spec.ffn, "dropout": 0.0,
        "max_seq_len": spec.positions, "vocab_size": 14, "pos_rank": spec.pos_rank, "qkv_rank": spec.qkv_rank,
        "attn_out_rank": spec.out_rank, "ffn_rank": spec.ffn_rank, "use_rmsnorm": spec.rms_norm,
        "tie_qkv": spec.tie_qkv,
    }  # fmt: skip
    return {
        "model_state": state, "model_config": settings | config, "train_config": {"seed": 43, "lr": 0.02},
        "step": 34_000, "val_exact": 1.0, "params": spec.params,
    }  # fmt: skip


class AnyState(State):
    """A state that has any tensor for which a reader asks, with numbers that count up, and notes its name."""

    def __init__(self, *names: str):
        super().__init__(dict.fromkeys(names, torch.ones(())), "state")
        self.taken: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        name = self.place(name)
        start = 1 + sum(t.numel() for t in self.taken.values())
        count = torch.Size(shape).numel()
        self.taken[name] = torch.arange(start, start + count, dtype=torch.float32).view(shape)
        return self.taken[name]

    def equals(self, name: str, expected: Tensor) -> bool:
        """Have each frozen tensor where it began."""
        return True

    def check(self, name: str, expected: Tensor, why: str, tolerance: float = 0.0) -> None:
        """Take any tensor for a repeated or frozen one."""

    def end(self) -> None:
        """Have no remainder."""
