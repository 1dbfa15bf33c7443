"""Intervals of float64 numbers, each operation rounded outwards.

Axes of `linear`: I input, O output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from adders.proof.rounding import TINY, Array, Machine, U, gamma

ROUND = 2.0**-52
"""Relative error of an operation in float64, doubled."""
UNDERFLOW = 1e-300
"""More than sums lose of products that are too small for float64."""
ELEMENTARY = 2.0**-40
"""Error of functions and their slopes in float64, relative to 1 + |x|."""


def down(x: Array) -> Array:
    """Return the next smaller numbers: below any result that was rounded to these."""
    below: Array = np.nextafter(x, -np.inf)
    return below


def up(x: Array) -> Array:
    """Return the next larger numbers: above any result that was rounded to these."""
    above: Array = np.nextafter(x, np.inf)
    return above


@dataclass(frozen=True)
class Interval:
    """Elementwise lower and upper bounds."""

    low: Array
    high: Array

    @classmethod
    def exactly(cls, value: Array) -> Interval:
        """Hold exact numbers."""
        return cls(value, value)

    @property
    def size(self) -> Array:
        """Largest absolute value."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def __getitem__(self, index: Any) -> Interval:
        return Interval(self.low[index], self.high[index])

    def __add__(self, o: Interval) -> Interval:
        return Interval(down(self.low + o.low), up(self.high + o.high))

    def __mul__(self, o: Interval) -> Interval:
        # a product is least and largest at ends, which of them the signs say
        ends = [a * b for a in (self.low, self.high) for b in (o.low, o.high)]
        return Interval(down(np.minimum.reduce(ends)), up(np.maximum.reduce(ends)))

    def times(self, number: Array | float) -> Interval:
        """Multiply by exact numbers."""
        a = self.low * number
        b = self.high * number
        return Interval(down(np.minimum(a, b)), up(np.maximum(a, b)))

    def linear(self, matrix: Array) -> Interval:
        """Multiply the last axis [..., I] by an exact matrix [I, O]."""
        plus = np.maximum(matrix, 0)
        minus = np.minimum(matrix, 0)
        low = self.low @ plus + self.high @ minus
        high = self.high @ plus + self.low @ minus
        # numpy adds in an order of its own, so the whole sum is widened by what any order may lose
        slack = self.size @ np.abs(matrix) * (ROUND * (len(matrix) + 2)) + UNDERFLOW
        return Interval(low - slack, high + slack)

    def sum(self, axis: int) -> Interval:
        """Add along an axis, in any order."""
        slack = self.size.sum(axis) * (ROUND * (self.low.shape[axis] + 2)) + UNDERFLOW
        return Interval(self.low.sum(axis) - slack, self.high.sum(axis) + slack)

    def square(self) -> Interval:
        """Return x², which is never below 0, as x · x might be: it takes two ends of one number for two numbers."""
        has_zero = (self.low <= 0) & (self.high >= 0)
        least = np.where(has_zero, 0.0, np.minimum(np.abs(self.low), np.abs(self.high)))
        return Interval(np.maximum(down(least * least), 0), up(self.size * self.size))

    def root(self) -> Interval:
        """Square root of positive numbers."""
        return Interval(down(np.sqrt(self.low)), up(np.sqrt(self.high)))

    def reciprocal(self) -> Interval:
        """1 / x of positive numbers."""
        return Interval(down(1 / self.high), up(1 / self.low))

    def wider(self, error: Array | float) -> Interval:
        """Return all numbers that are no further away than `error`."""
        return Interval(down(self.low - error), up(self.high + error))


class GELU:
    """What follows the MLP's first layer, x Φ(x). Its slope is least and largest at -√2 and √2."""

    LEAST_AT = -0.7517915246935645
    """Where the slope is 0. The value is flat there, so ELEMENTARY has room for this number's own rounding."""

    @staticmethod
    def at(x: Array) -> Array:
        """Return values in float64."""
        value: Array = x * ndtr(x)
        return value

    @staticmethod
    def slope(x: Array) -> Array:
        """Return slopes in float64, Φ(x) + x φ(x)."""
        value: Array = ndtr(x) + x * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
        return value

    def over(self, x: Interval, machine: Machine) -> tuple[Interval, Array]:
        """Return the range over an interval, and the error of float32, which it includes."""
        value = _range(self.at, x, self.LEAST_AT, np.inf)
        error = U * (machine.gelu_argument * x.size + machine.gelu * value.size) + 4 * TINY
        return value.wider(error), error

    def slopes(self, along: Interval, x: Interval) -> Interval:
        """Return slopes along x [N, K, X], given those along the result."""
        # where the second derivative, (2 - x²) φ(x), is 0
        slope = _range(self.slope, x, -np.sqrt(2.0), np.sqrt(2.0))
        return along * slope[:, None]


class SwiGLU:
    """x / (1 + exp -x) of the first half of the MLP's first layer, times the second half.

    The former's slope is least and largest at -TURN and TURN.
    """

    LEAST_AT = -1.2784645427610738
    TURN = 2.3993572805

    @staticmethod
    def silu(x: Array) -> Array:
        """Return x / (1 + exp -x) in float64."""
        value: Array = x * expit(x)
        return value

    @staticmethod
    def slope(x: Array) -> Array:
        """Return that function's slopes in float64."""
        share = expit(x)
        value: Array = share * (1 + x * (1 - share))
        return value

    def at(self, x: Array) -> Array:
        """Return values in float64."""
        gates, units = np.split(x, 2, -1)
        return self.silu(gates) * units

    def over(self, x: Interval, machine: Machine) -> tuple[Interval, Array]:
        """Return the range over an interval, and the error of float32, which it includes."""
        gates, units = self._halves(x)
        value = _range(self.silu, gates, self.LEAST_AT, np.inf) * units
        # float32 has 0 where exp -x overflows, which it does of values below 2^5 TINY
        error = value.size * gamma(machine.silu) + 2**8 * TINY * (1 + units.size)
        return value.wider(error), error

    def slopes(self, along: Interval, x: Interval) -> Interval:
        """Return slopes along x [N, K, X], given those along the result."""
        # the product rule: by the first half with the function's slope, by the second half with its value
        gates, units = self._halves(x)
        slope = _range(self.slope, gates, -self.TURN, self.TURN) * units
        along_gates = along * slope[:, None]
        along_units = along * _range(self.silu, gates, self.LEAST_AT, np.inf)[:, None]
        low = np.concatenate([along_gates.low, along_units.low], -1)
        high = np.concatenate([along_gates.high, along_units.high], -1)
        return Interval(low, high)

    @staticmethod
    def _halves(x: Interval) -> tuple[Interval, Interval]:
        half = x.low.shape[-1] // 2
        return x[..., :half], x[..., half:]


def _range(function: Callable[[Array], Array], x: Interval, least: float, most: float) -> Interval:
    """Return the range of a function that is least at `least`, largest at `most`, and turns nowhere else."""
    at_low = function(x.low)
    at_high = function(x.high)
    low = np.minimum(at_low, at_high)
    high = np.maximum(at_low, at_high)
    low = np.where((x.low <= least) & (x.high >= least), function(np.array(least)), low)
    if np.isfinite(most):
        high = np.where((x.low <= most) & (x.high >= most), function(np.array(most)), high)
    return Interval(low - ELEMENTARY * (1 + np.abs(x.low)), high + ELEMENTARY * (1 + np.abs(x.high)))
