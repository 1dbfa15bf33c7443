"""What torch compiles for a GPU does what the eager programs do; tried on a CPU, in `make test-full`."""

from types import SimpleNamespace

import pytest
import torch

from model import make_spec, preset
from tests.banks import finish
from trainer import Bank, Pair, Recipe, Seed
from trainer.engine.torch_backend import TorchBackend
from trainer.files.installed import missing_for_compilation

LACKING = missing_for_compilation(by_torch=True)
pytestmark = [
    pytest.mark.compiled,
    pytest.mark.full,
    pytest.mark.skipif(bool(LACKING), reason=f"needs {LACKING}"),
]
RANKS = dict.fromkeys(("pos_rank", "qkv_rank", "out_rank", "ffn_rank"), 1)
TINY = make_spec(family="low_rank", width=2, ffn=2, rms_norm=True, **RANKS)
SLOTS = 4
KINDS = [pytest.param((TINY, 32, 1e-3), id="tiny")] + [
    pytest.param((preset(name), *rest), id=name)
    for name, *rest in (("57p", 256, 1e-3), ("170p", 64, 1e-3), ("456p", 64, 1e-2))
]
"""Spec, batch, and how far rounding may take a loss within 20 steps. A circle, another table, low rank."""


def warmed_up(programs, bank):
    """Drawn once without AVX-512: GCC 12 makes a loop without end of what Inductor writes for that. A GPU has
    nothing of it.
    """
    with torch._inductor.config.patch({"cpp.simdlen": 1}):
        programs._draw(bank.state, bank.hyper)
    programs.warm_up(bank.state, bank.hyper)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    """A spec, a recipe and a bank's compiled programs, made once.

    The tiny model's problems are drawn eagerly: drawing is the same for all, and a third of compiling.
    """
    spec, batch, tolerance = request.param
    recipe = Recipe(steps=40, batch=batch, eval_every=20, warmup=20, curriculum=((3, 15),))
    if spec == TINY:
        programs = TorchBackend(spec, recipe, "cpu", compiled=True)
        programs._draw = TorchBackend(spec, recipe, "cpu", compiled=False)._draw
    else:
        programs = TorchBackend(spec, recipe, "cpu", compiled=True)
        bank = Bank(spec, [Pair(recipe, Seed.of(s)) for s in range(SLOTS)], compiled=False)
        warmed_up(programs, bank)
    return SimpleNamespace(spec=spec, recipe=recipe, programs=programs, tolerance=tolerance)


def make(kind, seeds, compiled=True, **changes):
    """A bank of this kind, on its programs or eager."""
    recipe = Recipe(**{**kind.recipe.as_dict(), **changes})
    bank = Bank(kind.spec, [Pair(recipe, Seed.of(s)) for s in seeds], slots=SLOTS, compiled=False)
    bank.programs = kind.programs if compiled else bank.programs
    return bank


@pytest.fixture(scope="module")
def expected(kind):
    """θ of seeds 0 to 3 at the end."""
    return finish(make(kind, range(SLOTS))).state["theta"]


@pytest.mark.parametrize(
    "seeds", [[3, 2, 1, 0], [3, 90, 0, 91], [2]], ids=["other slots", "other neighbours", "short bank"]
)
def test_theta_is_bitwise_the_same_in_any_company_and_slot(kind, expected, seeds):
    theta = finish(make(kind, seeds)).state["theta"]
    common = [(slot, seed) for slot, seed in enumerate(seeds) if seed < SLOTS]
    assert common and all(torch.equal(theta[slot], expected[seed]) for slot, seed in common)


def test_training_losses_are_the_eager_ones(kind):
    eager, compiled = make(kind, range(SLOTS), compiled=False), make(kind, range(SLOTS))
    tokens_KSTB = eager.programs.make_block(eager.state, eager.hyper)
    for tokens_STB in tokens_KSTB:
        eager.state, expected = eager.programs.train_step(eager.state, eager.hyper, tokens_STB)
        compiled.state, loss = kind.programs.train_step(compiled.state, compiled.hyper, tokens_STB)
        torch.testing.assert_close(loss, expected, rtol=kind.tolerance, atol=kind.tolerance)
    assert len(tokens_KSTB) == 20 and compiled.state["step"].tolist() == [20] * SLOTS
    assert (compiled.state["theta"] - make(kind, range(SLOTS)).state["theta"]).abs().max() > 0.01


def test_problems_and_measures_are_the_eager_ones(kind):
    """Problems bit for bit."""
    for at in (0, 20_000, 50_000) if kind.spec != TINY else ():  # its problems are drawn eagerly
        bank = make(kind, [777, 0, 1 << 40, 2], compiled=False, steps=60_000)
        bank.state["step"] += at
        problems = bank.programs.make_block(bank.state, bank.hyper)
        assert torch.equal(kind.programs.make_block(bank.state, bank.hyper), problems)
    bank = finish(make(kind, range(SLOTS), compiled=False))
    expected = bank.programs.evaluate(bank.state["theta"])
    for name, measured in kind.programs.evaluate(bank.state["theta"]).items():
        torch.testing.assert_close(measured, expected[name], rtol=1e-4, atol=3e-4)


def answered(spec, theta_P, tokens_1TB):
    """The same problems with the answers that θ gives, and how clear each problem's tokens are [B]."""
    tokens_1TB = tokens_1TB.clone()
    for _ in range(tokens_1TB.shape[1] - spec.prompt):  # a token is right once all before it are
        logits = torch.stack(spec.forward(theta_P[None], tokens_1TB[:, :-1], first=spec.prompt - 1))
        best = logits.topk(2, dim=0)
        tokens_1TB[:, spec.prompt :] = best.indices[0]
    return tokens_1TB, (best.values[0] - best.values[1]).amin((0, 1))


def test_a_model_that_is_always_right_measures_exactly_one(kind, monkeypatch):
    """Grokking is `exact == 1.0`: the mean of 5,000 ones must not be rounded."""
    draw = torch.Generator().manual_seed(3)
    noise = torch.randn(SLOTS, kind.spec.params, generator=draw)
    theta = noise + torch.stack([2 * kind.spec.initial(s) for s in range(SLOTS)])
    problems, clear_B = answered(kind.spec, theta[0], kind.programs.problems)
    sure = (clear_B > 1e-3).nonzero().flatten()  # of these alone, so that rounding decides nothing
    problems = problems[..., sure.repeat(1 + 5_000 // len(sure))[:5_000]].contiguous()
    monkeypatch.setattr(kind.programs, "problems", problems)
    measured = kind.programs.evaluate(theta)
    assert len(sure) > 1_000 and measured["exact"][0] == measured["token"][0] == 1.0
    assert (measured["exact"][1:] < 1.0).all()
    problems[0, kind.spec.prompt + 10, 17] += 1  # one digit of one problem
    assert kind.programs.evaluate(theta)["exact"][0] == pytest.approx(1 - 1 / 5_000, abs=1e-6)


def test_nothing_is_compiled_again(kind, expected, tmp_path):
    """Refilled and idle slots, other recipes, a saved state, which goes on to the bit: one program."""
    with torch._dynamo.config.patch(error_on_recompile=True):
        before = dict(torch._dynamo.utils.counters["stats"])
        for recipe in (
            {},
            {"lr": 0.001, "clip": 0.1, "wd_drop": 0.5, "mixed_lengths": 0.5},
            {"curriculum": ((2, 5),), "carry_mix": 0.0, "fade_token": 0.1, "fade_token_end": 0.2},
        ):
            bank = finish(make(kind, range(SLOTS + 2), **recipe))
            assert recipe or {bank.result(n).steps for n in range(SLOTS + 2)} == {40}
        first, again = make(kind, range(SLOTS)), make(kind, range(SLOTS))
        first.advance()
        first.save(tmp_path / "bank.state")
        assert again.load(tmp_path / "bank.state")
        assert torch.equal(finish(again).state["theta"], expected)
        assert torch._dynamo.utils.counters["stats"] == before


def test_another_bank_takes_the_programs_from_the_cache(kind):
    """One of a fresh process does so too (tests/unit/test_cache.py); here the compiler has but forgotten."""
    if kind.spec == TINY:
        pytest.skip("has no program for drawing")
    torch._dynamo.reset()
    bank = Bank(kind.spec, [Pair(kind.recipe, Seed.of(1))], slots=SLOTS, compiled=False)
    again = TorchBackend(kind.spec, kind.recipe, "cpu", compiled=True)
    warmed_up(again, bank)
    assert again.cache_misses == 0 <= kind.programs.cache_misses <= 4
