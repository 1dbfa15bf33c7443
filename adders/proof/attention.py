"""What attention writes when a digit is asked for, as sums over positions: each term a function of one token.

A head's channel is N / D with N = Σ e (1 + η) u and D = Σ e (1 + η), sums over positions: e = exp(score - top)
and u depend on the position's token alone, |η| <= spread is what float32 does to a weight. So the extremes of a
channel over all inputs *and* all roundings of weights are those of sums over columns (columns.py).

Axes: H head, T position, Q query token, V vocabulary, D width, E values of one head, R channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adders.proof.net import Net, normed
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
    """What is known where digit k is asked for at a token, and what attention sees from there."""

    k: int
    token: int
    heads: list[Head]
    base: Array
    """The residual before attention [D]."""
    loss: Array
    """Bound of float32's error in channels by sums and quotients [R], whatever the inputs."""
    base_loss: Array
    """Bound of float32's error in the residual behind attention, without the channels' and the last sum's [D]."""


def possible(net: Net, k: int, token: int) -> Array:
    """Return 1 where a token can stand at a position when digit k is asked for at `token`, else 0 [T, V]."""
    allowed = np.zeros((net.prompt + k, net.vocabulary))
    # any digit at any place of a number: which of them go together, columns.py says
    allowed[:, : net.asked.base] = 1
    for place, only in (*net.fixed, (net.prompt - 1 + k, token)):
        allowed[place] = 0
        allowed[place, only] = 1
    return allowed


class Attention:
    """Queries, keys and values of every position and token of a net."""

    def __init__(self, net: Net, machine: Machine):
        self.net = net
        self.machine = machine
        norm = net.norms[0]
        self.normed = normed(net.residual, norm, machine)
        # a position's error is the same at all tokens, and moves the scores of a column together (`_shared`)
        alone = Approx(net.residual.value, net.residual.error - net.shared[:, None])
        self.alone = normed(alone, norm, machine)
        """Normed without the errors that places share."""
        self.values = net.value(self.normed.value)
        self.queries = net.query(self.normed.value)
        self.keys = net.key(self.normed.value)
        if net.turned:
            self.queries, self.keys = net.turned

    def ask(self, k: int) -> list[Query]:
        """Return what is seen when digit k is asked for, by query token."""
        net = self.net
        last = net.prompt - 1 + k
        answers = []
        for token in net.queries(k):
            allowed = possible(net, k, token)
            heads = []
            losses = []
            seen = []
            summed = []
            for h in range(net.heads):
                scores = self.scores(h, last, token, allowed)
                head, lost, size, off = self._head(h, *scores, allowed)
                heads.append(head)
                losses.append(lost)
                seen.append(size)
                summed.append(off)
            # the residual to which attention is added is that of the asking token, known without the numbers
            base = net.residual[last, token]
            written = net.out.loss(np.concatenate(seen))
            stray = self._stray(self.values[: last + 1], np.concatenate(summed))
            loss = np.sum(losses, axis=0)
            base_loss = SPARE * (base.error + written + stray) + TINY
            answers.append(Query(k, token, heads, base.value, loss, base_loss))
        return answers

    def _stray(self, values: Approx, summed: Array) -> Array:
        """Bound what the output writes beside the channels [D].

        values [T, V, E] with their errors. summed: what their sums lose [E].
        """
        net = self.net
        # 0 on all that values can be, but for what float64 lost of channels and writes
        beside = net.out.matrix - net.channels @ net.writes
        left = []
        for value, part in zip(np.split(values.value, net.heads, -1), np.split(beside, net.heads), strict=True):
            left.append(np.abs(value @ part).max((0, 1)))
        error = values.error.max((0, 1)) + summed
        stray: Array = np.sum(left, axis=0) + error @ np.abs(beside)
        return stray

    def scores(self, h: int, last: int, token: int, allowed: Array) -> tuple[Array, Array, Array]:
        """Return head h's scores [T, V] for `token` at the last position, with their errors beyond a common shift.

        Errors are those of each score [T, V], and what the scores of a column have in common [J]. An error of the
        query, or of the scale, moves all scores: only how differently from the largest counts.
        """
        net = self.net
        size = self.queries.value.shape[-1] // net.heads
        part = slice(h * size, (h + 1) * size)
        query = self.queries[last, token][part]
        keys = self.keys[: last + 1, :, part]
        score = net.scale * (keys.value @ query.value)
        # the key with which all others are compared: where errors are common to both, softmax does not see them
        top = np.unravel_index(np.where(allowed > 0, score, -np.inf).argmax(), score.shape)
        products = net.scale * keys.size * query.size
        total = products.sum(-1)
        if net.turned:
            # queries and keys are normed and turned, so errors are those of their entries (rope.py)
            sums = rounding(products).sum(-1) + (size - 1) * rounding(total)
            apart = np.abs(keys.value - keys.value[top]) @ query.error + keys.error @ query.size
            error = sums * SUMMED + net.scale * apart + SLACK * total
            return score, error, np.zeros(net.asked.columns)

        # keys: an error in the residual counts with all that follows it, where it may cancel
        slope = np.zeros(self.keys.value.shape[-1])
        slope[part] = net.scale * query.value
        # `alone`: what a position has wrong at all of its tokens comes below, by column
        rows = self.normed[: last + 1]
        alone = self.alone[: last + 1]
        error, along = net.key.error_along(rows.value, slope, alone.rest)
        error = error + np.abs(rows.scaled @ along) * alone.scale[..., 0]
        differing, shared = self._shared(along, last + 1)
        error = error + differing

        # products and their sum, which is scaled when all is added, or its terms before
        scaled = int(net.scale != 1)
        lost = relative if scaled else rounding
        error = error + (1 + scaled) * lost(products).sum(-1) + (size - 1 + scaled) * lost(total)

        # query: errors of its row's scale, and the rest, turn the differences of scores
        reader = self.normed[last, token]
        if reader.scale > MOST_SCALE:
            raise Lost("positions are lost in rounding")
        error = error * (SUMMED + reader.scale) + net.scale * (keys.error @ query.error) + SLACK * total
        turned = net.scale * (reader.scaled @ net.query.matrix[:, part])
        rest = net.query(Approx(reader.value.value, reader.rest)).error[part] * (1 + reader.scale)
        scaling = U * query.size + gamma(4) * np.abs(query.value)
        rest = net.scale * (rest + scaled * scaling)

        def turning(shift: Array) -> Array:
            """Bound what the query's error does to the difference of scores of keys that differ by `shift`."""
            effect: Array = np.abs(shift @ turned) * reader.scale + np.abs(shift) @ rest
            return effect

        # a column's mean key stands for what its scores have in common; other places are compared with the largest
        column = net.columns_of(last + 1)
        means = _column_means(net, keys.value)
        nearest = np.where(column[:, None] < 0, keys.value[top], means[column])
        shared = shared + turning(means - keys.value[top])
        return score, error + turning(keys.value - nearest[:, None]), shared

    def _shared(self, along: Array, length: int) -> tuple[Array, Array]:
        """Return what errors of positions do to scores: to each [T, V], and to all of a column [J].

        along: slope of a score along the normed residual [D]. A column's part is that of its mean token.
        """
        net = self.net
        norm = net.norms[0]
        x = net.residual.value[:length]
        if not net.alike:
            return np.zeros(x.shape[:2]), np.zeros(net.asked.columns)
        root = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + norm.eps)
        # the slope along x itself: directly, and by the norm, which x is a part of
        direct = root * (along * norm.weight.value)
        pull = (x * direct).sum(-1, keepdims=True) * root**2 * x / x.shape[-1]
        slope = direct - pull
        column = net.columns_of(length)
        means = _column_means(net, slope)
        nearest = np.where(column[:, None] < 0, 0.0, means[column])
        off = net.shared[:length, None]
        differing = (np.abs(slope - nearest[:, None]) * off).sum(-1)
        # half of the second derivative is less than 3 |direct| |off|² root / √D
        bend = 4 * np.sqrt((direct**2).mean(-1)) * (off**2).sum(-1) * root[..., 0]
        by_column = np.abs(means) * net.shared[[net.place(0, j) for j in range(net.asked.columns)]]
        return differing + bend, by_column.sum(-1)

    def _head(
        self, h: int, score: Array, error: Array, shared: Array, allowed: Array
    ) -> tuple[Head, Array, Array, Array]:
        """Return head h's terms and what its numbers lose, of `scores`' results and the tokens that can stand there.

        Behind the terms: the loss of its channels [R], a bound of the values that it sees [E], and one of what their
        sums lose [E]. Raises Lost if weights may be 0.
        """
        net = self.net
        length = len(score)
        size = self.values.value.shape[-1] // net.heads
        part = slice(h * size, (h + 1) * size)
        values = self.values[:length, :, part]
        channels = net.channels[part]
        top = score[allowed > 0].max()
        distance = np.maximum(top - score, 0)

        is_column = net.columns_of(length)[:, None] >= 0
        is_digit = np.arange(net.vocabulary) < net.asked.base
        counts = (allowed > 0) | (is_column & is_digit)
        error = np.where(counts, error, 0).max(1, keepdims=True)
        # exp's argument: the score's error, and the rounding of its distance from the largest
        exponent = error + (self.machine.shift * U + SLACK) * (distance + 2 * error) + SLACK
        # 1 is too much already (Lost below), and more might overflow
        exponent = np.minimum(exponent, 1)
        shared = np.minimum(shared, 1)
        spread = SPARE * (np.expm1(exponent) + gamma(self.machine.exp) * np.exp(exponent))
        common = SPARE * np.expm1(shared)
        if not (spread.max() < 0.5 and common.max() < 0.5):  # as `max` would pass a NaN
            raise Lost("scores are lost in rounding")
        weight = np.exp(np.minimum(score - top, 0)) * allowed

        # the output reads values by its channels alone, so that few numbers are left of many
        channel = values.value @ channels
        along = SPARE * self._value_error(h, length)
        head = Head(weight, spread, channel, along, common)

        # a weighted mean of values is no larger than the largest one
        largest = (values.size * allowed[..., None]).max((0, 1))
        require_range(largest)
        most = (np.abs(channel) * allowed[..., None]).max((0, 1))
        reached = largest @ np.abs(channels)
        # the sum of weights, their quotient, the sums of products; then what underflows
        sums = gamma(_additions(weight, allowed) + 2) + SLACK
        tiny = length * 8 * TINY
        loss = (most * sums + reached * sums) * SPARE**2 + tiny * (1 + reached)
        seen = largest * (1 + gamma(2 * length + 8))
        summed = 2 * SPARE**2 * largest * sums + tiny * (1 + largest)
        return head, loss, seen, summed

    def _value_error(self, h: int, length: int) -> Array:
        """Bound float32's error in the channels of each position's values [T, V, R]."""
        net = self.net
        rows = self.normed[:length]
        size = self.values.value.shape[-1] // net.heads
        part = slice(h * size, (h + 1) * size)
        errors = []
        # channel by channel, since errors of values that a channel does not read, or cancels, do not count
        for channel in net.channels.T:
            slope = np.zeros(len(channel))
            slope[part] = channel[part]
            error, along = net.value.error_along(rows.value, slope, rows.rest)
            errors.append(error + np.abs(rows.scaled @ along) * rows.scale[..., 0])
        return np.stack(errors, -1)


def _column_means(net: Net, of_token: Array) -> Array:
    """Return the mean of the digits' numbers [T, V, ...] at the place of each column of the first operand [J, ...]."""
    places = [net.place(0, j) for j in range(net.asked.columns)]
    return of_token[places, : net.asked.base].mean(1)


def _additions(weight: Array, allowed: Array) -> float:
    """Bound the roundings of a sum of a head's weights [T, V], taken in any order, in u of the sum.

    An addition loses at most u of the whole, and at most either summand. Call a term large if it may be u / 2T of the
    sum or more; the largest one is. Of n large terms at most n - 1 additions have one in each summand, and each loses
    at most u of the whole. Any other addition has a summand of small terms alone. If the other one has a large term,
    the addition loses at most those small terms, and no two such additions have any in common. If it has none, u of
    its small terms is lost, and each term is added so at most T times. So at most 1/u + T of each small term's share
    is lost, and 2T/u of it are counted.
    """
    length = len(weight)
    # the smallest sum that any input has: each position's smallest weight
    least = np.where(allowed > 0, weight, np.inf).min(1).sum()
    require_weight(least)
    share = np.sort(weight.max(1) / least)[:-1]
    return float(np.minimum(1.0, 2 * length * share / U).sum())
