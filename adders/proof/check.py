"""Is a net right on all pairs of numbers? Without the prover's code: `python check.py PROOF.json CHECKPOINT`.

Python alone. Of the checkpoint it reads θ and spec. Of the proof it takes nothing on trust: what is said there must be
what is found here (CHECKED says what that is).

Theorem. Of all pairs of numbers with so many digits, in the net's base, greedy decoding in float32 writes the sum; of a
net that subtracts, the difference, of all pairs for which it is not below 0. Proof, by induction over the answer's
digits. The earlier digits being right, the two numbers decide every token that the net sees.

(1) A *query* is a digit k and the token t before it, at which it is asked for. A *case* of it is a set of pairs: each
    column of the two numbers may be in some of 2 base² states (x, y, carry into it). Of a difference a - b, x and y are
    those of the answer and b, whose sum is a. The first cases of a query have one right answer each. All pairs are in
    them: they are counted.
(2) Attention writes a sum over heads of Σ e u / Σ e over positions. A position's weight e and what u it hands over
    depend on its own token alone. So for any direction β and number a, "β · attention < a for all pairs of a case" is
    "Σ e (β u - a) < 0 for all of them". Its largest value is a longest path through the columns, the carry its memory.
(3) On a box around all that attention can write in a case, affine arithmetic gives for each rival a lower bound of the
    right logit minus the rival's: a number plus β · attention. (2) says if it is positive for all pairs of the case.
(4) A case that this does not decide is split in two, by the column that moves the bound most.

Affine arithmetic: the net is run as it is written, on numbers that are a value and slopes along unknowns. Each rounding
is an unknown of its own; what numbers share cancels.

Assumed of float32: + - * / sqrt are rounded to nearest or fused, with numbers below 2^-126 kept or flushed to 0; sums
are taken in any order; elementary functions are as good as BOUNDS says (docs/proof.md). Steps are in the order of the
exported program: a residual is added to a finished product, so one that begins the product's sum with it is another.
Assumed of this Python: float64 rounds + - * / sqrt to nearest, and struct to float32; its exp, sin, cos, pow and erf
are right to 2^-46. SLACK has room for both.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
import struct
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from itertools import product as combinations
from math import cos, erf, exp, inf, pi, prod, sin, sqrt
from pathlib import Path
from typing import Any, NamedTuple

EXP, SHIFT, RSQRT, GELU_ARGUMENT, GELU, SILU, TRIG, POWER = 32, 2, 4, 10, 6, 36, 7, 8
BOUNDS = {"name": "any", "exp": EXP, "shift": SHIFT, "rsqrt": RSQRT, "gelu_argument": GELU_ARGUMENT}
BOUNDS |= {"gelu": GELU, "silu": SILU, "trig": TRIG, "power": POWER}
"""What elementary functions lose (docs/proof.md). SILU is an exp's u with a sum, a quotient, a product and a spare."""

# -- float32

U, TINY, LARGE = 2.0**-24, 2.0**-126, 2.0**60
"""Half of the last place of 1; what is lost where a number is flushed to 0; what no number may reach."""
ROOM = 1 + 2.0**-17
"""Bounds are of numbers before a rounding: those behind 100 of them are larger by less than 128 U."""
MOST_PRODUCTS = 64
"""Of a sum of products: with what is added and multiplied beside it, fewer than the 100 roundings of ROOM."""
MOST_TERMS = 34
"""Of a sum over positions, at most."""

# -- this program, in float64

SLACK = 2.0**-45
"""Relative error of one step: some 100 roundings of 2^-53, or a function that is right to 2^-46."""
LEAST_WEIGHT = 2.0**-900
"""Of a sum of weights, relative to the largest: what float64 loses below 2^-1022 is nothing beside it."""
VANISHED = 2.0**-500
"""More than any power below 2^-1022, where float64 has fewer bits; its products with values are no such numbers."""
GRID = 16
"""Levels at which the sums of a direction are computed; their ends lie between two."""
MOST_BYTES, MOST_SIZE, MOST_PARTS = 2**22, 64, 5_000
"""Of a file, of a dimension in a spec, and of the cases that a first case is split into."""

UNKNOWNS = count()
Floats = list[float]
pairs: Any = partial(zip, strict=True)


class TooLarge(SystemExit):
    """A number that may be too large for float32, in a case that is as it is; in a part of it none may be."""


def require(condition: object, text: str) -> None:
    if not condition:
        sys.exit(f"NOT CHECKED: {text}")


# -- affine arithmetic


class Form:
    """A number of float32: value + Σ slope · e. Each e is an unknown from -1 to 1 that forms may share."""

    __slots__ = ("radius", "size", "slopes", "value")

    def __init__(self, value: float, slopes: dict[int, float] | None = None, error: float = 0.0):
        """Make a form of a value and slopes by unknown; an `error` is the slope of a new unknown."""
        self.value = value
        self.slopes = dict(slopes or {})
        if error:
            self.slopes[next(UNKNOWNS)] = error
        self.radius = math.fsum(map(abs, self.slopes.values()))  # of any number of unknowns, rounded once
        self.size = abs(value) + self.radius

    @property
    def is_factor(self) -> bool:
        """True of 0 and powers of two: products with them are exact, unless they are below 2^-126."""
        mantissa, _ = math.frexp(self.value)
        return not self.slopes and abs(mantissa) in (0, 0.5)

    def __add__(self, o: Form) -> Form:
        return rounded(combined([(1.0, self), (1.0, o)]))

    def __sub__(self, o: Form) -> Form:
        """Return the difference itself, not rounded."""
        return combined([(1.0, self), (-1.0, o)])

    def __neg__(self) -> Form:
        return Form(-self.value, {unknown: -slope for unknown, slope in self.slopes.items()})

    def __mul__(self, o: Form) -> Form:
        return dot([self], [o])


Row = list[Form]
Rounding = Callable[[float], float]
"""The largest error of one rounding of numbers up to a size."""


def require_range(size: float) -> None:
    if not size < LARGE:
        raise TooLarge("NOT CHECKED: numbers are too large for float32")


def half(size: float) -> float:
    """Return half of the last place of numbers up to `size`."""
    require_range(size)
    if not size:
        return TINY

    # a float32 has 24 bits, so half of its last place is 25 places below its exponent
    _, exponent = math.frexp(size)
    return math.ldexp(ROOM, exponent - 25) + TINY


def relative(size: float) -> float:
    """Return the error of one rounding of numbers up to `size` that float32 has scaled.

    The factor c is any positive number from 2^-62 on. A rounding of c x loses U c |x| + TINY at most, so U |x| and
    2^-64 of x. As much again is for a factor of x that was flushed after it was scaled, the other being below LARGE.
    """
    require_range(size)
    return U * ROOM * size + 2.0**-62


def exact(size: float) -> float:
    """Return 0: nothing is rounded, or the caller says what is."""
    return 0.0


def combined(
    terms: Iterable[tuple[float, Form]],
    constant: float = 0.0,
    error: float = 0.0,
) -> Form:
    """Return a constant plus a sum of factors times forms, off by `error`; it is not rounded to float32."""
    value = constant
    size = abs(constant)
    slopes = defaultdict[int, float](float)

    # what terms share of an unknown is added with its sign, so it may cancel
    for factor, x in terms:
        value += factor * x.value
        size += abs(factor) * x.size
        for unknown, slope in x.slopes.items():
            slopes[unknown] += factor * slope
    return Form(value, slopes, error + SLACK * size)


def rounded(x: Form, error: float | None = None) -> Form:
    """Return x with one more unknown: `error`, or one rounding to float32."""
    return Form(x.value, x.slopes, half(x.size) if error is None else error)


def bent(x: Form, value: float, slopes: Iterable[float]) -> Form:
    """Return a function of x from its value in the middle of x.

    slopes: two or more, between which all slopes of the function lie.
    """
    ends = list(slopes)
    low, high = min(ends), max(ends)
    middle = (low + high) / 2
    spread = (high - low) / 2 + SLACK * max(abs(low), abs(high))

    # the middle slope carries x's own unknowns along; the rest is an unknown of its own
    constant = value - middle * x.value
    return combined([(middle, x)], constant, spread * x.radius)


def lost(xs: Row, ws: Row, rounding: Rounding, more: int = 0) -> float:
    """Return what float32 loses in a dot product, its sum taken in any order.

    more: factors by which each product is multiplied beside.
    """
    require(len(xs) <= MOST_PRODUCTS, "a sum of products is too long")
    sizes = []
    error = 0.0
    for x, w in pairs(xs, ws):
        size = x.size * w.size
        sizes.append(size)
        is_exact = x.is_factor or w.is_factor
        own = 0.0 if not size else rounding(0.0) if is_exact else rounding(size)
        error += own + more * rounding(size)

    # adding 0 loses nothing, so only the terms that are not 0 count
    terms = sum(w.size > 0 for w in ws)
    additions = max(terms - 1 + more, 0)
    return error + additions * rounding(sum(sizes) * ROOM)


def dot(xs: Row, ws: Row, rounding: Rounding = half, more: int = 0) -> Form:
    """Return the dot product of two rows as float32 has it; `rounding` and `more` as in `lost`."""
    both = list(pairs(xs, ws))

    # x w = x₀ w + w₀ x - x₀ w₀ + (x - x₀) (w - w₀), whose last term is an error
    terms = []
    for x, w in both:
        terms += [(w.value, x), (x.value, w)]
    constant = -sum(x.value * w.value for x, w in both)
    second_order = sum(x.radius * w.radius for x, w in both)
    return combined(terms, constant, lost(xs, ws, rounding, more) + second_order)


def product(matrix: list[Row], xs: Row, biases: Row | None = None) -> Row:
    """Return a matrix times xs, plus biases, as float32 has it."""
    if biases is None:
        return [dot(xs, row) for row in matrix]
    longer = [*xs, Form(1.0)]
    return [dot(longer, [*row, bias]) for row, bias in pairs(matrix, biases)]


# -- functions


def single(x: float) -> float:
    """Return the float32 number nearest to x."""
    (nearest,) = struct.unpack("f", struct.pack("f", x))
    return float(nearest)


def inverse_root(square: Form, least: float) -> Form:
    """Return 1 / sqrt of a positive number, which is `least` or more whatever its bound says."""
    low = max(square.value - square.radius, least)
    high = square.value + square.radius
    slopes = [-0.5 * end**-1.5 for end in (low, high)]
    root = bent(square, square.value**-0.5, slopes)
    return rounded(root, RSQRT * half(root.size))


def norm(xs: Row, weights: Row, eps: float) -> Row:
    """Return x / sqrt(mean(x²) + eps) · w."""
    n = len(xs)
    square = combined([(1 / n, x * x) for x in xs], eps)

    # the sum's roundings, those of the mean and of adding eps, and of 1 / n and eps themselves
    error = (n - 1) / n * half(n * square.size * ROOM)
    error = error + 2 * half(square.size * ROOM)
    constants = abs(single(1 / n) * n - 1) * square.size
    constants = constants + abs(single(eps) - eps)
    root = inverse_root(rounded(square, error + constants), eps / 2)
    return [x * root * w for x, w in pairs(xs, weights)]


def layer_norm(xs: Row, weights: Row, biases: Row, eps: float) -> Row:
    """Return (x - mean) / sqrt(variance + eps) · w + b; mean and variance by Welford's recurrence, in groups or not.

    With numbers up to A, one of less than n steps is mean += (x - mean) / i, or the like of two groups: four roundings
    of numbers up to 2 A, and it averages what was lost before. So the mean loses 8 n U A at most. The sum of squares
    grows by (x - mean) (x - new mean): two differences up to 2 A that are off by (8 n + 2) U A each, a rounding of 4 A²
    and one of the sum, n · 4 A². That is (36 n + 12) U A² for each number, and of the variance as much in all. A step
    of two groups loses less than twice that for each number of the smaller one, and a number is in the smaller one
    log2 n times at most, four of 16.
    """
    n = len(xs)
    size = max(x.size for x in xs)
    middle = combined([(1 / n, x) for x in xs])
    squares = [dot([x - middle], [x - middle], exact) for x in xs]
    square = combined([(1 / n, x) for x in squares], eps)
    require(n <= 16, "a LayerNorm is too wide")
    error = 2 * 4 * (36 * n + 12) * U * ROOM * size**2
    error = error + abs(single(eps) - eps) + 2 * half(square.size * ROOM)
    root = inverse_root(rounded(square, error), eps / 2)
    middle = rounded(middle, 8 * n * U * ROOM * size)

    # (x - mean) · root, or x · root - mean · root: three roundings at most, and one of root · w in place of w
    results = Row()
    for x, w, b in pairs(xs, weights, biases):
        bound = root.size * (x.size + middle.size)
        scaled = dot([x - middle], [root], exact)
        scaled = rounded(scaled, 4 * U * ROOM * bound + TINY)
        results.append(dot([scaled, Form(1.0)], [w, b]))
    return results


def curve(x: Form, at: Callable[[float], tuple[float, float]], turn: float) -> Form:
    """Return a function of x, not rounded, whose slope is least and largest at -turn and turn, or else at an end.

    at: returns its value and its slope.
    """
    low = x.value - x.radius
    high = x.value + x.radius
    turns = [t for t in (-turn, turn) if low < t < high]
    slopes = [at(n)[1] for n in (low, high, *turns)]
    value, _ = at(x.value)
    y = bent(x, value, slopes)
    return rounded(y, SLACK * x.size)


def gelu(x: Form) -> Form:
    """Return x Φ(x), Φ being the normal distribution's integral."""

    def at(n: float) -> tuple[float, float]:
        integral = (1 + erf(n / sqrt(2))) / 2
        density = exp(-n * n / 2) / sqrt(2 * pi)
        return n * integral, integral + n * density

    # x / √2, its half and the result may be flushed
    y = curve(x, at, sqrt(2))
    return rounded(y, U * (GELU_ARGUMENT * x.size + GELU * y.size) + 4 * TINY)


def silu(x: Form) -> Form:
    """Return x / (1 + exp -x)."""

    def at(n: float) -> tuple[float, float]:
        power = exp(-abs(n))
        share = (1 if n > 0 else power) / (1 + power)
        return n * share, share * (1 + n * (1 - share))

    # the slope turns where n tanh(n / 2) = 2; where exp -x is too large the result, below 2^-118, is 0
    y = curve(x, at, 2.3993572805154676)
    return rounded(y, SILU * U * ROOM * y.size + 2.0**-118)


def waves(angle: Form) -> Row:
    """Return cosine and sine, whose slopes change by no more than the angle."""
    x, r = angle.value, angle.radius
    results = []
    for value, slope in ((cos(x), -sin(x)), (sin(x), cos(x))):
        results.append(bent(angle, value, (slope - r, slope + r)))
    return [rounded(y, TRIG * half(y.size)) for y in results]


def turned(xs: Row, wave: Row) -> Row:
    """Return a row whose pairs (0, 1), (2, 3) ... are turned by an angle, given its cosine and sine."""
    cosine, sine = wave
    row = list(xs)
    for i in range(0, len(xs) // 2 * 2, 2):
        pair = xs[i : i + 2]
        row[i : i + 2] = dot(pair, [cosine, -sine]), dot(pair, [sine, cosine])
    return row


def scaled(query: Row) -> Row:
    """Return a query of n numbers, divided by sqrt(n).

    Scores are scaled by 1 / sqrt(n), or queries and keys each by its root, at least 1 / 3: five roundings at most. What
    a query loses where it is flushed is here; what a key loses is in `relative`.
    """
    rows = [combined([(len(query) ** -0.5, q)]) for q in query]
    return [rounded(row, 5 * U * ROOM * row.size + 4 * TINY) for row in rows]


def unscaled(xs: Row, weights: Row) -> Row:
    """Return a norm of xs without its positive scale, which changes no sign of linear maps."""
    rows = [rounded(x, relative(x.size)) for x in xs]
    return [dot([x], [w], relative) for x, w in pairs(rows, weights)]


def one_of(*ways: float) -> Form:
    """Return the result of float32 that computes in one of several ways."""
    low, high = min(ways), max(ways)
    slack = SLACK * max(abs(low), abs(high))
    return Form((low + high) / 2, error=(high - low) / 2 + slack)


def shared_by(xs: Row) -> Form:
    """Return the first of xs with only the unknowns that all of them have."""
    first, *others = xs
    slopes = {}
    for unknown, slope in first.slopes.items():
        if all(unknown in x.slopes for x in others):
            slopes[unknown] = slope
    return Form(first.value, slopes)


def forms(values: Iterable[float]) -> Row:
    """Return numbers that float32 has as they are."""
    return [Form(float(x)) for x in values]


def transposed(matrix: Iterable[Iterable[Any]]) -> list[list[Any]]:
    return [list(column) for column in pairs(*matrix)]


def cut(row: list[Any], count: int) -> list[list[Any]]:
    """Return so many equal parts of a row."""
    n = len(row) // count
    return [row[i : i + n] for i in range(0, len(row), n)]


def arc(radii: Row, start: float, stride: float, base: int = 10) -> list[Row]:
    """Return a base's digits on an arc, of one radius or two."""
    table = []
    for v in range(base):
        # product and sum may be fused, or rounded one after the other; float64's sum has a neighbour on either side
        apart = single(start + single(stride * v))
        fused = start + stride * v
        below = single(math.nextafter(fused, -inf))
        above = single(math.nextafter(fused, inf))
        ends = pairs(waves(one_of(apart, below, above)), (radii[0], radii[-1]))
        table.append([x * r for x, r in ends])
    return table


# -- what is asked


class Asked(NamedTuple):
    """Two numbers of `digits` digits in a base, and their sum; or a - b, a not below b.

    Of a difference, the x and y of a column's states are the digits of the answer and of b, whose sum is a.
    """

    base: int = 10
    digits: int = 10
    is_difference: bool = False

    def pairs(self, digits: int) -> int:
        """Return the number of pairs of so many digits; for a difference, of those where it is not below 0."""
        numbers: int = self.base**digits
        return numbers * (numbers + 1) // 2 if self.is_difference else numbers**2

    def answer_of(self, state: tuple[int, ...]) -> int:
        """Return the digit of the answer in a state, `base` more where its sum carries."""
        total = sum(state)
        return state[0] + total // self.base * self.base if self.is_difference else total


TEN = Asked()


def asked_of(task: str) -> Asked:
    """Read what a spec says of its task: "addition", or "subtraction base=3 digits=4"."""
    name, *options = task.split()
    values = {"base": 10, "digits": 10}
    for option in options:
        key, _, value = option.partition("=")
        require(key in values and value.isdecimal(), OTHER_TASK)
        values[key] = int(value)
    is_known = name in ("addition", "subtraction") and 2 <= values["base"] <= 16 and 2 <= values["digits"] <= 10
    require(is_known, OTHER_TASK)
    return Asked(**values, is_difference=name == "subtraction")


OTHER_TASK = "another task than a + b or a - b of at most ten digits"

# -- nets: each family's file in model/submissions, step by step

Spec = dict[str, Any]
Shape = tuple[str, tuple[int, ...], object]
"""A tensor's name and shape, and if the net has it."""


class Token(NamedTuple):
    """A token at a place: its residual, and by head what it asks for, answers to and hands over to attention."""

    x: Row
    queries: list[Row]
    keys: list[Row]
    values: list[Row]


class Net:
    """A net up to attention and behind it. Matrices are lists of what an output reads."""

    DEFAULTS: Spec
    eps: float
    """What norms add to a mean square."""
    centres = False
    """True of LayerNorm."""
    heads = 1
    steps: int
    """Digits that are asked for."""
    is_scaled = True
    """True if scores are divided by the root of a query's length."""
    columns: list[tuple[int, int, int]]
    """The places of x, y and z of each column. One place serves positions that have one vector."""
    fixed: dict[int, int]
    """The token at each other place."""
    table: list[Row]

    def __init__(self, s: Spec, w: dict[str, Any]):
        """Take the spec and the tensors, and compute what depends on no problem."""
        self.spec, self.w = s, w
        self.asked = asked_of(s["task"])
        self.steps = self.asked.digits + 1

    @staticmethod
    def shapes(s: Spec) -> Iterator[Shape]:
        """Yield the tensors that a net of spec s may have, in order."""
        raise NotImplementedError

    def reader(self, k: int) -> int:
        """Return the place at which digit k is asked for."""
        raise NotImplementedError

    def token(self, place: int, v: int) -> Token:
        """Return a token at a place."""
        raise NotImplementedError

    def write(self, seen: Row) -> Row:
        """Return what attention writes to the residual, of the heads' values, one head after the other."""
        raise NotImplementedError

    def last(self, first: Row) -> Row:
        """Return the last residual, of the one behind attention."""
        raise NotImplementedError

    def logits(self, last: Row) -> Row:
        """Return the logits of a last residual, times a positive number: that of its norm, but for `norm_scale`."""
        raise NotImplementedError

    def its_own(self, v: int) -> Row:
        """Return a token of the table as if its errors were no other token's."""
        return [Form(x.value, error=x.radius) for x in self.table[v]]

    def wide(self, row: Row) -> Row:
        """Return a row with zeros for the dimensions that are left out of it."""
        return row + forms([0.0] * (self.spec["width"] - len(row)))


FLAGS = """
    arc circular spiral linear_correction plain_spiral flat_spiral frozen_spiral frozen_eos frozen_plus equals_on_ring
    frozen_z_hi no_eos tie_qk unturned toeplitz_q circulant_q rank1_q direct_forms tie_vo rank2_out rank1_out unit_out
    opposite_out token_out onehot_out shared_norm structured_norm3 structured_norm2 structured_norm1 scalar_norm
    parameterless_norm no_ffn_bias one_unit tie_fc2_head
"""


class SplitSubspace(Net):
    DEFAULTS = dict.fromkeys(FLAGS.split(), False) | {
        "family": "split_subspace",
        "tok_dim": 3,
        "pos_dim": 3,
        "heads": 2,
        "hidden": 2,
        "vocabulary": 14,
        "qk_dim": 0,
        "spiral_amp": 3.5,
        "spiral_slope": 0.15,
        "equals_index": 9.5,
    }
    eps = 1e-5

    @staticmethod
    def shapes(s: Spec) -> Iterator[Shape]:
        tok, pos, heads = s["tok_dim"], s["pos_dim"], s["heads"]
        width = tok + pos
        direct = s["direct_forms"]
        size = s["qk_dim"] or width // heads
        projection = (heads * size, pos)
        if s["toeplitz_q"]:
            projection = (heads, size + pos - 1)
        elif s["circulant_q"]:
            projection = (heads, max(size, pos))
        units = 1 if s["one_unit"] else s["hidden"]

        # the output: its rank, what it reads, and the entries of its row that are not given by a constraint
        rank = 1 if s["rank1_out"] else 2 if s["rank2_out"] else 0
        reads = heads * tok if direct else width
        row = tok if s["token_out"] else width
        row = row - s["unit_out"] - s["opposite_out"]

        # numbers that all norms are made of, or else the vectors of one norm or of three
        count = 3 if s["structured_norm3"] else 2 if s["structured_norm2"] else 1
        is_flat = count > 1 or s["structured_norm1"] or s["scalar_norm"]
        norms = (1 if s["shared_norm"] else 3, width)

        yield "arc", (3 if s["circular"] else 4,), s["arc"]
        base, digits, _ = asked_of(s["task"])
        yield "tokens", (s["vocabulary"] - 10 + base, tok), not s["arc"]
        yield "digits", (digits, pos), not s["spiral"]
        yield "spiral", (3 if s["flat_spiral"] else 4,), s["spiral"] and not s["frozen_spiral"]
        correction = (2 if s["linear_correction"] else digits,)
        yield "correction", correction, s["spiral"] and not s["plain_spiral"]
        yield "z_hi", (pos,), not (s["no_eos"] or s["frozen_z_hi"])
        yield "equals", (pos,), not s["equals_on_ring"]
        yield "plus", (pos,), not s["frozen_plus"]
        yield "eos", (pos,), not s["frozen_eos"]

        yield "form", (heads * pos, pos), direct
        yield "phase", (heads,), not direct and s["tie_qk"] and not s["unturned"]
        yield "q_A", (heads, size), not direct and s["rank1_q"]
        yield "q_B", (heads, pos), not direct and s["rank1_q"]
        yield "q_proj", projection, not direct and not s["rank1_q"]
        yield "k_proj", projection, not direct and not s["tie_qk"]
        yield "v_proj", (width, tok), not direct and not s["tie_vo"]
        yield "out", (width, reads), not rank
        yield "out_A", (reads, rank), rank
        yield "out_B", (rank, row), rank and row and not s["onehot_out"]

        yield "fc1", (units, width), True
        yield "fc1_bias", (units,), not s["no_ffn_bias"]
        yield "fc2", (width, units), not s["tie_fc2_head"]
        yield "fc2_bias", (width,), not s["no_ffn_bias"]
        yield "head", (tok, width), True
        yield "norm", (count,) if is_flat else norms, not s["parameterless_norm"]

    def __init__(self, s: Spec, w: dict[str, Any]):
        super().__init__(s, w)
        is_large = s["tok_dim"] >= 2 and s["pos_dim"] >= 3 and s["qk_dim"] >= 0
        require(is_large, "a dimension is too small")
        self.tok = s["tok_dim"]
        self.width = s["tok_dim"] + s["pos_dim"]
        self.heads = s["heads"]
        self.is_scaled = not s["direct_forms"]
        base, digits, _ = self.asked
        # places behind the columns, whose x, y and z have one position
        plus, self.equals, self.z_hi = digits, digits + 1, digits + 2
        self.columns = [(j, j, j) for j in range(digits)]
        self.fixed = {plus: 0, self.equals: 0}
        if s["vocabulary"] == 14:  # a token that ends the answer is asked for where the last digit stands
            self.fixed = {plus: base, self.equals: base + 1}
            self.steps = digits + 2

        nowhere = forms([0.0] * s["pos_dim"])
        equals = self.spiral(s["equals_index"]) if s["equals_on_ring"] else w["equals"]
        others = [w.get("plus", nowhere), equals, w.get("z_hi", nowhere)]
        self.places: list[Row] = [*map(self.digit, range(digits)), *others]
        self.table = self.tokens()
        self.norms = self.norm_weights()
        self.out = self.output()
        self.q = [] if s["direct_forms"] else self.projection()
        if s["tie_fc2_head"]:
            w["fc2"] = transposed(w["head"])
        if s["tie_vo"]:
            w["v_proj"] = transposed(w["head"])

    def reader(self, k: int) -> int:
        return self.z_hi if k > self.asked.digits else k - 1 if k else self.equals

    def output(self) -> list[Row]:
        """Return attention's output matrix: a matrix, or a product A · B of rank 1 or 2."""
        s, w = self.spec, self.w
        if "out" in w:
            return list(w["out"])
        if not s["rank1_out"]:
            return [product(w["out_A"], column) for column in transposed(w["out_B"])]
        given = [0.0, 1.0] if s["onehot_out"] else [1.0] * s["unit_out"]
        row = forms(given) + w.get("out_B", [[]])[0]
        if s["opposite_out"]:
            row = [row[0], -row[0], *row[1:]]
        row = row + forms([0.0] * (self.width - len(row)))
        return [[a * b for (a,) in w["out_A"]] for b in row]

    def projection(self) -> list[Row]:
        """Return the matrix of queries, one head's rows after the other's."""
        s, w = self.spec, self.w
        if s["rank1_q"]:
            return [[a * b for b in row] for column, row in pairs(w["q_A"], w["q_B"]) for a in column]
        if not (s["toeplitz_q"] or s["circulant_q"]):
            return list(w["q_proj"])

        # the entry at i, j is one of a list, by i - j
        size, pos = s["qk_dim"] or self.width // self.heads, s["pos_dim"]
        first = pos - 1 if s["toeplitz_q"] else 0
        return [[row[(first + i - j) % len(row)] for j in range(pos)] for row in w["q_proj"] for i in range(size)]

    def tokens(self) -> list[Row]:
        if not self.spec["arc"]:
            return list(self.w["tokens"])
        *radii, start, stride = self.w["arc"]
        return arc(radii, start.value, stride.value, self.asked.base)

    def spiral(self, index: float) -> Row:
        """Return the position at an index on the spiral."""
        s = self.spec
        index = single(index)

        # the angle is 2π · index / digits, by a quotient or by a product with the inverse
        turns, digits = single(single(2 * pi) * index), self.asked.digits
        product = turns * single(1 / digits)
        ways = single(turns / digits), single(product)
        if s["frozen_spiral"]:
            slope = 0.0 if s["flat_spiral"] else single(s["spiral_slope"])
            amp = Form(single(s["spiral_amp"]))
            height = Form(single(slope * index))
            angle = one_of(*ways)
        else:
            amp, phase, *slopes, offset = self.w["spiral"]
            angle = one_of(*ways, product) + phase  # a product may be fused with the sum
            rise = sum((x * Form(index) for x in slopes), Form(0.0))
            height = rise + offset
        plane = [amp * x for x in waves(angle)]
        return [*plane, height, *forms([0.0] * (s["pos_dim"] - 3))]

    def digit(self, n: int) -> Row:
        """Return the position of column n."""
        place: Row = self.spiral(n) if self.spec["spiral"] else self.w["digits"][n]
        if "correction" not in self.w:
            return place
        correction = self.w["correction"]
        if self.spec["linear_correction"]:
            slope, intercept = correction
            factor = Form(1.0) + intercept
            factor += slope * Form(n)
        else:
            factor = Form(1.0) + correction[n]
        return [x * factor for x in place]

    def norm_weights(self) -> list[Row]:
        """Return the weights of the norms before attention, before the FFN and at the end."""
        s = self.spec
        norm = self.w.get("norm", forms([1.0]))
        if isinstance(norm[0], list):
            return [norm[i % len(norm)] for i in range(3)]

        base = Form(1.0) if s["structured_norm1"] else norm[0]
        weights = [base] * self.width
        if s["structured_norm3"]:
            weights[1] = base + norm[1]
        if s["structured_norm1"] or s["structured_norm2"] or s["structured_norm3"]:
            weights[-1] = base + norm[-1]
        return [weights] * 3

    def token(self, place: int, v: int) -> Token:
        w, heads = self.w, self.heads
        x = self.its_own(v) + self.places[place]
        normed = norm(x, self.norms[0], self.eps)
        content, where = normed[: self.tok], normed[self.tok :]
        if self.spec["direct_forms"]:
            keys = cut(product(w["form"], where), heads)
            return Token(x, [where] * heads, keys, [content] * heads)

        queries = cut(product(self.q, where), heads)
        keys = queries
        if not self.spec["tie_qk"]:
            keys = cut(product(w["k_proj"], where), heads)
        if "phase" in w:
            angles = map(waves, w["phase"])
            queries = [turned(query, wave) for query, wave in pairs(queries, angles)]
        values = cut(product(w["v_proj"], content), heads)
        return Token(x, list(map(scaled, queries)), keys, values)

    def write(self, seen: Row) -> Row:
        return product(self.out, seen)

    def last(self, first: Row) -> Row:
        w = self.w
        normed = norm(first, self.norms[1], self.eps)
        hidden = product(w["fc1"], normed, w.get("fc1_bias"))
        written = product(w["fc2"], list(map(gelu, hidden)), w.get("fc2_bias"))
        return [x + y for x, y in pairs(first, written)]

    def logits(self, last: Row) -> Row:
        normed = unscaled(last, self.norms[2])
        read = [dot(normed, row, relative) for row in self.w["head"]]
        return [dot(read, row, relative) for row in self.table]


ROPE_FLAGS = """
    half_split arc frozen_arc sine_input tie_kv tie_qk scaled_k turned_k frozen_k_angle tie_vq tie_oq rank1_out
    shared_qk_norm fixed_qk_norm tie_gate tie_down_gate turned_down frozen_down_angle shared_block_norms shared_norms
    arc_inputs arc_logits flat_down
"""


class Rope(Net):
    DEFAULTS = dict.fromkeys(ROPE_FLAGS.split(), False) | {
        "family": "rope",
        "width": 3,
        "heads": 1,
        "ffn": 2,
        "rope_base": 3.0,
        "arc_radius": 2.5,
        "arc_start": -1.2,
        "arc_stride": 0.29,
        "first_k_angle": 0.1,
        "first_down_angle": 0.1,
        "qk_norm_1": -1.0,
        "qk_norm_2": 0.0,
        "qk_norm_3": 3.6,
    }
    eps = 1e-6

    @staticmethod
    def shapes(s: Spec) -> Iterator[Shape]:
        d, f, size = s["width"], s["ffn"], s["heads"] * 4
        read = 2 if s["arc_inputs"] else d
        seen = 2 if s["arc_logits"] else d
        has_k = not (s["scaled_k"] or s["turned_k"] or s["tie_qk"])
        has_down = not (s["tie_down_gate"] or s["turned_down"])
        has_norms = not (s["shared_norms"] or s["shared_block_norms"])

        yield "arc", (3,), s["arc"] and not s["frozen_arc"]
        yield "tokens", (asked_of(s["task"]).base, d), not s["arc"]
        yield "q", (size, d if s["tie_oq"] else read), True
        yield "k_scale", (1,), s["scaled_k"]
        yield "k_angle", (1,), s["turned_k"] and not s["frozen_k_angle"]
        yield "kv", (4, read), has_k and s["tie_kv"]
        yield "k", (4, read), has_k and not s["tie_kv"]
        yield "v", (4, read), not (s["tie_kv"] or s["tie_vq"])
        yield "o_A", (size, 1), s["rank1_out"]
        yield "o_B", (1, d), s["rank1_out"]
        yield "o", (d, size), not (s["tie_oq"] or s["rank1_out"])

        yield "gate_scale", (1,), s["tie_gate"]
        yield "gate", (f, d), not s["tie_gate"]
        yield "up", (f, d), True
        yield "down", (2 if s["flat_down"] else d, f), has_down
        yield "down_angle", (1,), s["turned_down"] and not s["frozen_down_angle"]
        yield "qk_norm", (1 if s["fixed_qk_norm"] else 4,), s["shared_qk_norm"]
        yield "q_norm", (4,), not s["shared_qk_norm"]
        yield "k_norm", (4,), not s["shared_qk_norm"]
        yield "norm", (d,), s["shared_norms"]
        yield "norm12", (d,), s["shared_block_norms"]
        yield "norm1", (read,), has_norms
        yield "norm2", (d,), has_norms
        yield "norm3", (seen,), not s["shared_norms"]

    def __init__(self, s: Spec, w: dict[str, Any]):
        super().__init__(s, w)
        self.heads = s["heads"]
        n = self.asked.digits
        self.columns = [(1 + j, n + 3 + j, 2 * n + 4 + j) for j in range(n)]
        self.fixed = {0: 0, n + 1: 0, n + 2: 0, 2 * n + 3: 0}
        self.table = self.tokens()
        self.q = list(map(self.wide, w["q"]))
        self.k = self.keys()
        self.v = self.q if s["tie_vq"] else self.k if s["tie_kv"] else list(map(self.wide, w.get("v", [])))
        self.gate: list[Row] = w.get("gate", [])
        if s["tie_gate"]:
            (factor,) = w["gate_scale"]
            self.gate = [[factor * x for x in row] for row in w["up"]]

        both = w.get("qk_norm", [])
        if s["fixed_qk_norm"]:
            both = both + self.constants("qk_norm_1", "qk_norm_2", "qk_norm_3")
        self.routes = [self.turns(w.get(name, both)) for name in ("q_norm", "k_norm")]

        names = ("norm", "norm", "norm")
        if not s["shared_norms"]:
            names = ("norm12", "norm12", "norm3") if s["shared_block_norms"] else ("norm1", "norm2", "norm3")
        self.norms = [self.wide(w[name]) for name in names]

    def constants(self, *names: str) -> Row:
        """Return numbers of the spec, as float32 has them."""
        return forms(single(self.spec[name]) for name in names)

    def tokens(self) -> list[Row]:
        if not self.spec["arc"]:
            return list(self.w["tokens"])
        fixed = self.constants("arc_radius", "arc_start", "arc_stride")
        radius, start, stride = self.w.get("arc", fixed)
        return [self.wide(row) for row in arc([radius], start.value, stride.value, self.asked.base)]

    def keys(self) -> list[Row]:
        """Return the matrix of keys."""
        s, w = self.spec, self.w
        if s["turned_k"]:
            (angle,) = w.get("k_angle", self.constants("first_k_angle"))
            both = [waves(angle)] * 2
            return transposed(self.turn(column, both) for column in transposed(self.q))
        if s["scaled_k"]:
            (factor,) = w["k_scale"]
            return [[factor * x for x in row] for row in self.q]
        return self.q if s["tie_qk"] else list(map(self.wide, w["kv" if s["tie_kv"] else "k"]))

    def turns(self, weights: Row) -> tuple[Row, list[list[Row]]]:
        """Return a norm's weights, and the waves by which two pairs turn at each place: of queries, or of keys."""
        speed = self.spec["rope_base"] ** -0.5
        slow = Form(speed, error=(POWER + 1) * half(speed) + SLACK * speed)  # and one rounding of the base
        places = [Form(float(place)) for place in range(3 * self.asked.digits + 5)]
        return weights, [[waves(place), waves(place * slow)] for place in places]

    def turn(self, xs: Row, both: list[Row]) -> Row:
        """Return four numbers with each of their two pairs turned: (0, 2), (1, 3), or (0, 1), (2, 3)."""
        first, second = both
        if self.spec["half_split"]:
            (a, c), (b, d) = turned(xs[::2], first), turned(xs[1::2], second)
            return [a, b, c, d]
        return turned(xs[:2], first) + turned(xs[2:], second)

    def routed(self, xs: Row, place: int, which: int) -> Row:
        """Return a query (0) or a key (1), normed and turned."""
        weights, by_place = self.routes[which]
        return self.turn(norm(xs, weights, self.eps), by_place[place])

    def reader(self, k: int) -> int:
        return 2 * self.asked.digits + 3 + k

    def token(self, place: int, v: int) -> Token:
        x = self.its_own(v)
        if self.spec["sine_input"]:
            step = single(1e-4)
            _, ramp = waves(one_of(single(step * place), single(1e-4 * place)))
            x[2] = x[2] + ramp
        normed = norm(x, self.norms[0], self.eps)
        queries = [self.routed(q, place, 0) for q in cut(product(self.q, normed), self.heads)]
        key = self.routed(product(self.k, normed), place, 1)
        value = product(self.v, normed)
        return Token(x, list(map(scaled, queries)), [key] * self.heads, [value] * self.heads)

    def write(self, seen: Row) -> Row:
        w = self.w
        if self.spec["rank1_out"]:
            channel = product(transposed(w["o_A"]), seen)
            return product(transposed(w["o_B"]), channel)
        return product(transposed(self.q) if self.spec["tie_oq"] else w["o"], seen)

    def last(self, first: Row) -> Row:
        s, w = self.spec, self.w
        normed = norm(first, self.norms[1], self.eps)
        gates = map(silu, product(self.gate, normed))
        units = [gate * x for gate, x in pairs(gates, product(w["up"], normed))]
        if s["turned_down"]:
            (angle,) = w.get("down_angle", self.constants("first_down_angle"))
            written = product(transposed(w["up"]), turned(units, waves(angle)))
        else:
            written = product(transposed(self.gate) if s["tie_down_gate"] else w["down"], units)
        return [x + y for x, y in pairs(first, self.wide(written))]

    def logits(self, last: Row) -> Row:
        normed = unscaled(last, self.norms[2])
        return [dot(normed, row, relative) for row in self.table]


def linear(name: str, reads: int, writes: int, rank: int) -> Iterator[Shape]:
    """Yield the tensors of a matrix: two factors, or the matrix itself."""
    yield f"{name}_A", (reads, rank), rank
    yield f"{name}_B", (rank, writes), rank
    yield name, (writes, reads), not rank


class LowRank(Net):
    DEFAULTS = {  # noqa: RUF012
        "family": "low_rank",
        "width": 7,
        "ffn": 14,
        "positions": 33,
        "pos_rank": 0,
        "qkv_rank": 0,
        "out_rank": 0,
        "ffn_rank": 0,
        "rms_norm": False,
        "tie_qkv": "none",
        "no_eos": False,
    }

    @staticmethod
    def parts(tie: str) -> tuple[str, str, str]:
        """Return the names of the projections of queries, keys and values."""
        end = tie.lower()[-2:]
        names = {"ll": ("qkv", "qkv", "qkv"), "qk": ("qk", "qk", "v"), "kv": ("q", "kv", "kv")}
        return names.get(end, ("q", "k", "v"))

    @staticmethod
    def shapes(s: Spec) -> Iterator[Shape]:
        d, tie, rank = s["width"], s["tie_qkv"], s["qkv_rank"]
        names = list(dict.fromkeys(LowRank.parts(tie)))
        asked = asked_of(s["task"])
        rows = s["positions"] - 3 * (10 - asked.digits) - s["no_eos"]  # 33 or 35 of ten digits
        yield "tokens", (asked.base + 4, d), True
        yield "pos_A", (rows, s["pos_rank"]), s["pos_rank"]
        yield "pos_B", (s["pos_rank"], d), s["pos_rank"]
        yield "positions", (rows, d), not s["pos_rank"]

        if tie == "none":
            yield from linear("qkv", d, 3 * d, rank)
        elif not tie.startswith("share"):
            for name in names:
                yield from linear(name, d, d, rank)
        else:  # one factor serves all three; the other may serve two of them
            firsts = ["qkv_A"] if tie[5] == "A" else [f"qkv_A{name}" for name in names]
            seconds = ["qkv_B"] if tie[5] == "B" else [f"qkv_B{name}" for name in names]
            for name in firsts:
                yield name, (d, rank), True
            for name in seconds:
                yield name, (rank, d), True
        yield from linear("out", d, d, s["out_rank"])
        yield from linear("fc1", d, s["ffn"], s["ffn_rank"])
        yield from linear("fc2", s["ffn"], d, s["ffn_rank"])
        for n in (1, 2, 3):
            yield f"norm{n}", (d,), True
            yield f"norm{n}_bias", (d,), not s["rms_norm"]

    def __init__(self, s: Spec, w: dict[str, Any]):
        super().__init__(s, w)
        self.centres = not s["rms_norm"]
        self.eps = 1e-5 if self.centres else 1e-8
        base, n, _ = self.asked
        self.columns = [(n - 1 - j, 2 * n - j, 2 * n + 2 + j) for j in range(n)]
        self.fixed = {n: base, 2 * n + 1: base + 1}
        self.table = w["tokens"]
        self.places: list[Row] = w.get("positions", [])
        if "pos_A" in w:
            self.places = [product(transposed(w["pos_B"]), row) for row in w["pos_A"]]

    def reader(self, k: int) -> int:
        return 2 * self.asked.digits + 1 + k

    def thin(self, x: Row, first: str, second: str) -> Row:
        """Return x · A · B."""
        few = product(transposed(self.w[first]), x)
        return product(transposed(self.w[second]), few)

    def linear(self, x: Row, name: str) -> Row:
        if name in self.w:
            return product(self.w[name], x)
        return self.thin(x, f"{name}_A", f"{name}_B")

    def norm(self, x: Row, number: int) -> Row:
        weight = self.w[f"norm{number}"]
        if self.centres:
            return layer_norm(x, weight, self.w[f"norm{number}_bias"], self.eps)
        return norm(x, weight, self.eps)

    def token(self, place: int, v: int) -> Token:
        x = [a + b for a, b in pairs(self.table[v], self.places[place])]
        normed = self.norm(x, 1)
        tie = self.spec["tie_qkv"]
        names = self.parts(tie)
        if tie == "none":
            rows = cut(self.linear(normed, "qkv"), 3)
        elif tie.startswith("shareA"):
            rows = [self.thin(normed, "qkv_A", f"qkv_B{name}") for name in names]
        elif tie.startswith("shareB"):
            rows = [self.thin(normed, f"qkv_A{name}", "qkv_B") for name in names]
        else:
            rows = [self.linear(normed, name) for name in names]
        query, key, value = rows
        return Token(x, [scaled(query)], [key], [value])

    def write(self, seen: Row) -> Row:
        return self.linear(seen, "out")

    def last(self, first: Row) -> Row:
        hidden = self.linear(self.norm(first, 2), "fc1")
        written = self.linear(list(map(gelu, hidden)), "fc2")
        return [x + y for x, y in pairs(first, written)]

    def logits(self, last: Row) -> Row:
        if self.centres:
            return product(self.table, self.norm(last, 3))
        normed = unscaled(last, self.w["norm3"])
        return [dot(normed, row, relative) for row in self.table]


FAMILIES: dict[Any, type[Net]] = {"split_subspace": SplitSubspace, "rope": Rope, "low_rank": LowRank}


def completed(spec: Any) -> tuple[Spec, Any]:
    """Return a spec with a value for every field, and its ties; None where it has none.

    Refuse a spec of another family, and one with constraints that this program does not know.
    """
    is_tied = isinstance(spec, dict) and spec.get("family") == "tied"
    base = spec.get("base") if is_tied else spec
    is_known = isinstance(base, dict) and base.get("family") in FAMILIES
    require(is_known, "another family, or no spec")

    defaults = FAMILIES[base["family"]].DEFAULTS | {"task": "addition"}
    s = defaults | base
    for name, value in s.items():
        is_alike = type(value) is type(defaults.get(name))
        require(is_alike, f"a spec's field {name!r:.40} is unknown, or of another kind")
        is_small = type(value) is str or abs(value) <= MOST_SIZE
        require(is_small, f"a spec's field {name} is too large")
        is_kept = type(value) is str or abs(value) >= TINY or value == 0
        require(is_kept, f"a spec's field {name} may be read as 0")
    is_known = s.get("vocabulary", 10) in (10, 14)
    require(is_known, "a vocabulary is neither of ten tokens nor of 14")
    return s, spec.get("ties") if is_tied else None


def untied(name: str, ties: Any, theta: Floats) -> Floats:
    """Return the entries of the tensor `name`: k is the k-th number of theta, -k its negative, 0 is zero."""
    places: Any = ties.get(name) if isinstance(ties, dict) else None
    require(isinstance(places, list), f"{name} has no ties")
    is_place = all(type(k) is int and abs(k) <= len(theta) for k in places)
    require(is_place, f"{name} is tied to what is no number of θ")
    return [theta[abs(k) - 1] * ((k > 0) - (k < 0)) if k else 0.0 for k in places]


def net_of(spec: Any, theta: Floats) -> Net:
    """Return a net: its spec completed, its ties undone, its tensors as lists of rows, or as one row.

    theta: the stored numbers.
    """
    s, ties = completed(spec)
    family = FAMILIES[s["family"]]
    entries = list(theta)
    w = dict[str, Any]()
    for name, shape, is_present in family.shapes(s):
        if not is_present:
            continue
        if ties is None:
            flat = entries[: prod(shape)]
            entries = entries[prod(shape) :]
        else:
            flat = untied(name, ties, theta)
        require(len(flat) == prod(shape), f"{name} has another size")
        is_kept = all(abs(x) >= TINY or x == 0 for x in flat)
        require(is_kept, f"{name} has numbers that may be read as 0")

        row = forms(flat)
        w[name] = row if len(shape) == 1 else cut(row, shape[0])
    require(ties is not None or not entries, "θ is too long")
    return family(s, w)


# -- cases: what columns may hold


class Column:
    """The states that a column may be in: x, y and the carry into it; in four blocks, by both carries."""

    def __init__(self, states: Iterable[tuple[int, int, int]], base: int):
        self.states = list(states)
        self.base = base
        self.blocks: list[list[tuple[int, int, int]]] = [[], [], [], []]
        for x, y, carry in self.states:
            out, z = divmod(x + y + carry, base)
            self.blocks[2 * carry + out].append((x, y, z))

    def where(self, test: Callable[[int, int, int], object]) -> Column:
        """Return the column with those states alone that pass a test."""
        return Column((state for state in self.states if test(*state)), self.base)


Case = tuple[Column, ...]
"""A set of pairs: all columns, units first."""


def number_of(case: Case) -> int:
    """Return the number of pairs in a case."""
    none, one = 1, 0  # so far, by the carry out of the column before
    for column in case:
        stays, rises, falls, carries = map(len, column.blocks)
        none, one = none * stays + one * falls, none * rises + one * carries
    return none + one


def first_cases(k: int, t: int, digits: int, asked: Asked = TEN) -> dict[int, Case]:
    """Return the cases of digit k at token t that have pairs: by the sum of column k with its carry, or of a difference
    by its answer, `base` more where it carries; behind the columns by the last carry.
    """
    base, n, is_difference = asked
    every = Column(combinations(range(base), range(base), range(2)), base)
    columns = [every.where(lambda x, y, carry: not carry), *[every] * (n - 1)]
    for j in range(digits, n):
        columns[j] = columns[j].where(lambda x, y, carry: y == 0 == (sum((x, y, carry)) % base if is_difference else x))
    if is_difference:  # the sum of the answer and b is no longer than a
        columns[-1] = columns[-1].where(lambda x, y, carry: x + y + carry < base)
    if 1 <= k <= n:
        columns[k - 1] = columns[k - 1].where(lambda *state: asked.answer_of(state) % base == t)

    cases = {}
    sums = range(2 * base) if k < n else range(2) if k == n else [t]
    for s in sums:
        case = list(columns)
        if k < n:
            case[k] = case[k].where(lambda *state, s=s: asked.answer_of(state) == s)
        else:
            case[-1] = case[-1].where(lambda *state, s=s: sum(state) // base == s)
        if number_of(tuple(case)):
            cases[s] = tuple(case)
    return cases


def rivals_of(k: int, s: int, vocabulary: int, asked: Asked = TEN) -> tuple[int, list[int]]:
    """Return a token that may be written as digit k, and those that it must beat."""
    base = asked.base
    if k > asked.digits:  # what is no digit from 1 on leaves the number as it is
        return base + 2, list(range(1, base))
    return s % base, [v for v in range(vocabulary) if v != s % base]


# -- attention


def inner(v: Iterable[float], w: Iterable[float]) -> float:
    return sum(x * y for x, y in pairs(v, w))


def axes_of(vectors: list[Floats], least: float) -> list[Floats]:
    """Return orthonormal vectors along which the given ones lie, the longest first, but for `least` of that.

    Nothing depends on it that they are exactly so, but how near the bounds are.
    """
    axes: list[Floats] = []
    first = 0.0
    while len(axes) < len(vectors[0]):
        longest = max(vectors, key=lambda v: inner(v, v))
        length = sqrt(inner(longest, longest))
        first = max(first, length)
        if length <= least * first:
            break
        axis = [x / length for x in longest]
        axes.append(axis)
        left = []
        for vector in vectors:
            along = inner(axis, vector)
            left.append([x - along * a for x, a in pairs(vector, axis)])
        vectors = left
    return axes


def mean_loss(n: int, size: float) -> float:
    """Return what float32 loses of a mean over n positions of values up to `size`, beside what it loses of weights.

    The sum of weights and the sum of products lose n - 1 roundings each of the largest value, products and quotient
    two: 2 n, and two to spare for their second order. A weight or a product that is flushed to 0, below TINY of the
    largest weight, loses TINY of it.
    """
    require(n <= MOST_TERMS, "too many positions")
    return (2 * n + 2) * U * ROOM * size + 8 * n * TINY * (1 + size)


class Attention:
    """All tokens of a net at their places, and the channels: numbers that decide what attention writes, but for errors.

    What attention has seen is a row of values, one head's after the other. It writes `writes` · `channels` · seen, off
    by `errors` in each dimension of the residual.
    """

    def __init__(self, net: Net):
        self.net = net
        self.tokens = dict[int, dict[int, Token]]()
        for place in sorted(set(sum(net.columns, ()))):
            self.tokens[place] = {v: net.token(place, v) for v in range(net.asked.base)}
        for place, v in net.fixed.items():
            self.tokens[place] = {v: net.token(place, v)}
        if net.steps > net.asked.digits + 1:
            last = net.reader(net.steps - 1)
            self.tokens[last] = {v: net.token(last, v) for v in range(2)}

        self.every = [token for row in self.tokens.values() for token in row.values()]
        rows = transposed([x for values in token.values for x in values] for token in self.every)
        self.sizes = [max(x.size for x in row) for row in rows]
        self.losses = [mean_loss(MOST_TERMS, size) for size in self.sizes]
        self.find_matrix()
        self.find_channels()
        self.seen = dict[int, dict[int, list[Row]]]()
        for place, tokens in self.tokens.items():
            self.seen[place] = {v: self.channels_of(token) for v, token in tokens.items()}

        # no channel is larger than its rows times the largest values, and what their means lose
        self.most = [inner(map(abs, row), self.sizes) + inner(map(abs, row), self.losses) for row in self.channels]

    def find_matrix(self) -> None:
        """Set `matrix`, by which the output multiplies what is seen, and `errors`, what float32 loses of that."""
        seen = [Form(0.0, error=size + loss) for size, loss in pairs(self.sizes, self.losses)]
        unknowns = [next(iter(x.slopes)) for x in seen]
        self.matrix = list[Floats]()
        self.errors = Floats()
        for y in self.net.write(seen):
            slopes = [y.slopes.get(unknown, 0.0) for unknown in unknowns]
            rest = [slope for unknown, slope in y.slopes.items() if unknown not in unknowns]
            self.matrix.append([slope / x.radius for slope, x in pairs(slopes, seen)])
            self.errors.append(sum(map(abs, rest)) + SLACK * y.radius + TINY)

    def find_channels(self) -> None:
        """Set `channels` and `writes`, and add to `errors` what they leave out."""
        net = self.net
        parts = transposed(cut(row, net.heads) for row in self.matrix)
        written = []
        for token in self.every:
            for part, values in pairs(parts, token.values):
                middle = [x.value for x in values]
                written.append([inner(row, middle) for row in part])
        nothing = [float(not d) for d in range(len(self.matrix))]  # an axis, where nothing is written
        axes = axes_of(written, 1e-7) or [nothing]
        columns = transposed(self.matrix)
        self.writes = transposed(axes)
        self.channels = [[inner(axis, column) for column in columns] for axis in axes]

        for d, writes in enumerate(self.writes):
            made = [inner(writes, column) for column in transposed(self.channels)]
            missing = [w - m for w, m in pairs(self.matrix[d], made)]

            # of each head a mean of what its tokens give; then what means lose of that
            for h, part in enumerate(cut(missing, net.heads)):
                given = [combined(pairs(part, token.values[h])).size for token in self.every]
                self.errors[d] += max(given)
            lost = inner(map(abs, missing), self.losses)

            # `made` and `missing` themselves are off by this program's roundings
            for r, write in enumerate(writes):
                lost += SLACK * abs(write) * inner(map(abs, self.channels[r]), self.sizes)
            lost += SLACK * inner(map(abs, self.matrix[d]), self.sizes)
            self.errors[d] += lost

    def channels_of(self, token: Token) -> list[Row]:
        """Return what a token gives to the channels, by head."""
        parts = transposed(cut(row, self.net.heads) for row in self.channels)
        rows = []
        for part, values in pairs(parts, token.values):
            rows.append([combined(pairs(row, values)) for row in part])
        return rows


Weights = dict[int, dict[int, tuple[float, float]]]
"""The least and the largest weight of a token at a place."""
Direction = tuple[float, ...]
"""A factor for each channel."""


class Query:
    """What is asked for as digit k at token t."""

    def __init__(self, attention: Attention, k: int, t: int):
        """Weigh what is seen, and bound what float32 loses behind the weights."""
        self.attention, self.k = attention, k
        net = self.net = attention.net
        place = net.reader(k)
        self.fixed = dict(net.fixed)
        if k > net.asked.digits:
            self.fixed[place] = t

        # the token that asks is one more of those at its place: its roundings are no other token's
        self.reader = net.token(place, net.fixed.get(place, t))
        self.shown = [place for column in net.columns for place in column[:2]]
        self.shown += [column[2] for column in net.columns[:k]]
        self.weights = [self.weigh(h) for h in range(net.heads)]
        self.losses = self.lost()
        self.sides = dict[tuple[int, Direction], Side]()

    def lost(self) -> Floats:
        """Return what float32 loses of each channel by the sums over positions and the quotient."""
        n = len(self.shown) + len(self.fixed)
        losses = [mean_loss(n, size) for size in self.attention.sizes]
        return [inner(map(abs, row), losses) for row in self.attention.channels]

    def weigh(self, h: int) -> Weights:
        """Return the weights of a head. A shift of all scores changes nothing: it is what the largest score has of the
        unknowns that all of them share.
        """
        net = self.net
        query = self.reader.queries[h]
        seen = {place: list(range(net.asked.base)) for place in self.shown}
        seen |= {place: [v] for place, v in self.fixed.items()}

        # sums are scaled when all is added, or their terms before
        rounding, more = (relative, 1) if net.is_scaled else (half, 0)
        scores = dict[int, dict[int, Form]]()
        for place, tokens in seen.items():
            keys = {v: self.attention.tokens[place][v].keys[h] for v in tokens}
            scores[place] = {v: dot(query, key, rounding, more) for v, key in keys.items()}
        every = [score for row in scores.values() for score in row.values()]
        top = max(every, key=lambda score: score.value)
        shift = shared_by([top, *every])

        weights: Weights = {}
        for place, row in scores.items():
            weights[place] = {v: weight(score, shift) for v, score in row.items()}
        places = self.shown + list(self.fixed)
        least = sum(min(low for low, _ in weights[place].values()) for place in places)
        require(least > LEAST_WEIGHT, "a sum of weights is lost in float64")
        return weights

    def side(self, h: int, direction: Direction) -> Side:
        """Return a head's side in a direction, kept for other cases."""
        if (h, direction) not in self.sides:
            self.sides[h, direction] = Side(self, h, direction)
        return self.sides[h, direction]

    def loss(self, direction: Direction) -> float:
        return inner(map(abs, direction), self.losses) * ROOM

    def end(self, direction: Direction, case: Case, is_kept: bool) -> float:
        """Return what the channels times a direction do not exceed, for all pairs of a case."""
        make = self.side if is_kept else partial(Side, self)
        ends = [make(h, direction).end(case) for h in range(self.net.heads)]
        return sum(ends) + self.loss(direction) + SLACK * sum(map(abs, ends))

    def is_below(self, bound: float, direction: Direction, case: Case) -> bool:
        """Return True if the channels times a direction are below a bound, for all pairs of a case."""
        *others, last = [Side(self, h, direction) for h in range(self.net.heads)]
        ends = [side.end(case) for side in others]
        left = bound - sum(ends) - self.loss(direction)
        left = left - SLACK * (abs(bound) + sum(map(abs, ends)))
        return last.sums(left).longest(case) < 0


def weight(score: Form, shift: Form) -> tuple[float, float]:
    """Return the least and the largest weight of a score, relative to that of a score of the shift's value."""
    far = shift.value - score.value
    error = (score - shift).radius

    # exp's argument is a difference from the largest score; this one and that one are off by less than 0.1
    moved = error + SHIFT * U * ROOM * (abs(far) + 0.2)
    moved = moved + SLACK * (1 + score.size + shift.size)
    require(moved < 0.1, "scores are lost in rounding")

    # exp(moved) - 1 is less than moved (1 + 0.52 moved) below 0.1; then exp's own error, on what has moved
    spread = moved * (1 + 0.52 * moved)
    spread = spread + EXP * U * ROOM * (1 + spread) + SLACK
    least = exp(-far)
    return least * (1 - spread), least * (1 + spread) + VANISHED


class Side:
    """What a head's tokens give in one direction."""

    def __init__(self, query: Query, h: int, direction: Direction):
        """Find each token's value, and levels that no mean of values is beyond."""
        self.query = query
        self.weights = query.weights[h]
        self.values = dict[int, dict[int, tuple[float, float]]]()
        ends = Floats()
        for place, row in self.weights.items():
            seen = query.attention.seen[place]
            self.values[place] = {}
            for v in row:
                # value and error of what the token gives
                channels = seen[v][h]
                value = sum(b * x.value for b, x in pairs(direction, channels))
                error = sum(abs(b) * (x.radius + SLACK * x.size) for b, x in pairs(direction, channels))
                self.values[place][v] = value, error
                ends += [value - error, value + error]
        low, high = min(ends), max(ends)
        room = (high - low) / 2**20 + SLACK * (abs(low) + abs(high)) + TINY
        self.levels = [low + (high - low + room) * i / GRID for i in range(GRID + 1)]
        self.known = dict[int, Sums]()

    def sums(self, level: float) -> Sums:
        return Sums(self, level)

    def at(self, i: int) -> Sums:
        """Return the sums at the i-th level, kept for other cases."""
        if i not in self.known:
            self.known[i] = Sums(self, self.levels[i])
        return self.known[i]

    def end(self, case: Case) -> float:
        """Return a number that no quotient Σ e u / Σ e exceeds, for all pairs of a case.

        The largest Σ e (u - a) falls with a, and is a convex function of it, as the largest of linear ones is. So it is
        0 or less where the line through a point above 0 and one below is 0.
        """
        below, above = 0, GRID
        while above - below > 1:
            middle = (below + above) // 2
            if self.at(middle).longest(case) >= 0:
                below = middle
            else:
                above = middle
        low, high = self.levels[below], self.levels[above]
        over, under = self.at(below).longest(case), self.at(above).longest(case)
        require(under < 0, "a direction has no end")
        share = max(over, 0) / (max(over, 0) - under)
        return low + (high - low) * share + SLACK * (abs(low) + abs(high))


class Sums:
    """Sums of e (u - level) over positions, each e and u where they make it largest."""

    def __init__(self, side: Side, level: float):
        """Find what each token adds at its place."""
        query = side.query
        base = self.base = query.net.asked.base
        gains = dict[int, Floats]()
        for place, row in side.values.items():
            gains[place] = [0.0] * (base + 4)
            for v, (value, error) in row.items():
                least, largest = side.weights[place][v]
                gain = value - level
                error = error + SLACK * (abs(value) + abs(level))  # this sum's and the next ones'
                weight = largest if gain >= 0 else least
                gains[place][v] = weight * gain + largest * error
        self.fixed = sum(gains[place][v] for place, v in query.fixed.items())
        self.columns = list[tuple[Floats, Floats, Floats]]()
        for j, (x, y, z) in enumerate(query.net.columns):
            # z is not yet written from column k on
            last = gains[z] if j < query.k else [0.0] * base
            sides = (gains[x], gains[y], last)
            self.columns.append(sides[::-1] if query.net.asked.is_difference else sides)
        total = sum(sum(map(abs, row)) for row in gains.values())
        require(math.isfinite(total), "a sum is no number")
        self.known = dict[tuple[int, Column], Floats]()

    def best(self, j: int, column: Column) -> Floats:
        """Return the most that column j adds, by the carries into it and out of it."""
        if (j, column) not in self.known:
            xs, ys, zs = self.columns[j]
            most = []
            for block in column.blocks:
                gains = [xs[x] + ys[y] + zs[z] for x, y, z in block]
                most.append(max(gains, default=-inf))
            self.known[j, column] = most
        return self.known[j, column]

    def longest(self, case: Case) -> float:
        """Return the largest sum over all pairs of a case: the longest path, the carry being the state."""
        none, one = self.fixed, -inf
        for j, column in enumerate(case):
            stays, rises, falls, carries = self.best(j, column)
            none, one = max(none + stays, one + falls), max(none + rises, one + carries)
        return max(none, one)

    def gains(self, j: int, column: Column) -> Floats:
        """Return what column j adds in each of its states."""
        xs, ys, zs = self.columns[j]
        return [xs[x] + ys[y] + zs[(x + y + carry) % self.base] for x, y, carry in column.states]


# -- behind attention


class Box(NamedTuple):
    """All channels that are `middle` along each axis, up to `reach` more or less."""

    axes: list[Floats]
    middle: Floats
    reach: Floats


def box_around(query: Query, case: Case, axes: list[Floats], is_kept: bool) -> Box:
    """Return a box that holds the channels of all pairs of a case."""
    middle, reach = Floats(), Floats()
    for axis in axes:
        opposite = [-x for x in axis]
        high = query.end(tuple(axis), case, is_kept)
        low = -query.end(tuple(opposite), case, is_kept)
        middle.append((low + high) / 2)
        reach.append((high - low) / 2 + SLACK * (abs(low) + abs(high)) + TINY)
    return Box(axes, middle, reach)


def channels_in(box: Box, along: Row, sizes: Floats) -> Row:
    """Return the channels of a box from what they are along its axes. sizes: bounds of the channels.

    With the axes as rows of A, and what is along them A c, the channels c are Aᵀ A c but for (1 - Aᵀ A) c.
    """
    columns = transposed(box.axes)
    channels = Row()
    for r, column in enumerate(columns):
        off = [abs((r == s) - inner(column, other)) for s, other in enumerate(columns)]
        error = inner(off, sizes) + SLACK * sum(sizes)
        channels.append(combined(pairs(column, along), error=error))
    return channels


def last_in(query: Query, box: Box) -> tuple[Row, list[int]]:
    """Return the last residual in a box, and the unknown of each axis."""
    attention = query.attention
    along = [Form(m, error=r) for m, r in pairs(box.middle, box.reach)]
    channels = channels_in(box, along, attention.most)
    first = Row()
    for x, writes, error in pairs(query.reader.x, attention.writes, attention.errors):
        sum_ = combined([(1.0, x), *pairs(writes, channels)], error=error)
        first.append(rounded(sum_))
    return query.net.last(first), [next(iter(x.slopes)) for x in along]


def undecided(query: Query, case: Case, box: Box, right: int, rivals: list[int]) -> Direction | None:
    """Return None if the right token's logit exceeds its rivals' for all pairs of a case; else the direction in which
    the least of the gaps that may be 0 falls.
    """
    last, unknowns = last_in(query, box)
    logits = query.net.logits(last)
    worst, least = None, inf
    for v in rivals:
        gap = logits[right] - logits[v]
        if gap.value > gap.radius * ROOM:
            continue

        # the gap is at least value - rest - falling · (channels - middle), where `rest` are the errors that are not
        # from where the channels are: so it is positive where falling · channels is below `bound`
        slopes = [gap.slopes.get(unknown, 0.0) for unknown in unknowns]
        factors = [-slope / reach for slope, reach in pairs(slopes, box.reach)]
        falling = tuple(inner(factors, column) for column in transposed(box.axes))
        rest = gap.radius - sum(map(abs, slopes))
        bound = gap.value - rest + inner(factors, box.middle)
        size = gap.size + inner(map(abs, factors), map(abs, box.middle))
        size = size + sum(map(abs, factors)) * sum(query.attention.most)
        if query.is_below(bound - SLACK * size, falling, case):
            continue
        if gap.value - gap.radius < least:
            worst, least = falling, gap.value - gap.radius
    return worst


def halves(query: Query, case: Case, direction: Direction, box: Box) -> list[Case]:
    """Return a case in two parts, by the column that moves attention most in a direction; none where none does.

    Whatever column and states are chosen, the two have all its pairs.
    """
    net = query.net
    level = inner(direction, channels_of_middle(box)) / net.heads
    widest, gains, place = 0.0, Floats(), 0
    for h in range(net.heads):
        sums = Sums(Side(query, h, direction), level)
        for j, column in enumerate(case):
            found = sums.gains(j, column)
            if max(found) - min(found) > widest:
                widest, gains, place = max(found) - min(found), found, j
    if not widest:
        return []

    parts = []
    middle = (max(gains) + min(gains)) / 2
    for is_above in (True, False):
        states = [state for state, gain in pairs(case[place].states, gains) if (gain > middle) == is_above]
        parts.append((*case[:place], Column(states, net.asked.base), *case[place + 1 :]))
    return parts


def channels_of_middle(box: Box) -> Floats:
    return [inner(column, box.middle) for column in transposed(box.axes)]


def units_of(attention: Attention) -> list[Floats]:
    """Return the channels as axes."""
    places = range(len(attention.channels))
    return [[float(i == r) for i in places] for r in places]


def own_axes(query: Query, case: Case, box: Box) -> list[Floats]:
    """Return axes along which the states of a case's columns lie, the longest first: a box along them is small.

    Small multiples of the channels come last, so that the axes are as many as they.
    """
    units = units_of(query.attention)
    if len(units) == 1:
        return units
    vectors = list[Floats]()
    middle = channels_of_middle(box)
    for h in range(query.net.heads):
        sums = [Sums(query.side(h, tuple(unit)), level / query.net.heads) for unit, level in pairs(units, middle)]
        for j, column in enumerate(case):
            effects = transposed(each.gains(j, column) for each in sums)
            mean = [sum(gains) / len(effects) for gains in transposed(effects)]
            vectors += [[x - m for x, m in pairs(effect, mean)] for effect in effects]
    size = max(max(map(abs, vector)) for vector in vectors) or 1.0
    vectors += [[1e-6 * size * x for x in unit] for unit in units]
    return axes_of(vectors, 0.0)


def prove_case(query: Query, case: Case, s: int) -> tuple[int, int]:
    """Prove that the right token is written for all pairs of a first case. Return the number of its parts, and of the
    pairs in them.
    """
    right, rivals = rivals_of(query.k, s, len(query.net.table), query.net.asked)
    units = units_of(query.attention)
    todo = [(case, box_around(query, case, units, is_kept=True))]
    parts = proved = 0
    while todo:
        case, box = todo.pop()
        parts += 1
        try:
            falling = undecided(query, case, box, right, rivals)
        except TooLarge:
            longest = max(range(len(box.reach)), key=lambda r: box.reach[r])
            falling = tuple(box.axes[longest])
        if falling is None:
            proved += number_of(case)
            continue
        halved = halves(query, case, falling, box)
        is_left = halved and parts < MOST_PARTS
        require(is_left, f"digit {query.k}, sum {s}: another digit may win")
        for part in filter(number_of, halved):
            axes = own_axes(query, part, box)
            todo.append((part, box_around(query, part, axes, is_kept=len(axes) == 1)))
    return parts, proved


# -- the proof

SAME = ("format", "claim", "params", "level", "digits", "bounds", "checker")
"""What a proof must say of itself as it is here, with spec, digests and the margin of its pair."""
REST = ("spec", "theta_sha256", "program_sha256", "margin", "versions")


def about(digits: int, params: int, asked: Asked) -> dict[str, Any]:
    """Return what a proof of so many digits and parameters says of itself."""
    claim = f"greedy decoding in float32 is right for all pairs of {digits}-digit numbers"
    claim += f" in base {asked.base}" if asked.base != 10 else ""
    claim += " of which the second is no larger" if asked.is_difference else ""
    return dict(pairs(SAME, (3, claim, params, "any", digits, BOUNDS, "check.py")))


def queries(net: Net) -> Iterator[tuple[int, int]]:
    """Yield each digit, and the tokens at which it may be asked for."""
    yield 0, 0
    for k in range(1, net.steps):
        for t in range(net.asked.base if k <= net.asked.digits else 2):
            yield k, t


def margin_of(margin: Any, digits: int, asked: Asked = TEN) -> tuple[int, list[list[int]], float]:
    """Return the digit of a proof's margin, the digits of its pair and of the answer, units first, and the margin."""
    is_margin = isinstance(margin, dict) and margin.keys() == {"logits", "pair", "digit"}
    require(is_margin, "the margin is none")
    k, pair, logits = margin["digit"], margin["pair"], margin["logits"]
    require(isinstance(pair, list) and len(pair) == 2, "the margin is of no pair")
    is_pair = all(type(n) is int and 0 <= n < asked.base**digits for n in pair)
    is_digit = type(k) is int and 0 <= k <= asked.digits + 1
    require(is_pair and is_digit and type(logits) is float, "the margin is of no pair or digit")
    first, second = pair
    answer = first - second if asked.is_difference else first + second
    require(answer >= 0, "the margin is of no pair")
    numbers = (first, second, answer)
    return k, [[n // asked.base**j % asked.base for j in range(asked.digits + 2)] for n in numbers], logits


def norm_scale(net: Net, last: Row) -> float:
    """Return the positive number by which a net's logits are too large where their norm's scale is left out, about."""
    square = sum(x.value**2 for x in last) / len(last)
    return 1.0 if net.centres else sqrt(square + net.eps)


def margin_at(attention: Attention, k: int, digits: list[list[int]]) -> float:
    """Return how far the right logit of digit k exceeds the next, about, in real numbers.

    digits: of two numbers and of the answer, units first.
    """
    x, y, z = digits
    query = Query(attention, k, z[k - 1] if k else 0)
    seen = list(query.fixed.items())
    for j, (first, second, third) in enumerate(attention.net.columns):
        seen += [(first, x[j]), (second, y[j])]
        seen += [(third, z[j])] if j < k else []

    channels = [0.0] * len(attention.channels)
    for h, weights in enumerate(query.weights):
        middle = [sum(weights[place][v]) for place, v in seen]
        for r in range(len(channels)):
            values = [attention.seen[place][v][h][r].value for place, v in seen]
            channels[r] += inner(middle, values) / sum(middle)
    box = Box(units_of(attention), channels, [TINY] * len(channels))
    last, _ = last_in(query, box)
    logits = attention.net.logits(last)
    asked = attention.net.asked
    right, rivals = rivals_of(k, z[min(k, asked.digits)], len(logits), asked)
    least = min(logits[right].value - logits[v].value for v in rivals)
    return least / norm_scale(attention.net, last)


def check(proof: dict[str, Any], spec: dict[str, Any], theta: Floats) -> int:
    """Check a proof of a net, its spec and theta. Return the number of parts of cases."""
    digits = proof["digits"]
    net = net_of(spec, theta)
    most = net.asked.digits
    require(type(digits) is int and 1 <= digits <= most, f"digits must be from 1 to {most}")
    for name, value in about(digits, len(theta), net.asked).items():
        is_same = type(proof[name]) is type(value) and proof[name] == value
        require(is_same, f"{name} is another one")
    require(completed(proof["spec"]) == completed(spec), "spec is not the checkpoint's")
    place, pair, logits = margin_of(proof["margin"], digits, net.asked)
    require(place < net.steps, "the margin is of no digit that is asked for")
    attention = Attention(net)
    margin = margin_at(attention, place, pair)
    is_close = math.isclose(margin, logits, rel_tol=1e-3)
    require(is_close, f"the pair's margin is {margin:.4g}, not {logits:.4g}")

    return prove(attention, digits)


def prove(attention: Attention, digits: int) -> int:
    """Prove that a net is right on all pairs. Return the number of parts of cases."""
    net = attention.net
    parts = 0
    left = [net.asked.pairs(digits)] * net.steps  # pairs for which a digit is not proved
    for k, t in queries(net):
        query = Query(attention, k, t)
        for s, case in first_cases(k, t, digits, net.asked).items():
            more, proved = prove_case(query, case, s)
            parts += more
            left[k] -= proved
    require(not any(left), "a pair is in no case")
    return parts


def content(path: Path) -> bytes:
    """Return the content of a file, which must be regular and small."""
    about = path.stat()
    require(stat.S_ISREG(about.st_mode), f"{path}: not a regular file")
    is_small = about.st_size <= MOST_BYTES
    require(is_small, f"{path}: larger than {MOST_BYTES:,} bytes")
    return path.read_bytes()


def once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's items by name. Raise ValueError for a name that is there twice."""
    values = dict(items)
    if len(values) < len(items):
        raise ValueError("a name is there twice")
    return values


def parsed(data: bytes) -> dict[str, Any]:
    """Return a JSON object whose names are there once. Raise ValueError for anything else."""
    values = json.loads(data.decode(), object_pairs_hook=once)
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return values


def read(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the spec and θ of a checkpoint's folder."""
    data = content(path / "theta.safetensors")

    # safetensors: eight bytes with the header's length, the header, then all numbers
    start = 8 + int.from_bytes(data[:8], "little")
    header = parsed(data[8:start])["theta"]
    require(header["dtype"] == "F32", "θ is not float32")
    low, high = header["data_offsets"]
    spec = parsed(content(path / "checkpoint.json"))["spec"]
    return spec, data[start + low : start + high]


def numbers_of(theta: bytes) -> Floats:
    return list(struct.unpack(f"<{len(theta) // 4}f", theta))


def main(proof_path: str, checkpoint_path: str) -> None:
    """Check a proof's file against a checkpoint's folder; print what was checked, or exit with one line."""
    path = proof_path  # the file that a message names
    try:
        proof = parsed(content(Path(path)))
        path = checkpoint_path
        spec, theta = read(Path(path))
        path = proof_path
        is_proof = proof.keys() == {*SAME, *REST}
        require(is_proof, f"{path}: no proof, or not one that is known here")
        digest = hashlib.sha256(theta).hexdigest()
        require(proof["theta_sha256"] == digest, "it is a proof of another θ")
        parts = check(proof, spec, numbers_of(theta))
    except OSError as error:
        sys.exit(f"NOT CHECKED: {error.filename}: {error.strerror}")
    except Exception as error:  # whatever it is, it is no proof
        sys.exit(f"NOT CHECKED: {path}: cannot be read ({type(error).__name__}: {error})")

    margin, digits = proof["margin"], proof["digits"]
    asked = asked_of(completed(spec)[0]["task"])
    number, sign = f"{asked.base}^{2 * digits}", "+"
    if asked.is_difference:
        number, sign = f"{asked.pairs(digits):,}", "-"
    print(
        f"CHECKED: right on all {number} pairs, by {parts} parts of cases\n"
        f"  as the proof says: {', '.join(SAME)}, spec, theta_sha256, and the margin {margin['logits']:.4g} at digit"
        f" {margin['digit']} of {margin['pair'][0]} {sign} {margin['pair'][1]}\n"
        "  not checked: versions, program_sha256 (second.py does), and that no margin is smaller"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
