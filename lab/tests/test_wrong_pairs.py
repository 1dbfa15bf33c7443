"""Verdicts of `prove` on nets at random, against a search for wrong pairs of up to ten digits."""

import random
from collections import Counter

import numpy as np
import pytest

from adders.proof.program import Program
from adders.proof.prover import Proof, Prover, QueryProver, prove
from adders.proof.rounding import ANY, Lost, no_lost_numbers
from lab.scripts.proof_differential import drawn
from model.verdict import COUNTEREXAMPLE, PROVED
from tests.adders.test_prove import digits_of, margins_of

NETS, CHUNK = 2_000, 50
LIMIT_S = 1.5
"""Of a proof."""


def numbers_of(draws, digits):
    """Pairs of numbers that are hard to add: runs of carries, nines, fours and fives, complements, and any."""
    pairs = []
    for _ in range(150):
        kind = draws.choice(["09", "45", "019", "4569", "0123456789", "complement", "complement"])
        if kind == "complement":
            a = [draws.randrange(10) for _ in range(digits)]
            b = [9 - x for x in a]
            for column in draws.sample(range(digits), min(2, digits)):
                b[column] = draws.randrange(10)
        else:
            a, b = ([int(draws.choice(kind)) for _ in range(digits)] for _ in range(2))
        pairs.append((a, b))
    return np.array(pairs)


def wrong_pair(program, spec, draws, digits):
    """A pair that the exported program adds wrongly, by evolving the pairs whose margins are smallest at each digit."""
    pairs = numbers_of(draws, digits)
    for _ in range(4):
        numbers = pairs @ 10 ** np.arange(digits)
        margins = margins_of(program.model, spec, digits_of(*numbers.T))
        worst = np.unique(margins.argsort(0)[:6])
        for n in worst[margins[worst].min(1).argsort()][:2]:
            a, b = numbers[n].tolist()
            if program.add(a, b) != a + b:
                return a, b
        children = pairs[np.repeat(worst, 3)].copy()
        for child in children:
            for _ in range(draws.choice([1, 1, 2, 3])):
                child[draws.randrange(2), draws.randrange(digits)] = draws.randrange(10)
        pairs = np.concatenate([pairs[worst], children, numbers_of(draws, digits)[:50]])
    return None


def proof_along(spec, theta_P, pair, digits):
    """The proof of a pair's own digits alone: of the tokens at which its answer is asked for."""
    sought = str(pair[0] + pair[1])[::-1].ljust(12, "0")
    try:
        with no_lost_numbers():
            prover = Prover(spec, theta_P, ANY, digits, LIMIT_S)
            asked = [
                QueryProver(prover, query)
                for k in range(prover.net.steps)
                for query in prover.attention.ask(k)
                if not k or query.token == int(sought[k - 1])
            ]
            prover.queries = lambda: asked
            prover.left = [query.first_cases().pairs.sum() for query in asked]
            return prover.run(lambda done, total: None)
    except Lost:
        return Proof(ANY.name, digits)


def verdict_on(number):
    """The verdict on a net, which nothing contradicts that is found here.

    Of a net that a search finds wrong, the digits of its pair are proved alone, and all of them of every eighth.
    """
    net, draws = drawn(number), random.Random(number)
    digits, program = draws.choice([1, 2, 10]), Program(net.spec, net.theta_P)
    found = wrong_pair(program, net.spec, draws, digits)
    is_whole = not found or draws.randrange(8) == 0
    if is_whole:
        proof = prove(net.spec, net.theta_P, ANY, digits=digits, limit_s=LIMIT_S)
    else:
        proof = proof_along(net.spec, net.theta_P, found, digits)
    for pair in proof.wrong:
        assert program.add(pair.a, pair.b) == pair.answer != pair.a + pair.b
    assert bool(proof.wrong) == (proof.verdict == COUNTEREXAMPLE)
    assert not (found and proof.verdict == PROVED)
    return proof.verdict


def test_a_search_finds_nothing_else_than_what_is_proved():
    assert {PROVED, COUNTEREXAMPLE} <= {verdict_on(number) for number in range(1, 5)}


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, NETS, CHUNK))
def test_a_search_finds_nothing_else_than_what_is_proved_of_many(first):
    verdicts = Counter(verdict_on(number) for number in range(first, first + CHUNK))
    assert verdicts[PROVED] and verdicts[COUNTEREXAMPLE]
