"""A one-layer adder as a proof sees it: every tensor of the exported program, with float32's error in it.

Axes: T position, V vocabulary, D width, E values of all heads, R channels, F hidden units, K entries that the token
table reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adders.proof.intervals import GELU, SwiGLU
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
    rounded,
    rounding,
    sincos,
    single,
)
from model.tasks import Addition, Columns, Subtraction, Task
from model.tied import untied

if TYPE_CHECKING:
    from torch import Tensor

    from model.spec import Spec

FAMILIES = ("split_subspace", "low_rank", "rope")


@dataclass(frozen=True)
class Asked:
    """What a net is asked: two numbers of `columns` digits in a base, and their sum, or their difference."""

    base: int = 10
    columns: int = 10
    is_difference: bool = False
    """True if the answer is the first number less the second, which is no larger."""

    @classmethod
    def of(cls, task: Task) -> Asked:
        """Raise ValueError for a task that proofs by columns are not of."""
        if not is_by_columns(task):
            raise ValueError(f"proofs by columns are of a + b and of a - b with a >= b, not of {task.title}")
        assert isinstance(task, Columns)
        return cls(task.base, task.digits, isinstance(task, Subtraction))

    def pairs(self, digits: int) -> int:
        """Return how many pairs of numbers of so many digits are asked: of differences, those that are not below 0."""
        numbers: int = self.base**digits
        if self.is_difference:
            return numbers * (numbers + 1) // 2
        return numbers**2


def is_by_columns(task: Task) -> bool:
    """True of sums of two numbers, and of ordered differences, of any length in any base."""
    if task.macros is None:  # another package may answer it in a way of its own
        return False
    if isinstance(task, Addition):
        return task.terms == 2 and task.times == 1
    return isinstance(task, Subtraction) and task.times == 1 and not task.signed


@dataclass(frozen=True)
class Norm:
    """RMSNorm, or LayerNorm where it centres."""

    weight: Approx
    bias: Approx | None = None
    eps: float = 1e-5
    centre: bool = False


@dataclass(frozen=True)
class Normed:
    """A normed residual [..., D]. Its error is kept in two parts, that of its rows' scales and the rest."""

    value: Approx
    scaled: Array
    """The value without its bias: what an error of the row's scale is relative to."""
    scale: Array
    """Bound of the relative error of the row's scale [..., 1]."""
    rest: Array
    """Bound of the error that the right scale leaves."""

    def __getitem__(self, i: Any) -> Normed:
        return Normed(self.value[i], self.scaled[i], self.scale[i], self.rest[i])


@dataclass(frozen=True)
class Net:
    """Everything of a net that does not depend on the problem."""

    asked: Asked
    steps: int
    """Tokens that are asked for."""
    fixed: tuple[tuple[int, int], ...]
    """Positions and tokens of the delimiters, the last of which is where digit 0 is asked for."""
    starts: tuple[int, int, int]
    """Positions at which the numbers and the answer begin."""
    units_first: bool
    """True if operands stand with their units first."""
    heads: int
    residual: Approx
    """Token and position of each place [T, V, D]."""
    shared: Array
    """The part of that error that is the position's, the same at all tokens [T, D]."""
    alike: bool
    """True if x, y and z of a column have one position vector, so that it is in error for all of them alike."""
    norms: tuple[Norm, Norm, Norm]
    query: Chain
    key: Chain
    value: Chain
    """Of all heads, side by side [D, E]."""
    scale: float
    out: Chain
    channels: Array
    """What the output reads of what is seen [E, R]: seen · channels · writes is the real output."""
    writes: Array
    """[R, D]."""
    fc1: Chain
    fc1_bias: Array | None
    fc2: Chain
    fc2_bias: Array | None
    head: Chain | None
    """From the residual to what the token table reads; None: the residual itself."""
    table: Approx
    """[V, K]."""
    turned: tuple[Approx, Approx] | None = None
    """Queries and keys [T, V, E] where `query` and `key` are not all that makes them."""
    bend: GELU | SwiGLU = field(default=GELU())
    """From what fc1 gives to what fc2 reads."""

    @property
    def prompt(self) -> int:
        """Tokens before the first answer digit."""
        return self.starts[2]

    @property
    def vocabulary(self) -> int:
        return len(self.table.value)

    def queries(self, k: int) -> list[int]:
        """Return the tokens that can stand where digit k is asked for."""
        if k == 0:
            _, delimiter = self.fixed[-1]
            return [delimiter]
        # behind the columns stands the last carry
        return list(range(self.asked.base)) if k <= self.asked.columns else [0, 1]

    def columns_of(self, length: int) -> NDArray[np.int64]:
        """Return the column that each of the first positions shares its vector with [T]; -1 for none."""
        columns = np.full(length, -1)
        if not self.alike:
            return columns
        for operand in range(3):
            for j in range(self.asked.columns):
                place = self.place(operand, j)
                if place < length:
                    columns[place] = j
        return columns

    def place(self, operand: int, column: int) -> int:
        """Return the position of a column of an operand (0, 1) or of the sum (2)."""
        start = self.starts[operand]
        # every family writes the answer with its units first
        if self.units_first or operand == 2:
            return start + column
        return start + self.asked.columns - 1 - column


def view(spec: Spec, theta_P: Tensor, machine: Machine) -> Net:
    """Return a net's view. Raises ValueError for a family that proofs do not know, Lost for a parameter near 0."""
    # a tied program writes its numbers into these tensors and computes as any other
    spec, theta_P = untied(spec, theta_P)
    if spec.family not in FAMILIES:
        raise ValueError(f"proofs know the families {' and '.join(FAMILIES)}, not {spec.family!r}")
    tensors: dict[str, Array] = {}
    for name, one_seed in spec.layout.split(theta_P[None]).items():
        tensor = one_seed[0].double().numpy()
        # machines that flush such numbers to 0 have another net
        if ((tensor != 0) & (np.abs(tensor) < TINY)).any():
            raise Lost("a parameter is too small for float32")
        tensors[name] = tensor
    read: Callable[[Spec, dict[str, Array]], Net] = import_module(f"{__package__}.{spec.family}").view
    return read(spec, tensors)


def turn_matrix(phases: Array, size: int) -> Approx:
    """Return the matrix [heads · n, heads · n] that turns the pairs of each head's entries by its angle."""
    turn = np.eye(len(phases) * size)
    error = np.zeros_like(turn)
    sines, cosines = sincos(Approx(phases))
    for head in range(len(phases)):
        s = sines.value[head]
        c = cosines.value[head]
        s_error = sines.error[head]
        c_error = cosines.error[head]
        first = head * size
        # the last entry of an odd number has no partner and stays
        for i in range(first, first + size // 2 * 2, 2):
            pair = slice(i, i + 2)
            turn[pair, pair] = [[c, s], [-s, c]]
            error[pair, pair] = [[c_error, s_error], [s_error, c_error]]
    return Approx(turn, error)


def factors(out: Array, reach: Array) -> tuple[Array, Array]:
    """Return [E, R] and [R, D], whose product is an output [E, D] on all that values can be.

    reach: the projector on what values can be [E, E].
    """
    _, sizes, rows = np.linalg.svd(reach @ out, full_matrices=False)
    # what float64 cannot tell from 0 is no channel, and `Attention._stray` bounds it
    rank = (sizes > 1e-11 * sizes[0]).sum()
    # an output that is 0 writes one channel, which is 0
    rows = rows[: max(1, rank)]
    return out @ rows.T, rows


def normed(x: Approx, norm: Norm, machine: Machine) -> Normed:
    """Return x [..., D] normed over its last axis, as float32 does it: (x - mean) · rsqrt(mean square + ε) · w + b."""
    apart = x.value - norm.centre * x.value.mean(-1, keepdims=True)
    square = (apart**2).mean(-1, keepdims=True) + norm.eps
    spread = np.zeros(1)
    if norm.centre:
        # 0.999: a lower bound of float32's root, whose square is off by 1e-3 at most (or Lost below)
        off, spread = welford(x.size, 0.999 * np.sqrt(square))
        x = rounded(apart, x.error + x.error.mean(-1, keepdims=True) + off, 3)
    error = ((2 * np.abs(x.value) + x.error) * x.error).mean(-1, keepdims=True) + spread * square
    # what follows is to first order, with factors that have room for so much
    if (error > 1e-3 * square).any():
        raise Lost("a norm's argument is lost in rounding")
    error = error + mean_square_error(x.size, square + error) + U * norm.eps

    # the row's scale: an inverse root halves a relative error, but for second order
    root = square**-0.5
    scale = 0.5 * error / square * (1 + 2 * error / square)
    scale = scale + machine.rsqrt * rounding(root * (1 + scale)) / root + SLACK

    # each entry's own: two products, of which the one with 1 is exact, and the errors of its factors
    weight = norm.weight
    weight_size = np.abs(weight.value)
    scaled = x.value * root * weight.value
    magnitude = np.abs(scaled)
    inexact = (weight_size != 1) | (weight.error != 0)
    unweighted = np.abs(x.value) * root * (1 + 2 * scale)
    local = rounding(unweighted) * weight_size + rounding(magnitude * (1 + 2 * scale)) * inexact
    local = local + x.error * root * weight_size + x.size * root * weight.error + SLACK * magnitude
    local = local * (1 + 2 * scale)
    value = scaled
    if norm.bias is not None:
        value = scaled + norm.bias.value
        local = local + rounding(np.abs(value) + local + scale * magnitude)
    return Normed(Approx(value, local + scale * magnitude), scaled, scale, local)


def welford(size: Array, scale: Array) -> tuple[Array, Array]:
    """Bound what LayerNorm loses: of x - mean [..., D], and of (x - mean)²'s mean + ε, relative [..., 1].

    size: a bound of x [..., D]. scale: a lower bound of the root of that mean + ε [..., 1].

    torch has both by Welford's recurrence, number by number or by pairs of groups: with δ the difference of two means
    and n, n' numbers in their groups, the mean rises by δ n' / (n + n'), and the sum of squares by δ² w with
    w = n n' / (n + n'). A mean loses a rounding of the largest x, and four of its rise: D / 2 + 9 after D numbers, and
    four more at each of a warp's five levels; E at most. δ is off by 2 E. The sum of all w is at most D, and that of
    all δ² w is D var. So by Cauchy and Schwarz the variance is off by 4 E √var + 4 E², and by the roundings of its
    sum. A sum of x, and then one of squares, loses less.
    """
    width = size.shape[-1]
    # 32 = 9, four at each of five levels, and three to spare
    mean = gamma(width / 2 + 32) * size.max(-1, keepdims=True)
    off = mean / scale
    # x · r - mean · r may be computed for (x - mean) · r
    centred = mean + gamma(3) * (size + size.mean(-1, keepdims=True))
    return centred, gamma(2 * width + 9) + 4 * off + 4 * off**2


def mean_square_error(size: Array, mean: Array) -> Array:
    """Bound the error that float32 makes in mean(x²) + ε [..., 1] of numbers up to `size` [..., D].

    mean: a bound of the result.
    """
    width = size.shape[-1]
    # a mean may be a product with 1 / D, which is rounded
    inverse_error = abs(float(single(1 / width)) * width - 1)
    sums = rounding(size**2).sum(-1, keepdims=True) + (width - 1) * rounding(mean * width)
    ends = 2 * rounding(mean)  # of the quotient, and of its sum with ε
    error: Array = (sums / width + ends + inverse_error * mean) * (1 + 1e-5) + SLACK * mean
    return error
