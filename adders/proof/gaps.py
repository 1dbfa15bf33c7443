"""From the channels of attention to the gap between the right token's logit and each other one.

Gaps are taken before the last norm's scale, a positive number that changes no sign. A box of channels, and every
rounding of float32 on the way, move a gap by no more than its slope along each, bounded over the whole box and all
roundings at once (the mean value theorem).

Axes: N box, R channel, D width, F hidden unit, K entry that the token table reads, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adders.proof.attention import Query
from adders.proof.columns import Ints
from adders.proof.intervals import Interval
from adders.proof.net import Net, Norm, welford
from adders.proof.rounding import (
    SLACK,
    TINY,
    Array,
    Chain,
    Lost,
    Machine,
    U,
    gamma,
    require_finite,
    require_range,
)

SPARE = 1.02
"""Factor of what boxes and roundings take, so that a checker may bound them otherwise."""
EVALUATION = 1e-12
"""Relative error of a gap at a point, evaluated in float64."""


@dataclass(frozen=True)
class Bounds:
    """Gaps over boxes: lower bounds of the real ones [N, V], what roundings may take of them [N, V], and an upper
    bound of the number by which a gap is divided to be one of logits [N]."""

    low: Array
    loss: Array
    scale: Array


@dataclass(frozen=True)
class Rounded:
    """A step's result as float32 may have it [N, X], and the error that this step adds [N, X]."""

    range: Interval
    error: Array


@dataclass(frozen=True)
class Forward:
    """Ranges of all that is computed, from the residual behind attention on."""

    first: Rounded
    centred: Rounded
    root: Interval
    """1 / the norm's root mean square [N]."""
    scaling: Array
    """Its relative error in float32 [N, 1]."""
    normed: Rounded
    hidden: Rounded
    gate: Rounded
    second: Rounded
    last: Rounded
    """The second residual, centred."""
    scale: Interval
    """Its root mean square [N]."""
    last_scaling: Array
    """The relative error of that in float32 [N, 1]."""


class Gaps:
    """What follows attention, for one query."""

    def __init__(self, net: Net, query: Query, machine: Machine):
        self.net, self.query, self.machine = net, query, machine
        width = self.width = len(query.base)
        _, self.norm, self.ending = net.norms
        self.centre: Array = np.eye(width) - (1 / width if self.norm.centre else 0)
        self.head = np.eye(width) if net.head is None else net.head.matrix
        self.read: Array = self.ending.weight.value[:, None] * self.head
        bias = np.zeros(width) if self.ending.bias is None else self.ending.bias.value
        self.bias: Array = bias @ self.head
        self.difference: Array = net.table.value[:, None] - net.table.value[None]
        """[V right, V, K]."""
        offset = np.zeros(width) if self.norm.bias is None else self.norm.bias.value
        self.offset: Array = offset @ net.fc1.matrix + self._bias(net.fc1_bias)
        """What is in a hidden unit's input beside the normed residual [F]."""
        require_range(width * np.abs(self.ending.weight.value) @ np.abs(self.head) @ net.table.size.T)

    @staticmethod
    def _bias(bias: Array | None) -> Array:
        return np.zeros(1) if bias is None else bias

    def at(self, channels: Array, right: Ints) -> tuple[Array, Array]:
        """Return the real gaps of each right token to all [N, V], and the scale that makes logits of them [N].

        channels [N, R], right [N]. In float64.
        """
        net, norm = self.net, self.norm
        first = self.query.base + channels @ net.writes
        y = first @ self.centre
        n = y / np.sqrt((y * y).mean(-1, keepdims=True) + norm.eps) * norm.weight.value
        hidden = n @ net.fc1.matrix + self.offset
        second = first + net.bend.at(hidden) @ net.fc2.matrix + self._bias(net.fc2_bias)
        last = second @ self.centre
        scale = np.sqrt((last * last).mean(-1) + self.ending.eps)
        gaps: Array = np.einsum(
            "nk,nvk->nv",
            last @ self.read + self.bias * scale[:, None],
            self.difference[right],
        )
        require_finite(gaps)
        return gaps, scale

    def over(self, low: Array, high: Array, right: Ints) -> Bounds:
        """Bound the gaps over boxes of channels [N, R], whatever float32 does."""
        middle, radius = 0.5 * (low + high), 0.5 * (high - low) * (1 + 1e-12) + 1e-300
        values = self._forward(Interval(low, high))
        table = self.difference[right]
        gaps, _ = self.at(middle, right)
        last, scale = values.last.range, values.scale
        read = last.size @ np.abs(self.read) + np.abs(self.bias) * scale.high[:, None]
        loss = self._last_loss(values, read, right)
        slopes = self._slopes(values)
        box = slopes.pop("box")
        gaps = gaps - EVALUATION * np.einsum("nk,nvk->nv", read, np.abs(table)) - SPARE * _effect(table, box, radius)
        errors = {
            "first": values.first.error,
            "centred": values.centred.error,
            "root": values.scaling,
            "normed": values.normed.error,
            "hidden": values.hidden.error,
            "gate": values.gate.error,
            "second": values.second.error,
            "last": values.last.error,
        }
        for name, slope in slopes.items():
            loss = loss + _effect(table, slope, errors[name])
        require_finite(gaps, loss)
        return Bounds(gaps, loss * SPARE, scale.high)

    def _forward(self, box: Interval) -> Forward:
        net, norm, query, machine = self.net, self.norm, self.query, self.machine
        real = box.linear(net.writes) + Interval(query.base, query.base)
        first = _rounded(real, query.base_loss + U * (real.size + query.base_loss))
        centred = self._centred(first.range)
        y = centred.range
        require_range(y.size**2)
        size, scaling = self._size(first.range, y, norm)
        root = size.reciprocal()
        root = root.wider(root.high * scaling)
        n = (y * root[:, None]).times(norm.weight.value)
        error = n.size * (gamma(2) + SLACK) + y.size * root.high[:, None] * norm.weight.error
        error = error + TINY * (1 + np.abs(norm.weight.value))
        normed = Rounded(n.wider(error), error)
        if norm.bias is not None:
            biased = normed.range + Interval(norm.bias.value, norm.bias.value)
            normed = _rounded(biased, error + U * biased.size)
        hidden = self._through(net.fc1, normed.range, net.fc1_bias)
        gate, gate_error = net.bend.over(hidden.range, machine)
        written = self._through(net.fc2, gate, net.fc2_bias)
        total = first.range + written.range
        second = _rounded(total, written.error + U * total.size)
        last = self._centred(second.range)
        require_range(last.range.size**2)
        scale, last_scaling = self._size(second.range, last.range, self.ending)
        return Forward(
            first,
            centred,
            root,
            scaling[:, None],
            normed,
            hidden,
            Rounded(gate, gate_error),
            second,
            last,
            scale,
            last_scaling[:, None],
        )

    def _size(self, x: Interval, centred: Interval, norm: Norm) -> tuple[Interval, Array]:
        """Return the root mean square of centred x [N, D], with ε [N], and its relative error in float32 [N]."""
        mean = centred.square().sum(-1).times(1 / self.width)
        mean = Interval(np.maximum(mean.low, 0), mean.high)  # whatever the sum of squares loses
        size = (mean + Interval(*[np.array(norm.eps)] * 2)).root()
        error: Array = np.full(len(size.low), gamma(self.width + 3))
        if norm.centre:
            error = welford(x.size, size.low[:, None])[1][:, 0]
        if not (error < 0.5).all():
            raise Lost("a norm's argument is lost in rounding")
        return size, (error / 2 + error**2 + gamma(self.machine.rsqrt)) * 1.01

    def _centred(self, x: Interval) -> Rounded:
        """Take the mean away where the norm does."""
        if not self.norm.centre:
            return Rounded(x, np.zeros((1, 1)))
        centred = x.linear(self.centre)
        return _rounded(centred, welford(x.size, np.ones(1))[0])

    def _through(self, chain: Chain, x: Interval, bias: Array | None) -> Rounded:
        """Apply linear maps and add a bias. The error is what they add to that of x."""
        plus = self._bias(bias)
        return _rounded(x.linear(chain.matrix) + Interval(plus, plus), chain.loss(x.size, plus))

    def _slopes(self, values: Forward) -> dict[str, Interval]:
        """Return the slopes [N, K, X] of what the token table reads, along what each step computes and channels."""
        net, last = self.net, values.last.range
        along_last = Interval(*[self.read.T[None]] * 2)
        if self.bias.any():
            along_scale = (last * values.scale.reciprocal()[:, None]).times(1 / self.width)
            along_last = along_last + along_scale[:, None] * Interval(*[self.bias[None, :, None]] * 2)
        second = along_last.linear(self.centre)
        gate = second.linear(net.fc2.matrix.T)
        hidden = net.bend.slopes(gate, values.hidden.range)
        normed = hidden.linear(net.fc1.matrix.T)
        inputs = values.hidden.range + Interval(-self.offset, -self.offset)
        root = (hidden * inputs[:, None]).sum(-1)[..., None]  # along the logarithm
        square = (values.root * values.root)[:, None]
        pull = root * (values.centred.range * square).times(-1 / self.width)[:, None]
        centred = normed.times(self.norm.weight.value) * values.root[:, None, None] + pull
        first = second + centred.linear(self.centre)
        slopes = {
            "first": first,
            "root": root,
            "normed": normed,
            "hidden": hidden,
            "gate": gate,
            "second": second,
        }
        if self.norm.centre:
            slopes |= {"centred": centred, "last": along_last}
        return slopes | {"box": first.linear(net.writes.T)}

    def _last_loss(self, values: Forward, read: Array, right: Ints) -> Array:
        """Bound what the last norm, the head and the token table lose of each gap [N, V].

        read: bounds of what the table reads [N, K].
        """
        net, weight = self.net, self.ending.weight
        size = values.last.range.size
        scaled = size * np.abs(weight.value)
        tiny = 4 * self.width * TINY * values.scale.high[:, None]  # what is too small for float32, by product
        error = scaled * (gamma(2) + SLACK) + size * weight.error + tiny * (1 + np.abs(weight.value))
        table = net.table.size[right][:, None] + net.table.size[None]
        difference = np.abs(self.difference[right]) + net.table.error[right][:, None] + net.table.error[None]
        lost = np.zeros_like(read)
        if self.ending.bias is not None:
            biased = scaled + np.abs(self.ending.bias.value) * values.scale.high[:, None]
            error, scaled = error + U * biased, biased
            # the bias counts by the inverse of the scale, which float32 has otherwise
            lost = lost + np.abs(self.bias) * values.scale.high[:, None] * (values.last_scaling * 1.01)
        lost = lost + error @ np.abs(self.head)
        if net.head is not None:  # float32 has these numbers times the scale, so a rounding may be twice as large
            lost = lost + 2 * net.head.loss(scaled + error) + tiny
        read = read + lost
        sums = gamma(table.shape[-1]) + SLACK
        errors = net.table.error[right][:, None] + net.table.error[None]
        loss: Array = np.einsum("nk,nvk->nv", lost, difference) + np.einsum("nk,nvk->nv", read, table * sums + errors)
        return loss + tiny


def _rounded(x: Interval, error: Array) -> Rounded:
    error = error + TINY
    return Rounded(x.wider(error), error)


def _effect(table: Array, slope: Interval, error: Array) -> Array:
    """Bound how far errors [N, X] move each gap [N, V], slopes [N, K, X] being of what the table reads.

    table: differences of its rows [N, V, K].
    """
    plus, minus = np.maximum(table, 0), np.minimum(table, 0)
    low, high = np.broadcast_arrays(slope.low, slope.high)
    size = np.maximum(np.abs(plus @ low + minus @ high), np.abs(plus @ high + minus @ low))
    size = size + np.abs(table) @ slope.size * 1e-14
    effect: Array = (size * error[:, None]).sum(-1)
    return effect
