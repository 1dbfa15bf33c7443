"""Sampled problems: one table of recipes, seeds and steps, for torch, the engine and the formula in integers."""

import math

import pytest
import torch

from model import preset
from trainer.data.hard_examples import BatchParts
from trainer.engine import native
from trainer.engine.native import EngineBackend
from trainer.files.installed import missing_for_compilation
from trainer.recipe import Recipe
from trainer.step import schedule, step
from trainer.step.schedule import hyper_of

POINTS = {
    "carry_shares": ((0, 0.2), (3_000, 0.2), (6_000, 0.5), (20_000, 0.0)),
    "carry_lengths": ((0, 1, 2), (1_000, 4, 10)),
}
KINDS = {"carry_shares": ((100, 0.1, 0.2, 0.3, 0.0), (300, 0.3, 0.0, 0.1, 0.4)), "mixed_lengths": 0.3}
STREAMS = {
    "start": ({}, 777, 0, [(6, 5), (38, 6), (1, 1), (999, 57), (999, 63), (993, 8), (63, 70), (1, 3)]),
    "fading": ({}, 777, 20_000, [(604, 920), (8752872306, 9846403336), (2121330904, 3410113711), (4, 10)]),
    "points": (POINTS, 3, 4_000, [(64443, 63110), (956283, 287928), (717025, 698026), (531111, 542443)]),
    "kinds": (KINDS, 1 << 40, 250, [(7, 5), (8, 7), (383, 700), (929, 899), (991, 13), (94, 14)]),
    "one digit": ({"carry_mix": 1.0, "curriculum": ((1, 50),)}, 5, 7, [(6, 17), (5, 7), (6, 5), (3, 10)]),
    "swapped": ({"swapped": 0.5}, 2, 9, [(5, 9), (949, 999), (30, 90), (999, 432), (207, 908)]),
}
"""Name -> recipe, data seed, step and the first problems. They must never change: a changed stream makes every
published (configuration, seed) pair mean something else."""
BATCH = 200
every_stream = pytest.mark.parametrize("name", STREAMS)
MASK = (1 << 64) - 1
GOLDEN, STREAM = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03


def row_of(name):
    fields, data_seed, at, first = STREAMS[name]
    recipe = Recipe(batch=BATCH, **fields)
    state = {"data_seed": torch.tensor([data_seed]), "step": torch.tensor([at]), "mix_scale": torch.ones(1)}
    return recipe, state, hyper_of([recipe]), first


def drawn(name):
    recipe, state, hyper, first = row_of(name)
    a, b = step.draw(state, hyper, BATCH, 1, BatchParts.of(recipe))
    return list(zip(a[0, 0].long().tolist(), b[0, 0].long().tolist(), strict=True)), first


@every_stream
def test_the_stream_never_changes(name):
    pairs, first = drawn(name)
    assert pairs[: len(first)] == first


def mix(word):
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
    return word ^ (word >> 31)


def low_digits(share, count):
    """A number of `count` digits, uniform in 0..4: the base-5 digits of an integer, read in base 10."""
    return int("".join(str(int(share * 5**count) // 5**i % 5) for i in range(count - 1, -1, -1)))


def problem(words, digits, carry_mix, mixed, kinds):
    """A problem from its four words, as sections 3.2 and 3.5 of the 57p paper and its code say."""
    word_a, word_b, word_kind, word_extra = words
    u, v, which = (word_a >> 11) * 2.0**-53, (word_b >> 11) * 2.0**-53, (word_kind >> 32) * 2.0**-32
    e, f, g = (((word_extra >> low) & 0x1FFFFF) * 2.0**-21 for low in (0, 21, 42))
    if which >= carry_mix:
        is_mixed = ((word_kind >> 2) & 0x3FFFFFFF) * 2.0**-30 < mixed
        limit = 10 ** (1 + int(e * digits) if is_mixed else digits)
        return int(u * limit), int(v * limit)
    kind = sum(which >= share for share in kinds[1:4]) if kinds[0] else word_kind & 3
    n = int(kinds[4]) + int(e * (kinds[5] - kinds[4] + 1))
    place = 10 ** int(f * n)
    if kind == 0:
        return low_digits(u, n) + 5 * place, low_digits(v, n) + 5 * place
    if kind == 1:
        return 10**n - 1, 1 + int(v * min(10**n, 1_000))
    if kind == 2:
        least = 10 ** (n - 1)
        return least + int(u * (10**n - least)), (1 + int(g * 9)) * place
    return 10**n - 1 - int(g * 10), 1 + int(v * 20)


@pytest.mark.parametrize("name", [name for name in STREAMS if name != "swapped"])
def test_it_is_the_formula_in_integers(name):
    _, state, hyper, _ = row_of(name)
    at = state["step"]
    kinds = [t.item() for t in schedule.kinds(at, hyper, torch.ones(1))]
    digits, share = schedule.digits(at, hyper).item(), schedule.carry_mix(at, hyper).item()
    mixed = hyper["mixed_lengths"].item()
    key = mix((mix((int(state["data_seed"]) * GOLDEN + STREAM) & MASK) + int(at) * GOLDEN) & MASK)
    words = [[mix((key + (4 * p + w + 1) * GOLDEN) & MASK) for w in range(4)] for p in range(BATCH)]
    assert drawn(name)[0] == [problem(w, digits, share, mixed, kinds) for w in words]


def lesson_of(programs, state, hyper):
    """The engine's tape of the schedules, at a step."""
    given = {**hyper, **state}
    numbers = [
        given[n].flatten() if n in given else torch.zeros(math.prod(s)) for n, s in programs.shapes.items()
    ]
    row = torch.cat([t.float() for t in numbers]).numpy()
    _, share, mixed, single, chain, place, *counts = native.run(programs.tapes[0], row).tolist()
    digits, by_kind, fewest, most = map(int, counts)
    return native.Lesson.some(
        data_seed=int(state["data_seed"]), step=int(state["step"]), carry_mix=share, mixed_lengths=mixed,
        single=single, chain=chain, place=place, digits=digits, by_kind=by_kind, fewest=fewest, most=most,
        swapped=hyper["swapped"].item(),
    )  # fmt: skip


@pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")
@every_stream
def test_the_engine_makes_the_same_tokens(name):
    recipe, state, hyper, _ = row_of(name)
    programs, spec = EngineBackend(preset("57p"), recipe), preset("57p")
    a, b = step.draw(state, hyper, BATCH, 1, BatchParts.of(recipe))
    expected = step.tokens_of(spec, a, b)[0, 0]
    assert torch.equal(programs.tokens(lesson_of(programs, state, hyper)), expected)
