"""A net as this machine runs its exported program: what does not depend on the problem, taken from it to the bit.

Assumed of this machine: queries, keys and values of a position depend on its token, its index and the sequence's
length alone; where the program has scores as a matrix product, a score depends on its two positions alone.

Axes: H head, T position, V vocabulary, D width, n width of a head.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from adders.proof.attention import Attention, Query
from adders.proof.net import Net
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


def capture(net: Net, program: Program) -> Net:
    """Return a net with its tables, norms and output as the program computes them."""
    import torch

    # its scores have norms and turns in them, which `Captured` does not take from a run
    if net.turned:
        raise ValueError("proofs of the rope family are for any machine, at level 'any'")
    model = program.model
    places, vocabulary, _ = net.residual.value.shape
    if hasattr(model, "ties"):
        # a tied program reads its weights anew at each forward pass
        with torch.no_grad():
            model.weights = {name: model.entries(k) for name, k in model.ties.items()}
    if not hasattr(model, "token_table"):
        # low_rank: weights are read as they are
        weights = model.weights
        with torch.no_grad():
            positions = weights["pos_A"] @ weights["pos_B"] if "pos_A" in weights else weights["positions"]
            residual = weights["tokens"][None] + positions[:places, None]
        return replace(net, residual=_exact(residual))
    with torch.no_grad():
        table = model.token_table()
        positions = model.positions()
        norm_weights = model.norms()
        out = _exact(model.output().T).value
    tokens_TVK = table[None].expand(places, -1, -1)
    positions_TVC = positions[:places, None].expand(-1, vocabulary, -1)
    residual = torch.cat([tokens_TVK, positions_TVC], -1)
    first, second, third = (replace(n, weight=_exact(w)) for n, w in zip(net.norms, norm_weights, strict=True))
    # the factors stay, so that channels are those of other machines; what float32 has otherwise is an error
    real = net.channels @ net.writes
    return replace(
        net,
        residual=_exact(residual),
        shared=np.zeros_like(net.shared),
        norms=(first, second, third),
        out=Chain(Approx(real, np.abs(out - real))),
        table=_exact(table),
    )


def _exact(tensor: Tensor) -> Approx:
    """Return what float32 has, without an error."""
    return Approx(tensor.detach().double().numpy())


class Captured(Attention):
    """Attention of one machine's program."""

    def __init__(self, net: Net, machine: Machine, program: Program):
        super().__init__(net, machine)
        self.program, self.is_product = program, is_matrix_product(net, program)

    def ask(self, k: int) -> list[Query]:
        length = self.net.prompt + k
        # one run per token, of sequences that are nothing but it, has the numbers of that token at every position
        self.runs: list[list[Any]] = []
        for token in range(self.net.vocabulary):
            captured = self.program.captured([token] * length)[:3]
            self.runs.append([part if part.dim() == 3 else part[None] for part in captured])
        self.queries, self.keys, self.values = (self._by_token(i) for i in range(3))
        return super().ask(k)

    def _by_token(self, i: int) -> Approx:
        """Return queries (0), keys (1) or values (2) of all runs [T, V, H · n]."""
        runs_HTVn = np.stack([_exact(run[i]).value for run in self.runs], 2)
        rows_TVHn = np.moveaxis(runs_HTVn, 0, 2)
        return Approx(rows_TVHn.reshape(*rows_TVHn.shape[:2], -1))

    def scores(self, h: int, last: int, token: int, allowed: Array) -> tuple[Array, Array, Array]:
        net = self.net
        none_shared = np.zeros(net.asked.columns)
        if self.is_product:
            query_run = self.runs[token]
            rows = [products(net, query_run[0], run[1])[h, last] for run in self.runs]
            score = np.stack([_exact(row).value for row in rows], 1)
            return score, np.zeros_like(score), none_shared
        # a fused kernel: queries and keys are known to the bit, its sums are not
        size = self.queries.value.shape[-1] // net.heads
        part = slice(h * size, (h + 1) * size)
        query = self.queries.value[last, token, part]
        keys = self.keys.value[:, :, part]
        terms = np.abs(net.scale * keys * query)
        total = terms.sum(-1)
        # the scale may be a factor of each of both, or of their product
        scaled = int(net.scale != 1)
        lost = relative if scaled else rounding
        error = (1 + 2 * scaled) * lost(terms).sum(-1) + (size - 1 + 2 * scaled) * lost(total)
        return net.scale * (keys @ query), error * SUMMED + SLACK * total, none_shared

    # values are known to the bit
    def _value_error(self, h: int, length: int) -> Array:
        return np.zeros((length, self.net.vocabulary, self.net.channels.shape[1]))


def products(net: Net, queries: Tensor, keys: Tensor) -> Tensor:
    """Return the scores [H, T, T] of queries and keys [H, T, n] as a program without a fused kernel has them."""
    if not net.alike:
        return queries @ keys.mT / math.sqrt(queries.shape[-1])
    # as torch's attention has them: both scaled by the root, with a batch axis
    root = math.sqrt(net.scale)
    return (queries[None] * root @ (keys[None] * root).mT)[0]


def is_matrix_product(net: Net, program: Program) -> bool:
    """True if `products`, softmax and a product with values give what attention gives, to the bit."""
    import torch

    if not net.alike:
        # low_rank's program writes its products out
        return True
    draws = np.random.default_rng(3)
    columns = net.asked.columns
    # torch's kernels change with the length
    for length in (net.prompt, net.prompt + columns // 2, net.prompt + columns):
        tokens = draws.integers(0, net.asked.base, length).tolist()
        q, k, v, seen = program.captured(tokens)
        # a position does not see later ones
        future = torch.full((length, length), -math.inf).triu(1)
        weights = torch.softmax(products(net, q, k) + future, -1)
        if not torch.equal(weights @ v, seen):
            return False
    return True
