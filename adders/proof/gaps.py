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
    Approx,
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
    """Gaps over boxes."""

    low: Array
    """Lower bound of the real ones [N, V]."""
    loss: Array
    """Upper bound of what roundings take of them [N, V]."""
    scale: Array
    """Upper bound of the number by which a gap is divided to be one of logits [N]."""


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
        self.net = net
        self.query = query
        self.machine = machine
        width = self.width = len(query.base)
        _, self.norm, self.ending = net.norms
        self.centre: Array = np.eye(width) - (1 / width if self.norm.centre else 0)
        head = np.eye(width) if net.head is None else net.head.matrix
        self.head = head
        self.read: Array = self.ending.weight.value[:, None] * head
        """From the last norm's argument to what the token table reads [D, K], its scale left out."""
        self.bias: Array = _or_zeros(self.ending.bias, width) @ head
        self.difference: Array = net.table.value[:, None] - net.table.value[None]
        """[V right, V, K]."""
        self.fc1_bias = np.zeros(1) if net.fc1_bias is None else net.fc1_bias
        self.fc2_bias = np.zeros(1) if net.fc2_bias is None else net.fc2_bias
        self.offset: Array = _or_zeros(self.norm.bias, width) @ net.fc1.matrix + self.fc1_bias
        """What is in a hidden unit's input beside the normed residual [F]."""
        # a normed residual's entries are √D at most, and their sum with weights is a logit
        require_range(width * np.abs(self.ending.weight.value) @ np.abs(head) @ net.table.size.T)

    def at(self, channels: Array, right: Ints) -> tuple[Array, Array]:
        """Return the real gaps of each right token to all [N, V], and the scale that makes logits of them [N].

        channels [N, R], right [N]. In float64.
        """
        net = self.net
        norm = self.norm
        first = self.query.base + channels @ net.writes
        y = first @ self.centre
        size = np.sqrt((y * y).mean(-1, keepdims=True) + norm.eps)
        normed = y / size * norm.weight.value
        hidden = normed @ net.fc1.matrix + self.offset
        second = first + net.bend.at(hidden) @ net.fc2.matrix + self.fc2_bias
        last = second @ self.centre
        scale = np.sqrt((last * last).mean(-1) + self.ending.eps)
        read = last @ self.read + self.bias * scale[:, None]
        gaps: Array = _gaps(read, self.difference[right])
        require_finite(gaps)
        return gaps, scale

    def over(self, low: Array, high: Array, right: Ints) -> Bounds:
        """Bound the gaps over boxes of channels from low to high [N, R], whatever float32 does. right [N]."""
        middle = 0.5 * (low + high)
        radius = 0.5 * (high - low) * (1 + 1e-12) + 1e-300  # float64's rounding of the middle included
        values = self._forward(Interval(low, high))
        # the right token is one per box, so gaps to all others are differences of rows of the table
        table = self.difference[right]
        gaps, _ = self.at(middle, right)
        scale = values.scale.high
        read = values.last.range.size @ np.abs(self.read) + np.abs(self.bias) * scale[:, None]
        loss = self._last_loss(values, read, right)
        slopes = self._slopes(values)

        # real gaps over the box: those in its middle, less what the way to its sides takes
        evaluation = EVALUATION * _gaps(read, np.abs(table))
        gaps = gaps - evaluation - SPARE * _effect(table, slopes.pop("box"), radius)

        # roundings: each step's own error, with its slope to the gaps
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
        # slopes hold for all values that float32 may have on the way, so errors may be added one by one
        for name, slope in slopes.items():
            loss = loss + _effect(table, slope, errors[name])
        require_finite(gaps, loss)
        return Bounds(gaps, loss * SPARE, scale)

    def _forward(self, box: Interval) -> Forward:
        """Follow a box of channels [N, R] through the net, as float32 may have each step."""
        net = self.net
        norm = self.norm
        base_loss = self.query.base_loss
        real = box.linear(net.writes) + Interval.exactly(self.query.base)
        first = _rounded(real, base_loss + U * (real.size + base_loss))

        # the norm
        centred = self._centred(first.range)
        y = centred.range
        require_range(y.size**2)
        size, scaling = self._size(first.range, y, norm)
        root = size.reciprocal()
        root = root.wider(root.high * scaling)
        scaled = (y * root[:, None]).times(norm.weight.value)
        # two products, and the weight's own error; then what underflows
        error = scaled.size * (gamma(2) + SLACK) + y.size * root.high[:, None] * norm.weight.error
        error = error + TINY * (1 + np.abs(norm.weight.value))
        normed = Rounded(scaled.wider(error), error)
        if norm.bias is not None:
            biased = normed.range + Interval.exactly(norm.bias.value)
            normed = _rounded(biased, error + U * biased.size)

        # the MLP, and its output added to what came in
        hidden = _through(net.fc1, normed.range, self.fc1_bias)
        gate = Rounded(*net.bend.over(hidden.range, self.machine))
        written = _through(net.fc2, gate.range, self.fc2_bias)
        total = first.range + written.range
        second = _rounded(total, written.error + U * total.size)

        # the last norm, whose scale is left out of gaps
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
            gate,
            second,
            last,
            scale,
            last_scaling[:, None],
        )

    def _size(self, x: Interval, centred: Interval, norm: Norm) -> tuple[Interval, Array]:
        """Return the root mean square of centred x [N, D], with ε [N], and its relative error in float32 [N]."""
        mean = centred.square().sum(-1).times(1 / self.width)
        # a mean of squares is never below 0, whatever the bound of their sum loses
        mean = Interval(np.maximum(mean.low, 0), mean.high)
        size = (mean + Interval.exactly(np.array(norm.eps))).root()
        if norm.centre:
            _, variance_error = welford(x.size, size.low[:, None])
            error = variance_error[:, 0]
        else:
            error = np.full(len(size.low), gamma(self.width + 3))
        if not (error < 0.5).all():
            raise Lost("a norm's argument is lost in rounding")
        # a root halves a relative error, but for second order
        return size, (error / 2 + error**2 + gamma(self.machine.rsqrt)) * 1.01

    def _centred(self, x: Interval) -> Rounded:
        """Take the mean away where the norm does."""
        if not self.norm.centre:
            return Rounded(x, np.zeros((1, 1)))
        error, _ = welford(x.size, np.ones(1))
        return _rounded(x.linear(self.centre), error)

    def _slopes(self, values: Forward) -> dict[str, Interval]:
        """Return the slopes of what the token table reads along what each step computes, by its name [N, K, X].

        "box": along the channels.
        """
        net = self.net
        along_last = Interval.exactly(self.read.T[None])
        if self.bias.any():
            # gaps are taken before the last norm's scale, so its bias counts by that scale, which moves with `last`
            along_scale = (values.last.range * values.scale.reciprocal()[:, None]).times(1 / self.width)
            along_last = along_last + along_scale[:, None] * Interval.exactly(self.bias[None, :, None])

        # backwards, as gradients are: each step's slopes are those of the next one, times its own
        second = along_last.linear(self.centre)
        gate = second.linear(net.fc2.matrix.T)
        hidden = net.bend.slopes(gate, values.hidden.range)
        normed = hidden.linear(net.fc1.matrix.T)
        # along the logarithm of the norm's scale, to which all that the norm puts into hidden units is proportional
        inputs = values.hidden.range + Interval.exactly(-self.offset)
        root = (hidden * inputs[:, None]).sum(-1)[..., None]
        # the residual moves the norm's result directly, and by its root mean square
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
        # what is centred is rounded once more; without centring these steps have no error of their own
        if self.norm.centre:
            slopes |= {"centred": centred, "last": along_last}
        return slopes | {"box": first.linear(net.writes.T)}

    def _last_loss(self, values: Forward, read: Array, right: Ints) -> Array:
        """Bound what the last norm, the head and the token table lose of each gap [N, V]. right [N].

        read: bounds of what the table reads [N, K].
        """
        net = self.net
        weight = self.ending.weight
        scale = values.scale.high[:, None]
        size = values.last.range.size
        scaled = size * np.abs(weight.value)
        tiny = 4 * self.width * TINY * scale  # what is too small for float32, by product
        error = scaled * (gamma(2) + SLACK) + size * weight.error + tiny * (1 + np.abs(weight.value))
        lost = np.zeros_like(read)
        if self.ending.bias is not None:
            scaled = scaled + np.abs(self.ending.bias.value) * scale
            error = error + U * scaled
            # the bias counts by the inverse of the scale, which float32 has otherwise
            lost = lost + np.abs(self.bias) * scale * (values.last_scaling * 1.01)
        lost = lost + error @ np.abs(self.head)
        if net.head is not None:
            # float32 has these numbers times the scale, so a rounding may be twice as large
            lost = lost + 2 * net.head.loss(scaled + error) + tiny

        # each logit is a sum of products with a row of the table: two of them make a gap
        table = net.table
        errors = table.error[right][:, None] + table.error[None]
        difference = np.abs(self.difference[right]) + table.error[right][:, None] + table.error[None]
        rows = table.size[right][:, None] + table.size[None]
        sums = gamma(rows.shape[-1]) + SLACK
        loss = _gaps(lost, difference) + _gaps(read + lost, rows * sums + errors)
        return loss + tiny


def _or_zeros(bias: Approx | None, width: int) -> Array:
    """Return a norm's bias [D], zeros where it has none."""
    return np.zeros(width) if bias is None else bias.value


def _gaps(read: Array, difference: Array) -> Array:
    """Return gaps [N, V] of what the token table reads [N, K] and differences of its rows [N, V, K]."""
    gaps: Array = np.einsum("nk,nvk->nv", read, difference)
    return gaps


def _through(chain: Chain, x: Interval, bias: Array) -> Rounded:
    """Apply linear maps and add a bias. The error is what they add to that of x."""
    return _rounded(x.linear(chain.matrix) + Interval.exactly(bias), chain.loss(x.size, bias))


def _rounded(x: Interval, error: Array) -> Rounded:
    """Widen a step's real result by its own error, and by what underflows."""
    error = error + TINY
    return Rounded(x.wider(error), error)


def _effect(table: Array, slope: Interval, error: Array) -> Array:
    """Bound how far errors [N, X] move each gap [N, V].

    table: differences of the token table's rows [N, V, K]. slope: of what the table reads, along the numbers that are
    in error [N, K, X].
    """
    plus = np.maximum(table, 0)
    minus = np.minimum(table, 0)
    low, high = np.broadcast_arrays(slope.low, slope.high)
    least = plus @ low + minus @ high
    most = plus @ high + minus @ low
    size = np.maximum(np.abs(least), np.abs(most))
    size = size + np.abs(table) @ slope.size * 1e-14  # float64's roundings in these sums
    effect: Array = (size * error[:, None]).sum(-1)
    return effect
