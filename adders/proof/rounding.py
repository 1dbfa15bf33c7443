"""Real numbers with bounds of what float32 makes of them, and the model of float32 that the bounds assume.

Assumed at every level: + − × ÷ √ are rounded to nearest, or fused; a sum may be taken in any order; no operation
uses a narrower format (TF32). The elementary functions are as good as a `Machine` says. An operation may
also lose `TINY`, so that numbers too small for float32 may be kept or flushed to zero.

Values are float64; their own rounding is covered by `SLACK`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
U = 2.0**-24
"""Largest relative error of one rounding to float32."""
TINY = 2.0**-126
LEAST_WEIGHT = 2.0**-900
"""Of a sum of attention's weights, relative to the largest: what float64 loses below 2^-1022 is nothing beside it."""
LARGE = 2.0**60
"""No number is as large, so that no square, and no sum of some, leaves float32's range."""
SUMMED = 1 + 2.0**-18
"""Room for roundings of roundings, in a sum of up to 34 terms."""
SPARE = 1.001
"""Factor of final bounds, so that a checker may have others of second order."""
SLACK = 1e-14
"""Relative error of a value of this module, evaluated in float64."""


@dataclass(frozen=True)
class Machine:
    """Bounds of the errors of elementary functions, in u or in roundings: halves of a result's last place."""

    name: str
    exp: float
    """Of softmax's exp, relative, in u. Products of a softmax that finds its largest score on the way are included."""
    shift: float
    """Of an argument of exp, in u of its distance from the largest."""
    rsqrt: float
    """In roundings."""
    gelu_argument: float
    gelu: float
    """|error of GELU(x)| <= (gelu_argument |x| + gelu |GELU(x)|) u."""
    silu: float
    """Of x / (1 + exp -x) times a number, relative, in u: exp's error, and four roundings."""
    trig: float
    """Of sin and cos, in roundings."""
    power: float
    """Of RoPE's power, in roundings."""


ANY = Machine("any", exp=32, shift=2, rsqrt=4, gelu_argument=10, gelu=6, silu=36, trig=7, power=8)
"""As good as the tables of CUDA and SLEEF say, or worse: every libm of float32 in use."""
HERE = Machine("here", exp=8, shift=1, rsqrt=2, gelu_argument=7, gelu=4, silu=12, trig=7, power=8)
MACHINES = {machine.name: machine for machine in (ANY, HERE)}


class Lost(ValueError):
    """Numbers leave float32's range, or are lost in its roundings."""


@contextmanager
def no_lost_numbers() -> Iterator[None]:
    """Raise Lost where float64 divides by 0, overflows or has no number."""
    try:
        # Numbers that are too small become 0. Where these are weights, `require_weight` sees it; where they are
        # products, an error is granted beside them that is larger: TINY, or relative to something larger.
        with np.errstate(all="raise", under="ignore"):
            yield
    except FloatingPointError as error:
        raise Lost(f"numbers are lost in float64 ({error})") from error


def require_finite(*parts: Array) -> None:
    """Raise Lost unless all are numbers."""
    if not all(np.isfinite(part).all() for part in parts):
        raise Lost("a bound is no number")


def require_weight(least: float) -> None:
    """Raise Lost unless `least`, a lower bound of a sum of weights, is large enough for float64."""
    # `not >`, so that no number is Lost as well
    if not least > LEAST_WEIGHT:
        raise Lost("a sum of weights is lost in float64")


def require_range(size: Array) -> None:
    """Raise Lost unless float32 holds numbers up to `size`, and their squares."""
    if not (size < LARGE).all():
        raise Lost("numbers are too large for float32")


def rounding(size: Array | float) -> Array:
    """Bound the error of one rounding of numbers up to `size`: half of their last place, or a little more."""
    size = np.asarray(size) * SUMMED
    require_range(size)
    _, exponent = np.frexp(size)  # size < 2^exponent
    half: Array = np.ldexp(U, exponent - 1) * (size > 0) + TINY
    return half


def relative(size: Array) -> Array:
    """Bound the error of one rounding of numbers up to `size` that are rounded when multiplied by another number.

    Their last place is not known then, so a rounding is taken to be as large as it can be, u of the number.
    """
    require_range(size)
    return U * SUMMED * size + TINY


def gamma(roundings: Array | float) -> Array:
    """Return the relative error of a product of so many factors (1 + δ), |δ| <= u."""
    # n u / (1 - n u): Higham, Accuracy and Stability of Numerical Algorithms (2002), lemma 3.1
    steps = np.asarray(roundings, dtype=np.float64) * U
    return steps / (1 - steps)


class Approx:
    """Real values, and a bound of float32's error in each.

    An operation adds its operands' errors and its own rounding.
    """

    def __init__(self, value: object, error: object = 0.0):
        self.value: Array = np.asarray(value, dtype=np.float64)
        self.error: Array = np.broadcast_to(np.asarray(error, dtype=np.float64), self.value.shape)

    @property
    def size(self) -> Array:
        """Upper bounds of the absolute values, of the real number and of float32's."""
        return np.abs(self.value) + self.error

    def __getitem__(self, index: Any) -> Approx:
        return Approx(self.value[index], self.error[index])

    def __add__(self, o: Approx) -> Approx:
        return rounded(self.value + o.value, self.error + o.error)

    def __mul__(self, o: Approx) -> Approx:
        # x'y' - xy = x'(y' - y) + (x' - x) y
        error = self.size * o.error + np.abs(o.value) * self.error
        return rounded(self.value * o.value, error)

    @property
    def T(self) -> Approx:
        return self.moved(np.transpose)

    def broadcast(self, shape: Sequence[int]) -> Approx:
        return self.moved(lambda part: np.broadcast_to(part, shape))

    def moved(self, move: Callable[[Array], Array]) -> Approx:
        """Apply what only moves numbers, and computes none, to values and errors."""
        return Approx(move(self.value), move(self.error))


def rounded(value: Array, error: Array | float, roundings: float = 1) -> Approx:
    """Return a result with the error of its operands and that of so many roundings."""
    # later roundings are of results that earlier ones may have made larger
    size = (np.abs(value) + error) * (1 + roundings * 2 * U)
    return Approx(value, error + roundings * rounding(size) + SLACK * size)


def concatenate(parts: Sequence[Approx], axis: int = -1) -> Approx:
    """Concatenate along an axis that the parts have."""
    values = [part.value for part in parts]
    errors = [part.error for part in parts]
    return Approx(np.concatenate(values, axis), np.concatenate(errors, axis))


def stack(parts: Sequence[Approx]) -> Approx:
    """Stack along a new last axis."""
    return concatenate([part[..., None] for part in parts])


def single(value: object) -> Array:
    """Return the float32 numbers nearest to these, as float64."""
    nearest: Array = np.asarray(value, dtype=np.float64).astype(np.float32).astype(np.float64)
    return nearest


def one_of(*results: Array) -> Approx:
    """Cover float32 numbers, elementwise, of which an expression has one, by the way in which it is rounded."""
    low = np.minimum.reduce(results)
    high = np.maximum.reduce(results)
    middle = 0.5 * (low + high)
    return Approx(middle, 0.5 * (high - low) + SLACK * np.abs(middle))


def sincos(angle: Approx) -> tuple[Approx, Approx]:
    """Return sine and cosine, as good as any machine has them."""

    def computed(value: Array) -> Approx:
        # both slopes are 1 at most, so the angle's error is no larger in them
        error = angle.error + ANY.trig * rounding(np.abs(value) + angle.error) + SLACK
        return Approx(value, error)

    return computed(np.sin(angle.value)), computed(np.cos(angle.value))


class Linear:
    """x [..., I] -> x · matrix [..., O] in float32: products and their sum, in any order.

    A product with 0 or a power of two is exact, and 0 is no term of a sum.
    """

    def __init__(self, matrix: Approx):
        self.matrix = matrix
        self.size: Array = matrix.size
        # a power of two has the mantissa 0.5
        mantissa, _ = np.frexp(self.size)
        self.products = (matrix.error > 0) | ((self.size > 0) & (mantissa != 0.5))
        self.sums: Array = np.maximum((self.size > 0).sum(0) - 1, 0)

    def __call__(self, x: Approx) -> Approx:
        matrix = self.matrix.value
        error = x.error @ np.abs(matrix) + self.local(x.size)
        return Approx(x.value @ matrix, error)

    def local(self, size: Array, bias: Array | float = 0.0) -> Array:
        """Return the error that this map adds, for x up to `size`. bias: one more term of the sum."""
        terms = size[..., None] * self.size
        total = terms.sum(-2) + np.abs(bias)
        # in any order, no partial sum is larger than the sum of sizes
        additions = self.sums + (np.abs(bias) > 0)
        lost = (rounding(terms) * self.products).sum(-2) + len(self.size) * TINY
        lost = lost + additions * rounding(total)
        return np.asarray((lost + size @ self.matrix.error) * SUMMED + SLACK * total)


class Chain:
    """Linear maps one after another."""

    def __init__(self, *matrices: Approx):
        self.maps = [Linear(matrix) for matrix in matrices]

    @property
    def matrix(self) -> Array:
        """The real product [I, O]."""
        product = self.maps[0].matrix.value
        for linear in self.maps[1:]:
            product = product @ linear.matrix.value
        return product

    def __call__(self, x: Approx) -> Approx:
        for linear in self.maps:
            x = linear(x)
        return x

    def loss(self, size: Array, bias: Array | float = 0.0) -> Array:
        """Return the error that these maps add, for any x up to `size`. bias: one more term of the last sum."""
        error: Array = np.zeros_like(size)
        for linear in self.maps:
            matrix = np.abs(linear.matrix.value)
            added = bias if linear is self.maps[-1] else 0.0
            error = error @ matrix + linear.local(size + error, added)
            size = size @ matrix
        return error

    def error_along(self, x: Approx, slope: Array, first: Array | float = 0.0) -> tuple[Array, Array]:
        """Bound |slope · (float32's result - the real one)|, and return the slope along x [..., I] behind it.

        x [..., I] itself is off by `first` at most. slope [..., O]. An error counts with the product of all that
        follows it, so that what cancels there does not count.
        """
        # forwards for what each map reads, and backwards for the slope behind it
        inputs = [x]
        for linear in self.maps[:-1]:
            inputs.append(linear(inputs[-1]))
        bound: Array = np.zeros(np.broadcast_shapes(slope.shape[:-1], x.value.shape[:-1]))
        for linear, entry in zip(reversed(self.maps), reversed(inputs), strict=True):
            bound = bound + (np.abs(slope) * linear.local(entry.size)).sum(-1)
            slope = slope @ linear.matrix.value.T
        return bound + (np.abs(slope) * first).sum(-1), slope
