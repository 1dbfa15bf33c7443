"""What attention writes when a digit is asked for, as sums over positions: each term a function of one token.

A head's channel is N / D with N = Σ e (1 + η) u and D = Σ e (1 + η), sums over positions: e = exp(score - top)
and u depend on the position's token alone, |η| <= spread is what float32 does to a weight. So the extremes of a
channel over all inputs *and* all roundings of weights are those of sums over columns (columns.py).

Axes: H head, T position, Q query token, V vocabulary, D width, E values of one head, R channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adders.proof.net import COLUMNS, Net, normed
from adders.proof.rounding import (
    SLACK,
    SPARE,
    SUMMED,
    TINY,
    Approx,
    Array,
    Lost,
    Machine,
    U,
    gamma,
    relative,
    require_range,
    require_weight,
    rounding,
)

MOST_SCALE = 2.0**-14
"""Relative error of a query's norm: SPARE has room for what it does to errors that a column shares."""


@dataclass(frozen=True)
class Head:
    """Terms of one head for one query token [T, V]; entries of tokens that cannot stand there are 0."""

    weight: Array
    """e."""
    spread: Array
    """Bound of |η|."""
    value: Array
    """u [T, V, R]."""
    error: Array
    """Bound of float32's error in u [T, V, R]."""
    shared: Array
    """Bound of a further relative error that all weights of a column have in common [J]."""


@dataclass(frozen=True)
class Query:
    """Everything that a digit's position knows of its own token, and what it sees."""

    k: int
    token: int
    heads: list[Head]
    base: Array
    """The residual before attention [D]."""
    loss: Array
    """Bound of float32's error in channels by sums and quotients [R], whatever the inputs."""
    base_loss: Array
    """Bound of its error in the residual behind attention but for the channels' and the last sum's [D]."""


def possible(net: Net, k: int, token: int) -> Array:
    """Return 1 where a token can stand at a position when digit k is asked for at `token`, else 0 [T, V]."""
    allowed = np.zeros((net.prompt + k, net.vocabulary))
    allowed[:, :10] = 1
    for place, only in (*net.fixed, (net.prompt - 1 + k, token)):
        allowed[place] = 0
        allowed[place, only] = 1
    return allowed


class Attention:
    """Queries, keys and values of every position and token of a net."""

    def __init__(self, net: Net, machine: Machine):
        self.net, self.machine = net, machine
        self.normed = normed(net.residual, net.norms[0], machine)
        alone = Approx(net.residual.value, net.residual.error - net.shared[:, None])
        self.alone = normed(alone, net.norms[0], machine)
        """Normed without the errors that places share."""
        self.queries, self.keys, self.values = (c(self.normed.value) for c in (net.query, net.key, net.value))
        if net.turned:
            self.queries, self.keys = net.turned

    def ask(self, k: int) -> list[Query]:
        """Return what is seen when digit k is asked for, by query token."""
        net, length, last = self.net, self.net.prompt + k, self.net.prompt - 1 + k
        answers = []
        for token in net.queries(k):
            allowed = possible(net, k, token)
            heads, losses, seen, summed = [], [], [], []
            for h in range(net.heads):
                head, lost, size, off = self._head(h, *self.scores(h, last, token, allowed), allowed)
                heads.append(head)
                losses.append(lost)
                seen.append(size)
                summed.append(off)
            base = net.residual[last, token]
            written = net.out.loss(np.concatenate(seen))
            stray = self._stray(self.values[:length], np.concatenate(summed))
            answers.append(
                Query(
                    k,
                    token,
                    heads,
                    base.value,
                    np.sum(losses, axis=0),
                    SPARE * (base.error + written + stray) + TINY,
                )
            )
        return answers

    def _stray(self, values: Approx, summed: Array) -> Array:
        """Bound what the output writes beside the channels [D]: of values [T, V, E], of their errors, and of those of
        their sums [E].
        """
        net = self.net
        beside = net.out.matrix - net.channels @ net.writes
        heads = zip(
            np.split(values.value, net.heads, -1),
            np.split(beside, net.heads),
            strict=True,
        )
        left = np.sum([np.abs(value @ part).max((0, 1)) for value, part in heads], axis=0)
        stray: Array = left + (values.error.max((0, 1)) + summed) @ np.abs(beside)
        return stray

    def scores(self, h: int, last: int, token: int, allowed: Array) -> tuple[Array, Array, Array]:
        """Return a head's scores for one query [T, V], and the error that float32 makes beyond one common shift:
        that of each score, and what the scores of a column have in common [J].

        An error of the query, or of the scale, moves all scores: only how differently from the largest counts.
        """
        net, size = self.net, self.queries.value.shape[-1] // self.net.heads
        part = slice(h * size, (h + 1) * size)
        query, keys = self.queries[last, token][part], self.keys[: last + 1, :, part]
        score = net.scale * (keys.value @ query.value)
        top = np.unravel_index(np.where(allowed > 0, score, -np.inf).argmax(), score.shape)
        products = net.scale * keys.size * query.size
        total = products.sum(-1)
        if net.turned:
            sums = rounding(products).sum(-1) + (size - 1) * rounding(total)
            apart = np.abs(keys.value - keys.value[top]) @ query.error + keys.error @ query.size
            return (
                score,
                sums * SUMMED + net.scale * apart + SLACK * total,
                np.zeros(COLUMNS),
            )
        slope = np.zeros(self.keys.value.shape[-1])
        slope[part] = net.scale * query.value
        rows, alone = self.normed[: last + 1], self.alone[: last + 1]
        error, along = net.key.error_along(rows.value, slope, alone.rest)
        error = error + np.abs(rows.scaled @ along) * alone.scale[..., 0]
        differing, shared = self._shared(along, last + 1)
        error = error + differing
        scaled = int(net.scale != 1)
        lost = relative if scaled else rounding  # sums are scaled when all is added, or their terms before
        error = error + (1 + scaled) * lost(products).sum(-1) + (size - 1 + scaled) * lost(total)
        reader = self.normed[last, token]
        if reader.scale > MOST_SCALE:
            raise Lost("positions are lost in rounding")
        error = error * (SUMMED + reader.scale) + net.scale * (keys.error @ query.error) + SLACK * total
        column = net.columns_of(last + 1)
        means = np.stack([keys.value[net.place(0, j), :10].mean(0) for j in range(COLUMNS)])
        nearest = np.where(column[:, None] < 0, keys.value[top], means[column])
        turned = net.scale * (reader.scaled @ net.query.matrix[:, part])
        rest = net.query(Approx(reader.value.value, reader.rest)).error[part] * (1 + reader.scale)
        rest = net.scale * (rest + scaled * (U * query.size + gamma(4) * np.abs(query.value)))

        def turning(shift: Array) -> Array:
            """Bound what the query's error does to the difference of scores of keys that differ by so much."""
            effect: Array = np.abs(shift @ turned) * reader.scale + np.abs(shift) @ rest
            return effect

        shared = shared + turning(means - keys.value[top])
        return score, error + turning(keys.value - nearest[:, None]), shared

    def _shared(self, along: Array, length: int) -> tuple[Array, Array]:
        """Return what errors of positions do to scores: to each [T, V], and to all of a column [J].

        along: slope of a score along the normed residual [D]. A column's part is that of its mean token.
        """
        net, x, norm = self.net, self.net.residual.value[:length], self.net.norms[0]
        if not net.alike:
            return np.zeros(x.shape[:2]), np.zeros(COLUMNS)
        root = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + norm.eps)
        direct = root * (along * norm.weight.value)
        pull = (x * direct).sum(-1, keepdims=True) * root**2 * x / x.shape[-1]
        slope, column = direct - pull, net.columns_of(length)
        means = np.stack([slope[net.place(0, j), :10].mean(0) for j in range(COLUMNS)])
        nearest = np.where(column[:, None] < 0, 0.0, means[column])
        off = net.shared[:length, None]
        differing = (np.abs(slope - nearest[:, None]) * off).sum(-1)
        # half of the second derivative is less than 3 |direct| |off|² root / √D
        bend = 4 * np.sqrt((direct**2).mean(-1)) * (off**2).sum(-1) * root[..., 0]
        by_column = np.abs(means) * net.shared[[net.place(0, j) for j in range(COLUMNS)]]
        return differing + bend, by_column.sum(-1)

    def _head(
        self, h: int, score: Array, error: Array, shared: Array, allowed: Array
    ) -> tuple[Head, Array, Array, Array]:
        """Return a head's terms, the loss of its channels [R], and bounds of the values that it sees and of what their
        sums lose [E]. Raises Lost if weights may be 0.
        """
        net, length = self.net, len(score)
        size = self.values.value.shape[-1] // net.heads
        part = slice(h * size, (h + 1) * size)
        values = self.values[:length, :, part]
        channels = net.channels[part]
        top = score[allowed > 0].max()
        distance = np.maximum(top - score, 0)
        digit = net.columns_of(length)[:, None] >= 0
        error = np.where((allowed > 0) | (digit & (np.arange(net.vocabulary) < 10)), error, 0).max(1, keepdims=True)
        exponent = error + (self.machine.shift * U + SLACK) * (distance + 2 * error) + SLACK
        exponent, shared = (
            np.minimum(exponent, 1),
            np.minimum(shared, 1),
        )  # which is too much
        spread = SPARE * (np.expm1(exponent) + gamma(self.machine.exp) * np.exp(exponent))
        common = SPARE * np.expm1(shared)
        if not (spread.max() < 0.5 and common.max() < 0.5):  # as `max` would pass a NaN
            raise Lost("scores are lost in rounding")
        weight = np.exp(np.minimum(score - top, 0)) * allowed
        channel = values.value @ channels
        along = SPARE * self._value_error(h, length)
        largest = (values.size * allowed[..., None]).max((0, 1))
        require_range(largest)
        # the sum of weights, their quotient, the sums of products; then what underflows
        sums = gamma(_additions(weight, allowed) + 2) + SLACK
        loss = (np.abs(channel) * allowed[..., None]).max((0, 1)) * sums + largest @ np.abs(channels) * sums
        loss = loss * SPARE**2 + length * 8 * TINY * (1 + largest @ np.abs(channels))
        return (
            Head(weight, spread, channel, along, common),
            loss,
            largest * (1 + gamma(2 * length + 8)),
            2 * SPARE**2 * largest * sums + length * 8 * TINY * (1 + largest),
        )

    def _value_error(self, h: int, length: int) -> Array:
        """Bound float32's error in the channels of each position's values [T, V, R]."""
        net, rows = self.net, self.normed[:length]
        size = self.values.value.shape[-1] // net.heads
        errors = []
        for channel in net.channels.T:
            slope = np.zeros(len(channel))
            slope[h * size : (h + 1) * size] = channel[h * size : (h + 1) * size]
            error, along = net.value.error_along(rows.value, slope, rows.rest)
            errors.append(error + np.abs(rows.scaled @ along) * rows.scale[..., 0])
        return np.stack(errors, -1)


def _additions(weight: Array, allowed: Array) -> float:
    """Bound the roundings of a sum of a head's weights [T, V], taken in any order, in u of the sum.

    An addition loses at most u of the whole, and at most its smaller summand. That one's largest term is the largest
    of no other addition's smaller summand, nor the largest of all: so each term but that counts once, as u or less.
    """
    length = len(weight)
    least = np.where(allowed > 0, weight, np.inf).min(1).sum()
    require_weight(least)
    share = np.sort(weight.max(1) / least)[:-1]
    return float(np.minimum(1.0, 2 * length * share / U).sum())
