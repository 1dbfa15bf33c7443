"""Arithmetic on float64 arrays with the same bits on every machine and for any number of threads.

NumPy rounds sums, products and quotients of entries as IEEE 754 says. So sums have an order here, as they have in the
engine's tapes, and no library is called that has its own: neither BLAS and LAPACK nor a vendor's exp.

Axes: N entry, R row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LN2_HIGH = float.fromhex("0x1.62E42FEFA38p-1")
"""Most of ln 2: its product with a whole number below 2^11 is exact."""
LN2_LOW = float.fromhex("0x1.EF35793C7673p-45")
"""The rest of ln 2."""
TERMS = 14
"""Terms of the series of e^x for |x| up to ln 2 / 2: the next one is below 2^-60."""
LEAST_POWER = -700.0
"""Smaller x count as this one, whose e^x is 1e-304."""


def total(entries: Array) -> Any:
    """Return sums along the last axis, by halves: the first half meets the second, an odd entry the first."""
    while (count := entries.shape[-1]) > 1:
        half = count // 2
        sums = entries[..., :half] + entries[..., half : 2 * half]
        if count % 2:
            sums[..., 0] += entries[..., -1]
        entries = sums
    return entries[..., 0]


def dot(a_N: Array, b_N: Array) -> float:
    """Return the scalar product of two vectors; the sum is rounded once."""
    return math.fsum((a_N * b_N).tolist())


def gram(rows_RN: Array) -> Array:
    """Return the scalar products of each two rows [R, R]."""
    products_RR = np.empty((len(rows_RN), len(rows_RN)))
    for n, row_N in enumerate(rows_RN):
        products_R = total(rows_RN[n:] * row_N)
        products_RR[n, n:] = products_R
        products_RR[n:, n] = products_R
    return products_RR


def solve(matrix_RR: Array, right_R: Array) -> Array:
    """Solve a linear system with a positive matrix by Gauss-Jordan elimination, without pivots.

    The solution of a singular one is not finite.
    """
    rows = np.column_stack([matrix_RR, right_R])
    with np.errstate(all="ignore"):
        for n in range(len(rows)):
            rows[n] /= rows[n, n]
            shares_R = rows[:, n].copy()
            shares_R[n] = 0
            rows -= shares_R[:, None] * rows[n]
    return rows[:, -1]


def exp(x: Array) -> Array:
    """Return e^x of entries that are 0 at most, to the last bits."""
    x = np.maximum(x, LEAST_POWER)
    power = np.rint(x / (LN2_HIGH + LN2_LOW))
    # e^x = 2^power e^rest, where the rest is small enough for the series
    rest = x - power * LN2_HIGH - power * LN2_LOW
    series = np.ones_like(rest)
    for n in range(TERMS, 0, -1):
        series = 1 + series * rest / n
    return np.ldexp(series, power.astype(np.int64))
