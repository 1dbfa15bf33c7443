"""Check a proof that `adder-search prove` wrote, without its code: `python check.py PROOF.json CHECKPOINT`.

Python alone. It reads θ and spec of the checkpoint, and of the proof only ends of intervals. It checks, for one head
with an output of rank 1 and greedy decoding in float32:

(1) When digit k is asked for, its token (EQUALS, or the digit before) and one number a decide the logits. For each
    k, token t and sum s of column k with its carry, a lies between the first and the last end of the row (k, t, s),
    whatever the other digits are and however float32 rounds: no path through the ten columns, with the carry as state,
    has a positive sum of e (1 + η) (u - a) over positions (nor, for the other side, a negative one).
(2) Between two neighbouring ends of a row the logit of digit s mod 10 (of s, for k = 10) beats the nine others by more
    than float32 can take from it (mean value theorem, in a and in every rounding at once).
(3) No row is missing that can occur. By induction over k all digits are right.

Assumed of float32: + - * / sqrt are rounded to nearest or fused, sums are taken in any order, and elementary functions
are as good as BOUNDS says (docs/proof.md). Assumed of this Python: float64, whose + - * / sqrt are rounded to nearest
and widened here by a last place, and whose exp, sin, cos and erf are right to 2^-46. Bounds of errors are positive
numbers with room to spare.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from math import inf, nextafter, pi, prod, sqrt
from operator import add
from pathlib import Path
from typing import Any

EXP, SHIFT, RSQRT, GELU_ARGUMENT, GELU, TRIG = 32, 2, 4, 10, 6, 4
BOUNDS = {"name": "any", "exp": EXP, "shift": SHIFT, "rsqrt": RSQRT, "trig": TRIG}
BOUNDS |= {"gelu_argument": GELU_ARGUMENT, "gelu": GELU}
U, TINY = 2.0**-24, 2.0**-126
ROOM = 1 + 2.0**-17
"""Roundings of roundings."""
NEAR = 2.0**-46
"""Error of float64's exp, sin, cos and erf."""
EPS = 1e-5
CURVED = 1e-4
"""How much a score's slope along a position can change within the position's error."""
Floats = list[float]
pairs: Any = partial(zip, strict=True)


def require(condition: object, text: str) -> None:
    if not condition:
        sys.exit(f"NOT CHECKED: {text}")


# -- real numbers


class Interval:
    """The real numbers from one float64 to another."""

    __slots__ = ("hi", "lo")

    def __init__(self, lo: float, hi: float):
        self.lo, self.hi = lo, hi

    def __add__(self, o: Interval) -> Interval:
        return Interval(nextafter(self.lo + o.lo, -inf), nextafter(self.hi + o.hi, inf))

    def __sub__(self, o: Interval) -> Interval:
        return Interval(nextafter(self.lo - o.hi, -inf), nextafter(self.hi - o.lo, inf))

    def __mul__(self, o: Interval) -> Interval:
        a, b, c, d = self.lo * o.lo, self.lo * o.hi, self.hi * o.lo, self.hi * o.hi
        return Interval(nextafter(min(a, b, c, d), -inf), nextafter(max(a, b, c, d), inf))

    def over(self, n: float) -> Interval:
        return Interval(nextafter(self.lo / n, -inf), nextafter(self.hi / n, inf))

    def wider(self, error: float) -> Interval:
        return Interval(nextafter(self.lo - error, -inf), nextafter(self.hi + error, inf))

    @property
    def size(self) -> float:
        """The largest absolute value."""
        return max(-self.lo, self.hi)

    @property
    def middle(self) -> float:
        return (self.lo + self.hi) / 2


def exact(x: float) -> Interval:
    return Interval(x, x)


def total(terms: Iterable[Interval]) -> Interval:
    numbers = list(terms)
    room = len(numbers) * 2.0**-52 * sum(x.size for x in numbers)
    return Interval(sum(x.lo for x in numbers) - room, sum(x.hi for x in numbers) + room)


def dot(a: Iterable[Interval], b: Iterable[Interval]) -> Interval:
    return total(x * y for x, y in pairs(a, b))


def inverse_root(x: Interval) -> Interval:
    """1 / sqrt(x) of positive numbers."""
    return Interval(1 / sqrt(x.hi) * (1 - 2.0**-50), 1 / sqrt(x.lo) * (1 + 2.0**-50))


def exp(x: Interval) -> Interval:
    return Interval(math.exp(x.lo) * (1 - NEAR), math.exp(x.hi) * (1 + NEAR) + TINY**4)


def gelu(x: Interval) -> tuple[Interval, Interval]:
    """The ranges of GELU, which is least at the first turn, and of its slope, which turns at the others."""
    turns = (-0.7517915246935645, sqrt(2), -sqrt(2))
    values, slopes = [], []
    for n in (x.lo, x.hi, *(t for t in turns if x.lo - 1e-12 < t < x.hi + 1e-12)):
        integral, density = (1 + math.erf(n / sqrt(2))) / 2, math.exp(-n * n / 2) / sqrt(2 * pi)
        values.append(n * integral)
        slopes.append(integral + n * density)
    room = NEAR * 8 * (1 + x.size)
    return Interval(min(values), max(values)).wider(room), Interval(min(slopes), max(slopes)).wider(room)


# -- float32


def single(x: float) -> float:
    (nearest,) = struct.unpack("f", struct.pack("f", x))
    return float(nearest)


def half(size: float) -> float:
    """The largest error of one rounding of numbers up to size."""
    return (math.ldexp(1.0, math.frexp(size)[1] - 25) if size else 0.0) + TINY


class Number:
    """A real number, and a bound of float32's error in it."""

    __slots__ = ("error", "is_power", "value")

    def __init__(self, value: Interval, error: float = 0.0):
        self.value, self.error = value, error
        is_exact = not error and value.lo == value.hi
        self.is_power = is_exact and abs(math.frexp(value.lo)[0]) in (0, 0.5)  # exact as a factor

    @property
    def size(self) -> float:
        return self.value.size + self.error

    def __add__(self, o: Number) -> Number:
        value, error = self.value + o.value, self.error + o.error
        return Number(value, error + half((value.size + error) * ROOM))

    def __mul__(self, o: Number) -> Number:
        value, error = self.value * o.value, self.size * o.error + o.value.size * self.error
        rounding = 0.0 if self.is_power or o.is_power else half((value.size + error) * ROOM)
        return Number(value, error + rounding)


Row = list[Number]


def numbers(values: Iterable[float]) -> Row:
    return [Number(exact(float(x))) for x in values]


def one_of(a: float, b: float) -> Number:
    """What float32 computes as a or as b."""
    return Number(exact((a + b) / 2), abs(a - b) / 2 + 1e-15 * abs(a))


def waves(angle: Number) -> Row:
    """Sine and cosine."""
    x = angle.value.middle
    values = [exact(f(x)).wider(NEAR + angle.value.hi - angle.value.lo) for f in (math.sin, math.cos)]
    return [Number(v, angle.error + TRIG * half(v.size + angle.error)) for v in values]


def real(row: Row) -> list[Interval]:
    return [x.value for x in row]


def lost(sizes: Floats, row: Row) -> float:
    """What float32 loses in a dot product of a row with numbers up to sizes, in any order."""
    terms = [s * w.size for s, w in pairs(sizes, row)]
    products = sum(half(t) for t, w in pairs(terms, row) if not w.is_power)
    sums = max(sum(w.size > 0 for w in row) - 1, 0) * half(sum(terms) * ROOM)
    return (products + sums + along(sizes, [w.error for w in row])) * ROOM


def along(slope: Iterable[float], errors: Iterable[float]) -> float:
    """What errors do along a slope."""
    return sum(abs(s) * e for s, e in pairs(slope, errors))


def product(matrix: list[Row], x: Row) -> Row:
    sizes = [n.size for n in x]
    return [
        Number(
            dot(real(row), real(x)),
            along((w.value.size for w in row), (n.error for n in x)) + lost(sizes, row),
        )
        for row in matrix
    ]


def transposed(matrix: Iterable[Iterable[Any]]) -> list[list[Any]]:
    return [list(column) for column in pairs(*matrix)]


def norm(x: Row, weights: Row, errors: Floats) -> tuple[list[Interval], Interval, float, Floats]:
    """Numbers normed: their values, 1 / root mean square, float32's relative error in that, and the other errors.

    errors: of x, so far as they are to be counted.
    """
    count = len(x)
    squares = [n.value * n.value for n in x]
    mean = total(Interval(max(s.lo, 0.0), s.hi) for s in squares).over(count) + exact(EPS)
    root, low = inverse_root(mean), mean.lo
    off = sum((2 * n.value.size + e) * e for n, e in pairs(x, errors)) / count
    require(0 <= off <= 1e-3 * low, "a norm is lost in rounding")
    m = (mean.size + off) * ROOM
    off += (sum(half(n.size**2) for n in x) + (count - 1) * half(m * count)) / count + 2 * half(m)
    off += abs(single(1 / count) * count - 1) * m + 1e-14 * m
    scale = 0.5 * off / low * (1 + 2 * off / low) + 1e-14
    scale += RSQRT * half(root.size * (1 + scale)) / root.lo
    values, rest = [n.value * root * w.value for n, w in pairs(x, weights)], []
    for n, w, value, e in pairs(x, weights, values, errors):
        local = half(n.value.size * root.size * (1 + 2 * scale)) * w.value.size + 1e-14 * value.size
        local += 0.0 if w.is_power and abs(w.value.lo) == 1 else half(value.size * (1 + 2 * scale))
        rest.append((local + (e * w.value.size + n.size * w.error) * root.size) * (1 + 2 * scale))
    return values, root, scale, rest


# -- the net

DEFAULTS = {"tok_dim": 3, "pos_dim": 3, "heads": 2, "vocabulary": 14, "spiral_amp": 3.5, "spiral_slope": 0.15}
DEFAULTS |= {"equals_index": 9.5}


class Fields(dict[str, Any]):
    """The fields of a spec; one that is not there is off."""

    def __missing__(self, name: str) -> bool:
        return False


def shapes(s: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...], bool]]:
    """The tensors that a net may have, in order: name, shape, True if it has it."""
    tok, pos = s["tok_dim"], s["pos_dim"]
    width, direct = tok + pos, s["direct_forms"]
    size = s["qk_dim"] or width
    row = (tok if s["token_out"] else width) - s["unit_out"] - s["opposite_out"]
    units = 1 if s["one_unit"] else 2
    count = 3 if s["structured_norm3"] else 2 if s["structured_norm2"] else 1
    single_norm = count > 1 or s["structured_norm1"] or s["scalar_norm"]
    yield "arc", (3 if s["circular"] else 4,), s["arc"]
    yield "tokens", (10, tok), not s["arc"]
    yield "digits", (10, pos), not s["spiral"]
    yield "spiral", (3 if s["flat_spiral"] else 4,), s["spiral"] and not s["frozen_spiral"]
    yield "correction", (2 if s["linear_correction"] else 10,), s["spiral"] and not s["plain_spiral"]
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
        (count,) if single_norm else (1 if s["shared_norm"] else 3, width),
        not s["parameterless_norm"],
    )


def tensors(spec: dict[str, Any], theta: Floats) -> tuple[dict[str, Any], dict[str, Any]]:
    """A spec with its defaults, and its tensors as nested lists; a tied spec's are untied."""
    base = spec["base"] if spec["family"] == "tied" else spec
    s = Fields(DEFAULTS | base)
    require(
        s["family"] == "split_subspace" and s["vocabulary"] == 10, "another family, or a vocabulary of 14"
    )
    require(s["heads"] == 1 and s["rank1_out"] and s["no_ffn_bias"], "several heads or channels, or biases")
    require(not (s["toeplitz_q"] or s["circulant_q"] or s["rank1_q"]), "a projection in another form")
    entries, w = list(theta), {}
    for name, shape, present in shapes(s):
        if not present:
            continue
        if base is spec:
            flat, entries = entries[: prod(shape)], entries[prod(shape) :]
        else:
            flat = [theta[abs(k) - 1] * ((k > 0) - (k < 0)) if k else 0.0 for k in spec["ties"][name]]
        require(len(flat) == prod(shape), f"{name} has another size")
        w[name] = flat if len(shape) == 1 else [flat[i : i + shape[1]] for i in range(0, len(flat), shape[1])]
    require(base is not spec or not entries, "θ is too long")
    return s, w


def spiral(s: dict[str, Any], w: dict[str, Any], index: float) -> Row:
    """A position on the spiral."""
    amp, phase, slope, offset = single(s["spiral_amp"]), 0.0, single(s["spiral_slope"]), 0.0
    if not s["frozen_spiral"]:
        amp, phase, *rise, offset = w["spiral"]
        slope = rise[0] if rise else 0.0
    slope, index = 0.0 if s["flat_spiral"] else slope, single(index)
    turns = single(single(2 * pi) * index)
    angle, height = one_of(single(turns / 10), single(turns * single(0.1))), *numbers([single(slope * index)])
    radius, phase_, slope_, index_, offset_ = numbers([amp, phase, slope, index, offset])
    if not s["frozen_spiral"]:
        angle, height = angle + phase_, slope_ * index_ + offset_
    sine, cosine = waves(angle)
    return [radius * cosine, radius * sine, height, *numbers([0.0] * (s["pos_dim"] - 3))]


Place = int | str
"""A column 0 to 9, whose x, y and z have one position, or "plus" or "equals"."""


class Net:
    """Everything of a net that does not depend on the problem. Matrices are lists of what an output reads."""

    def __init__(self, spec: dict[str, Any], theta: Floats):
        s, w = tensors(spec, theta)
        self.tok, self.width = s["tok_dim"], s["tok_dim"] + s["pos_dim"]
        self.table = [numbers(row) for row in w.get("tokens", [])] or self.arc(w["arc"])
        self.places: dict[Place, Row] = {n: self.digit(s, w, n) for n in range(10)}
        for name in ("plus", "equals"):
            self.places[name] = numbers(w.get(name, [0.0] * s["pos_dim"]))
        if s["equals_on_ring"]:
            self.places["equals"] = spiral(s, w, s["equals_index"])
        self.norms = self.norm_weights(s, w)
        row = [0.0, 1.0] if s["onehot_out"] else [1.0] * s["unit_out"] + w.get("out_B", [[]])[0]
        row = [row[0], -row[0], *row[1:]] if s["opposite_out"] else row
        self.row = numbers(row + [0.0] * (self.width - len(row)))
        self.out = numbers(a[0] for a in w["out_A"])
        self.writes = [[a * b for a in self.out] for b in self.row]
        matrix = {name: [numbers(row) for row in w[name]] for name in w if isinstance(w[name][0], list)}
        self.scale, self.scaled = exact(1.0), int(not s["direct_forms"])
        if s["direct_forms"]:
            self.queries, self.key, self.values = [eye(s["pos_dim"])], matrix["form"], eye(self.tok)
        else:
            self.queries = [
                matrix["q_proj"],
                *([turn(w["phase"][0], len(w["q_proj"]))] if "phase" in w else []),
            ]
            self.key = matrix["q_proj" if s["tie_qk"] else "k_proj"]
            self.values = transposed(matrix["head"]) if s["tie_vo"] else matrix["v_proj"]
            self.scale = inverse_root(exact(float(len(self.key))))
        self.fc1, self.head = matrix["fc1"], matrix["head"]
        self.fc2 = transposed(matrix["head"]) if s["tie_fc2_head"] else matrix["fc2"]

    @staticmethod
    def arc(arc: Floats) -> list[Row]:
        *radii, start, stride = arc
        first, last, table = *numbers([radii[0], radii[-1]]), []
        for v in range(10):
            sine, cosine = waves(one_of(single(start + single(stride * v)), single(start + stride * v)))
            table.append([cosine * first, sine * last])
        return table

    @staticmethod
    def digit(s: dict[str, Any], w: dict[str, Any], n: int) -> Row:
        """The position of a column."""
        place = spiral(s, w, n) if s["spiral"] else numbers(w["digits"][n])
        if "correction" not in w:
            return place
        unit, slope, *rest = numbers([1.0, *w["correction"]])
        factor = (
            unit + rest[0] + slope * numbers([n])[0] if s["linear_correction"] else unit + [slope, *rest][n]
        )
        return [x * factor for x in place]

    def norm_weights(self, s: dict[str, Any], w: dict[str, Any]) -> list[Row]:
        if s["parameterless_norm"]:
            return [numbers([1.0] * self.width)] * 3
        norm = w["norm"]
        if isinstance(norm[0], list):
            return [numbers(norm[i % len(norm)]) for i in range(3)]
        base, *_, last = numbers([1.0 if s["structured_norm1"] else norm[0], *norm])
        weights = [base] * self.width
        if s["structured_norm3"]:
            weights[1] = base + numbers(norm)[1]
        if not s["scalar_norm"]:
            weights[-1] = base + last
        return [weights] * 3


def eye(size: int) -> list[Row]:
    return [numbers(float(i == j) for j in range(size)) for i in range(size)]


def turn(phase: float, size: int) -> list[Row]:
    """The matrix that turns pairs of queries."""
    sine, cosine = waves(*numbers([phase]))
    matrix, minus = eye(size), Number(exact(0.0) - sine.value, sine.error)
    for i in range(0, size // 2 * 2, 2):
        matrix[i][i : i + 2], matrix[i + 1][i : i + 2] = [cosine, minus], [sine, cosine]
    return matrix


# -- attention


class Token:
    """What a token at a place gives to attention: its key, its value u, and how wrong float32 has them."""

    def __init__(self, net: Net, place: Place, v: int):
        tok, weights = net.tok, net.norms[0]
        self.x = net.table[v] + net.places[place]
        errors = [n.error for n in self.x]
        self.common = (
            errors[tok:] if isinstance(place, int) else [0.0] * (net.width - tok)
        )  # with its column's others
        private = errors[:tok] + [e - c for e, c in pairs(errors[tok:], self.common)]
        values, self.root, self.scale, self.rest = norm(self.x, weights, errors)
        _, _, self.private_scale, self.private_rest = norm(self.x, weights, private)
        normed = [Number(n, r + self.scale * n.size) for n, r in pairs(values, self.rest)]
        self.where, content, sizes = normed[tok:], normed[:tok], [n.size for n in normed]
        self.key = product(net.key, self.where)
        self.key_lost = [lost(sizes[tok:], row) for row in net.key]
        seen, out = product(net.values, content), real(net.out)
        self.seen, self.u = [n.size for n in seen], dot(out, real(seen))
        slope = [dot(out, real(column)).size for column in transposed(net.values)]
        self.error = along((a.size for a in out), (lost(sizes[:tok], row) for row in net.values))
        self.error += along(slope, self.rest[:tok]) + self.u.size * self.scale


class Query:
    """Sums over positions when digit k is asked for at token t."""

    def __init__(self, net: Net, tokens: dict[tuple[Place, int], Token], k: int, t: int):
        self.k, self.t, self.reader = k, t, tokens["equals" if k == 0 else k - 1, t]
        self.tokens: dict[Place, list[Token]] = {c: [tokens[c, v] for v in range(10)] for c in range(10)}
        self.tokens |= {c: [tokens[c, 0]] for c in ("plus", "equals")}
        scores, errors, self.shared = self.score(net)
        top = exact(max(s.hi for row in scores.values() for s in row))
        self.weights: dict[Place, list[Interval]] = {}
        weights, least = [], 0.0
        for c, row in scores.items():
            e = [exp(s - top) for s in row]
            far, error = max((top - s).size for s in row), errors[c]
            moved = error + SHIFT * U * (far + 2 * error) + 1e-14 * (1 + far)
            require(moved < 0.1, "scores are lost in rounding")
            spread = (moved * (1 + 0.51 * moved) + EXP * U * (1 + 1e-5) * (1 + 2 * moved)) * (1 + 1e-9)
            self.weights[c] = [x * Interval(1 - spread, 1 + spread) for x in e]
            copies = 1 if isinstance(c, str) else 3 if c < k else 2
            weights += [max(x.hi for x in e)] * copies
            least += min(x.lo for x in e) * copies
        every = [t for row in self.tokens.values() for t in row]
        sizes = [max(column) for column in transposed(t.seen for t in every)]
        # an addition of weights loses a rounding at most, and no more than its smaller summand; then quotients
        count = 2 + sum(min(1.0, 2 * (22 + k) * w / least / U) for w in sorted(weights)[:-1])
        written = along((a.size for a in net.out), sizes)
        loss = (max(t.u.size for t in every) + written) * count * U * 1.0011 + (22 + k) * 8 * TINY * (
            1 + written
        )
        self.loss = loss
        seen = [s * (1 + (52 + 2 * k) * U * 1.01) for s in sizes]
        self.first_error = [n.error + lost(seen, row) + TINY for n, row in pairs(self.reader.x, net.writes)]

    def score(self, net: Net) -> tuple[dict[Place, list[Interval]], dict[Place, float], Floats]:
        """Scores by place and token, their errors by place, and errors that a column's scores have in common.

        Errors count beyond one shift of all scores: those of the query by how far a key is from the likeliest one.
        """
        reader, tok, scale, scaled = self.reader, net.tok, net.scale.size, net.scaled
        query = reader.where
        rest = [Number(n.value, r) for n, r in pairs(query, reader.rest[tok:])]
        for matrix in net.queries:
            query, rest = product(matrix, query), product(matrix, rest)
        turned = [scale * q.value.middle for q in query]
        off = [
            scale * (r.error * (1 + reader.scale) + scaled * 5.01 * U * q.size) for r, q in pairs(rest, query)
        ]

        def turning(a: Floats, b: Floats) -> float:
            """What the query's error does to the difference of the scores of two keys."""
            shift = [x - y for x, y in pairs(a, b)]
            room = 1e-12 * (along(a, map(abs, turned)) + along(b, map(abs, turned)))
            turned_alike = abs(sum(x * t for x, t in pairs(shift, turned))) + room
            return turned_alike * reader.scale + along(shift, off) + room

        slope = [net.scale * q.value for q in query]
        scores = {c: [dot(slope, real(t.key)) for t in row] for c, row in self.tokens.items()}
        keys = {c: [[n.value.middle for n in t.key] for t in row] for c, row in self.tokens.items()}
        likeliest = max((s.hi, key) for c, row in scores.items() for s, key in pairs(row, keys[c]))[1]
        means = {c: [sum(column) / len(rows) for column in transposed(rows)] for c, rows in keys.items()}
        into = [dot(slope, real(column)).middle for column in transposed(net.key)]
        errors, shared = {}, [0.0] * 10
        for c, row in self.tokens.items():
            is_column = isinstance(c, int)
            slopes = [self.slope(net, t, into, s.middle) for t, s in pairs(row, scores[c])]
            mean = [
                sum(column) / len(row) for column in transposed([d - p for d, p in parts] for parts in slopes)
            ]
            worst = []
            for t, s, parts, key in pairs(row, scores[c], slopes, keys[c]):
                terms = [scale * q.size * n.size for q, n in pairs(query, t.key)]
                sums = (1 + scaled) * sum(map(half, terms)) + (len(terms) - 1 + scaled) * half(
                    sum(terms) * ROOM
                )
                error = sums * ROOM + scale * sum(q.error * n.error for q, n in pairs(query, t.key))
                error += along((q.middle for q in slope), t.key_lost) + along(into, t.private_rest[tok:])
                error += s.size * t.private_scale
                bends = [abs(d - p - m) + CURVED * (abs(d) + abs(p)) for (d, p), m in pairs(parts, mean)]
                worst.append(
                    error + along(bends, t.common) + turning(key, means[c] if is_column else likeliest)
                )
            errors[c] = max(worst) * (1 + 1e-9)
            if isinstance(c, int):
                common = (along(mean, row[0].common) + turning(means[c], likeliest)) * (1 + 1e-9)
                shared[c] = common * (1 + common)
        return scores, errors, shared

    @staticmethod
    def slope(net: Net, t: Token, into: Floats, score: float) -> list[tuple[float, float]]:
        """The slope of a score along the position: by what is normed, and by how long that is."""
        root, weights = t.root.middle, real(net.norms[0][net.tok :])
        direct = [root * a * w.middle for a, w in pairs(into, weights)]
        return [(d, score * root**2 * x.value.middle / net.width) for d, x in pairs(direct, t.x[net.tok :])]

    def longest(self, end: float, side: int, digits: int) -> dict[int, float]:
        """The largest sum of e (1 + η) (u - end) over all inputs, by the sum of column k with its carry.

        side -1: of its negative. digits: columns that are not always 0 + 0.
        """
        k, cost = self.k, dict[Place, Floats]()
        for c, row in self.tokens.items():
            cost[c] = []
            for t, e in pairs(row, self.weights[c]):
                distance = t.u.hi - end if side > 0 else end - t.u.lo
                over = e.hi * (t.error + 1e-13 * (t.u.size + abs(end)))  # and the rounding of all these sums
                cost[c].append((e.hi if distance >= 0 else e.lo) * distance + over)
        paths = {0: 0.0}
        for j in range(10):
            x, longer = cost[j], dict[int, float]()
            sums = range(19 if j < digits else 1)
            both = [max(map(add, x[max(0, w - 9) : w // 2 + 1], x[w - w // 2 : w + 1][::-1])) for w in sums]
            highest = max(both)
            for state, n in paths.items():
                for key, gain in self.steps(j, state, x, both) if j <= k else ((state, highest),):
                    longer[key] = max(longer.get(key, -inf), n + gain + abs(gain) * self.shared[j])
            paths = longer
        return {s: n + cost["plus"][0] + cost["equals"][0] for s, n in paths.items()}

    def steps(self, j: int, state: int, x: Floats, both: Floats) -> list[tuple[int, float]]:
        """What column j can add, from a carry, and where that leads: to a carry, or to the sum of column k.

        x: what each digit of the answer adds; both: what two digits add, by their sum.
        """
        if j == self.k:
            return [(w + state, gain) for w, gain in enumerate(both)]
        if j == self.k - 1:
            of_carry = [(c, self.t - state + 10 * c) for c in (0, 1)]
            return [(c, both[w] + x[self.t]) for c, w in of_carry if 0 <= w < len(both)]
        by_carry = map(add, both[: 10 - state], x[state:]), map(add, both[10 - state :], x)
        return [(carry, max(gains)) for carry, gains in enumerate(map(list, by_carry)) if gains]


# -- what follows attention


class Gaps:
    """Differences of logits, before the last norm's scale, as functions of a for one query."""

    def __init__(self, net: Net, query: Query):
        self.net, self.query = net, query
        self.read = [[h.value * w.value for h, w in pairs(row, net.norms[2])] for row in net.head]
        self.fc1, self.fc2 = [real(r) for r in net.fc1], [real(r) for r in net.fc2]

    def outputs(self, a: Interval) -> list[Interval]:
        """The real numbers that the token table reads."""
        net = self.net
        first = [x.value + w.value * a for x, w in pairs(self.query.reader.x, net.row)]
        normed, *_ = norm([Number(x) for x in first], net.norms[1], [0.0] * net.width)
        gate = [gelu(dot(row, normed))[0] for row in self.fc1]
        second = [x + dot(row, gate) for x, row in pairs(first, self.fc2)]
        return [dot(row, second) for row in self.read]

    def hold(self, low: float, high: float, right: int) -> bool:
        """True if the logit of `right` wins wherever a is from low to high, whatever float32 does.

        Every step has the range that float32 can reach, the error that it adds, and the outputs' slopes along it.
        """
        net, a = self.net, Interval(low, high)
        first = [x.value + w.value * a for x, w in pairs(self.query.reader.x, net.row)]
        first_error = [e + half((x.size + e) * ROOM) for x, e in pairs(first, self.query.first_error)]
        first = [x.wider(e) for x, e in pairs(first, first_error)]
        normed, root, scale, normed_error = norm([Number(x) for x in first], net.norms[1], [0.0] * net.width)
        root = root.wider(root.size * scale)
        normed = [x.wider(e + x.size * scale) for x, e in pairs(normed, normed_error)]
        sizes = [x.size for x in normed]
        hidden_error = [lost(sizes, row) for row in net.fc1]
        hidden = [dot(row, normed).wider(e) for row, e in pairs(self.fc1, hidden_error)]
        bent, bends = pairs(*map(gelu, hidden))
        gate_error = [U * (GELU_ARGUMENT * h.size + GELU * g.size) for h, g in pairs(hidden, bent)]
        gate = [g.wider(e) for g, e in pairs(bent, gate_error)]
        sizes = [x.size for x in gate]
        written_error = [lost(sizes, row) for row in net.fc2]
        written = [dot(row, gate).wider(e) for row, e in pairs(self.fc2, written_error)]
        second = [x + y for x, y in pairs(first, written)]
        second_error = [e + half((x.size + e) * ROOM) for x, e in pairs(second, written_error)]
        second = [x.wider(e) for x, e in pairs(second, second_error)]
        errors = [*first_error, scale, *normed_error, *hidden_error, *gate_error, *second_error]
        middle = (low + high) / 2
        errors.append(max(high - middle, middle - low) * (1 + 1e-15))
        slopes = [self.slopes(row, first, root, hidden, list(bends)) for row in self.read]
        outputs = self.outputs(exact(middle))
        return all(v == right or self.beats(right, v, outputs, slopes, errors, second) for v in range(10))

    def slopes(
        self,
        read: list[Interval],
        first: list[Interval],
        root: Interval,
        hidden: list[Interval],
        bends: list[Interval],
    ) -> list[Interval]:
        """An output's slopes along what each step computes, in the order of the errors."""
        net = self.net
        gate = [dot(read, column) for column in transposed(self.fc2)]
        inner = [g * b for g, b in pairs(gate, bends)]
        normed = [dot(inner, column) for column in transposed(self.fc1)]
        scale = dot(inner, hidden)  # along the logarithm of 1 / root mean square
        pull = scale * root * root
        outer = [
            r + n * w.value * root - (pull * x).over(net.width)
            for r, n, w, x in pairs(read, normed, net.norms[1], first)
        ]
        return [*outer, scale, *normed, *inner, *gate, *read, dot(outer, real(net.row))]

    def beats(
        self,
        right: int,
        v: int,
        outputs: list[Interval],
        slopes: list[list[Interval]],
        errors: Floats,
        second: list[Interval],
    ) -> bool:
        """True if the gap of `right` to v in the middle is larger than what its slopes make of the errors."""
        net, here, there = self.net, self.net.table[right], self.net.table[v]
        difference = [x.value - y.value for x, y in pairs(here, there)]
        moved = [dot(difference, column).size for column in transposed(slopes)]
        loss = along(moved, errors)
        weights = net.norms[2]
        sizes = [x.size * w.size for x, w in pairs(second, weights)]
        rest = [2.001 * U * s + x.size * w.error + TINY for s, x, w in pairs(sizes, second, weights)]
        sizes = [s + e for s, e in pairs(sizes, rest)]
        for d, x, y, row in pairs(difference, here, there, net.head):
            ending = along((h.size for h in row), rest) + lost(sizes, row)
            output = along((h.size for h in row), sizes) + ending
            loss += (d.size + x.error + y.error) * ending + (x.error + y.error) * output
            loss += (x.size + y.size) * output * net.tok * U * 1.001
        return dot(difference, outputs).lo > loss * (1 + 1e-6)


# -- the proof


def check(proof: dict[str, Any], spec: dict[str, Any], theta: Floats) -> int:
    """Check a proof of a net. Returns the number of boxes."""
    digits = proof["digits"]
    require(proof["format"] == 1 and proof["level"] == "any", "another format or level")
    require(proof["bounds"] == BOUNDS, "other bounds of elementary functions")
    require(type(digits) is int and 1 <= digits <= 10, "digits must be from 1 to 10")
    rows = {(k, t, s): list(map(float, ends)) for k, t, s, *ends in proof["rows"]}
    require(
        all(len(ends) > 1 and sorted(ends) == ends for ends in rows.values()),
        "a row has no ends, or in disorder",
    )
    net, boxes = Net(spec, theta), 0
    tokens = {
        (c, v): Token(net, c, v) for c in net.places for v in (range(10) if isinstance(c, int) else (0,))
    }
    for k, t in [(0, 0), *((k, t) for k in range(1, 11) for t in range(10))]:
        query = Query(net, tokens, k, t)
        gaps = Gaps(net, query)
        for s in query.longest(0, 1, digits):
            name = f"digit {k} at token {t}, sum {s}"
            require((k, t, s) in rows, f"{name}: a row is missing")
            ends = rows[k, t, s]
            for side, end in ((1, ends[-1]), (-1, ends[0])):
                beyond = query.longest(end - side * query.loss, side, digits)[s]
                require(beyond < 0, f"{name}: a may lie beyond {end}")
            for low, high in pairs(ends[:-1], ends[1:]):
                won = gaps.hold(low, high, s % 10)
                require(won, f"{name}: another digit may win between {low} and {high}")
                boxes += 1
    return boxes


def read(path: Path) -> tuple[dict[str, Any], bytes]:
    """The spec and θ of a checkpoint folder."""
    data = (path / "theta.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])["theta"]
    require(header["dtype"] == "F32", "θ is not float32")
    low, high = header["data_offsets"]
    return json.loads((path / "checkpoint.json").read_text())["spec"], data[start + low : start + high]


def main(proof_path: str, checkpoint_path: str) -> None:
    proof = json.loads(Path(proof_path).read_text())
    spec, theta = read(Path(checkpoint_path))
    require(proof["theta_sha256"] == hashlib.sha256(theta).hexdigest(), "it is a proof of another θ")
    boxes = check(proof, spec, list(struct.unpack(f"<{len(theta) // 4}f", theta)))
    print(
        f"CHECKED: right on all 10^{2 * proof['digits']} pairs, by {len(proof['rows'])} intervals and {boxes} boxes"
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
