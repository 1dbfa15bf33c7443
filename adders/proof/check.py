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
from operator import add
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
    """What float32 has of a number: value + Σ slope · e, each e an unknown from -1 to 1 that other forms may share."""

    __slots__ = ("radius", "size", "slopes", "value")

    def __init__(self, value: float, slopes: dict[int, float] | None = None, error: float = 0.0):
        self.value, self.slopes = value, dict(slopes or {})
        if error:
            self.slopes[next(UNKNOWNS)] = error
        self.radius = sum(map(abs, self.slopes.values()))
        self.size = abs(value) + self.radius

    @property
    def is_factor(self) -> bool:
        """True of 0 and powers of two: products with them are exact."""
        return not self.slopes and abs(math.frexp(self.value)[0]) in (0, 0.5)

    def __add__(self, o: Form) -> Form:
        return rounded(combined([(1.0, self), (1.0, o)]))

    def __sub__(self, o: Form) -> Form:
        """The difference itself, not rounded."""
        return combined([(1.0, self), (-1.0, o)])

    def __mul__(self, o: Form) -> Form:
        return dot([self], [o])


Row = list[Form]
Rounding = Callable[[float], float]
"""The largest error of one rounding of numbers up to a size."""


def half(size: float) -> float:
    """Half of the last place."""
    require(size < LARGE, "numbers are too large for float32")
    return (math.ldexp(ROOM, math.frexp(size)[1] - 25) if size else 0.0) + TINY


def relative(size: float) -> float:
    """Of numbers that stand for themselves times a positive number, from 2^-62 to 2^9."""
    require(size < LARGE, "numbers are too large for float32")
    return U * ROOM * size + TINY**0.5


def combined(terms: Iterable[tuple[float, Form]], constant: float = 0.0, error: float = 0.0) -> Form:
    """A sum of factors times forms, itself or off by an error."""
    value, size, slopes = constant, abs(constant), defaultdict[int, float](float)
    for factor, x in terms:
        value += factor * x.value
        size += abs(factor) * x.size
        for unknown, slope in x.slopes.items():
            slopes[unknown] += factor * slope
    return Form(value, slopes, error + SLACK * size)


def rounded(x: Form, error: float | None = None) -> Form:
    return Form(x.value, x.slopes, half(x.size) if error is None else error)


def bent(x: Form, value: float, slopes: Iterable[float]) -> Form:
    """A function of x: its value in the middle, and slopes between two of which all others lie."""
    low, high = min(ends := list(slopes)), max(ends)
    middle, spread = (
        (low + high) / 2,
        (high - low) / 2 + SLACK * max(abs(low), abs(high)),
    )
    return combined([(middle, x)], value - middle * x.value, spread * x.radius)


def lost(xs: Row, ws: Row, rounding: Rounding, more: int = 0) -> float:
    """What float32 loses in a dot product, in any order, with `more` factors beside."""
    sizes = [x.size * w.size for x, w in pairs(xs, ws)]
    roundings = [more + (not (x.is_factor or w.is_factor)) for x, w in pairs(xs, ws)]
    sums = max(sum(w.size > 0 for w in ws) - 1 + more, 0)
    return sum(n * rounding(s) for n, s in pairs(roundings, sizes)) + sums * rounding(sum(sizes) * ROOM)


def dot(xs: Row, ws: Row, rounding: Rounding = half, more: int = 0) -> Form:
    both = list(pairs(xs, ws))
    terms = [term for x, w in both for term in ((w.value, x), (x.value, w))]
    error = lost(xs, ws, rounding, more) + sum(x.radius * w.radius for x, w in both)
    return combined(terms, -sum(x.value * w.value for x, w in both), error)


def product(matrix: list[Row], xs: Row) -> Row:
    return [dot(xs, row) for row in matrix]


def norm(xs: Row, weights: Row) -> Row:
    """x / sqrt(mean(x²) + EPS) · w."""
    n = len(xs)
    square = combined([(1 / n, x * x) for x in xs], EPS)
    error = (n - 1) / n * half(n * square.size * ROOM) + 2 * half(square.size * ROOM)
    error += abs(single(1 / n) * n - 1) * square.size + abs(single(EPS) - EPS)
    square = rounded(square, error)
    ends = max(square.value - square.radius, EPS / 2), square.value + square.radius
    root = bent(square, square.value**-0.5, [-0.5 * end**-1.5 for end in ends])
    root = rounded(root, RSQRT * half(root.size))
    return [x * root * w for x, w in pairs(xs, weights)]


def gelu(x: Form) -> Form:
    def at(n: float) -> tuple[float, float]:
        integral, density = (1 + erf(n / sqrt(2))) / 2, exp(-n * n / 2) / sqrt(2 * pi)
        return n * integral, integral + n * density

    low, high = x.value - x.radius, x.value + x.radius
    turns = [t for t in (-sqrt(2), sqrt(2)) if low < t < high]
    y = bent(x, at(x.value)[0], [at(n)[1] for n in (low, high, *turns)])
    return rounded(y, U * (GELU_ARGUMENT * x.size + GELU * y.size) + SLACK * x.size)


def waves(angle: Form) -> Row:
    """Cosine and sine, whose slopes change by no more than the angle."""
    x, r = angle.value, angle.radius
    both = [bent(angle, v, (slope - r, slope + r)) for v, slope in ((cos(x), -sin(x)), (sin(x), cos(x)))]
    return [rounded(y, TRIG * half(y.size)) for y in both]


def single(x: float) -> float:
    (nearest,) = struct.unpack("f", struct.pack("f", x))
    return float(nearest)


def one_of(*ways: float) -> Form:
    """What float32 computes in one of several ways."""
    low, high = min(ways), max(ways)
    return Form((low + high) / 2, error=(high - low) / 2 + SLACK * max(abs(low), abs(high)))


def shared_by(xs: Row) -> Form:
    """The first of these, as far as its unknowns are in all of them."""
    first, *others = xs
    return Form(
        first.value,
        {n: e for n, e in first.slopes.items() if all(n in x.slopes for x in others)},
    )


def mean(xs: Row) -> Form:
    """The mean of some, as far as they share unknowns."""
    return shared_by([combined([(1 / len(xs), x) for x in xs]), *xs])


def forms(values: Iterable[float]) -> Row:
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
    """The tensors that a net may have, in order: name, shape, True if it has it."""
    tok, pos, direct = s["tok_dim"], s["pos_dim"], s["direct_forms"]
    width = tok + pos
    size, units = s["qk_dim"] or width, 1 if s["one_unit"] else s["hidden"]
    row = (tok if s["token_out"] else width) - s["unit_out"] - s["opposite_out"]
    count = 3 if s["structured_norm3"] else 2 if s["structured_norm2"] else 1
    is_flat = count > 1 or s["structured_norm1"] or s["scalar_norm"]
    yield "arc", (3 if s["circular"] else 4,), s["arc"]
    yield "tokens", (10, tok), not s["arc"]
    yield "digits", (10, pos), not s["spiral"]
    yield (
        "spiral",
        (3 if s["flat_spiral"] else 4,),
        s["spiral"] and not s["frozen_spiral"],
    )
    yield (
        "correction",
        (2 if s["linear_correction"] else 10,),
        s["spiral"] and not s["plain_spiral"],
    )
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
    yield (
        "norm",
        (count,) if is_flat else (1 if s["shared_norm"] else 3, width),
        not s["parameterless_norm"],
    )


def completed(spec: Any) -> tuple[dict[str, Any], Any]:
    """A spec with every field, those that it lacks as they are by default, and its ties: None where it has none."""
    is_tied = isinstance(spec, dict) and spec.get("family") == "tied"
    base = spec.get("base") if is_tied else spec
    require(
        isinstance(base, dict) and base.get("family") == "split_subspace",
        "another family, or no spec",
    )
    s = DEFAULTS | base
    for name, value in s.items():
        require(
            type(value) is type(DEFAULTS.get(name)),
            f"a spec's field {name!r:.40} is unknown, or of another kind",
        )
        require(
            type(value) is str or abs(value) <= MOST_SIZE,
            f"a spec's field {name} is too large",
        )
    is_known = s["vocabulary"] == 10 and s["heads"] == 1 and s["rank1_out"] and s["no_ffn_bias"]
    require(is_known, "a vocabulary of 14, several heads or channels, or biases")
    require(
        not (s["toeplitz_q"] or s["circulant_q"] or s["rank1_q"]),
        "a projection in another form",
    )
    require(
        s["tok_dim"] >= 2 and s["pos_dim"] >= 3 and s["qk_dim"] >= 0,
        "a dimension is too small",
    )
    return s, spec.get("ties") if is_tied else None


def tensors(spec: dict[str, Any], theta: Floats) -> tuple[dict[str, Any], dict[str, Any]]:
    """A spec with every field, and its tensors as lists of rows, or as one row; ties are undone."""
    s, ties = completed(spec)
    entries, w = list(theta), dict[str, Any]()
    for name, shape in [(name, shape) for name, shape, present in shapes(s) if present]:
        if ties is None:
            flat, entries = entries[: prod(shape)], entries[prod(shape) :]
        else:
            places: Any = ties.get(name) if isinstance(ties, dict) else None
            require(isinstance(places, list), f"{name} has no ties")
            is_place = all(type(k) is int and abs(k) <= len(theta) for k in places)
            require(is_place, f"{name} is tied to what is no number of θ")
            flat = [theta[abs(k) - 1] * ((k > 0) - (k < 0)) if k else 0.0 for k in places]
        require(len(flat) == prod(shape), f"{name} has another size")
        require(
            all(abs(x) >= TINY or x == 0 for x in flat),
            f"{name} has numbers that may be read as 0",
        )
        row = forms(flat)
        w[name] = row if len(shape) == 1 else [row[i : i + shape[1]] for i in range(0, len(row), shape[1])]
    require(ties is not None or not entries, "θ is too long")
    return s, w


class Net:
    """Everything of a net that does not depend on the problem. Matrices are lists of what an output reads."""

    def __init__(self, spec: dict[str, Any], theta: Floats):
        s, w = self.spec, self.w = tensors(spec, theta)
        self.tok, self.width = s["tok_dim"], s["tok_dim"] + s["pos_dim"]
        nowhere = forms([0.0] * s["pos_dim"])
        equals = self.spiral(s["equals_index"]) if s["equals_on_ring"] else w["equals"]
        self.places: list[Row] = [
            *map(self.digit, range(10)),
            w.get("plus", nowhere),
            equals,
        ]
        self.table: list[Row] = self.arc() if s["arc"] else w["tokens"]
        self.norms = self.norm_weights()
        row = forms([0.0, 1.0] if s["onehot_out"] else [1.0] * s["unit_out"]) + w.get("out_B", [[]])[0]
        row = [row[0], Form(-row[0].value), *row[1:]] if s["opposite_out"] else row
        self.row = row + forms([0.0] * (self.width - len(row)))
        self.out = [a for (a,) in w["out_A"]]
        if s["tie_fc2_head"]:
            w["fc2"] = transposed(w["head"])
        if s["tie_vo"]:
            w["v_proj"] = transposed(w["head"])

    def arc(self) -> list[Row]:
        *radii, start, stride = self.w["arc"]
        first, step = start.value, stride.value
        angles = [one_of(single(first + single(step * v)), single(first + step * v)) for v in range(10)]
        return [[x * r for x, r in pairs(waves(angle), (radii[0], radii[-1]))] for angle in angles]

    def spiral(self, index: float) -> Row:
        """A position on the spiral."""
        s, index = self.spec, single(index)
        turns = single(single(2 * pi) * index)
        product = turns * single(0.1)
        ways = single(turns / 10), single(product)
        if s["frozen_spiral"]:
            slope = 0.0 if s["flat_spiral"] else single(s["spiral_slope"])
            amp, height, angle = (
                Form(single(s["spiral_amp"])),
                Form(single(slope * index)),
                one_of(*ways),
            )
        else:
            amp, phase, *slopes, offset = self.w["spiral"]
            angle = one_of(*ways, product) + phase  # a product may be fused with the sum
            height = sum((x * Form(index) for x in slopes), Form(0.0)) + offset
        return [amp * x for x in waves(angle)] + [height] + forms([0.0] * (s["pos_dim"] - 3))

    def digit(self, n: int) -> Row:
        """The position of a column."""
        place = self.spiral(n) if self.spec["spiral"] else self.w["digits"][n]
        if "correction" not in self.w:
            return place
        slope, rest = self.w["correction"][0], self.w["correction"]
        factor = Form(1.0) + (rest[1] if self.spec["linear_correction"] else rest[n])
        if self.spec["linear_correction"]:
            factor += slope * Form(n)
        return [x * factor for x in place]

    def norm_weights(self) -> list[Row]:
        s, norm = self.spec, self.w.get("norm", forms([1.0]))
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
        """A query, its pairs turned by the phase, and scaled."""
        if "phase" in self.w:
            cosine, sine = waves(self.w["phase"][0])
            for i in range(0, len(query) // 2 * 2, 2):
                a, b = query[i : i + 2]
                query[i : i + 2] = (
                    dot([a, b], [cosine, Form(0.0) - sine]),
                    dot([a, b], [sine, cosine]),
                )
        scaled = [combined([(len(query) ** -0.5, q)]) for q in query]
        return [rounded(q, 5.01 * U * q.size) for q in scaled]


# -- attention


class Token:
    """A token at a place: what it asks for, and what it gives to attention."""

    def __init__(self, net: Net, place: int, v: int):
        s, w = net.spec, net.w
        row = [Form(x.value, error=x.radius) for x in net.table[v]]  # as if its errors were no other token's
        self.x = row + net.places[place]
        normed = norm(self.x, net.norms[0])
        content, where = normed[: net.tok], normed[net.tok :]
        if s["direct_forms"]:
            self.query, self.key, self.seen = where, product(w["form"], where), content
        else:
            query = product(w["q_proj"], where)
            self.key = query if s["tie_qk"] else product(w["k_proj"], where)
            self.query, self.seen = (
                net.turned(list(query)),
                product(w["v_proj"], content),
            )
        self.u = combined((a.value, x) for a, x in pairs(net.out, self.seen))


class Query:
    """What is asked for as digit k at token t."""

    def __init__(self, net: Net, tokens: list[list[Token]], k: int, t: int):
        self.net, self.tokens, self.k, self.t = net, tokens, k, t
        self.reader = Token(net, k - 1 if k else EQUALS, t)  # its roundings are no other token's
        self.weigh()
        length, heaviest, least = 22 + k, Floats(), 0.0
        for c, row in enumerate(self.weights):
            copies = 1 if c >= PLUS else 3 if c < k else 2
            heaviest += [max(high for _, high in row)] * copies
            least += min(low for low, _ in row) * copies
        require(least > LEAST_WEIGHT, "a sum of weights is lost in float64")
        every = [token for row in tokens for token in row]
        sizes = [max(x.size for x in column) for column in transposed(token.seen for token in every)]
        # an addition of weights loses a rounding at most, and no more than its smaller summand; then quotients
        roundings = 2 + sum(min(1.0, 2 * length * w / least / U) for w in sorted(heaviest)[:-1])
        written = sum(a.size * s for a, s in pairs(net.out, sizes))
        self.loss = (max(token.u.size for token in every) + written) * roundings * U * 1.0011
        self.loss += length * 8 * TINY * (1 + written)
        seen = [Form(0.0, error=s * (1 + (2 * length + 8) * U * 1.01)) for s in sizes]
        writes = [[a * b for a in net.out] for b in net.row]
        off = [sum(x.size * w.radius for x, w in pairs(seen, row)) for row in writes]
        self.errors = [lost(seen, row, half) + o + TINY for row, o in pairs(writes, off)]

    def weigh(self) -> None:
        """Find the weights e (1 + η) of each place's tokens, from and to, and the relative error that a column shares.

        A place's scores are their mean, as far as they share unknowns, and what each has beyond. A shift of all scores
        changes nothing: it is what the largest mean has of the unknowns that all means share.
        """
        query, more = self.reader.query, int(not self.net.spec["direct_forms"])
        rounding = relative if more else half  # sums are scaled when all is added, or their terms before
        scores = [[dot(query, token.key, rounding, more) for token in row] for row in self.tokens]
        means = [mean(row) for row in scores]
        shift = shared_by([max(means, key=lambda m: m.value), *means])
        top = max(s.value for row in scores for s in row)
        self.weights, self.shared = list[list[tuple[float, float]]](), Floats()
        for row, middle in pairs(scores, means):
            common, weights = (middle - shift).radius, []
            for s in row:
                error, far = (s - middle).radius, top - s.value
                moved = error + SHIFT * U * (far + 2 * (error + common)) + SLACK * (1 + s.size + abs(top))
                require(moved < 0.1 > common, "scores are lost in rounding")
                spread = moved * (1 + 0.51 * moved) + EXP * U * (1 + 1e-5) * (1 + 2 * moved) + SLACK
                weights.append((exp(-far) * (1 - spread), exp(-far) * (1 + spread) + TINY**4))
            self.weights.append(weights)
            self.shared.append(common * (1 + common))

    def longest(self, end: float, side: int, digits: int) -> dict[int, float]:
        """The largest sum of e (1 + η) (u - end) over all inputs, by the sum of column k with its carry.

        side -1: of its negative. digits: columns that are not always 0 + 0.
        """
        costs, k = list[Floats](), self.k
        for row, weights in pairs(self.tokens, self.weights):
            gains = [side * (token.u.value - end) for token in row]
            errors = [token.u.radius + 1e-13 * (token.u.size + abs(end)) for token in row]  # and of these sums
            costs.append([e[gain >= 0] * gain + e[1] * error for gain, error, e in pairs(gains, errors, weights)])
            require(all(map(math.isfinite, costs[-1])), "a sum is no number")
        fixed = sum(costs[c][0] + abs(costs[c][0]) * self.shared[c] for c in (PLUS, EQUALS))
        paths = {0: fixed}
        for j, x in enumerate(costs[:10]):
            longer, sums = (
                defaultdict[int, float](lambda: -inf),
                range(19 if j < digits else 1),
            )
            both = [max(map(add, x[max(0, w - 9) : w // 2 + 1], x[w - w // 2 : w + 1][::-1])) for w in sums]
            for state, n in paths.items():  # the carry, and from column k on its sum
                for w, gain in enumerate(both if j <= k else [max(both)]):
                    z, key = (
                        (w + state) % 10,
                        state if j > k else w + state if j == k else (w + state) // 10,
                    )
                    if j != k - 1 or z == self.t:
                        gain += x[z] if j < k else 0.0
                        longer[key] = max(longer[key], n + gain + abs(gain) * self.shared[j])
            paths = longer
        return paths

    def gaps(self, right: int, low: float, high: float) -> tuple[Row, float]:
        """How far the logit of `right` exceeds each other one wherever a is from low to high, before the last norm's
        positive scale; and that scale, about.
        """
        net, w, middle = self.net, self.net.w, (low + high) / 2
        a = Form(middle, error=max(high - middle, middle - low) * (1 + SLACK))
        rows = pairs(self.reader.x, net.row, self.errors)
        first = [rounded(combined([(1.0, x), (b.value, a)], error=e)) for x, b, e in rows]
        gate = [gelu(h) for h in product(w["fc1"], norm(first, net.norms[1]))]
        second = [x + y for x, y in pairs(first, product(w["fc2"], gate))]
        scaled = [rounded(x, relative(x.size)) for x in second]
        normed = [dot([x], [b], relative) for x, b in pairs(scaled, net.norms[2])]
        read = [dot(normed, row, relative) for row in w["head"]]
        logits = [dot(read, row, relative) for row in net.table]
        gaps = [logits[right] - logits[v] for v in range(10) if v != right]
        return gaps, sqrt(sum(x.value**2 for x in second) / len(second) + EPS)

    def wins(self, right: int, low: float, high: float) -> bool:
        """True if the logit of `right` beats the others wherever a is from low to high."""
        gaps, _ = self.gaps(right, low, high)
        return all(gap.value > gap.radius * ROOM for gap in gaps)

    def margin(self, digits: list[list[int]]) -> float:
        """How far the right logit exceeds the next, about, in real numbers, for a pair and its sum, units first."""
        seen = [(c, row[c]) for n, row in enumerate(digits) for c in range(10 if n < 2 else self.k)]
        seen += [(PLUS, 0), (EQUALS, 0)]
        weights = [sum(self.weights[c][v]) / 2 for c, v in seen]
        values = [self.tokens[c][v].u.value for c, v in seen]
        a = sum(e * u for e, u in pairs(weights, values)) / sum(weights)
        gaps, scale = self.gaps(digits[2][self.k], a, a)
        return min(gap.value for gap in gaps) / scale


# -- the proof

SAME = ("format", "claim", "params", "level", "digits", "bounds", "checker")
"""What a proof must say of itself as it is here, with spec, rows, θ's digest and the margin of its pair."""
REST = ("spec", "theta_sha256", "margin", "versions", "rows")


def about(digits: int, params: int) -> dict[str, Any]:
    """What a proof says of itself."""
    claim = f"greedy decoding in float32 is right for all pairs of {digits}-digit numbers"
    return dict(pairs(SAME, (1, claim, params, "any", digits, BOUNDS, "check.py")))


QUERIES = [(0, 0), *((k, t) for k in range(1, 11) for t in range(10))]
"""Each digit, and the tokens at which it may be asked for."""


def rows_of(proof: dict[str, Any]) -> dict[tuple[int, int], dict[int, Floats]]:
    """The ends of each row, by digit and token, then by sum."""
    rows: dict[tuple[int, int], dict[int, Floats]] = {query: {} for query in QUERIES}
    left = MOST_ENDS
    require(isinstance(proof["rows"], list), "rows are no list")
    for row in proof["rows"]:
        require(isinstance(row, list) and len(row) > 4, "a row has no ends, or is no list")
        left -= len(row) - 3
        require(left >= 0, f"more than {MOST_ENDS} ends of intervals")
        k, t, s, *ends = row
        is_name = all(type(n) is int for n in (k, t, s)) and (k, t) in rows and s not in rows[k, t]
        require(is_name, "a row's digit, token or sum is none, or there twice")
        require(
            all(type(x) is float and math.isfinite(x) for x in ends),
            "an end is no number",
        )
        require(sorted(ends) == ends, "a row's ends are in disorder")
        rows[k, t][s] = ends
    return rows


def digits_of(margin: Any, digits: int) -> tuple[int, list[list[int]], float]:
    """The digit of a proof's margin, the digits of its pair and their sum, units first, and the margin."""
    require(
        isinstance(margin, dict) and margin.keys() == {"logits", "pair", "digit"},
        "the margin is none",
    )
    k, pair, logits = margin["digit"], margin["pair"], margin["logits"]
    require(isinstance(pair, list) and len(pair) == 2, "the margin is of no pair")
    is_pair = all(type(n) is int and 0 <= n < 10**digits for n in pair)
    require(
        is_pair and type(k) is int and 0 <= k <= 10 and type(logits) is float,
        "the margin is of no pair or digit",
    )
    return k, [[n // 10**j % 10 for j in range(11)] for n in (*pair, sum(pair))], logits


def check(proof: dict[str, Any], spec: dict[str, Any], theta: Floats) -> int:
    """Check a proof of a net. Returns the number of intervals."""
    digits = proof["digits"]
    require(type(digits) is int and 1 <= digits <= 10, "digits must be from 1 to 10")
    for name, value in about(digits, len(theta)).items():
        require(
            type(proof[name]) is type(value) and proof[name] == value,
            f"{name} is another one",
        )
    require(completed(proof["spec"]) == completed(spec), "spec is not the checkpoint's")
    rows, (place, pair, logits) = rows_of(proof), digits_of(proof["margin"], digits)
    net, boxes = Net(spec, theta), 0
    tokens = [[Token(net, c, v) for v in range(10 if c < PLUS else 1)] for c in range(12)]
    margin = Query(net, tokens, place, pair[2][place - 1] if place else 0).margin(pair)
    require(
        math.isclose(margin, logits, rel_tol=1e-3),
        f"the pair's margin is {margin:.4g}, not {logits:.4g}",
    )
    for k, t in QUERIES:
        query = Query(net, tokens, k, t)
        is_whole = query.longest(0, 1, digits).keys() == rows[k, t].keys()
        require(is_whole, f"digit {k} at token {t}: a row is missing, or of no pair")
        for s, ends in rows[k, t].items():
            name = f"digit {k} at token {t}, sum {s}"
            for side, end in ((1, ends[-1]), (-1, ends[0])):
                beyond = query.longest(end - side * query.loss, side, digits)[s]
                require(beyond < 0, f"{name}: a may lie beyond {end}")
            for low, high in pairs(ends[:-1], ends[1:]):
                is_won = query.wins(s % 10, low, high)
                require(is_won, f"{name}: another digit may win between {low} and {high}")
                boxes += 1
    return boxes


def content(path: Path) -> bytes:
    """What is in a file, which is regular and small."""
    about = path.stat()
    require(stat.S_ISREG(about.st_mode), f"{path}: not a regular file")
    require(about.st_size <= MOST_BYTES, f"{path}: larger than {MOST_BYTES:,} bytes")
    return path.read_bytes()


def once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(items)
    if len(values) < len(items):
        raise ValueError("a name is there twice")
    return values


def parsed(data: bytes) -> dict[str, Any]:
    """A JSON object whose names are there once."""
    values = json.loads(data.decode(), object_pairs_hook=once)
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return values


def read(path: Path) -> tuple[dict[str, Any], bytes]:
    """The spec and θ of a checkpoint folder."""
    data = content(path / "theta.safetensors")
    start = 8 + int.from_bytes(data[:8], "little")
    header = parsed(data[8:start])["theta"]
    require(header["dtype"] == "F32", "θ is not float32")
    low, high = header["data_offsets"]
    return parsed(content(path / "checkpoint.json"))["spec"], data[start + low : start + high]


def main(proof_path: str, checkpoint_path: str) -> None:
    path = proof_path
    try:
        proof = parsed(content(Path(path)))
        spec, theta = read(Path(path := checkpoint_path))
        path = proof_path
        require(
            proof.keys() == {*SAME, *REST},
            f"{path}: no proof, or not one that is known here",
        )
        require(
            proof["theta_sha256"] == hashlib.sha256(theta).hexdigest(),
            "it is a proof of another θ",
        )
        boxes = check(proof, spec, list(struct.unpack(f"<{len(theta) // 4}f", theta)))
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
