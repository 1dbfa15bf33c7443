"""A net as this machine runs its exported program: what does not depend on the problem, taken from it to the bit.

Queries, keys and values of a position are taken to depend on its token, its index and the sequence's length alone;
scores of two positions, where the program multiplies them as a matrix product, on these two alone.

Axes: H head, T position, V vocabulary, D width, n width of a head.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from adders.proof.attention import Attention, Query
from adders.proof.net import COLUMNS, Net
from adders.proof.program import Program
from adders.proof.rounding import (
    SLACK,
    SUMMED,
    Approx,
    Array,
    Chain,
    Machine,
    relative,
    rounding,
)

if TYPE_CHECKING:
    from torch import Tensor

LENGTHS = (22, 27, 32)
"""Of the sequences by which the way of attention is told."""


def capture(net: Net, program: Program) -> Net:
    """Return a net with its tables, norms and output as the program computes them."""
    import torch

    if net.turned:
        raise ValueError("proofs of the rope family are for any machine, at level 'any'")
    if not hasattr(program.model, "token_table"):  # low_rank: weights are read as they are
        weights, length = program.model.weights, len(net.residual.value)
        with torch.no_grad():
            positions = weights["pos_A"] @ weights["pos_B"] if "pos_A" in weights else weights["positions"]
            residual = _exact(weights["tokens"][None] + positions[:length, None])
        return replace(net, residual=residual)
    model = program.model
    with torch.no_grad():
        if hasattr(model, "ties"):
            model.weights = {name: model.entries(k) for name, k in model.ties.items()}
        table, positions, norms, out = (
            model.token_table(),
            model.positions(),
            model.norms(),
            model.output(),
        )
    places, vocabulary = net.residual.value.shape[:2]
    pairs = [
        table[None].expand(places, -1, -1),
        positions[:places, None].expand(-1, vocabulary, -1),
    ]
    real = net.channels @ net.writes
    first, second, third = (replace(n, weight=_exact(w)) for n, w in zip(net.norms, norms, strict=True))
    return replace(
        net,
        residual=_exact(torch.cat(pairs, -1)),
        shared=np.zeros_like(net.shared),
        norms=(first, second, third),
        out=Chain(Approx(real, np.abs(_exact(out.T).value - real))),
        table=_exact(table),
    )


def _exact(tensor: Tensor) -> Approx:
    return Approx(tensor.detach().double().numpy())


class Captured(Attention):
    """Attention of one machine's program."""

    def __init__(self, net: Net, machine: Machine, program: Program):
        super().__init__(net, machine)
        self.program, self.is_product = program, is_matrix_product(net, program)

    def ask(self, k: int) -> list[Query]:
        length = self.net.prompt + k
        runs = [self.program.captured([v] * length)[:3] for v in range(self.net.vocabulary)]
        self.runs: list[Any] = [[part if part.dim() == 3 else part[None] for part in run] for run in runs]
        stacked = (np.stack([_exact(run[i]).value for run in self.runs], 2) for i in range(3))
        self.queries, self.keys, self.values = (
            Approx(np.moveaxis(part, 0, 2).reshape(length, self.net.vocabulary, -1)) for part in stacked
        )
        return super().ask(k)

    def scores(self, h: int, last: int, token: int, allowed: Array) -> tuple[Array, Array, Array]:
        net = self.net
        if self.is_product:
            rows = [products(net, self.runs[token][0], run[1])[h, last] for run in self.runs]
            score = np.stack([_exact(row).value for row in rows], 1)
            return score, np.zeros_like(score), np.zeros(COLUMNS)
        size = self.queries.value.shape[-1] // net.heads
        part = slice(h * size, (h + 1) * size)
        query, keys = self.queries.value[last, token, part], self.keys.value[:, :, part]
        terms, scaled = np.abs(net.scale * keys * query), int(net.scale != 1)
        total, lost = terms.sum(-1), relative if scaled else rounding
        error = (1 + 2 * scaled) * lost(terms).sum(-1) + (size - 1 + 2 * scaled) * lost(total)
        return (
            net.scale * (keys @ query),
            error * SUMMED + SLACK * total,
            np.zeros(COLUMNS),
        )

    def _value_error(self, h: int, length: int) -> Array:
        return np.zeros((length, self.net.vocabulary, self.net.channels.shape[1]))


def products(net: Net, queries: Tensor, keys: Tensor) -> Tensor:
    """Return the scores [H, T, T] as matrix products of queries and keys [H, T, n], as a program has them that does
    not use a fused kernel.
    """
    if not net.alike:
        return queries @ keys.mT / math.sqrt(queries.shape[-1])
    root = math.sqrt(net.scale)
    return (queries[None] * root @ (keys[None] * root).mT)[0]


def is_matrix_product(net: Net, program: Program) -> bool:
    """True if `products`, softmax and a product with values give what attention gives, to the bit."""
    import torch

    if not net.alike:
        return True
    draws = np.random.default_rng(3)
    for length in LENGTHS:
        q, k, v, seen = program.captured(draws.integers(0, 10, length).tolist())
        future = torch.full((length, length), -math.inf).triu(1)
        if not torch.equal(torch.softmax(products(net, q, k) + future, -1) @ v, seen):
            return False
    return True
