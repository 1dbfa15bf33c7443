"""Each rule of rounding that check.py and the prover use, alone, against exact fractions and mpmath's functions.

A step is computed in float32 in every way that the rules allow: in any order, fused or not, with numbers below 2^-126
kept or flushed. What comes out must lie within both programs' bounds. Half of a bound, or a part of it, would not do:
where constants are smaller, results lie outside.
"""

import math
import random
from fractions import Fraction
from itertools import product as combinations
from operator import add, mul

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf
from scipy.special import expit, ndtr
from torch.nn import functional

from adders.proof import attention, check, net, rounding
from adders.proof.intervals import ELEMENTARY, GELU, Interval, SwiGLU
from adders.proof.rounding import ANY, Approx, Linear, Lost, gamma, sincos
from tests import by_tier

mpmath.mp.prec = 240
TINY = Fraction(2) ** -126
WAYS = list(combinations((False, True), repeat=2))
"""Fused or not; flushed or not."""
RANGES = {"ordinary": (-20, 20), "alike": (-1, 1), "near 2^-126": (-126, -120), "of all sizes": (-126, 10)}
PATTERNS = (1 << 23, (1 << 23) + 1, (1 << 24) - 1, (1 << 23) + (1 << 12), 3 << 22)
"""A power of two and its neighbours; products that end in half of a last place; few bits."""


def nearest(x, flushes=False):
    """The float32 number nearest to a fraction, ties to even; 0 for one below 2^-126 where numbers are flushed."""
    if not x:
        return Fraction(0)
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    exponent -= abs(x) < Fraction(2) ** exponent
    place = Fraction(2) ** (max(exponent, -126) - 23)
    result = round(x / place) * place
    return Fraction(0) if flushes and abs(result) < TINY else result


def some(draws, low, high):
    """A float32 number between powers of two, as a fraction; now and then 0."""
    mantissa = draws.choice([*PATTERNS, *(draws.randrange(1 << 23, 1 << 24) for _ in range(6)), 0])
    return draws.choice([-1, 1]) * mantissa * Fraction(2) ** (draws.randint(low, high) - 23)


def row(draws, count):
    """So many numbers of one range."""
    where = RANGES[draws.choice(sorted(RANGES))]
    return [some(draws, *where) for _ in range(count)]


def forms(xs):
    return check.forms(map(float, xs))


def approx(xs):
    return Approx(np.array([float(x) for x in xs]))


def matrix(ws):
    return Linear(Approx(approx(ws).value[:, None]))


def uncertain(draws, xs, most=0.1):
    """Numbers that are not known but for a range, as both programs have them; and what they are."""
    reach = [draws.choice([0, 0, 2.0**-20, most]) * abs(float(x)) for x in xs]
    inside = [nearest(x + Fraction(draws.uniform(-0.9, 0.9) * r)) for x, r in zip(xs, reach, strict=True)]
    unknown = [check.Form(float(x), error=r) for x, r in zip(xs, reach, strict=True)]
    return inside, unknown, Approx(approx(xs).value, np.array(reach))


def summed(draws, terms, flushes):
    """A sum of terms in some order, in groups or not."""
    terms = list(terms)
    while len(terms) > 1:
        draws.shuffle(terms)
        terms.append(nearest(terms.pop() + terms.pop(), flushes))
    return terms[0]


def dotted(draws, xs, ws, fuses, flushes):
    """A sum of products: one after another and fused, or rounded and in any order."""
    both = list(zip(xs, ws, strict=True))
    if not fuses:
        return summed(draws, [nearest(x * w, flushes) for x, w in both], flushes)
    draws.shuffle(both)
    total = Fraction(0)
    for x, w in both:
        total = nearest(total + x * w, flushes)
    return total


def rooted(draws, square):
    """1 / √x by a rounded root and a quotient, by one rounding, or as torch has it."""
    exact = fraction(mpmath.sqrt(real(square)))
    torchs = Fraction(torch.full((16,), float(square)).rsqrt()[0].item())
    return draws.choice([nearest(1 / nearest(exact)), nearest(1 / exact), torchs])


def real(x):
    return mpf(x.numerator) / x.denominator


def fraction(x):
    sign, mantissa, exponent, _ = mpf(x)._mpf_
    return (-1) ** sign * Fraction(mantissa) * Fraction(2) ** exponent


def part(computed, value, radius):
    """How far a result is from the middle of its bounds, as a part of what is allowed."""
    off = abs(computed - Fraction(float(value)))
    return float(off / Fraction(float(radius))) if off else 0.0


def parts(computed, form, bound):
    """The part of each program's bounds: of a form, and of the prover's value and error, or of one of them."""
    found = [] if form is None else [part(computed, form.value, form.radius)]
    return found if bound is None else [*found, part(computed, bound.value.ravel()[0], bound.error.ravel()[0])]


def of_two(operation):
    """A rule of a sum or a product."""

    def rule(draws, fuses, flushes):
        x, y = row(draws, 2)
        bounds = [operation(make(float(x)), make(float(y))) for make in (check.Form, Approx)]
        return parts(nearest(operation(x, y), flushes), *bounds)

    return rule


def a_longer_sum(draws, fuses, flushes):
    xs = row(draws, draws.randint(2, 9))
    ones = [Fraction(1)] * len(xs)
    return parts(summed(draws, xs, flushes), check.dot(forms(xs), forms(ones)), matrix(ones)(approx(xs)))


def a_dot_product(draws, fuses, flushes):
    count = draws.randint(1, 9)
    xs, unknown, bounded = uncertain(draws, row(draws, count))
    ws = [some(draws, -3, 3) for _ in range(count)]
    return parts(dotted(draws, xs, ws, fuses, flushes), check.dot(unknown, forms(ws)), matrix(ws)(bounded))


def a_scaled_dot_product(draws, fuses, flushes):
    """Of numbers that float32 has times some factor: bounds of the numbers themselves."""
    count, factor = draws.randint(1, 9), abs(some(draws, -60, 20)) or Fraction(3)
    xs, ws = ([some(draws, -3, 3) for _ in range(count)] for _ in range(2))
    scaled = [nearest(x * factor, flushes) for x in xs]
    weighed = [nearest(x * w, flushes) for x, w in zip(scaled, ws, strict=True)]
    rows = check.unscaled(forms(xs), forms(ws))
    read = dotted(draws, weighed, ws, fuses, flushes)
    return parts(read / factor, check.dot(rows, forms(ws), check.relative), None)


def a_scaled_query(draws, fuses, flushes):
    xs = row(draws, draws.randint(1, 5))
    root = fraction(mpmath.sqrt(len(xs)))
    if draws.random() < 0.5:
        computed = nearest(xs[0] * nearest(1 / nearest(root)), flushes)
    else:
        computed = nearest(xs[0] / nearest(root), flushes)
    return parts(computed, check.scaled(forms(xs))[0], None)


def an_inverse_root(draws, fuses, flushes):
    x = abs(some(draws, -16, 40)) or Fraction(1)
    return parts(rooted(draws, x), check.inverse_root(check.Form(float(x)), 2.0**-17), None)


def a_norm(draws, fuses, flushes):
    n = draws.randint(2, 7)
    where = draws.choice([(-20, 20), (-1, 1), (-10, -8)])
    xs, unknown, bounded = uncertain(draws, [some(draws, *where) for _ in range(n)], most=0)
    ws = [some(draws, -2, 2) for _ in range(n)]
    total = dotted(draws, xs, xs, fuses, flushes)
    mean = nearest(total / n) if draws.random() < 0.5 else nearest(total * nearest(Fraction(1, n)))
    root = rooted(draws, nearest(mean + nearest(Fraction(1e-5))))
    computed = nearest(nearest(xs[0] * root, flushes) * ws[0], flushes)
    bound = net.normed(bounded, net.Norm(approx(ws)), ANY).value
    return parts(computed, check.norm(unknown, forms(ws), 1e-5)[0], bound[:1])


def welford(draws, xs):
    """Mean and variance by Welford's recurrence: number by number, with quotients or reciprocals, or in groups."""
    groups = [(1, x, Fraction(0)) for x in xs]
    is_paired, divides = draws.random() < 0.5, draws.random() < 0.5
    while len(groups) > 1:
        (n, mean, squares), (m, other, more) = groups[0], groups[1]
        delta = nearest(other - mean)
        share = nearest(Fraction(m, n + m)) if is_paired or not divides else Fraction(m, n + m)
        moved = nearest(mean + nearest(delta * share))
        if is_paired:
            rise = nearest(nearest(delta * delta) * nearest(n * share))
        else:
            rise = nearest(delta * nearest(other - moved))
        both = (n + m, moved, nearest(nearest(squares + more) + rise))
        groups = [*groups[2:], both] if is_paired else [both, *groups[2:]]
    _, mean, squares = groups[0]
    return mean, nearest(squares / len(xs))


def a_layer_norm(draws, fuses, flushes):
    """Also of numbers that differ by little of what they are, where it loses most."""
    n = draws.randint(2, 16)
    offset = some(draws, -3, 10)
    xs = [nearest(some(draws, -1, 1) + offset) for _ in range(n)]
    weights, biases = ([some(draws, -2, 2) for _ in range(n)] for _ in range(2))
    if draws.random() < 0.3:
        tensors = [torch.tensor([float(x) for x in part]) for part in (xs, weights, biases)]
        computed = Fraction(functional.layer_norm(tensors[0], (n,), *tensors[1:], 1e-5)[0].item())
    else:
        mean, variance = welford(draws, xs)
        root = rooted(draws, nearest(variance + nearest(Fraction(1e-5))))
        computed = nearest(nearest(nearest(nearest(xs[0] - mean) * root) * weights[0]) + biases[0])
    form = check.layer_norm(*map(forms, (xs, weights, biases)), 1e-5)[0]
    norm = net.Norm(approx(weights), approx(biases), 1e-5, centre=True)
    try:
        return parts(computed, form, net.normed(approx(xs), norm, ANY).value[:1])
    except Lost:  # of numbers that are nearly alike
        return parts(computed, form, None)


def a_flushed_gelu(draws, fuses, flushes):
    x = some(draws, -126, -100)
    return parts(nearest(x * Fraction(1, 2), flushes), check.gelu(check.Form(float(x))), None)


def a_mean(draws, fuses, flushes):
    """Of values by weights, the largest of which is about 1: a quotient of sums, or a sum of quotients."""
    n = draws.randint(2, 30)
    weights = [Fraction(1), *(abs(some(draws, draws.choice([-126, -8, -1]), -1)) for _ in range(n - 1))]
    values = [some(draws, -3, 3) for _ in range(n)]
    total = summed(draws, weights, flushes)
    if draws.random() < 0.5:
        computed = nearest(dotted(draws, weights, values, fuses, flushes) / total, flushes)
    else:
        shares = [nearest(e / total, flushes) for e in weights]
        computed = dotted(draws, shares, values, fuses, flushes)
    exact = sum(e * u for e, u in zip(weights, values, strict=True)) / sum(weights)
    size = float(max(map(abs, values)))
    row = np.array([[float(e)] for e in weights])
    sums = attention.gamma(attention._additions(row, np.ones_like(row)) + 2)
    granted = [check.mean_loss(n, size), float(2 * sums * size + n * 8 * rounding.TINY * (1 + size))]
    return [part(computed - exact, 0.0, each) for each in granted]


def a_weight(draws, fuses, flushes):
    """Of a score, relative to the largest one's."""
    top, score = sorted((some(draws, -8, 5) for _ in range(2)), reverse=True)
    moved = nearest(score - top)
    exact = mpmath.exp(real(score - top))
    computed = torch.tensor([[float(top), float(score)]]).softmax(-1)[0]
    least, most = check.weight(check.Form(float(score)), check.Form(float(top)))
    found = []
    for weight in (mpf(float(computed[1])) / mpf(float(computed[0])), mpf(float(torch.tensor(float(moved)).exp()))):
        if weight > 2.0**-126:
            distance = float(top - score)
            granted = np.expm1(ANY.shift * rounding.U * distance) + gamma(ANY.exp)
            found += [float(abs(weight - exact) / (most - least) * 2), float(abs(weight / exact - 1)) / granted]
    return found


def elementary(function, real_function, formed, bounded, high):
    """A rule of one of torch's functions, on numbers below 2^high, down to those next to 0."""

    def rule(draws, fuses, flushes):
        (x,), (unknown,), _ = uncertain(draws, [some(draws, draws.choice([-126, -4]), high)])
        if abs(x) < TINY:
            return []
        computed = Fraction(function(torch.full((16,), float(x)))[0].item())  # vectors have kernels of their own
        exact = fraction(real_function(real(x)))
        form = formed(unknown)
        found = [part(y, form.value, form.radius) for y in (computed, exact)]
        return [*found, part(computed - exact, 0.0, bounded(np.array([float(x)])))]

    return rule


def silu(x):
    return x / (1 + mpmath.exp(-x))


def bent(bend):
    """What the prover grants a function behind the first layer."""

    def bound(x):
        x = np.concatenate([x, np.ones(len(x) * (bend is SwiGLU))])  # a gate, and the unit that it multiplies
        return bend().over(Interval(x, x), ANY)[1][0]

    return bound


def wave(n):
    return lambda x: check.waves(x)[n], lambda x: sincos(Approx(x))[1 - n].error[0]


RULES = {
    "a sum": of_two(add),
    "a product": of_two(mul),
    "a longer sum": a_longer_sum,
    "a dot product": a_dot_product,
    "a scaled dot product": a_scaled_dot_product,
    "a scaled query": a_scaled_query,
    "an inverse root": an_inverse_root,
    "a norm": a_norm,
    "a layer norm": a_layer_norm,
    "a flushed GELU": a_flushed_gelu,
    "a mean": a_mean,
    "a weight": a_weight,
    "GELU": elementary(functional.gelu, lambda x: x * mpmath.ncdf(x), check.gelu, bent(GELU), 4),
    "SiLU": elementary(functional.silu, silu, check.silu, bent(SwiGLU), 6),
    "cosine": elementary(torch.cos, mpmath.cos, *wave(0), 5),
    "sine": elementary(torch.sin, mpmath.sin, *wave(1), 5),
}
PLAIN = ["a sum", "a product", "a longer sum", "a dot product"]
SMALLER = [
    *((name, check, "ROOM", 0.9) for name in PLAIN),
    *((name, rounding, "rounding", 0.9) for name in PLAIN),
    ("a scaled dot product", check, "relative", 0.6),
    ("a scaled query", check, "TINY", 0.2),
    ("a norm", check, "ROOM", 0.4),
    ("a norm", net, "rounding", 0.4),
    ("an inverse root", check, "RSQRT", 0.4),
    ("a flushed GELU", check, "TINY", 0.1),
    ("a mean", check, "U", 0.15),
    ("a mean", attention, "gamma", 0.15),
    ("a weight", check, "SHIFT", 0.2),
    ("GELU", check, "U", 0.15),
    ("SiLU", check, "SILU", 0.03),
    ("sine", check, "TRIG", 0.1),
    ("cosine", check, "TRIG", 0.1),
]
"""A constant or function of a rule, and a factor that it cannot have."""


def used(name, count):
    """The parts of its bounds that a rule needs, over so many steps in each way."""
    draws = random.Random(name)
    for fuses, flushes in WAYS:
        for _ in range(count):
            yield from RULES[name](draws, fuses, flushes)


def test_fractions_are_rounded_as_this_machine_rounds():
    """The reference itself, against numpy: sums, products and quotients of all magnitudes."""
    draws = random.Random(1)
    for _ in range(4_000):
        where = draws.choice([(-70, -55), (-126, -100), (-3, 3), (40, 60)])
        x, y = (some(draws, *where) for _ in range(2))
        a, b = np.float32(float(x)), np.float32(float(y))
        computed = [(x + y, a + b), (x * y, a * b)]
        if y:
            computed.append((x / y, a / b))
        for exact, theirs in computed:
            assert nearest(exact) == Fraction(float(theirs))
            assert check.single(float(x)) == float(x)


@pytest.mark.parametrize("count", by_tier([100, 300], [100]))
@pytest.mark.parametrize("name", RULES)
def test_what_float32_computes_lies_in_the_bounds_of_its_rule(name, count):
    assert 0.01 < max(used(name, count)) <= 1


def smaller(value, factor):
    if callable(value):
        return lambda *given: factor * value(*given)
    return factor * value


@pytest.mark.parametrize(("name", "module", "constant", "factor"), SMALLER)
def test_where_a_rule_grants_less_results_lie_outside(name, module, constant, factor, monkeypatch):
    monkeypatch.setattr(module, constant, smaller(getattr(module, constant), factor))
    assert any(part > 1 for part in used(name, 300))


ASSUMED = {
    "exp": (math.exp, mpmath.exp, -700, 700),
    "sin": (math.sin, mpmath.sin, -100, 100),
    "cos": (math.cos, mpmath.cos, -100, 100),
    "erf": (math.erf, mpmath.erf, -6, 6),
    "power": (lambda x: x**-1.5, lambda x: x ** mpf(-1.5), 2.0**-20, 2.0**40),
    "root": (math.sqrt, mpmath.sqrt, 0, 2.0**40),
    "logistic": (expit, lambda x: 1 / (1 + mpmath.exp(-x)), -40, 40),
    "normal": (ndtr, mpmath.ncdf, -30, 30),
}


@pytest.mark.parametrize("name", ASSUMED)
def test_functions_of_float64_are_as_good_as_both_programs_assume(name):
    """check.py's to 2^-46, the prover's to 2^-40."""
    function, exact, low, high = ASSUMED[name]
    granted = ELEMENTARY if name in ("logistic", "normal") else 2.0**-46
    draws = random.Random(name)
    for _ in range(2_000):
        x = draws.uniform(low, high) * draws.choice([1, 1e-3, 1e-9]) or 1.0
        assert abs(mpf(float(function(x))) / exact(mpf(x)) - 1) < granted
