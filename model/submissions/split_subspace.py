"""A transformer that adds two 10-digit numbers: an AdderBoard submission in one file, torch only.

The data block says what this model is and what it learnt. The code below it is the same for every model
of the split_subspace family: one pre-norm decoder block over a residual of 2 token dimensions (what digit)
and 3 position dimensions (which column). Queries and keys read positions, values read tokens, queries are
keys turned by an angle, and logits are dot products with the digit table.

Sequence, 34 tokens, units first: X0..X9 PLUS Y0..Y9 EQUALS Z0..Z10 EOS; every delimiter is token 0.

Axes: B problem, T position, D width (token dimensions, then position dimensions), V vocabulary,
K token dimensions, C position dimensions, Q query/key dimensions. A matrix maps its second axis to its first.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# ---- data ----
SPEC: dict[str, Any] = {
    "family": "split_subspace",
    "circular": False,
    "frozen_spiral": False,
    "qk_dim": 5,
    "tie_vo": False,
    "tie_fc2_head": False,
    "rank1_out": False,
    "shared_norm": False,
}
METADATA: dict[str, Any] = {
    "name": "split_subspace",
    "author": "",
    "params": 0,
    "architecture": (
        "1-layer pre-norm decoder, width 5 (2 token, 3 position), 1 attention head that routes by position"
        " and carries tokens, FFN 2 (GELU), tied digit table, vocabulary 10"
    ),
    "tricks": [],
}
PROVENANCE: dict[str, Any] = {}
WEIGHTS: dict[str, Any] = {}
# ---- end of data ----

DIGITS = 10
LARGEST = 10**DIGITS - 1
TOK, POS = 2, 3
WIDTH = TOK + POS
EPS = 1e-5
SPIRAL = (3.5, 0.0, 0.15, 0.0)
"""Amplitude, phase (radians), slope and offset of a spiral that is not learnt."""


class Adder(nn.Module):
    """Tokens [B, T] -> logits [B, T, V] of each next token. Every entry of `weights` is one parameter."""

    def __init__(self, spec: dict[str, Any], weights: dict[str, Any]) -> None:
        super().__init__()
        self.spec = spec
        tensors = {name: torch.tensor(values, dtype=torch.float32) for name, values in weights.items()}
        self.weights = nn.ParameterDict({name: nn.Parameter(t) for name, t in tensors.items()})

    def forward(self, tokens_BT: Tensor) -> Tensor:
        w, (batch, length) = self.weights, tokens_BT.shape
        # One shared norm vector [1, D] or three of them [3, D].
        norm_attention, norm_ffn, norm_final = w["norm"].expand(3, WIDTH)
        fc2_DF = w["head"].T if self.spec["tie_fc2_head"] else w["fc2"]
        table_VK = self.digit_table()
        positions_BTC = self.positions()[:length].expand(batch, length, POS)

        h_BTD = torch.cat([table_VK[tokens_BT], positions_BTC], dim=-1)
        h_BTD = h_BTD + self.attention(rms_norm(h_BTD, norm_attention))
        h_BTD = h_BTD + F.gelu(rms_norm(h_BTD, norm_ffn) @ w["fc1"].T) @ fc2_DF.T
        logits_BTV: Tensor = rms_norm(h_BTD, norm_final) @ w["head"].T @ table_VK.T
        return logits_BTV

    def attention(self, h_BTD: Tensor) -> Tensor:
        """Causal self-attention with one head, [B, T, D] -> [B, T, D]."""
        w, length = self.weights, h_BTD.shape[1]
        value_DK = w["head"].T if self.spec["tie_vo"] else w["v_proj"]
        out_DD = (w["out_A"] @ w["out_B"]).T if self.spec["rank1_out"] else w["out"]
        tokens_BTK, positions_BTC = h_BTD[..., :TOK], h_BTD[..., TOK:]

        keys_BTQ = positions_BTC @ w["q_proj"].T
        queries_BTQ = rotate(keys_BTQ, w["phase"])
        scores_BTT = queries_BTQ @ keys_BTQ.mT / math.sqrt(self.spec["qk_dim"])
        future_TT = torch.ones(length, length, dtype=torch.bool, device=h_BTD.device).triu(1)
        attention_BTT = scores_BTT.masked_fill(future_TT, -math.inf).softmax(dim=-1)
        attended_BTD: Tensor = attention_BTT @ (tokens_BTK @ value_DK.T) @ out_DD.T
        return attended_BTD

    def digit_table(self) -> Tensor:
        """The ten digits on an arc [V, K]: of a circle (one radius) or of an ellipse (two)."""
        arc = self.weights["arc"]
        radius_K, start, stride = arc[:-2].expand(TOK), arc[-2], arc[-1]
        angle_V = start + stride * torch.arange(DIGITS, device=arc.device)
        return torch.stack([radius_K[0] * angle_V.cos(), radius_K[1] * angle_V.sin()], dim=-1)

    def positions(self) -> Tensor:
        """Position vectors [34, C]: X, Y and Z share the digits' spiral; Z10 and EQUALS have their own."""
        w, index = self.weights, torch.arange(DIGITS, device=self.weights["z_hi"].device)
        amp, phase, slope, offset = SPIRAL if self.spec["frozen_spiral"] else w["spiral"]
        angle = 2 * math.pi * index / DIGITS + phase
        digits = torch.stack([amp * angle.cos(), amp * angle.sin(), slope * index + offset], dim=-1)
        nothing = torch.zeros(1, POS, device=index.device)
        equals, z_hi = w["equals"][None], w["z_hi"][None]
        return torch.cat([digits, nothing, digits, equals, digits, z_hi, nothing])


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x / sqrt(mean(x²) + 1e-5) · w over the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    """Turn the pairs (0,1), (2,3) ... of the last axis by one angle (radians); an odd last entry stays."""
    pairs = x.shape[-1] // 2 * 2
    a, b = x[..., 0:pairs:2], x[..., 1:pairs:2]
    cos, sin = angle.cos(), angle.sin()
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return torch.cat([turned.flatten(-2), x[..., pairs:]], dim=-1)


def build_model() -> tuple[Adder, dict[str, Any]]:
    """The trained model and what AdderBoard shows of it."""
    return Adder(SPEC, WEIGHTS).eval(), dict(METADATA)


@torch.inference_mode()
def generate(model: nn.Module, prompt: list[int], steps: int) -> list[int]:
    """Greedy decoding: append the likeliest next token, `steps` times. It knows nothing of addition."""
    device = next(model.parameters()).device
    tokens = list(prompt)
    for _ in range(steps):
        logits_BTV = model(torch.tensor([tokens], device=device))
        tokens.append(int(logits_BTV[0, -1].argmax()))
    return tokens[len(prompt) :]


def add(model: nn.Module, a: int, b: int) -> int:
    """The sum that the model decodes. Raises ValueError unless both are integers from 0 to 9999999999."""
    for n in (a, b):
        if type(n) is not int or not 0 <= n <= LARGEST:
            raise ValueError(f"operands must be integers from 0 to {LARGEST}, got {n!r}")
    x, y = ([n // 10**i % 10 for i in range(DIGITS)] for n in (a, b))
    answer = generate(model, [*x, 0, *y, 0], DIGITS + 1)
    return sum(digit * 10**i for i, digit in enumerate(answer))
