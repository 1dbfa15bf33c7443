"""A transformer that adds two 10-digit numbers: an AdderBoard submission in one file, torch only.

The data block says what this model is and what it learnt. The code below it is the same for every model of
the rope family: one pre-norm decoder block as in Qwen3, with one or more heads of queries and one of keys and
values, positions that turn queries and keys, RMSNorm, a SwiGLU, and logits that are dot products with the token
table. What may be left out, shared or given a form of its own is in SPEC.

Sequence, 35 tokens, units first: 0 X0..X9 0 0 Y0..Y9 0 = Z0..Z10. Delimiters are the digit 0.

Axes: B problem, T position, D width, V vocabulary, H head, F hidden units, N the four entries of a head. A
matrix maps its second axis to its first.
"""

from __future__ import annotations

import math
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# ---- data ----
SPEC: dict[str, Any] = {"family": "rope"}
# ---- end of data ----

# Of another task than ten-digit addition SPEC says its options: "addition base=3 digits=4".
OPTIONS = dict(option.split("=") for option in SPEC.get("task", "").split()[1:])
BASE, DIGITS = (int(OPTIONS.get(name, 10)) for name in ("base", "digits"))
LARGEST = BASE**DIGITS - 1
VOCAB_SIZE, MAX_OUTPUT_LEN = BASE, DIGITS + 1
HEAD = 4
EPS = 1e-6


class Adder(nn.Module):
    """Tokens [B, T] -> logits [B, T, V] of each next token. Every entry of `weights` is one parameter."""

    def __init__(self, spec: dict[str, Any], weights: dict[str, Any]) -> None:
        super().__init__()
        self.spec = spec
        tensors = {name: torch.tensor(values, dtype=torch.float32) for name, values in weights.items()}
        self.weights = nn.ParameterDict({name: nn.Parameter(t) for name, t in tensors.items()})

    def forward(self, tokens_BT: Tensor) -> Tensor:
        norm_attention, norm_mlp, norm_final = self.norms()
        table_VD = self.token_table()
        x_BTD = table_VD[tokens_BT]
        if self.spec["sine_input"]:  # the third dimension says where a token stands
            steps_T = torch.arange(tokens_BT.shape[1]).to(x_BTD)
            ramp_T = (1e-4 * steps_T).sin()
            third_D = F.one_hot(torch.tensor(2), self.spec["width"]).to(x_BTD)
            x_BTD = x_BTD + ramp_T[:, None] * third_D
        x_BTD = x_BTD + self.attention(rms_norm(x_BTD, norm_attention))
        x_BTD = x_BTD + self.mlp(rms_norm(x_BTD, norm_mlp))
        return F.linear(rms_norm(x_BTD, norm_final), table_VD)

    def attention(self, x_BTD: Tensor) -> Tensor:
        """Causal self-attention, [B, T, D] -> [B, T, D]; all heads read the same keys and values."""
        spec, w = self.spec, self.weights
        q_ND, k_ND, v_ND = self.projections()
        q_norm, k_norm = self.query_key_norms()
        queries_BHTN = F.linear(x_BTD, q_ND).unflatten(-1, (-1, HEAD)).transpose(1, 2)
        keys_B1TN = F.linear(x_BTD, k_ND)[:, None]
        values_B1TN = F.linear(x_BTD, v_ND)[:, None]
        queries_BHTN = self.by_position(rms_norm(queries_BHTN, q_norm))
        keys_B1TN = self.by_position(rms_norm(keys_B1TN, k_norm))

        scores_BHTT = queries_BHTN @ keys_B1TN.mT / math.sqrt(HEAD)
        future_TT = torch.ones_like(scores_BHTT[0, 0], dtype=torch.bool).triu(1)
        weights_BHTT = scores_BHTT.masked_fill(future_TT, -math.inf).softmax(-1)
        seen_BHTN = weights_BHTT @ values_B1TN
        seen_BTN = seen_BHTN.transpose(1, 2).flatten(2)
        if spec["rank1_out"]:
            return seen_BTN @ w["o_A"] @ w["o_B"]
        return F.linear(seen_BTN, q_ND.T if spec["tie_oq"] else w["o"])

    def projections(self) -> tuple[Tensor, Tensor, Tensor]:
        """The matrices of queries [H · N, D], keys and values [N, D], some of them equal or turned."""
        spec, w = self.spec, self.weights
        q_ND = self.wide("q")
        if spec["turned_k"]:
            fixed = q_ND.new_tensor([spec["first_k_angle"]])
            k_ND = turn(q_ND.T, w.get("k_angle", fixed), spec["half_split"]).T
        elif spec["tie_kv"]:
            k_ND = self.wide("kv")
        elif spec["tie_qk"]:
            k_ND = q_ND
        elif spec["scaled_k"]:
            k_ND = w["k_scale"] * q_ND
        else:
            k_ND = self.wide("k")

        if spec["tie_vq"]:
            return q_ND, k_ND, q_ND
        return q_ND, k_ND, k_ND if spec["tie_kv"] else self.wide("v")

    def query_key_norms(self) -> tuple[Tensor, Tensor]:
        """The weights of the norms of queries and keys [N]."""
        spec, w = self.spec, self.weights
        if not spec["shared_qk_norm"]:
            return w["q_norm"], w["k_norm"]
        norm_N = w["qk_norm"]
        if spec["fixed_qk_norm"]:  # the first weight is learnt, the others are the spec's
            numbers = [spec[f"qk_norm_{n}"] for n in (1, 2, 3)]
            norm_N = torch.cat([norm_N, norm_N.new_tensor(numbers)])
        return norm_N, norm_N

    def by_position(self, x_BHTN: Tensor) -> Tensor:
        """Turn both pairs of entries, by 1 and by 1/√base a position."""
        powers = -torch.arange(2).to(x_BHTN) / 2
        speeds = self.spec["rope_base"] ** powers
        position_T = torch.arange(x_BHTN.shape[2]).to(x_BHTN)
        angle_T2 = position_T[:, None] * speeds
        return turn(x_BHTN, angle_T2, self.spec["half_split"])

    def mlp(self, x_BTD: Tensor) -> Tensor:
        """SwiGLU: silu(gate · x) (up · x), then down."""
        w, spec = self.weights, self.spec
        gate_FD = w["gate_scale"] * w["up"] if spec["tie_gate"] else w["gate"]
        gates_BTF = F.silu(F.linear(x_BTD, gate_FD))
        units_BTF = gates_BTF * F.linear(x_BTD, w["up"])
        if spec["turned_down"]:  # pairs of units turn, then go back through upᵀ; an odd last one stays
            fixed = units_BTF.new_tensor([spec["first_down_angle"]])
            angle = w.get("down_angle", fixed)
            pairs = spec["ffn"] // 2 * 2
            turned = turn(units_BTF[..., :pairs], angle, False)
            return torch.cat([turned, units_BTF[..., pairs:]], dim=-1) @ w["up"]
        down_DF = gate_FD.T if spec["tie_down_gate"] else w["down"]
        written = F.linear(units_BTF, down_DF)
        missing = spec["width"] - written.shape[-1]
        return F.pad(written, (0, missing))  # fewer dimensions, with flat_down

    def norms(self) -> list[Tensor]:
        """The weights of the norms before attention, before the MLP and at the end."""
        w = self.weights
        if "norm" in w:
            return [w["norm"]] * 3
        if "norm12" in w:
            return [w["norm12"], w["norm12"], self.wide("norm3")]
        return [self.wide("norm1"), w["norm2"], self.wide("norm3")]

    def wide(self, name: str) -> Tensor:
        """A tensor whose last axis is D, where some dimensions are left out."""
        tensor = self.weights[name]
        missing = self.spec["width"] - tensor.shape[-1]
        return F.pad(tensor, (0, missing))

    def token_table(self) -> Tensor:
        """The tokens [V, D]: learnt, or digits on an arc of a circle in the first two dimensions."""
        spec, w = self.spec, self.weights
        if not spec["arc"]:
            return w["tokens"]
        numbers = [spec[name] for name in ("arc_radius", "arc_start", "arc_stride")]
        arc = w["arc"] if "arc" in w else w["up"].new_tensor(numbers)
        radius, start, stride = arc
        digits_V = torch.arange(BASE).to(w["up"])
        angle_V = start + stride * digits_V
        plane_V2 = radius * torch.stack([angle_V.cos(), angle_V.sin()], dim=-1)
        return F.pad(plane_V2, (0, spec["width"] - 2))


def turn(x: Tensor, angle: Tensor, half_split: bool) -> Tensor:
    """Turn pairs of the last axis by angles (radians): (0,1), (2,3) ..., or (0,2), (1,3) of four."""
    cos, sin = angle.cos(), angle.sin()
    if half_split:
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    a, b = x[..., ::2], x[..., 1::2]
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return turned.flatten(-2)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x / sqrt(mean(x²) + 1e-6) · w over the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def architecture(spec: dict[str, Any]) -> str:
    """What a model is, in one sentence."""
    table = "circular arc" if spec["arc"] else "learned"
    return (
        f"1-layer pre-norm decoder as in Qwen3, width {spec['width']}, {spec['heads']} query"
        f" head{'s' * (spec['heads'] > 1)} of 4 over one of keys and values, RoPE base {spec['rope_base']:g},"
        f" SwiGLU {spec['ffn']}, RMSNorm, vocabulary {VOCAB_SIZE}, tied token table ({table})"
    )


def encode(a: int, b: int) -> list[int]:
    """The prompt's tokens. Raises ValueError unless both are integers of so many digits."""
    for n in (a, b):
        if type(n) is not int or not 0 <= n <= LARGEST:
            raise ValueError(f"operands must be integers from 0 to {LARGEST}, got {n!r}")
    x, y = ([n // BASE**i % BASE for i in range(DIGITS)] for n in (a, b))
    return [0, *x, 0, 0, *y, 0]


def decode(tokens: list[int]) -> int:
    """The number that an answer's tokens write, units first; it ends at the first token that is no digit."""
    digits = takewhile(range(BASE).__contains__, tokens)
    return sum(digit * BASE**i for i, digit in enumerate(digits))
