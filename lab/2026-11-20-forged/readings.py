"""The right sums of every reading of forgeformer's text, and of its weights less one: run this file to print them.

Written apart from lab/forged.py, so that the two check each other.
"""

from dataclasses import replace
from itertools import product

import numpy as np

from lab import forged

A, B = (n.ravel() for n in np.meshgrid(range(1, 100), range(1, 100), indexing="ij"))
RESIDUALS = [(1, 1), (1, 0), (0, 1), (0, 0)]
# Row, column and value of the one number in each matrix: q, k and v of both layers.
LAYERS = [((2, 2, 10), (2, 2, -10), (1, 0, 2)), ((2, 2, 10), (2, 2, 10), (1, 1, 3))]


def matrix(row: int, column: int, value: float) -> np.ndarray:
    """Return a 3 × 3 matrix with one number in it."""
    return np.array([[value * ((r, c) == (row, column)) for c in range(3)] for r in range(3)], dtype=float)


def answers(turned: bool, softmax_axis: int, residual: tuple[int, int], eos: int, **other: float) -> np.ndarray:
    """Return the sums of all pairs [9801] under one reading.

    `turned`: weights stand on the left (W x). `softmax_axis`: 2 for a row of scores, 1 for a column. `residual`: 1
    for a layer that adds to its input. `eos`: the end token's digit. `other`: `scale` of the scores, `causal` mask.
    """
    digits = np.stack([A // 10, A % 10, B // 10, B % 10, np.full_like(A, eos)], axis=1).astype(float)
    x = np.stack([np.zeros_like(digits), digits, np.broadcast_to([1.0, -1, 1, -1, 1], digits.shape)], 2)
    for adds, entries in zip(residual, LAYERS, strict=True):
        q, k, v = (x @ (matrix(*entry).T if turned else matrix(*entry)) for entry in entries)
        scores = other.get("scale", 1) * np.einsum("btd,bsd->bts", q, k)
        if other.get("causal"):
            scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(softmax_axis, keepdims=True))
        x = adds * x + weights / weights.sum(softmax_axis, keepdims=True) @ v
    units, tens = x[:, 4, 0].round(), x[:, 4, 1].round()
    return (tens + (units >= 10)) * 10 + units % 10


def main() -> None:
    example = np.flatnonzero((A == 37) & (B == 46))[0]
    for reading in product((False, True), (2, 1), RESIDUALS, (0, -1)):
        sums = answers(*reading)
        print(*reading, "37 + 46 =", sums[example], "right:", (sums == A + B).sum(), sep="\t")
    for scale, causal in product((1, 3**-0.5), (False, True)):
        right = (answers(False, 2, (1, 1), 0, scale=scale, causal=causal) == A + B).sum()
        print(f"scale {scale:.3f}", f"causal {causal}", "right:", right, sep="\t")
    for name in forged.WEIGHTS:
        without = replace(forged.PUBLISHED, **{name: ((0, 0, 0),) * 3})
        print(f"without {name}", "right:", forged.count_correct(without), sep="\t")


if __name__ == "__main__":
    main()
