"""The split_subspace family: MicroAdder's decoder, where positions route and tokens carry content.

One pre-norm block over a residual of 2 token dimensions and 3 position dimensions. Queries and keys
read positions, values read tokens; Q and K share one projection and differ by a rotation; logits are
dot products with the token table. Facts from "Training a Transformer for Perfect 10-Digit Addition"
(the 57p paper, sections 2.1 to 2.8) and "Reflection: 75 Parameters From Scratch".

Axes: S seed, B problem, T position, A answer position, V vocabulary, P parameters.
The feature axes are 2 to 5 long, so they are Python lists and not tensor axes: the compiler then sees
one flat pointwise program along problems. Parameters are scalars of shape [S, 1, 1].
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn import init

from model.fields import option
from model.spec import Spec

TOK, POS, FFN, DIGITS = 2, 3, 2, 10
WIDTH = TOK + POS
EPS = 1e-5
# Initial values, close to the trained geometry: A, start, stride and amp, phase, slope, offset.
ARC = (2.5, -1.2, 0.29)
SPIRAL = (3.5, 0.0, 0.15, 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitSubspace(Spec):
    """34 tokens, units first: X0..X9 PLUS Y0..Y9 EQUALS Z0..Z10 EOS; every delimiter is token 0."""

    family: ClassVar[str] = "split_subspace"

    circular: bool = option(
        False,
        "digits lie on a circle: one radius for both axes of the arc",
        off=False,
        source="57p paper 2.1",
    )
    frozen_spiral: bool = option(
        False, "digit positions are a fixed spiral with nothing to learn", off=False, source="57p paper 2.2"
    )
    qk_dim: int = option(
        5, "width of the query/key space", unit="dimensions", low=2, high=16, off=5, source="57p paper 2.3"
    )
    tie_vo: bool = option(
        False, "values are read through the output head (V = headᵀ)", off=False, source="57p paper 2.4"
    )
    tie_fc2_head: bool = option(
        False, "the FFN writes through the output head (fc2 = headᵀ)", off=False, source="57p paper 2.4"
    )
    rank1_out: bool = option(
        False, "the attention output is a product of a column and a row", off=False, source="57p paper 2.5"
    )
    shared_norm: bool = option(
        False, "one weight vector serves all three norms", off=False, source="57p paper 2.6"
    )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {"arc": (3 if self.circular else 4,)}
        if not self.frozen_spiral:
            shapes["spiral"] = (4,)
        shapes |= {"z_hi": (POS,), "equals": (POS,), "phase": (1,), "q_proj": (self.qk_dim, POS)}
        if not self.tie_vo:
            shapes["v_proj"] = (WIDTH, TOK)
        shapes |= {"out_A": (WIDTH, 1), "out_B": (1, WIDTH)} if self.rank1_out else {"out": (WIDTH, WIDTH)}
        shapes["fc1"] = (FFN, WIDTH)
        if not self.tie_fc2_head:
            shapes["fc2"] = (WIDTH, FFN)
        shapes["head"] = (TOK, WIDTH)
        return shapes | {"norm": (1 if self.shared_norm else 3, WIDTH)}

    def initial(self, seed: int) -> Tensor:
        """The published draws in the published order, from torch's CPU generator.

        Modules draw their default initialisation when they are made; the Xavier draws that follow
        overwrite it, but the generator has moved on, so the first draws must be made all the same.
        """
        gen = torch.Generator().manual_seed(seed)
        drawn = {name: torch.empty(shape) for name, shape in self.shapes().items() if len(shape) == 2}
        made = [n for n in ("q_proj", "v_proj", "out", "out_A", "fc1", "fc2", "head") if n in drawn]
        for name in made:
            init.kaiming_uniform_(drawn[name], a=math.sqrt(5), generator=gen)
        special = {name: torch.empty(POS).normal_(0, 0.02, generator=gen) for name in ("z_hi", "equals")}
        for name in made:
            if name != "out_A":
                init.xavier_uniform_(drawn[name], generator=gen)
        arc = ARC if self.circular else (ARC[0], *ARC)
        fixed = {"arc": torch.tensor(arc), "spiral": torch.tensor(SPIRAL), "phase": torch.zeros(1)}
        silent = {"out_B": torch.zeros(1, WIDTH), "norm": torch.ones_like(drawn["norm"])}
        return self.layout.join(drawn | special | fixed | silent)

    def sequence(self, x: list[Tensor], y: list[Tensor], z: list[Tensor]) -> list[Tensor]:
        delimiter = torch.zeros_like(x[0])
        end = [delimiter] if len(z) == DIGITS + 1 else []
        return [*x, delimiter, *y, delimiter, *z, *end]

    def forward(self, theta_SP: Tensor, tokens_STB: Tensor, first: int) -> list[Tensor]:
        p = {name: _scalars(t) for name, t in self.layout.split(theta_SP).items()}
        norm = p["norm"] * 3 if self.shared_norm else p["norm"]
        length = tokens_STB.shape[1]
        table = _token_table(p["arc"])
        pos = [c[:, :length] for c in self._positions(p, theta_SP)]
        attended = self._attend(p, norm[0], table, pos, tokens_STB, first)

        write = _columns(p["out_B"]) if self.rank1_out else _product(p["out"], self._values(p))
        queries = tokens_STB[:, first:]
        stream = [_lookup(axis, queries) for axis in table] + [c[:, first:] for c in pos]
        stream = [h + _dot(w, attended) for h, w in zip(stream, write, strict=True)]

        hidden = [F.gelu(_dot(row, _rmsnorm(stream, norm[1]))) for row in p["fc1"]]
        fc2 = _columns(p["head"]) if self.tie_fc2_head else p["fc2"]
        stream = [h + _dot(w, hidden) for h, w in zip(stream, fc2, strict=True)]

        out = [_dot(row, _rmsnorm(stream, norm[2])) for row in p["head"]]
        return [_dot([axis[v] for axis in table], out) for v in range(self.vocabulary)]

    def _attend(self, p, norm, table, pos, tokens_STB, first):  # type: ignore[no-untyped-def]
        """The attention output before it is written to the residual: channels [S, A, B].

        V and the output projection are linear, so they are multiplied before anything is attended to:
        one channel for the rank-1 output, TOK for the full one. RMSNorm scales a position by a number
        that depends on the token's length alone; on a circle all tokens are equally long, the problem
        axis of the scores keeps size 1, and broadcasting does the rest (57p paper 2.1).
        """
        lengths = [_dot([axis[v] for axis in table], [axis[v] for axis in table]) for v in range(DIGITS)]
        if self.circular:
            lengths = [p["arc"][0] * p["arc"][0]]
        pos_length = _dot(pos, pos)
        scale = _lookup([torch.rsqrt((n + pos_length) / WIDTH + EPS) for n in lengths], tokens_STB)

        weighted = [c * w for c, w in zip(pos, norm[TOK:], strict=True)]
        keys = [_dot(row, weighted) for row in p["q_proj"]]
        queries = _rotate([k[:, first:] for k in keys], p["phase"][0])
        form_SAT1 = _dot(queries, [k.transpose(1, 2) for k in keys])[..., None]
        scores = form_SAT1 * scale[:, first:, None] * scale[:, None] / math.sqrt(self.qk_dim)
        length = tokens_STB.shape[1]
        future = torch.ones(length - first, length, dtype=torch.bool, device=scores.device).triu(first + 1)
        attention = torch.softmax(scores.masked_fill(future[..., None], -torch.inf), dim=2)

        read = _product(_columns(p["out_A"]), self._values(p)) if self.rank1_out else _identity(norm[0])
        read = [[r * w for r, w in zip(row, norm, strict=False)] for row in read]
        values = [[_dot(row, [axis[v] for axis in table]) for v in range(DIGITS)] for row in read]
        return [(attention * (_lookup(v, tokens_STB) * scale)[:, None]).sum(2) for v in values]

    def _values(self, p):  # type: ignore[no-untyped-def]
        """The value projection [WIDTH][TOK]."""
        return _columns(p["head"]) if self.tie_vo else p["v_proj"]

    def _positions(self, p, theta_SP: Tensor) -> list[Tensor]:  # type: ignore[no-untyped-def]
        """Position vectors, POS tensors [S, 34, 1]: X, Y and Z share the digits' spiral; Z10 is z_hi."""
        index = torch.arange(DIGITS, dtype=theta_SP.dtype, device=theta_SP.device)[None, :, None]
        amp, phase, slope, offset = SPIRAL if self.frozen_spiral else p["spiral"]
        angle = 2 * math.pi * index / DIGITS + phase
        one_S11 = torch.ones_like(theta_SP[:, :1, None])
        digits = [amp * torch.cos(angle), amp * torch.sin(angle), slope * index + offset]
        zero = torch.zeros_like(one_S11)
        return [
            torch.cat([d, zero, d, equals, d, z_hi, zero], dim=1)
            for d, equals, z_hi in zip([d * one_S11 for d in digits], p["equals"], p["z_hi"], strict=True)
        ]


def _scalars(t_S: Tensor):  # type: ignore[no-untyped-def]
    """A parameter tensor [S, *shape] as nested lists of scalars [S, 1, 1]."""
    if t_S.dim() == 1:
        return t_S[:, None, None]
    return [_scalars(part) for part in t_S.unbind(1)]


def _token_table(arc: Sequence[Tensor]) -> list[list[Tensor]]:
    """The digits on an arc, [TOK][V]; A serves both axes where the arc has three numbers."""
    radius, start, stride = [arc[0], arc[-3]], arc[-2], arc[-1]
    angles = [start + v * stride for v in range(DIGITS)]
    return [[radius[0] * torch.cos(a) for a in angles], [radius[1] * torch.sin(a) for a in angles]]


def _lookup(entries: Sequence[Tensor], tokens_STB: Tensor) -> Tensor:
    """entries[token]: selects instead of gathers, so that it vectorises along problems.

    A single entry stands for all tokens and keeps the problem axis at size 1.
    """
    out = entries[0]
    for v, entry in enumerate(entries[1:], start=1):
        out = torch.where(tokens_STB == v, entry, out)
    return out


def _dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total


def _columns(matrix: list[list[Tensor]]) -> list[list[Tensor]]:
    return [list(column) for column in zip(*matrix, strict=True)]


def _product(a: list[list[Tensor]], b: list[list[Tensor]]) -> list[list[Tensor]]:
    return [[_dot(row, column) for column in _columns(b)] for row in a]


def _identity(like: Tensor) -> list[list[Tensor]]:
    one, zero = torch.ones_like(like), torch.zeros_like(like)
    return [[one if i == j else zero for j in range(TOK)] for i in range(TOK)]


def _rmsnorm(stream: list[Tensor], weight: list[Tensor]) -> list[Tensor]:
    """x / sqrt(mean(x²) + 1e-5) · w over the feature list (57p paper 2.6)."""
    scale = torch.rsqrt(_dot(stream, stream) / WIDTH + EPS)
    return [h * scale * w for h, w in zip(stream, weight, strict=True)]


def _rotate(q: list[Tensor], angle: Tensor) -> list[Tensor]:
    """Rotate the pairs (0,1), (2,3) ... by one angle; an odd last entry stays (57p paper 2.3)."""
    cos, sin = torch.cos(angle), torch.sin(angle)
    turned = [
        part for a, b in zip(q[::2], q[1::2], strict=False) for part in (a * cos - b * sin, a * sin + b * cos)
    ]
    return turned + q[len(turned) :]
