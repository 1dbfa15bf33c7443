"""Check a proof that `adder-search prove` wrote, without its code: `python check.py PROOF.json CHECKPOINT`.

Python alone. It reads θ and spec of the checkpoint, and of the proof only ends of intervals; what else the proof says
must be the same as what is found here (CHECKED says what that is). It checks, for one head with an output of rank 1 and
greedy decoding in float32:

(1) When digit k is asked for, its token (EQUALS, or the digit before) and one number a decide the logits. For each
    k, token t and sum s of column k with its carry, a lies between the first and the last end of the row (k, t, s),
    whatever the other digits are and however float32 rounds: no path through the ten columns, with the carry as state,
    has a positive sum of e (1 + η) (u - a) over positions (nor, for the other side, a negative one).
(2) Between two neighbouring ends of a row the logit of digit s mod 10 (of s, for k = 10) beats the nine others.
(3) No row is missing that can occur. By induction over k all digits are right.

There is one mechanism, affine arithmetic: the net is run as it is written, on numbers that are a value and slopes along
unknowns. Each rounding is an unknown of its own, and so is where a is between two ends; what numbers share cancels.

Assumed of float32: + - * / sqrt are rounded to nearest or fused, sums are taken in any order, and elementary functions
are as good as BOUNDS says (docs/proof.md). Assumed of this Python: float64 rounds + - * / sqrt to nearest, and its exp,
sin, cos and erf are right to 2^-46; SLACK has room for both.
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
from math import cos, erf, exp, inf, pi, prod, sin, sqrt
from pathlib import Path
from typing import Any

EXP, SHIFT, RSQRT, GELU_ARGUMENT, GELU, TRIG = 32, 2, 4, 10, 6, 7
BOUNDS = {"name": "any", "exp": EXP, "shift": SHIFT, "rsqrt": RSQRT, "trig": TRIG}
BOUNDS |= {"gelu_argument": GELU_ARGUMENT, "gelu": GELU}
U, TINY, LARGE, EPS = 2.0**-24, 2.0**-126, 2.0**60, 1e-5
LEAST_WEIGHT = 2.0**-900
"""Of a sum of weights, relative to the largest: what float64 loses below 2^-1022 is nothing beside it."""
MOST_BYTES, MOST_ENDS, MOST_SIZE = 2**22, 20_000, 16
"""Of a file, of all rows together, and of a dimension in a spec."""
SLACK = 2.0**-45
"""Relative error of one step of this program, in float64."""
ROOM = 1 + 2.0**-17
"""Roundings of roundings."""
UNKNOWNS = count()
Floats = list[float]
pairs: Any = partial(zip, strict=True)


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
        self.radius = sum(map(abs, self.slopes.values()))
        self.size = abs(value) + self.radius

    @property
    def is_factor(self) -> bool:
        """True of 0 and powers of two: products with them are exact."""
        mantissa, _ = math.frexp(self.value)
        return not self.slopes and abs(mantissa) in (0, 0.5)

    def __add__(self, o: Form) -> Form:
        return rounded(combined([(1.0, self), (1.0, o)]))

    def __sub__(self, o: Form) -> Form:
        """Return the difference itself, not rounded."""
        return combined([(1.0, self), (-1.0, o)])

    def __mul__(self, o: Form) -> Form:
        return dot([self], [o])


Row = list[Form]
Rounding = Callable[[float], float]
"""The largest error of one rounding of numbers up to a size."""


def half(size: float) -> float:
    """Return half of the last place of numbers up to `size`."""
    require(size < LARGE, "numbers are too large for float32")
    if not size:
        return TINY

    # a float32 has 24 bits, so half of its last place is 25 places below its exponent
    _, exponent = math.frexp(size)
    return math.ldexp(ROOM, exponent - 25) + TINY


def relative(size: float) -> float:
    """Return the error of one rounding of numbers up to `size` that float32 has scaled.

    The factor is any positive number from 2^-62 to 2^9.
    """
    require(size < LARGE, "numbers are too large for float32")
    return U * ROOM * size + TINY**0.5


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
    sizes = []
    error = 0.0
    for x, w in pairs(xs, ws):
        is_exact = x.is_factor or w.is_factor
        size = x.size * w.size
        sizes.append(size)
        error += (more + (not is_exact)) * rounding(size)

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


def product(matrix: list[Row], xs: Row) -> Row:
    """Return a matrix times xs, as float32 has it."""
    return [dot(xs, row) for row in matrix]


def norm(xs: Row, weights: Row) -> Row:
    """Return x / sqrt(mean(x²) + EPS) · w."""
    n = len(xs)
    square = combined([(1 / n, x * x) for x in xs], EPS)

    # the sum's roundings, those of the mean and of adding EPS, and of 1 / n and EPS themselves
    error = (n - 1) / n * half(n * square.size * ROOM)
    error = error + 2 * half(square.size * ROOM)
    constants = abs(single(1 / n) * n - 1) * square.size
    constants = constants + abs(single(EPS) - EPS)
    square = rounded(square, error + constants)

    # a mean of squares is not negative, whatever its bound says
    low = max(square.value - square.radius, EPS / 2)
    high = square.value + square.radius
    slopes = [-0.5 * end**-1.5 for end in (low, high)]
    root = bent(square, square.value**-0.5, slopes)
    root = rounded(root, RSQRT * half(root.size))
    return [x * root * w for x, w in pairs(xs, weights)]


def gelu(x: Form) -> Form:
    """Return x Φ(x), Φ being the normal distribution's integral."""

    def at(n: float) -> tuple[float, float]:
        """Return value and slope."""
        integral = (1 + erf(n / sqrt(2))) / 2
        density = exp(-n * n / 2) / sqrt(2 * pi)
        return n * integral, integral + n * density

    # the slope is least and largest at -√2 and √2, and else at an end
    low = x.value - x.radius
    high = x.value + x.radius
    turns = [t for t in (-sqrt(2), sqrt(2)) if low < t < high]
    slopes = [at(n)[1] for n in (low, high, *turns)]
    value, _ = at(x.value)
    y = bent(x, value, slopes)
    error = U * (GELU_ARGUMENT * x.size + GELU * y.size)
    return rounded(y, error + SLACK * x.size)


def waves(angle: Form) -> Row:
    """Return cosine and sine, whose slopes change by no more than the angle."""
    x, r = angle.value, angle.radius
    results = []
    for value, slope in ((cos(x), -sin(x)), (sin(x), cos(x))):
        results.append(bent(angle, value, (slope - r, slope + r)))
    return [rounded(y, TRIG * half(y.size)) for y in results]


def single(x: float) -> float:
    """Return the float32 number nearest to x."""
    (nearest,) = struct.unpack("f", struct.pack("f", x))
    return float(nearest)


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


def mean(xs: Row) -> Form:
    """Return the mean of xs with only the unknowns that all of them have."""
    middle = combined([(1 / len(xs), x) for x in xs])
    return shared_by([middle, *xs])


def forms(values: Iterable[float]) -> Row:
    """Return numbers that float32 has as they are."""
    return [Form(float(x)) for x in values]


def transposed(matrix: Iterable[Iterable[Any]]) -> list[list[Any]]:
    return [list(column) for column in pairs(*matrix)]


# -- the net

FLAGS = """
    arc circular spiral linear_correction plain_spiral flat_spiral frozen_spiral frozen_eos frozen_plus equals_on_ring
    frozen_z_hi no_eos tie_qk unturned toeplitz_q circulant_q rank1_q direct_forms tie_vo rank2_out rank1_out unit_out
    opposite_out token_out onehot_out shared_norm structured_norm3 structured_norm2 structured_norm1 scalar_norm
    parameterless_norm no_ffn_bias one_unit tie_fc2_head
"""
DEFAULTS: dict[str, Any] = dict.fromkeys(FLAGS.split(), False) | {
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
PLUS, EQUALS = 10, 11
"""Places behind the ten columns, whose x, y and z have one position."""


def shapes(s: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """Yield the tensors that a net of spec s may have, in order: name, shape, True if it has it."""
    tok, pos = s["tok_dim"], s["pos_dim"]
    width = tok + pos
    direct = s["direct_forms"]
    size = s["qk_dim"] or width
    units = 1 if s["one_unit"] else s["hidden"]

    # entries of the output's row that are not given by a constraint
    row = tok if s["token_out"] else width
    row = row - s["unit_out"] - s["opposite_out"]

    # numbers that all norms are made of, or else the vectors of one norm or of three
    count = 3 if s["structured_norm3"] else 2 if s["structured_norm2"] else 1
    is_flat = count > 1 or s["structured_norm1"] or s["scalar_norm"]
    norms = (1 if s["shared_norm"] else 3, width)

    yield "arc", (3 if s["circular"] else 4,), s["arc"]
    yield "tokens", (10, tok), not s["arc"]
    yield "digits", (10, pos), not s["spiral"]
    yield "spiral", (3 if s["flat_spiral"] else 4,), s["spiral"] and not s["frozen_spiral"]
    correction = (2 if s["linear_correction"] else 10,)
    yield "correction", correction, s["spiral"] and not s["plain_spiral"]
    yield "z_hi", (pos,), not (s["no_eos"] or s["frozen_z_hi"])
    yield "equals", (pos,), not s["equals_on_ring"]
    yield "plus", (pos,), not s["frozen_plus"]
    yield "eos", (pos,), not s["frozen_eos"]

    yield "form", (pos, pos), direct
    yield "phase", (1,), not direct and s["tie_qk"] and not s["unturned"]
    yield "q_proj", (size, pos), not direct
    yield "k_proj", (size, pos), not direct and not s["tie_qk"]
    yield "v_proj", (width, tok), not direct and not s["tie_vo"]
    yield "out_A", (tok if direct else width, 1), True
    yield "out_B", (1, row), row and not s["onehot_out"]

    yield "fc1", (units, width), True
    yield "fc2", (width, units), not s["tie_fc2_head"]
    yield "head", (tok, width), True
    yield "norm", (count,) if is_flat else norms, not s["parameterless_norm"]


def completed(spec: Any) -> tuple[dict[str, Any], Any]:
    """Return a spec with a value for every field, and its ties; None where it has none.

    Refuse a spec of another family, and one with constraints that this program does not know.
    """
    is_tied = isinstance(spec, dict) and spec.get("family") == "tied"
    base = spec.get("base") if is_tied else spec
    is_known = isinstance(base, dict) and base.get("family") == "split_subspace"
    require(is_known, "another family, or no spec")

    s = DEFAULTS | base
    for name, value in s.items():
        is_alike = type(value) is type(DEFAULTS.get(name))
        require(is_alike, f"a spec's field {name!r:.40} is unknown, or of another kind")
        is_small = type(value) is str or abs(value) <= MOST_SIZE
        require(is_small, f"a spec's field {name} is too large")

    is_plain = s["vocabulary"] == 10 and s["heads"] == 1
    is_plain = is_plain and s["rank1_out"] and s["no_ffn_bias"]
    require(is_plain, "a vocabulary of 14, several heads or channels, or biases")
    is_other = s["toeplitz_q"] or s["circulant_q"] or s["rank1_q"]
    require(not is_other, "a projection in another form")
    is_large = s["tok_dim"] >= 2 and s["pos_dim"] >= 3 and s["qk_dim"] >= 0
    require(is_large, "a dimension is too small")
    return s, spec.get("ties") if is_tied else None


def untied(name: str, ties: Any, theta: Floats) -> Floats:
    """Return the entries of the tensor `name`: k is the k-th number of theta, -k its negative, 0 is zero."""
    places: Any = ties.get(name) if isinstance(ties, dict) else None
    require(isinstance(places, list), f"{name} has no ties")
    is_place = all(type(k) is int and abs(k) <= len(theta) for k in places)
    require(is_place, f"{name} is tied to what is no number of θ")
    return [theta[abs(k) - 1] * ((k > 0) - (k < 0)) if k else 0.0 for k in places]


def tensors(spec: dict[str, Any], theta: Floats) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a spec with every field, and its tensors as lists of rows, or as one row.

    theta: the stored numbers; ties are undone.
    """
    s, ties = completed(spec)
    entries = list(theta)
    w = dict[str, Any]()
    for name, shape, is_present in shapes(s):
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
        if len(shape) == 1:
            w[name] = row
        else:
            columns = shape[1]
            w[name] = [row[i : i + columns] for i in range(0, len(row), columns)]
    require(ties is not None or not entries, "θ is too long")
    return s, w


class Net:
    """Everything of a net that does not depend on the problem. Matrices are lists of what an output reads."""

    def __init__(self, spec: dict[str, Any], theta: Floats):
        """Read tensors from theta and compute what they decide: tokens, positions, norms, output."""
        s, w = tensors(spec, theta)
        self.spec, self.w = s, w
        self.tok = s["tok_dim"]
        self.width = s["tok_dim"] + s["pos_dim"]

        nowhere = forms([0.0] * s["pos_dim"])
        equals = self.spiral(s["equals_index"]) if s["equals_on_ring"] else w["equals"]
        columns = map(self.digit, range(10))
        self.places: list[Row] = [*columns, w.get("plus", nowhere), equals]
        self.table: list[Row] = self.arc() if s["arc"] else w["tokens"]
        self.norms = self.norm_weights()
        self.row = self.output_row()
        self.out = [a for (a,) in w["out_A"]]
        if s["tie_fc2_head"]:
            w["fc2"] = transposed(w["head"])
        if s["tie_vo"]:
            w["v_proj"] = transposed(w["head"])

    def output_row(self) -> Row:
        """Return what attention's channel is multiplied by, for each dimension of the residual."""
        s = self.spec
        given = [0.0, 1.0] if s["onehot_out"] else [1.0] * s["unit_out"]
        row = forms(given) + self.w.get("out_B", [[]])[0]
        if s["opposite_out"]:
            row = [row[0], Form(-row[0].value), *row[1:]]
        return row + forms([0.0] * (self.width - len(row)))

    def arc(self) -> list[Row]:
        """Return the table of tokens that lie on an arc."""
        *radii, start, stride = self.w["arc"]
        first, step = start.value, stride.value
        table = []
        for v in range(10):
            # product and sum may be fused, or rounded one after the other
            fused = single(first + step * v)
            apart = single(first + single(step * v))
            angle = one_of(apart, fused)
            ends = pairs(waves(angle), (radii[0], radii[-1]))
            table.append([x * r for x, r in ends])
        return table

    def spiral(self, index: float) -> Row:
        """Return the position at an index on the spiral."""
        s = self.spec
        index = single(index)

        # the angle is 2π · index / 10, by a quotient or by a product with 0.1
        turns = single(single(2 * pi) * index)
        product = turns * single(0.1)
        ways = single(turns / 10), single(product)
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
        place = self.spiral(n) if self.spec["spiral"] else self.w["digits"][n]
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

    def turned(self, query: Row) -> Row:
        """Return a query with its pairs turned by the phase, and scaled."""
        if "phase" in self.w:
            cosine, sine = waves(self.w["phase"][0])
            for i in range(0, len(query) // 2 * 2, 2):
                pair = query[i : i + 2]
                first = dot(pair, [cosine, Form(0.0) - sine])
                second = dot(pair, [sine, cosine])
                query[i : i + 2] = first, second

        # scores are scaled by 1 / sqrt(n), or queries and keys each by its root: five roundings at most
        scaled = [combined([(len(query) ** -0.5, q)]) for q in query]
        return [rounded(q, 5.01 * U * q.size) for q in scaled]


# -- attention


class Token:
    """A token at a place: what it asks for, and what it gives to attention."""

    def __init__(self, net: Net, place: int, v: int):
        """Run a net up to attention for token v at a place."""
        s, w = net.spec, net.w
        row = [Form(x.value, error=x.radius) for x in net.table[v]]  # as if its errors were no other token's
        self.x = row + net.places[place]
        normed = norm(self.x, net.norms[0])
        content, where = normed[: net.tok], normed[net.tok :]
        if s["direct_forms"]:
            self.query = where
            self.key = product(w["form"], where)
            self.seen = content
        else:
            query = product(w["q_proj"], where)
            self.key = query if s["tie_qk"] else product(w["k_proj"], where)
            self.query = net.turned(list(query))
            self.seen = product(w["v_proj"], content)

        # float32 has the values but never this number, so nothing is rounded here
        self.u = combined((a.value, x) for a, x in pairs(net.out, self.seen))


def most_of_sum(costs: Floats, total: int) -> float:
    """Return the largest costs[x] + costs[y] of two digits whose sum is `total`."""
    least = max(0, total - 9)
    return max(costs[x] + costs[total - x] for x in range(least, total // 2 + 1))


class Query:
    """What is asked for as digit k at token t."""

    def __init__(self, net: Net, tokens: list[list[Token]], k: int, t: int):
        """Weigh the tokens of each place and bound what float32 loses behind the weights."""
        self.net, self.tokens = net, tokens
        self.k, self.t = k, t
        self.reader = Token(net, k - 1 if k else EQUALS, t)  # its roundings are no other token's
        self.weigh()
        every = [token for row in tokens for token in row]
        columns = transposed(token.seen for token in every)
        sizes = [max(x.size for x in column) for column in columns]
        self.bound_loss(sizes, max(token.u.size for token in every))
        self.bound_errors(sizes)

    def bound_loss(self, sizes: Floats, largest: float) -> None:
        """Set `loss`, what float32 loses of the number a in sums and quotients.

        sizes: bounds of the values that are seen, by channel; largest: bound of u.
        """
        length = 22 + self.k
        heaviest, least = Floats(), 0.0
        for c, row in enumerate(self.weights):
            # x, y and z of a column below k are one place thrice; z is not yet written from k on
            copies = 1 if c >= PLUS else 3 if c < self.k else 2
            heaviest += [max(high for _, high in row)] * copies
            least += min(low for low, _ in row) * copies
        require(least > LEAST_WEIGHT, "a sum of weights is lost in float64")

        # an addition of weights loses a rounding at most, and no more than its smaller summand; then quotients
        lighter = sorted(heaviest)[:-1]
        roundings = 2 + sum(min(1.0, 2 * length * w / least / U) for w in lighter)
        written = sum(a.size * s for a, s in pairs(self.net.out, sizes))
        self.loss = (largest + written) * roundings * U * 1.0011
        self.loss += length * 8 * TINY * (1 + written)

    def bound_errors(self, sizes: Floats) -> None:
        """Set `errors`, what float32 loses of the attention output in each dimension of the residual."""
        net, length = self.net, 22 + self.k
        excess = 1 + (2 * length + 8) * U * 1.01
        seen = [Form(0.0, error=s * excess) for s in sizes]
        self.errors = Floats()
        for b in net.row:
            row = [a * b for a in net.out]
            off = sum(x.size * w.radius for x, w in pairs(seen, row))
            self.errors.append(lost(seen, row, half) + off + TINY)

    def weigh(self) -> None:
        """Find the weights e (1 + η) of each place's tokens, from and to, and the relative error that a column shares.

        A place's scores are their mean, as far as they share unknowns, and what each has beyond. A shift of all scores
        changes nothing: it is what the largest mean has of the unknowns that all means share.
        """
        query = self.reader.query
        more = int(not self.net.spec["direct_forms"])
        rounding = relative if more else half  # sums are scaled when all is added, or their terms before
        scores = []
        for places in self.tokens:
            scores.append([dot(query, token.key, rounding, more) for token in places])
        means = [mean(row) for row in scores]
        shift = shared_by([max(means, key=lambda m: m.value), *means])
        top = max(s.value for row in scores for s in row)

        self.weights = list[list[tuple[float, float]]]()
        self.shared = Floats()
        for row, middle in pairs(scores, means):
            common = (middle - shift).radius
            self.weights.append([self.weight(s, middle, common, top) for s in row])
            self.shared.append(common * (1 + common))

    @staticmethod
    def weight(score: Form, middle: Form, common: float, top: float) -> tuple[float, float]:
        """Return the least and the largest weight of a score.

        middle: the mean score of its place; common: what moves all scores of the place; top: the largest score.
        """
        error = (score - middle).radius
        far = top - score.value
        moved = error + SHIFT * U * (far + 2 * (error + common))
        moved = moved + SLACK * (1 + score.size + abs(top))
        require(moved < 0.1 > common, "scores are lost in rounding")

        # exp(moved) - 1 is less than moved (1 + 0.51 moved) below 0.1
        spread = moved * (1 + 0.51 * moved)
        spread = spread + EXP * U * (1 + 1e-5) * (1 + 2 * moved) + SLACK
        weight = exp(-far)
        return weight * (1 - spread), weight * (1 + spread) + TINY**4

    def costs(self, end: float, side: int) -> list[Floats]:
        """Return the largest e (1 + η) (u - end) of each place's tokens; of its negative where `side` is -1."""
        costs = list[Floats]()
        for row, weights in pairs(self.tokens, self.weights):
            place = Floats()
            for token, (least, largest) in pairs(row, weights):
                gain = side * (token.u.value - end)
                error = token.u.radius + 1e-13 * (token.u.size + abs(end))  # and of these sums
                weight = largest if gain >= 0 else least
                place.append(weight * gain + largest * error)
            require(all(map(math.isfinite, place)), "a sum is no number")
            costs.append(place)
        return costs

    def longest(self, end: float, side: int, digits: int) -> dict[int, float]:
        """Return the largest sum of e (1 + η) (u - end) over all inputs, by the sum of column k with its carry.

        side: -1 for its negative; digits: columns that are not always 0 + 0.
        """
        costs, k = self.costs(end, side), self.k
        fixed = sum(costs[c][0] + abs(costs[c][0]) * self.shared[c] for c in (PLUS, EQUALS))

        # paths by state: the carry, and from column k on its sum
        paths = {0: fixed}
        for j, x in enumerate(costs[:10]):
            longer = defaultdict[int, float](lambda: -inf)
            both = [most_of_sum(x, total) for total in range(19 if j < digits else 1)]
            if j > k:  # the sum of column k is known, and z of this one is not yet written
                both = [max(both)]
            for state, n in paths.items():
                for total, gain in enumerate(both):
                    z = (total + state) % 10
                    if j == k - 1 and z != self.t:
                        continue
                    key = state if j > k else total + state if j == k else (total + state) // 10
                    gain += x[z] if j < k else 0.0
                    longer[key] = max(longer[key], n + gain + abs(gain) * self.shared[j])
            paths = longer
        return paths

    def gaps(self, right: int, low: float, high: float) -> tuple[Row, float]:
        """Return how far the logit of `right` exceeds each other one wherever a is from low to high, before the last
        norm's positive scale; and that scale, about.
        """
        net, w = self.net, self.net.w
        middle = (low + high) / 2
        reach = max(high - middle, middle - low) * (1 + SLACK)
        a = Form(middle, error=reach)

        # the residual behind attention, then behind the FFN
        first = Row()
        for x, b, error in pairs(self.reader.x, net.row, self.errors):
            first.append(rounded(combined([(1.0, x), (b.value, a)], error=error)))
        hidden = product(w["fc1"], norm(first, net.norms[1]))
        gate = [gelu(h) for h in hidden]
        second = [x + y for x, y in pairs(first, product(w["fc2"], gate))]

        # logits without the last norm's scale, which changes no sign
        scaled = [rounded(x, relative(x.size)) for x in second]
        normed = [dot([x], [b], relative) for x, b in pairs(scaled, net.norms[2])]
        read = [dot(normed, row, relative) for row in w["head"]]
        logits = [dot(read, row, relative) for row in net.table]
        gaps = [logits[right] - logits[v] for v in range(10) if v != right]
        square = sum(x.value**2 for x in second) / len(second)
        return gaps, sqrt(square + EPS)

    def wins(self, right: int, low: float, high: float) -> bool:
        """Return True if the logit of `right` beats the others wherever a is from low to high."""
        gaps, _ = self.gaps(right, low, high)
        return all(gap.value > gap.radius * ROOM for gap in gaps)

    def margin(self, digits: list[list[int]]) -> float:
        """Return how far the right logit exceeds the next, about, in real numbers.

        digits: of two numbers and of their sum, units first.
        """
        seen = [(PLUS, 0), (EQUALS, 0)]
        x, y, z = digits
        written = [*enumerate(x[:10]), *enumerate(y[:10]), *enumerate(z[: self.k])]
        seen = written + seen
        weights = [sum(self.weights[c][v]) / 2 for c, v in seen]
        values = [self.tokens[c][v].u.value for c, v in seen]
        a = sum(e * u for e, u in pairs(weights, values)) / sum(weights)
        gaps, scale = self.gaps(z[self.k], a, a)
        return min(gap.value for gap in gaps) / scale


# -- the proof

SAME = ("format", "claim", "params", "level", "digits", "bounds", "checker")
"""What a proof must say of itself as it is here, with spec, rows, θ's digest and the margin of its pair."""
REST = ("spec", "theta_sha256", "margin", "versions", "rows")


def about(digits: int, params: int) -> dict[str, Any]:
    """Return what a proof of so many digits and parameters says of itself."""
    claim = f"greedy decoding in float32 is right for all pairs of {digits}-digit numbers"
    values = (1, claim, params, "any", digits, BOUNDS, "check.py")
    return dict(pairs(SAME, values))


QUERIES = [(0, 0), *((k, t) for k in range(1, 11) for t in range(10))]
"""Each digit, and the tokens at which it may be asked for."""


def rows_of(proof: dict[str, Any]) -> dict[tuple[int, int], dict[int, Floats]]:
    """Return the ends of each row of a proof, by digit and token, then by sum."""
    rows: dict[tuple[int, int], dict[int, Floats]] = {query: {} for query in QUERIES}
    left = MOST_ENDS
    require(isinstance(proof["rows"], list), "rows are no list")
    for row in proof["rows"]:
        is_row = isinstance(row, list) and len(row) > 4
        require(is_row, "a row has no ends, or is no list")
        left -= len(row) - 3
        require(left >= 0, f"more than {MOST_ENDS} ends of intervals")

        k, t, s, *ends = row
        is_name = all(type(n) is int for n in (k, t, s))
        is_name = is_name and (k, t) in rows and s not in rows[k, t]
        require(is_name, "a row's digit, token or sum is none, or there twice")
        is_finite = all(type(x) is float and math.isfinite(x) for x in ends)
        require(is_finite, "an end is no number")
        require(sorted(ends) == ends, "a row's ends are in disorder")
        rows[k, t][s] = ends
    return rows


def digits_of(margin: Any, digits: int) -> tuple[int, list[list[int]], float]:
    """Return the digit of a proof's margin, the digits of its pair and their sum, units first, and the margin."""
    is_margin = isinstance(margin, dict) and margin.keys() == {"logits", "pair", "digit"}
    require(is_margin, "the margin is none")
    k, pair, logits = margin["digit"], margin["pair"], margin["logits"]
    require(isinstance(pair, list) and len(pair) == 2, "the margin is of no pair")
    is_pair = all(type(n) is int and 0 <= n < 10**digits for n in pair)
    is_digit = type(k) is int and 0 <= k <= 10
    require(is_pair and is_digit and type(logits) is float, "the margin is of no pair or digit")
    numbers = (*pair, sum(pair))
    return k, [[n // 10**j % 10 for j in range(11)] for n in numbers], logits


def check_query(query: Query, rows: dict[int, Floats], digits: int) -> int:
    """Check all rows of one digit and token, the ends of each by sum. Return the number of intervals."""
    place = f"digit {query.k} at token {query.t}"
    is_whole = query.longest(0, 1, digits).keys() == rows.keys()
    require(is_whole, f"{place}: a row is missing, or of no pair")
    boxes = 0
    for s, ends in rows.items():
        # (1) the number a lies between the first end and the last
        for side, end in ((1, ends[-1]), (-1, ends[0])):
            beyond = query.longest(end - side * query.loss, side, digits)[s]
            require(beyond < 0, f"{place}, sum {s}: a may lie beyond {end}")

        # (2) between two neighbouring ends the right digit wins
        for low, high in pairs(ends[:-1], ends[1:]):
            is_won = query.wins(s % 10, low, high)
            require(is_won, f"{place}, sum {s}: another digit may win between {low} and {high}")
            boxes += 1
    return boxes


def check(proof: dict[str, Any], spec: dict[str, Any], theta: Floats) -> int:
    """Check a proof of a net, its spec and theta. Return the number of intervals."""
    digits = proof["digits"]
    require(type(digits) is int and 1 <= digits <= 10, "digits must be from 1 to 10")
    for name, value in about(digits, len(theta)).items():
        is_same = type(proof[name]) is type(value) and proof[name] == value
        require(is_same, f"{name} is another one")
    require(completed(proof["spec"]) == completed(spec), "spec is not the checkpoint's")
    rows = rows_of(proof)
    place, pair, logits = digits_of(proof["margin"], digits)

    # every token at every place; behind the ten columns stands one delimiter each
    net = Net(spec, theta)
    tokens = []
    for c in range(12):
        tokens.append([Token(net, c, v) for v in range(10 if c < PLUS else 1)])
    asking = pair[2][place - 1] if place else 0
    margin = Query(net, tokens, place, asking).margin(pair)
    is_close = math.isclose(margin, logits, rel_tol=1e-3)
    require(is_close, f"the pair's margin is {margin:.4g}, not {logits:.4g}")
    return sum(check_query(Query(net, tokens, k, t), rows[k, t], digits) for k, t in QUERIES)


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
        numbers = list(struct.unpack(f"<{len(theta) // 4}f", theta))
        boxes = check(proof, spec, numbers)
    except OSError as error:
        sys.exit(f"NOT CHECKED: {error.filename}: {error.strerror}")
    except Exception as error:  # whatever it is, it is no proof
        sys.exit(f"NOT CHECKED: {path}: cannot be read ({type(error).__name__}: {error})")

    margin = proof["margin"]
    print(
        f"CHECKED: right on all 10^{2 * proof['digits']} pairs, by {len(proof['rows'])} intervals and {boxes} boxes\n"
        f"  as the proof says: {', '.join(SAME)}, spec, theta_sha256, and the margin {margin['logits']:.4g} at digit"
        f" {margin['digit']} of {margin['pair'][0]} + {margin['pair'][1]}\n"
        "  not checked: versions, and that no margin is smaller"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
