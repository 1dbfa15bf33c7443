"""Verdicts on nets of every family that are sharp, tied, huge or nearly nothing, against a search for wrong pairs."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from adders.proof.program import Program
from adders.proof.prover import Proof, Prover, QueryProver, prove
from adders.proof.rounding import ANY, Lost, no_lost_numbers
from model.verdict import COUNTEREXAMPLE, PROVED
from tests import ROOT
from tests.adders.test_prove import digits_of, margins_of
from tests.adders.test_sound import SHARP, sharp
from tests.specs import specs
from trainer.checkpoints.checkpoint import Checkpoint

NETS, CHUNK = 2_000, 50
LIMIT_S = 1.5
"""Of a proof."""
NAMES = [
    "certificates/6p", "certificates/17p", "certificates/28p-from-scratch", "certificates/34p-by-hand",
    "certificates/57p",
    "certificates/100p", "certificates/133p", "certificates/456p", "certificates/512p", "2026-11-27-rope-descents/11p",
    "2026-11-24-rope/62p-seed106",
]  # fmt: skip
"""Nets that add, or nearly: what is done to them may leave that as it is."""
SCALES = [2.0**-140, 2.0**-126, 2.0**-60, 1e-6, 0.5, 0.999, 1.001, 2.0, 30.0, 1e3, 1e6, 2.0**60, 1e30]


def load(name):
    return Checkpoint.load(ROOT / "lab" / name)


def tensors_of(spec, theta_P):
    """θ's tensors as views of it, by name."""
    return {name: part[0] for name, part in spec.layout.split(theta_P[None]).items()}


MILD = ["mild"]
KINDS = ["mild", "scale", "scale", "tie", "round", "number", "zero"]


def changed(draws, spec, theta_P, kinds):
    """θ with a few of its tensors, rows or numbers made sharp, huge, nearly nothing or equal."""
    theta_P = theta_P.clone()
    parts = tensors_of(spec, theta_P)
    for _ in range(draws.choice([0, 1, 1, 1, 2, 3])):
        part = parts[draws.choice(sorted(parts))]
        rows = part if draws.random() < 0.5 else part[draws.randrange(len(part))].reshape(-1)
        kind = draws.choice(kinds)
        if kind == "mild":
            rows *= draws.choice([2.0, *[1 + draws.uniform(-1, 1) * 10 ** draws.uniform(-5, -2)] * 4])
        elif kind == "scale":
            rows *= draws.choice(SCALES) * draws.choice([1, -1, 1])
        elif kind == "tie":
            rows[...] = rows.flatten()[0]
        elif kind == "round":
            rows[...] = (rows * 4).round() / 4
        elif kind == "number":
            flat = rows.view(-1)
            flat[draws.randrange(len(flat))] = draws.choice(SCALES)
        else:
            rows.zero_()
    return theta_P


@st.composite
def nets(draw):
    """Draws, a spec of any family, and θ with changes: drawn, sharp, or those of a net that adds."""
    draws = random.Random(draw(st.integers(0, 2**63)))
    origin = draws.choice(["adds", "adds", "adds", "drawn", "sharp"])
    if origin == "adds":
        checkpoint = load(draws.choice(NAMES))
        spec, theta_P = checkpoint.spec, checkpoint.theta_P
    elif origin == "sharp":
        spec = draws.choice([spec for spec, *_ in SHARP.values()])
        theta_P = sharp(spec, 10 ** draws.uniform(1, 5), draws.uniform(0.2, 9))
    else:
        spec = draw(st.sampled_from(["split_subspace", "low_rank", "rope"]).flatmap(specs))
        theta_P = spec.initial(draws.randrange(1000)) * draws.choice([1.0, 1.0, 8.0, 64.0])
    return draws, spec, changed(draws, spec, theta_P, KINDS if draws.random() < 0.3 or origin == "drawn" else MILD)


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


def verdict_on(draws, spec, theta_P):
    """The verdict on a net, which nothing contradicts that is found here.

    Of a net that a search finds wrong, the digits of its pair are proved alone, and all of them of every eighth.
    """
    digits, program = draws.choice([1, 2, 10]), Program(spec, theta_P)
    found = wrong_pair(program, spec, draws, digits)
    is_whole = not found or draws.randrange(8) == 0
    if is_whole:
        proof = prove(spec, theta_P, ANY, digits=digits, limit_s=LIMIT_S)
    else:
        proof = proof_along(spec, theta_P, found, digits)
    for pair in proof.wrong:
        assert program.add(pair.a, pair.b) == pair.answer != pair.a + pair.b
    assert bool(proof.wrong) == (proof.verdict == COUNTEREXAMPLE)
    assert not (found and proof.verdict == PROVED)
    return proof.verdict, "found wrong" if found else "not found wrong"


def verdicts_on(chunk, count):
    """How often each verdict comes, of a chunk's nets."""
    verdicts = Counter()

    @seed(chunk)
    @settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(nets())
    def each(net):
        verdicts[verdict_on(*net)] += 1

    each()
    return verdicts


def test_a_search_finds_nothing_else_than_what_is_proved():
    assert sum(verdicts_on(0, 6).values()) >= 6


@pytest.mark.full
@pytest.mark.parametrize("chunk", range(1, NETS // CHUNK + 1))
def test_a_search_finds_nothing_else_than_what_is_proved_of_many(chunk):
    assert sum(verdicts_on(chunk, CHUNK).values()) >= CHUNK
