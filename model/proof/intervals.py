"""Intervals of float64 numbers, each operation rounded outwards.

Axes of `linear`: I input, O output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from model.proof.rounding import Array

ROUND = 2.0**-52
LEAST_AT = -0.7517915246935645
"""Where GELU is least; its slope is least and largest at -√2 and √2."""
ELEMENTARY = 2.0**-40
"""Error of GELU and its slope in float64, relative to 1 + |x|."""


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

    def __and__(self, o: Interval) -> Interval:
        return Interval(np.maximum(self.low, o.low), np.minimum(self.high, o.high))

    def times(self, number: Array | float) -> Interval:
        """Multiply by exact numbers."""
        a, b = self.low * number, self.high * number
        return Interval(down(np.minimum(a, b)), up(np.maximum(a, b)))

    def linear(self, matrix: Array) -> Interval:
        """Multiply the last axis [..., I] by an exact matrix [I, O]."""
        plus, minus = np.maximum(matrix, 0), np.minimum(matrix, 0)
        slack = self.size @ np.abs(matrix) * (ROUND * (len(matrix) + 2)) + 1e-300
        low, high = self.low @ plus + self.high @ minus, self.high @ plus + self.low @ minus
        return Interval(low - slack, high + slack)

    def sum(self, axis: int) -> Interval:
        slack = self.size.sum(axis) * (ROUND * (self.low.shape[axis] + 2)) + 1e-300
        return Interval(self.low.sum(axis) - slack, self.high.sum(axis) + slack)

    def square(self) -> Interval:
        low = np.where(
            (self.low <= 0) & (self.high >= 0), 0.0, np.minimum(np.abs(self.low), np.abs(self.high))
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


def gelu(x: Array) -> Array:
    value: Array = x * ndtr(x)
    return value


def gelu_slope(x: Array) -> Array:
    value: Array = ndtr(x) + x * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
    return value


def gelu_range(x: Interval) -> Interval:
    ends = gelu(x.low), gelu(x.high)
    low = np.where((x.low <= LEAST_AT) & (x.high >= LEAST_AT), gelu(np.array(LEAST_AT)), np.minimum(*ends))
    return _elementary(x, low, np.maximum(*ends))


def slope_range(x: Interval) -> Interval:
    ends, turn = (gelu_slope(x.low), gelu_slope(x.high)), np.sqrt(2.0)
    low = np.where((x.low <= -turn) & (x.high >= -turn), gelu_slope(-turn), np.minimum(*ends))
    high = np.where((x.low <= turn) & (x.high >= turn), gelu_slope(turn), np.maximum(*ends))
    return _elementary(x, low, high)


def _elementary(x: Interval, low: Array, high: Array) -> Interval:
    return Interval(low - ELEMENTARY * (1 + np.abs(x.low)), high + ELEMENTARY * (1 + np.abs(x.high)))
