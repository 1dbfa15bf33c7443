"""A transformer that adds two 10-digit numbers: an AdderBoard submission in one file, torch only.

The data block says what this model is and what it learnt. The code below it is the same for every model of
the split_subspace family: one pre-norm decoder block over a residual of token dimensions (what digit) and
position dimensions (which column). Queries and keys read positions, values read tokens, and logits are dot
products with the token table. What may be left out, shared or given a form of its own is in SPEC.

Sequence, 34 tokens, units first: X0..X9 PLUS Y0..Y9 EQUALS Z0..Z10 EOS. With a vocabulary of 14, PLUS, EQUALS
and EOS are tokens 10, 11 and 12; with one of 10 they are token 0.

Axes: B problem, T position, D width (token dimensions, then position dimensions), V vocabulary, H head,
K token dimensions, C position dimensions, F hidden units; of all heads together, Q query/key dimensions and
E value dimensions. A matrix maps its second axis to its first.
"""

from __future__ import annotations

import math
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# ---- data ----
SPEC: dict[str, Any] = {"family": "split_subspace"}
# ---- end of data ----

# Of another task than ten-digit addition SPEC says its options: "addition base=3 digits=4".
OPTIONS = dict(option.split("=") for option in SPEC.get("task", "").split()[1:])
BASE, DIGITS = (int(OPTIONS.get(name, 10)) for name in ("base", "digits"))
LARGEST = BASE**DIGITS - 1
VOCAB_SIZE = SPEC.get("vocabulary", 14) - 10 + BASE
MAX_OUTPUT_LEN = DIGITS + 1 + (VOCAB_SIZE > BASE)  # of more tokens than digits one ends the answer
EPS = 1e-5


class Adder(nn.Module):
    """Tokens [B, T] -> logits [B, T, V] of each next token. Every entry of `weights` is one parameter."""

    def __init__(self, spec: dict[str, Any], weights: dict[str, Any]) -> None:
        super().__init__()
        self.spec = spec
        self.width = spec["tok_dim"] + spec["pos_dim"]
        tensors = {name: torch.tensor(values, dtype=torch.float32) for name, values in weights.items()}
        self.weights = nn.ParameterDict({name: nn.Parameter(t) for name, t in tensors.items()})

    def forward(self, tokens_BT: Tensor) -> Tensor:
        w, (batch, length) = self.weights, tokens_BT.shape
        norm_attention, norm_ffn, norm_final = self.norms()
        fc2_DF = w["head"].T if self.spec["tie_fc2_head"] else w["fc2"]
        table_VK = self.token_table()
        positions_BTC = self.positions()[:length].expand(batch, -1, -1)

        h_BTD = torch.cat([table_VK[tokens_BT], positions_BTC], dim=-1)
        h_BTD = h_BTD + self.attention(rms_norm(h_BTD, norm_attention))
        hidden_BTF = F.gelu(F.linear(rms_norm(h_BTD, norm_ffn), w["fc1"], w.get("fc1_bias")))
        h_BTD = h_BTD + F.linear(hidden_BTF, fc2_DF, w.get("fc2_bias"))
        return F.linear(F.linear(rms_norm(h_BTD, norm_final), w["head"]), table_VK)

    def attention(self, h_BTD: Tensor) -> Tensor:
        """Causal self-attention, [B, T, D] -> [B, T, D]: positions say where to look, tokens what is seen."""
        spec, w, heads = self.spec, self.weights, self.spec["heads"]
        sizes = [spec["tok_dim"], spec["pos_dim"]]
        tokens_BTK, positions_BTC = h_BTD.split(sizes, dim=-1)
        if spec["direct_forms"]:  # of two positions p, p' the score is pᵀ · form · p'
            queries = by_head(positions_BTC.repeat(1, 1, heads), heads)
            keys = by_head(positions_BTC @ w["form"].T, heads)
            values = by_head(tokens_BTK.repeat(1, 1, heads), heads)
            scale = 1.0
        else:
            value_EK = w["head"].T if spec["tie_vo"] else w["v_proj"]
            queries = by_head(positions_BTC @ self.projection("q_proj").T, heads)
            if spec["tie_qk"]:  # queries are keys, turned by one angle per head
                keys = queries
                if not spec["unturned"]:
                    queries = rotate(queries, w["phase"][:, None, None])
            else:
                keys = by_head(positions_BTC @ self.projection("k_proj").T, heads)
            values = by_head(tokens_BTK @ value_EK.T, heads)
            scale = 1 / math.sqrt(keys.shape[-1])
        seen_BHTE = F.scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale)
        return F.linear(seen_BHTE.transpose(1, 2).flatten(2), self.output())

    def projection(self, name: str) -> Tensor:
        """The query or key projection [Q, C]; where diagonals are constant, columns are shifted entries."""
        spec, w = self.spec, self.weights
        if spec["rank1_q"]:
            column, row = w["q_A"][:, :, None], w["q_B"][:, None]
            return (column * row).flatten(0, 1)
        entries, columns = w[name], spec["pos_dim"]
        rows = spec["qk_dim"] or self.width // spec["heads"]
        if spec["toeplitz_q"]:  # one entry per diagonal, from the top right to the bottom left
            shifted = [entries.narrow(1, columns - 1 - j, rows) for j in range(columns)]
        elif spec["circulant_q"]:  # the first column, as long as the longer side
            shifted = [entries.roll(j, dims=1)[:, :rows] for j in range(columns)]
        else:
            return entries
        return torch.stack(shifted, dim=-1).flatten(0, 1)

    def output(self) -> Tensor:
        """The attention output [D, E]: a matrix, or a product A · B of rank 1 or 2."""
        spec, w = self.spec, self.weights
        if not (spec["rank1_out"] or spec["rank2_out"]):
            return w["out"]
        if spec["onehot_out"]:
            row_RD = torch.eye(self.width).to(w["head"])[1:2]
        else:
            row_RD = w["out_B"] if "out_B" in w else w["out_A"].new_zeros(1, 0)
            if spec["unit_out"]:
                row_RD = F.pad(row_RD, (1, 0), value=1.0)
            if spec["opposite_out"]:  # the second entry is minus the first
                first, rest = row_RD[:, :1], row_RD[:, 1:]
                row_RD = torch.cat([first, -first, rest], dim=1)
            missing = self.width - row_RD.shape[1]
            row_RD = F.pad(row_RD, (0, missing))  # no more than tokens, with token_out
        return (w["out_A"] @ row_RD).T

    def norms(self) -> Tensor:
        """The weights of the norms before attention, before the FFN and at the end [3, D]."""
        spec, width = self.spec, self.width
        if spec["parameterless_norm"]:
            return torch.ones(3, width).to(self.weights["head"])
        norm = self.weights["norm"]
        to_last = (width - 1, 0)
        if spec["structured_norm3"]:  # b, but b + c in the second dimension and b + d in the last
            second = F.pad(norm[1:2], (1, width - 2))
            norm = norm[0] + second + F.pad(norm[2:], to_last)
        elif spec["structured_norm2"]:  # b, but b + d in the last dimension
            norm = norm[0] + F.pad(norm[1:], to_last)
        elif spec["structured_norm1"]:  # 1, but 1 + d in the last dimension
            norm = 1 + F.pad(norm, to_last)
        return norm.expand(3, width)  # scalar_norm: the same number everywhere

    def token_table(self) -> Tensor:
        """The tokens [V, K]: learnt, or digits on an arc, of a circle (one radius) or an ellipse (two)."""
        if not self.spec["arc"]:
            return self.weights["tokens"]
        *radii, start, stride = self.weights["arc"]
        digits_V = torch.arange(BASE, device=start.device)
        angle_V = start + stride * digits_V
        x_V = radii[0] * angle_V.cos()
        y_V = radii[-1] * angle_V.sin()
        return torch.stack([x_V, y_V], dim=-1)

    def positions(self) -> Tensor:
        """Position vectors [34, C]: X, Y and Z share ten; Z10, PLUS, EQUALS and EOS may have their own."""
        spec, w = self.spec, self.weights
        index_N = torch.arange(DIGITS).to(w["head"])
        digits_NC = self.spiral(index_N) if spec["spiral"] else w["digits"]
        if spec["linear_correction"]:
            slope, intercept = w["correction"]
            scale_N = 1 + intercept + slope * index_N
            digits_NC = digits_NC * scale_N[:, None]
        elif "correction" in w:
            digits_NC = digits_NC * (1 + w["correction"])[:, None]

        nowhere = torch.zeros(spec["pos_dim"]).to(index_N)
        names = ("plus", "equals", "z_hi", "eos")
        plus, equals, z_hi, eos = (w.get(name, nowhere)[None] for name in names)
        if spec["equals_on_ring"]:
            place = index_N.new_tensor([spec["equals_index"]])
            equals = self.spiral(place)
        return torch.cat([digits_NC, plus, digits_NC, equals, digits_NC, z_hi, eos])

    def spiral(self, index_N: Tensor) -> Tensor:
        """Points [N, C] on a spiral of ten digits a turn; from the fourth on, coordinates are 0."""
        spec = self.spec
        phase = offset = slope = 0.0
        if spec["frozen_spiral"]:
            amp, slope = spec["spiral_amp"], spec["spiral_slope"]
        elif spec["flat_spiral"]:
            amp, phase, offset = self.weights["spiral"]
        else:
            amp, phase, slope, offset = self.weights["spiral"]
        if spec["flat_spiral"]:
            slope = 0
        angle_N = 2 * math.pi * index_N / DIGITS + phase
        height_N = offset + slope * index_N
        points = torch.stack([amp * angle_N.cos(), amp * angle_N.sin(), height_N], dim=-1)
        return F.pad(points, (0, spec["pos_dim"] - 3))


def by_head(x_BTN: Tensor, heads: int) -> Tensor:
    """[B, T, H · n] -> [B, H, T, n]."""
    return x_BTN.unflatten(-1, (heads, -1)).transpose(1, 2)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """x / sqrt(mean(x²) + 1e-5) · w over the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    """Turn the pairs (0,1), (2,3) ... of the last axis by an angle (radians); an odd last entry stays."""
    pairs = x.shape[-1] // 2 * 2
    a, b = x[..., 0:pairs:2], x[..., 1:pairs:2]
    cos, sin = angle.cos(), angle.sin()
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
    return torch.cat([turned.flatten(-2), x[..., pairs:]], dim=-1)


def architecture(spec: dict[str, Any]) -> str:
    """What a model is, in one sentence."""
    tok, pos, heads = spec["tok_dim"], spec["pos_dim"], spec["heads"]
    if spec["direct_forms"]:
        routes = "scores are a bilinear form of positions"
    else:
        size = spec["qk_dim"] or (tok + pos) // heads
        routes = f"queries and keys of {size} dimensions from positions"
    units = 1 if spec["one_unit"] else spec["hidden"]
    table = "learned"
    if spec["arc"]:
        table = "circular arc" if spec["circular"] else "elliptical arc"
    return (
        f"1-layer pre-norm decoder, width {tok + pos} ({tok} token, {pos} position), {heads} attention"
        f" head{'s' * (heads > 1)} ({routes}, values from tokens), FFN {units} (GELU),"
        f" vocabulary {VOCAB_SIZE}, tied token table ({table})"
    )


def encode(a: int, b: int) -> list[int]:
    """The prompt's tokens. Raises ValueError unless both are integers of so many digits."""
    for n in (a, b):
        if type(n) is not int or not 0 <= n <= LARGEST:
            raise ValueError(f"operands must be integers from 0 to {LARGEST}, got {n!r}")
    x, y = ([n // BASE**i % BASE for i in range(DIGITS)] for n in (a, b))
    plus, equals = (BASE, BASE + 1) if VOCAB_SIZE > BASE else (0, 0)
    return [*x, plus, *y, equals]


def decode(tokens: list[int]) -> int:
    """The number that an answer's tokens write, units first; it ends at the first token that is no digit."""
    digits = takewhile(range(BASE).__contains__, tokens)
    return sum(digit * BASE**i for i, digit in enumerate(digits))
