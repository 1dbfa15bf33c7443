"""A query's cases are all accounted for, or nothing is proved: of nets that are sharp, and of numbers that are lost."""

import math
from contextlib import nullcontext
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from adders.curvature.pool import Cost
from adders.finishing.margin import Margins, margin
from adders.proof import check, prover
from adders.proof.columns import first_cases, split
from adders.proof.count import count_wrong
from adders.proof.program import Program
from adders.proof.prover import Prover, prove, worst_pairs
from adders.proof.rounding import ANY, Lost, no_lost_numbers, require_finite, require_weight
from adders.proof.split_subspace import _turn
from model import PRESETS
from model.verdict import COUNTEREXAMPLE, UNDECIDED
from tests import by_tier
from tests.adders.test_prove import certificate

LEARNED = PRESETS["100p"].without("linear_correction").without("spiral").without("arc")
"""Tokens and positions are learned, so that a token's size moves the position that the norm leaves."""


def theta_of(spec, values):
    """θ with some tensors, 0 elsewhere."""
    parts = spec.layout.split(torch.zeros(1, spec.params))
    return torch.cat([torch.as_tensor(values.get(n, t[0])).expand(t.shape[1:]).flatten() for n, t in parts.items()])


def sharp(spec, sharpness=3000.0, radius=1.0):
    """θ of a net that answers 0 to everything, whose attention tells token 9 from the others."""
    angles = 2 * math.pi * torch.arange(float(spec.vocabulary)) / 10
    tokens = 3 * torch.stack([angles.cos(), angles.sin()], -1)
    tokens[9] *= radius / 3
    place = torch.tensor([3.5, 0.0, 0.0])
    width = spec.shapes()["q_proj"][0]
    query = torch.zeros(width, 3)
    query[:: width // spec.heads, 0] = sharpness**0.5
    values = {"tokens": tokens, "digits": place, "equals": place, "q_proj": query, "norm": 1.0, "fc1": 1.0, "fc2": 1.0}
    return theta_of(spec, values)


SHARP = {
    "one head": (LEARNED, 3000.0, 1.0),
    "sharper": (LEARNED, 30_000.0, 1.0),
    "weights near the least number": (LEARNED, 2700.0, 1.0),
    "token 9 is farther out": (LEARNED, 6000.0, 9.0),
    "an output of two channels": (LEARNED.without("rank1_out").constrained("rank2_out", True), 3000.0, 1.0),
    "a full output, of 0": (LEARNED.without("rank1_out"), 3000.0, 1.0),
    "a vocabulary of 14": (LEARNED.without("vocabulary"), 3000.0, 1.0),
}
ORDINARY = ("one head", "a full output, of 0", "a vocabulary of 14")


@pytest.mark.parametrize("form", by_tier(list(SHARP), ORDINARY))
def test_a_net_that_answers_0_is_refuted(form):
    """Where weights differ by more than float64 can hold, a case has a bound that is no number, and is no empty one."""
    spec, *sizes = SHARP[form]
    theta_P = sharp(spec, *sizes)
    proof = prove(spec, theta_P, ANY)
    assert proof.verdict == COUNTEREXAMPLE
    (wrong,) = proof.wrong
    assert Program(spec, theta_P).add(wrong.a, wrong.b) == wrong.answer != wrong.a + wrong.b


def test_who_else_asks_for_extremes_is_told_that_numbers_are_lost():
    theta_P = sharp(LEARNED)
    for ask in (worst_pairs, count_wrong):
        with pytest.raises(Lost, match="lost in float64"):
            ask(LEARNED, theta_P)
    spec = LEARNED.as_dict()
    with pytest.raises(SystemExit, match="NOT CHECKED: a sum of weights is lost in float64"):
        check.Query(check.Attention(check.net_of(spec, theta_P.tolist())), 1, 0)


def test_the_cases_are_1838():
    """And two more where EOS is asked for. That each pair is in one of each digit: test_other_tasks.py."""
    tokens = [1, *[10] * 10, 2]
    counts = [sum(len(first_cases(k, token, 10)) for token in range(tokens[k])) for k in range(12)]
    assert counts == [19, 199, *[200] * 8, 20, 2] and sum(counts[:11]) == 1_838


@pytest.fixture(scope="module")
def asked():
    """The prover of a certificate and one of its queries."""
    checkpoint = certificate("57p")
    asked = Prover(checkpoint.spec, checkpoint.theta_P, ANY, 3, math.inf)
    return checkpoint, next(q for q in asked.queries() if q.query.k == 2)


def test_what_is_split_has_the_same_pairs(asked):
    _, query = asked
    cases = first_cases(2, query.query.token, 3)
    for _ in range(3):
        children, stuck = split(query.sums, cases)
        assert children.pairs.sum() + stuck.pairs.sum() == cases.pairs.sum() and (children.pairs > 0).all()
        cases = children[:40]


def without_one(function, place):
    """A function that loses a case."""

    def less(*given):
        result = function(*given)
        return (result[0][:-1], *result[1:]) if place else result[:-1]

    return less


@pytest.mark.parametrize(("name", "place"), [("first_cases", 0), ("split_cases", 1)])
def test_where_a_case_is_left_out_nothing_is_proved(monkeypatch, name, place):
    """Of a net that needs splitting, in any of the ways in which cases come."""
    checkpoint = certificate("133p")
    monkeypatch.setattr(prover, name, without_one(getattr(prover, name), place))
    asked = Prover(checkpoint.spec, checkpoint.theta_P, ANY, 2, math.inf)
    monkeypatch.setattr(asked, "queries", lambda: list(Prover.queries(asked))[:3])
    asked.left[2:] = [0] * (len(asked.left) - 2)
    assert asked.run(lambda done, total: None).verdict == UNDECIDED
    assert not asked.proof.open and any(asked.left[:2])


def test_numbers_that_are_lost_are_said_to_be():
    for number in (math.nan, math.inf, -math.inf):
        with pytest.raises(Lost):
            require_finite(np.ones(3), np.array([1.0, number]))
    for least in (0.0, 2.0**-901, math.nan):
        with pytest.raises(Lost):
            require_weight(least)
    for compute in (lambda x: x / (x - 1), lambda x: 1e308 * (x + 9), lambda x: (x - 1) / (x - 1)):
        with pytest.raises(Lost, match="float64"), no_lost_numbers():
            compute(np.ones(2))


@pytest.mark.parametrize("channels", by_tier(["rank2_out", "rank1_out"], ["rank2_out"]))
def test_pairs_that_nothing_decides_are_counted_as_possible(channels):
    """All logits are 0, and no column moves them: each pair but 0 + 0 is wrong, and none is for certain."""
    spec = LEARNED.without("rank1_out").constrained(channels, True)
    values = {"tokens": 0.0, "v_proj": 1.0, "digits": 1.0, "equals": 1.0, "norm": 1.0}
    count = count_wrong(spec, theta_of(spec, values), digits=1)
    assert (count.wrong, count.possible) == (0, 100)


def test_finishing_by_margins_takes_no_step_to_what_is_no_number(monkeypatch):
    """Neither where numbers are lost at the start or behind a step, nor where margins behind it are none."""
    rows, at = [(8, 9_000_000_999, 9_799_998_999), (0, 1, 2)], Margins.at
    theta_P = sharp(LEARNED)
    assert torch.equal(margin(SimpleNamespace(spec=LEARNED, cost=Cost()), theta_P).float(), theta_P)
    checkpoint = certificate("28p-from-scratch")
    spec, theta_P = checkpoint.spec, checkpoint.theta_P
    for is_lost in (True, False):

        def worst(spec, theta_P, is_lost=is_lost):
            if is_lost and not torch.equal(theta_P, checkpoint.theta_P):
                raise Lost("numbers")
            return [(-1.0, *row) for row in rows]

        def behind(self, theta_SP, is_lost=is_lost):
            is_start = len(theta_SP) > 1 or torch.equal(theta_SP[0].float(), checkpoint.theta_P)
            return at(self, theta_SP) * (1 if is_start or is_lost else math.nan)

        monkeypatch.setattr("adders.finishing.margin.worst_pairs", worst)
        monkeypatch.setattr(Margins, "at", behind)
        assert torch.equal(margin(SimpleNamespace(spec=spec, cost=Cost()), theta_P).float(), theta_P)


@pytest.mark.parametrize("digits", [10, 7])
def test_a_spirals_angle_holds_its_product_fused_with_its_sum(digits):
    """2π k / digits + phase with one rounding, in the prover's bounds and in the checker's."""
    phases = np.random.default_rng(3).uniform(-3, 3, 40).astype(np.float32).tolist()
    index = np.arange(float(digits))
    spec = PRESETS["100p"]
    beyond = 0
    for phase in phases:
        net = object.__new__(check.SplitSubspace)
        net.spec = check.SplitSubspace.DEFAULTS | spec.as_dict()
        net.asked = check.Asked(digits=digits)
        net.w = {"spiral": check.forms([1.0, phase, 0.0, 0.0])}
        bound = _turn(index, phase, digits)
        for k in range(digits):
            turns = Fraction(float(np.float32(2 * math.pi) * np.float32(k)))
            inverse, phase_ = Fraction(float(np.float32(1 / digits))), Fraction(phase)
            fused = float(np.float32(float(turns * inverse + phase_)))
            assert abs(fused - bound.value[k]) <= bound.error[k]
            cosine = net.spiral(k)[0]
            assert abs(math.cos(fused) - cosine.value) <= cosine.radius
            ways = (turns / digits, turns * inverse)
            beyond += fused not in {float(np.float32(t) + np.float32(phase)) for t in ways}
    assert beyond > 20, "it is often another number"


def test_a_net_that_flushed_numbers_make_wrong_is_not_checked():
    """100p with its second norm's weights at 2^-126, made good in fc1: exact, unless small numbers are flushed."""
    checkpoint = certificate("100p")
    spec = checkpoint.spec
    tensors = {name: part[0].clone() for name, part in spec.layout.split(checkpoint.theta_P[None]).items()}
    second_norm = tensors["norm"][1]
    tensors["fc1"] *= second_norm * 2.0**126
    second_norm.fill_(2.0**-126)
    theta_P = theta_of(spec, tensors)
    for theta, is_checked in ((checkpoint.theta_P, True), (theta_P, False)):
        net = check.net_of(spec.as_dict(), theta.tolist())
        with nullcontext() if is_checked else pytest.raises(SystemExit, match="another digit may win"):
            assert check.prove(check.Attention(net), 1)


def test_a_fused_sum_is_rounded_once_in_an_arcs_bounds():
    """float64's sum of start and product, rounded again to float32, would be the other neighbour."""
    start, stride = -(2.0**-100), 1 + 2.0**-23
    angle = Fraction(stride) * 3 + Fraction(start)
    below = float(np.nextafter(np.float32(float(angle)), np.float32(0)))
    fused = min((below, float(np.float32(float(angle)))), key=lambda n: abs(Fraction(n) - angle))
    _, sine = check.arc([check.Form(1.0)], start, stride)[3]
    assert abs(math.sin(fused) - sine.value) <= sine.radius


def test_a_longer_sum_than_the_bounds_allow_is_refused():
    with pytest.raises(SystemExit, match="too long"):
        check.dot([check.Form(0.1)] * 65, [check.Form(0.3)] * 65)
