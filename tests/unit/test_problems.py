"""Sampled problems, one table of recipes, seeds and steps for torch and the engine;
sequences and the selection problems; a seed's own errors again.
"""

import hashlib
import math

import pytest
import torch

from model import add, adderboard
from tests import needs_compiler
from tests.banks import ADDER_P, SPEC, Lesson, engine_tokens
from trainer.data import problems
from trainer.data.hard_examples import CAPACITY, COUNT, OPERANDS, POOL, pool_seed
from trainer.engine import native
from trainer.engine.native import EngineBackend
from trainer.engine.torch_backend import TorchBackend
from trainer.recipe import Recipe
from trainer.step import step
from trainer.step.schedule import hyper_of

# Streams

POINTS = {"carry_shares": ((0, 0.2), (3_000, 0.2), (6_000, 0.5), (20_000, 0.0))}
KINDS = {"carry_shares": ((100, 0.1, 0.2, 0.3, 0.0), (300, 0.3, 0.0, 0.1, 0.4)), "mixed_lengths": 0.3}
TWO_DIGITS = {"carry_mix": 0.5, "curriculum": ((2, 50),), "mixed_lengths": 1.0}
STREAMS = {
    "start": ({}, 777, 0, [(6, 5), (38, 6)], "e522d80004f7"),
    "fading": ({}, 777, 20_000, [(604, 920), (8752872306, 9846403336)], "b7fb133d159b"),
    "points": (POINTS, 3, 4_000, [(6444, 6311), (956283, 287928)], "72aa3d7e6564"),
    "kinds": (KINDS, 1 << 40, 250, [(7, 5), (8, 7)], "773193d5f6de"),
    "two digits": (TWO_DIGITS, 9, 7, [(9, 1), (9, 4)], "3a46dfdfbc78"),
    "one digit": ({"carry_mix": 1.0, "curriculum": ((1, 50),)}, 5, 7, [(6, 17), (5, 7)], "3f61532ef700"),
}
"""Name -> recipe, data seed, step, the first problems and a digest of all.

They must never change: a changed stream makes every published (configuration, seed) pair mean something else.
"""
BATCH = 200
every_stream = pytest.mark.parametrize("name", STREAMS)


def row_of(name):
    fields, data_seed, at, *_ = STREAMS[name]
    recipe = Recipe(batch=BATCH, **fields)
    state = {"data_seed": torch.tensor([data_seed]), "step": torch.tensor([at]), "mix_scale": torch.ones(1)}
    return recipe, state, hyper_of([recipe], SPEC.layout)


@every_stream
def test_the_stream_never_changes(name):
    _, state, hyper = row_of(name)
    a, b = step.draw(state, hyper, BATCH, 1)
    pairs, (*_, first, digest) = pairs_of(a[0, 0], b[0, 0]), STREAMS[name]
    assert pairs[: len(first)] == first and hashlib.sha256(repr(pairs).encode()).hexdigest()[:12] == digest


def lesson_of(programs, state, hyper):
    """The engine's tape of the schedules, at a step."""
    given = {**hyper, **state}
    numbers = [given[n].flatten() if n in given else torch.zeros(math.prod(s)) for n, s in programs.shapes.items()]
    row = torch.cat([t.float() for t in numbers]).numpy()
    _, share, mixed, single, chain, place, *counts = native.run(programs.tapes[0], row).tolist()
    digits, by_kind = map(int, counts)
    return Lesson.some(
        data_seed=int(state["data_seed"]), step=int(state["step"]), carry_mix=share, mixed_lengths=mixed,
        single=single, chain=chain, place=place, digits=digits, by_kind=by_kind,
    )  # fmt: skip


@needs_compiler
@every_stream
def test_the_engine_makes_the_same_tokens(name):
    recipe, state, hyper = row_of(name)
    programs = EngineBackend(SPEC, recipe)
    a, b = step.draw(state, hyper, BATCH, 1)
    expected = step.tokens_of(SPEC, a, b)[0, 0]
    assert torch.equal(engine_tokens(programs, lesson_of(programs, state, hyper)), expected)


def test_powers_are_exact():
    for base in range(2, 17):
        exact = [base**n for n in range(21) if base**n < 2**53]
        assert problems._power(base, torch.arange(len(exact))).long().tolist() == exact


# Selection problems and sequences

LARGEST = 9_999_999_999


def pairs_of(a, b):
    return list(zip(a.long().tolist(), b.long().tolist(), strict=True))


def test_the_selection_problems_never_change_and_none_is_official():
    a, b = problems.selection()
    pairs = pairs_of(a[0], b[0])
    assert pairs[:3] == [(5426207727, 1929135910), (3323739981, 7536909021), (1013518865, 1027188691)]
    assert int((a * 3 + b).long().sum()) == 100308096150281
    assert len(set(pairs)) == 5_000 and all(0 <= n <= LARGEST for pair in pairs for n in pair)
    assert not set(pairs) & set(adderboard.official_pairs())


# A seed's own errors


def some_thetas():
    """Of a seed that has grokked, as it is and moved: nothing wrong, something and much."""
    noise = torch.randn(SPEC.params, generator=torch.Generator().manual_seed(1))
    return torch.stack([ADDER_P * (1 + x * noise) for x in (0, 0.01, 0.03)])


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_compiler)])
def test_errors_are_what_decoding_gets_wrong_in_a_stream_of_its_own(compiled):
    recipe = Recipe(targeted=0.5)
    programs = EngineBackend(SPEC, recipe) if compiled else TorchBackend(SPEC, recipe, "cpu")
    state = {"data_seed": torch.tensor([1, 2, 3]), "step": torch.full((3,), 50_000), "mix_scale": torch.ones(3)}
    state["theta"] = some_thetas()
    hyper = hyper_of([recipe] * 3, SPEC.layout)
    found = step.find_hard_examples(SPEC, state, hyper, programs.is_wrong)
    a, b = (t[0] for t in step.draw({**state, "data_seed": pool_seed(state["data_seed"])}, hyper, POOL, 1))
    train, _ = step.draw(state, hyper, POOL, 1)
    assert not any(torch.isin(a[s], train[0, s]).double().mean() > 0.01 for s in range(3))
    for s in range(3):
        known = {(int(x), int(y)) for x, y in found[OPERANDS][s, :, : int(found[COUNT][s])].T}
        looked = [(int(x), int(y)) for x, y in zip(a[s, :300], b[s, :300], strict=True)]
        sums = add(SPEC, state["theta"][s], *map(list, zip(*looked, strict=True)))
        wrong = [p for p, its in zip(looked, sums, strict=True) if its != sum(p)]
        assert set(wrong[:CAPACITY]) <= known and not known & (set(looked) - set(wrong))
    assert found[COUNT][0] == 0 < found[COUNT][1] and found[COUNT][2] == CAPACITY
