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
ELEMENTARY = 2.0**-40
"""Error of functions and their slopes in float64, relative to 1 + |x|."""


def down(x: Array) -> Array:
    below: Array = np.nextafter(x, -np.inf)
    return below


def up(x: Array) -> Array:
    above: Array = np.nextafter(x, np.inf)
    return above


@dataclass(frozen=True)
class Interval:
    """Elementwise lower and upper bounds."""

    low: Array
    high: Array

    @classmethod
    def around(cls, value: Array, error: Array | float) -> Interval:
        return cls(down(value - error), up(value + error))

    @property
    def size(self) -> Array:
        """Largest absolute value."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def __getitem__(self, index: Any) -> Interval:
        return Interval(self.low[index], self.high[index])

    def __add__(self, o: Interval) -> Interval:
        return Interval(down(self.low + o.low), up(self.high + o.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __mul__(self, o: Interval) -> Interval:
        ends = [a * b for a in (self.low, self.high) for b in (o.low, o.high)]
        return Interval(down(np.minimum.reduce(ends)), up(np.maximum.reduce(ends)))

    def times(self, number: Array | float) -> Interval:
        """Multiply by exact numbers."""
        a, b = self.low * number, self.high * number
        return Interval(down(np.minimum(a, b)), up(np.maximum(a, b)))

    def linear(self, matrix: Array) -> Interval:
        """Multiply the last axis [..., I] by an exact matrix [I, O]."""
        plus, minus = np.maximum(matrix, 0), np.minimum(matrix, 0)
        slack = self.size @ np.abs(matrix) * (ROUND * (len(matrix) + 2)) + 1e-300
        low, high = (
            self.low @ plus + self.high @ minus,
            self.high @ plus + self.low @ minus,
        )
        return Interval(low - slack, high + slack)

    def sum(self, axis: int) -> Interval:
        slack = self.size.sum(axis) * (ROUND * (self.low.shape[axis] + 2)) + 1e-300
        return Interval(self.low.sum(axis) - slack, self.high.sum(axis) + slack)

    def square(self) -> Interval:
        low = np.where(
            (self.low <= 0) & (self.high >= 0),
            0.0,
            np.minimum(np.abs(self.low), np.abs(self.high)),
        )
        return Interval(np.maximum(down(low * low), 0), up(self.size * self.size))

    def root(self) -> Interval:
        """Square root of positive numbers."""
        return Interval(down(np.sqrt(self.low)), up(np.sqrt(self.high)))

    def reciprocal(self) -> Interval:
        """1 / x of positive numbers."""
        return Interval(down(1 / self.high), up(1 / self.low))

    def wider(self, error: Array | float) -> Interval:
        return Interval(down(self.low - error), up(self.high + error))


class GELU:
    """What follows the MLP's first layer, x Φ(x). Its slope is least and largest at -√2 and √2."""

    LEAST_AT = -0.7517915246935645

    @staticmethod
    def at(x: Array) -> Array:
        value: Array = x * ndtr(x)
        return value

    @staticmethod
    def slope(x: Array) -> Array:
        value: Array = ndtr(x) + x * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
        return value

    def over(self, x: Interval, machine: Machine) -> tuple[Interval, Array]:
        """Return the range over an interval, and the error of float32, which it includes."""
        value = _range(self.at, x, self.LEAST_AT, np.inf)
        error = U * (machine.gelu_argument * x.size + machine.gelu * value.size) + 4 * TINY
        return value.wider(error), error

    def slopes(self, along: Interval, x: Interval) -> Interval:
        """Return slopes [N, K, X] along x, of those along the result."""
        return along * _range(self.slope, x, -np.sqrt(2.0), np.sqrt(2.0))[:, None]


class SwiGLU:
    """x / (1 + exp -x) of the first half of the MLP's first layer, times the second half. The slope of the former is
    least and largest at -TURN and TURN.
    """

    LEAST_AT, TURN = -1.2784645427610738, 2.3993572805

    @staticmethod
    def silu(x: Array) -> Array:
        value: Array = x * expit(x)
        return value

    @staticmethod
    def slope(x: Array) -> Array:
        share = expit(x)
        value: Array = share * (1 + x * (1 - share))
        return value

    def at(self, x: Array) -> Array:
        gates, units = np.split(x, 2, -1)
        return self.silu(gates) * units

    def over(self, x: Interval, machine: Machine) -> tuple[Interval, Array]:
        """Return the range over an interval, and the error of float32, which it includes."""
        gates, units = self._halves(x)
        value = _range(self.silu, gates, self.LEAST_AT, np.inf) * units
        error = value.size * gamma(machine.silu) + 2**8 * TINY * (1 + units.size)
        return value.wider(error), error

    def slopes(self, along: Interval, x: Interval) -> Interval:
        """Return slopes [N, K, X] along x, of those along the result."""
        gates, units = self._halves(x)
        bends = _range(self.slope, gates, -self.TURN, self.TURN) * units
        parts = [along * part[:, None] for part in (bends, _range(self.silu, gates, self.LEAST_AT, np.inf))]
        return Interval(*(np.concatenate(ends, -1) for ends in zip(*((p.low, p.high) for p in parts), strict=True)))

    @staticmethod
    def _halves(x: Interval) -> tuple[Interval, Interval]:
        half = x.low.shape[-1] // 2
        return x[..., :half], x[..., half:]


def _range(function: Callable[[Array], Array], x: Interval, least: float, most: float) -> Interval:
    """Return the range of a function that is least and largest at these places, and turns nowhere else."""
    ends = function(x.low), function(x.high)
    low, high = np.minimum(*ends), np.maximum(*ends)
    low = np.where((x.low <= least) & (x.high >= least), function(np.array(least)), low)
    if np.isfinite(most):
        high = np.where((x.low <= most) & (x.high >= most), function(np.array(most)), high)
    return Interval(low - ELEMENTARY * (1 + np.abs(x.low)), high + ELEMENTARY * (1 + np.abs(x.high)))
