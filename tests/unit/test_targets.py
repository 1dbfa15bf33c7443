"""Which problems are asked beside those of the lessons: swapped ones, and a seed's own errors."""

import json
from pathlib import Path

import pytest
import torch

from model import add
from tests.banks import EVERY, SPEC, finish, make, pair
from trainer import Recipe
from trainer.data.hard_examples import CAPACITY, COUNT, OPERANDS, POOL, BatchParts, pool_seed
from trainer.engine.native import EngineBackend, Lesson
from trainer.engine.torch_backend import TorchBackend
from trainer.files.installed import missing_for_compilation
from trainer.step import step
from trainer.step.schedule import hyper_of

needs_compiler = pytest.mark.skipif(
    bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}"
)
SEEDS = (1, 2, 3)


def state_of(errors=None, at=9):
    state = {"data_seed": torch.tensor(SEEDS), "step": torch.full((3,), at), "mix_scale": torch.ones(3)}
    return state | (errors or {})


def some_errors():
    draw = torch.Generator().manual_seed(0)
    found = torch.randint(0, 10**10, (3, 2, CAPACITY), generator=draw).double()
    return {OPERANDS: found, COUNT: torch.tensor([0, 1, CAPACITY])}


def drawn(batch=256, errors=None, **fields):
    recipe = Recipe(**fields)
    return step.draw(state_of(errors), hyper_of([recipe] * 3), batch, 2, BatchParts.of(recipe))


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_as_many_change_places_as_the_share_says(share):
    (a, b), (x, y) = drawn(4_096), drawn(4_096, swapped=share)
    turned = (x == b) & (y == a)
    assert ((x == a) & (y == b) | turned).all()
    for s in range(3):
        found = turned[:, s][a[:, s] != b[:, s]].double().mean()
        assert found.item() == pytest.approx(share, abs=0.02)


def test_errors_take_their_share_each_as_often_and_only_a_seeds_own():
    errors = some_errors()
    (a, b), (x, y) = drawn(8_192), drawn(8_192, errors=errors, targeted=0.25)
    assert torch.equal(x[:, 0], a[:, 0]) and torch.equal(y[:, 0], b[:, 0]), "who has none is asked none"
    own = (x[:, 1] == errors[OPERANDS][1, 0, 0]) & (y[:, 1] == errors[OPERANDS][1, 1, 0])
    assert own.double().mean().item() == pytest.approx(0.25, abs=0.01)
    assert torch.equal(x[:, 1][~own], a[:, 1][~own])
    which = (x[:, 2, :, None] == errors[OPERANDS][2, 0]) & (y[:, 2, :, None] == errors[OPERANDS][2, 1])
    assert which.any(-1).double().mean().item() == pytest.approx(0.25, abs=0.01)
    counts = which.sum((0, 1))
    assert counts.min() > 30 and counts.max() < 110, "64 a problem in the mean"


@needs_compiler
def test_the_engine_asks_what_torch_asks():
    errors = some_errors()
    for fields in ({"swapped": 0.3}, {"targeted": 0.4}, {"swapped": 0.5, "targeted": 0.9}):
        programs = EngineBackend(SPEC, Recipe(batch=40, **fields))
        expected = step.tokens_of(SPEC, *drawn(40, errors, **fields))
        for s, seed in enumerate(SEEDS):
            pointers = [errors[OPERANDS][s, n].numpy().ctypes.data for n in (0, 1)]
            shares = [Recipe(**fields).swapped, Recipe(**fields).targeted]
            shares = [torch.tensor(x).item() for x in shares]  # as float32 has them
            mix = torch.tensor(0.8).item()
            lesson = Lesson.some(
                data_seed=seed, step=9, carry_mix=mix, digits=3, fewest=1, most=3, swapped=shares[0],
                targeted=shares[1], errors=int(errors[COUNT][s]), error_a=pointers[0], error_b=pointers[1],
            )  # fmt: skip
            assert torch.equal(programs.tokens(lesson), expected[0, s]), (fields, seed)


def some_thetas():
    """Of a seed that has grokked, as it is and moved: nothing wrong, something and much."""
    kept = json.loads((Path(__file__).parents[1] / "data/57p-seed777.json").read_text())
    theta = torch.tensor(kept["theta"])
    noise = torch.randn(SPEC.params, generator=torch.Generator().manual_seed(1))
    return torch.stack([theta, theta * (1 + 0.01 * noise), theta * (1 + 0.03 * noise)])


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_compiler)])
def test_errors_are_what_decoding_gets_wrong_in_a_stream_of_its_own(compiled, monkeypatch):
    recipe = Recipe(targeted=0.5)
    programs = EngineBackend(SPEC, recipe) if compiled else TorchBackend(SPEC, recipe, "cpu", False)
    state = state_of(at=50_000) | {"theta": some_thetas()}
    hyper = hyper_of([recipe] * 3)
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


@needs_compiler
@pytest.mark.usefixtures("few_selection_problems")
def test_the_engine_trains_as_torch_does():
    fields = {"targeted": 0.5, "swapped": 0.5, "steps": 4 * EVERY, "warmup": 3}
    pairs = [pair(s, **fields) for s in (1, 2)]
    engine, eager = make(pairs), make(pairs, compiled=False)
    for _ in range(3):
        engine.advance(), eager.advance()
        torch.testing.assert_close(engine.state["theta"], eager.state["theta"], rtol=2e-3, atol=3e-3)
        assert torch.equal(engine.state[OPERANDS], eager.state[OPERANDS])
    assert engine.state[COUNT].tolist() == [CAPACITY, CAPACITY]
    plain = finish(make([pair(1, steps=4 * EVERY, warmup=3)])).result(0)
    assert not torch.equal(finish(engine).result(0).theta_P, plain.theta_P)
