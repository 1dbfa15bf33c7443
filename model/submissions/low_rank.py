"""A transformer that adds two 10-digit numbers: an AdderBoard submission in one file, torch only.

The data block says what this model is and what it learnt. The code below it is the same for every model
of the low_rank family: one pre-norm decoder block with one head over learned token and position vectors.
Any matrix may be a product of two thin factors, queries, keys and values may share factors or be equal, and
the token table is also the output head.

Sequence, 34 tokens: both operands most significant digit first, the sum units first,
X9..X0 + Y9..Y0 = Z0..Z10 EOS. + is token 10, = is 11, EOS is 13; 12 is padding and never used.

Axes: B problem, T position, D width, F width of the FFN, V vocabulary. A full matrix maps its second axis
to its first; a pair of factors A, B maps x to x · A · B.
"""

from __future__ import annotations

import math
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# ---- data ----
SPEC: dict[str, Any] = {"family": "low_rank"}
# ---- end of data ----

# Of another task than ten-digit addition SPEC says its options: "addition base=3 digits=4".
OPTIONS = dict(option.split("=") for option in SPEC.get("task", "").split()[1:])
BASE, DIGITS = (int(OPTIONS.get(name, 10)) for name in ("base", "digits"))
LARGEST = BASE**DIGITS - 1
VOCAB_SIZE, MAX_OUTPUT_LEN = BASE + 4, DIGITS + 1
PLUS, EQUALS = BASE, BASE + 1
EPS_LAYER, EPS_RMS = 1e-5, 1e-8


class Adder(nn.Module):
    """Tokens [B, T] -> logits [B, T, V] of each next token. Every entry of `weights` is one parameter."""

    def __init__(self, spec: dict[str, Any], weights: dict[str, Any]) -> None:
        super().__init__()
        self.spec = spec
        tensors = {name: torch.tensor(values, dtype=torch.float32) for name, values in weights.items()}
        self.weights = nn.ParameterDict({name: nn.Parameter(t) for name, t in tensors.items()})

    def forward(self, tokens_BT: Tensor) -> Tensor:
        w, length = self.weights, tokens_BT.shape[1]
        positions_TD = w["pos_A"] @ w["pos_B"] if "pos_A" in w else w["positions"]
        x_BTD = w["tokens"][tokens_BT] + positions_TD[:length]
        x_BTD = x_BTD + self.attention(self.norm(x_BTD, 1))

        # the FFN, then logits by the token table
        hidden_BTF = F.gelu(self.linear(self.norm(x_BTD, 2), "fc1"))
        x_BTD = x_BTD + self.linear(hidden_BTF, "fc2")
        logits_BTV: Tensor = self.norm(x_BTD, 3) @ w["tokens"].T
        return logits_BTV

    def attention(self, x_BTD: Tensor) -> Tensor:
        """Causal self-attention with one head, [B, T, D] -> [B, T, D]."""
        q_BTD, k_BTD, v_BTD = self.queries_keys_values(x_BTD)
        length, width = x_BTD.shape[1:]
        scores_BTT = q_BTD @ k_BTD.mT / math.sqrt(width)
        future_TT = torch.ones(length, length, dtype=torch.bool, device=x_BTD.device).triu(1)
        attention_BTT = scores_BTT.masked_fill(future_TT, -math.inf).softmax(dim=-1)
        return self.linear(attention_BTT @ v_BTD, "out")

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What each position asks for, answers to and hands over, three times [B, T, D]."""
        w, tie = self.weights, self.spec["tie_qkv"]
        if tie == "all":
            every = self.linear(x, "qkv")
            return every, every, every
        if tie == "qk":
            both = self.linear(x, "qk")
            return both, both, self.linear(x, "v")
        if tie == "kv":
            both = self.linear(x, "kv")
            return self.linear(x, "q"), both, both
        if tie.startswith("share"):  # one factor serves all three; the other may serve two of them
            of_three = {"QK": ("qk", "qk", "v"), "KV": ("q", "kv", "kv")}
            names = of_three.get(tie[-2:], ("q", "k", "v"))
            if tie.startswith("shareA"):
                h = x @ w["qkv_A"]
                q, k, v = (h @ w[f"qkv_B{name}"] for name in names)
            else:
                q, k, v = (x @ w[f"qkv_A{name}"] @ w["qkv_B"] for name in names)
            return q, k, v
        q, k, v = self.linear(x, "qkv").chunk(3, dim=-1)
        return q, k, v

    def linear(self, x: Tensor, name: str) -> Tensor:
        """A matrix without bias, full or in two factors, over the last axis."""
        w = self.weights
        if name in w:
            return F.linear(x, w[name])
        product: Tensor = x @ w[f"{name}_A"] @ w[f"{name}_B"]
        return product

    def norm(self, x: Tensor, number: int) -> Tensor:
        """RMSNorm with a weight, or LayerNorm with weight and bias, over the last axis."""
        weight = self.weights[f"norm{number}"]
        if not self.spec["rms_norm"]:
            return F.layer_norm(x, weight.shape, weight, self.weights[f"norm{number}_bias"], EPS_LAYER)
        return F.rms_norm(x, weight.shape, weight, EPS_RMS)


def architecture(spec: dict[str, Any]) -> str:
    """What a model is, in one sentence."""
    parts = {
        "pos": "positions",
        "qkv": "queries, keys and values",
        "out": "attention output",
        "ffn": "FFN",
    }
    ranks = []
    for part, name in parts.items():
        rank = spec[f"{part}_rank"]
        if rank:
            ranks.append(f"{name} {rank}")
    matrices = "ranks: " + ", ".join(ranks) if ranks else "full matrices"
    norm = "RMSNorm" if spec["rms_norm"] else "LayerNorm"
    return (
        f"1-layer pre-norm decoder, width {spec['width']}, 1 attention head, FFN {spec['ffn']} (GELU),"
        f" {norm}, learned positions, vocabulary {VOCAB_SIZE}, tied token"
        f" table, {matrices}"
    )


def encode(a: int, b: int) -> list[int]:
    """The prompt's tokens. Raises ValueError unless both are integers of so many digits."""
    for n in (a, b):
        if type(n) is not int or not 0 <= n <= LARGEST:
            raise ValueError(f"operands must be integers from 0 to {LARGEST}, got {n!r}")
    x, y = ([n // BASE**i % BASE for i in reversed(range(DIGITS))] for n in (a, b))
    return [*x, PLUS, *y, EQUALS]


def decode(tokens: list[int]) -> int:
    """The number that an answer's tokens write, units first; it ends at the first token that is no digit."""
    digits = takewhile(range(BASE).__contains__, tokens)
    return sum(digit * BASE**i for i, digit in enumerate(digits))
