"""The low_rank family's kernel against its torch twin in float64, for every rung and tie, and in a bank."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from model import preset
from model.families.low_rank.spec import SHARED, TIES, LowRank
from tests.specs import any_tokens, some_theta, some_tokens
from trainer import Bank, Pair, Recipe, Seed
from trainer.engine import native, operator
from trainer.engine.native import EngineBackend
from trainer.files.installed import missing_for_compilation
from trainer.step import step

NAMES = ("777p", "763p", "582p", "512p", "491p", "456p", "311p", "262p")
SPECS = {name: preset(name) for name in NAMES}
SPECS |= {f"582p {tie}": replace(preset("582p"), tie_qkv=tie) for tie in (*TIES[1:], *SHARED)}
SPECS |= {f"763p {tie}": replace(preset("763p"), tie_qkv=tie) for tie in TIES[1:]}
SPECS |= {
    "narrow": LowRank(width=2, ffn=1, qkv_rank=3, ffn_rank=3, tie_qkv="shareB", rms_norm=True),
    "thin": replace(preset("512p"), qkv_rank=1, out_rank=1, ffn_rank=1, tie_qkv="qk", no_eos=True),
    "wide": LowRank(width=16, ffn=20, qkv_rank=7, ffn_rank=5, tie_qkv="shareB_tieQK", rms_norm=True),
}
pytestmark = pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
PROBLEMS = 40  # two blocks and a half
ONE_A_SHAPE = {tuple(s.kernel().shape.values()): s for s in SPECS.values()}
every_shape = pytest.mark.parametrize("spec", ONE_A_SHAPE.values(), ids=str)


@cache
def native_of(spec, batch=PROBLEMS):
    return EngineBackend(spec, Recipe(batch=batch))


def flat(wide):
    """Wide tensors of one seed as the kernel reads them [N]."""
    return torch.cat([t[0].flatten() for t in wide.values()])


def loss_of(spec, wide_N, tokens_TB):
    """The kernel's loss and gradient [N]."""
    wide_N = wide_N.detach().requires_grad_()
    loss = operator.loss(spec, wide_N, tokens_TB)
    return loss.item(), torch.autograd.grad(loss, wide_N)[0]


def twin(spec, wide, tokens_STB, dtype):
    """Loss and gradient by name of the torch twin."""
    wide = {name: t.detach().to(dtype).requires_grad_() for name, t in wide.items()}
    logits = spec.apply(wide, tokens_STB[:, :-1], first=spec.prompt - 1)
    loss = step.cross_entropy(logits, tokens_STB[:, spec.prompt :]).mean()
    return loss.item(), dict(zip(wide, torch.autograd.grad(loss, list(wide.values())), strict=True))


def assert_same_gradient(spec, wide, tokens_STB):
    """Each entry within 1e-5 of the largest of all, or eight times torch's rounding."""
    loss, made_N = loss_of(spec, flat(wide).float(), tokens_STB[0])
    expected_loss, expected = twin(spec, wide, tokens_STB, torch.float64)
    expected_N = flat(expected)
    assert all(t.abs().max() > 0 for t in expected.values())
    within = tolerance(expected_N, flat(twin(spec, wide, tokens_STB, torch.float32)[1]))
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    wrong = {
        name: error
        for name, t in named(wide, made_N.double() - expected_N).items()
        if not (error := float(t.abs().max())) < within
    }
    assert not wrong, (wrong, within)


def tolerance(expected_N, rounded_N):
    """Small variances make a norm's gradient large, and its rounding: torch's in float32 says how much."""
    most, rounding = float(expected_N.abs().max()), float((rounded_N - expected_N).abs().max())
    assert rounding < 1e-3 * most
    return max(1e-5 * most, 8 * rounding)


def named(wide, numbers_N):
    """Parts of what a kernel gives, by the wide tensors' names."""
    return dict(zip(wide, numbers_N.split([t[0].numel() for t in wide.values()]), strict=True))


def random_wide(spec, scale=0.5):
    """Wide tensors that no θ makes."""
    gen = torch.Generator().manual_seed(spec.params)
    made = spec.expand(some_theta(spec))
    return {
        name: t + scale * torch.randn(t.shape, generator=gen) / t.shape[-1] ** 0.5 for name, t in made.items()
    }


def random_sequences(spec):
    """Any token anywhere, the targets included."""
    tokens = any_tokens(spec, batch=PROBLEMS)
    return torch.cat([tokens, tokens[:, :1].roll(1, 2)], dim=1)


@every_shape
def test_gradient_for_random_wide_tensors_and_any_tokens(spec):
    assert_same_gradient(spec, random_wide(spec), random_sequences(spec))


@pytest.mark.parametrize("count", [1, 16, 17])
def test_lanes_without_a_problem_do_not_count(count):
    spec = preset("456p")
    assert_same_gradient(spec, random_wide(spec), some_tokens(spec, batch=count))


@every_shape
def test_measures_are_those_of_evaluate(spec):
    """On 5,000 problems, which leave half of the last block empty, for θ that are right about some digits."""
    theta = some_theta(spec, 3)
    made = native_of(spec).evaluate(theta)
    problems = step.tokens_of(spec, *native.selection())
    expected = step.evaluate(spec, theta, problems)
    torch.testing.assert_close(made["loss"], expected["loss"], rtol=1e-5, atol=0)
    for name in ("exact", "token"):  # two logits may be equal but for rounding
        torch.testing.assert_close(made[name], expected[name], rtol=0, atol=1e-4)
    assert (made["token"] > 0.02).any()


@every_spec
def test_gradient_of_theta(spec):
    """Through the tape of expand and the kernel, against float64 autograd through everything."""
    theta, tokens = some_theta(spec), some_tokens(spec, batch=PROBLEMS)
    expected_P, rounded_P = (
        gradient_of_theta(spec, theta.to(t), tokens) for t in (torch.float64, torch.float32)
    )
    engine, tape = native_of(spec), native_of(spec).tapes[1]
    row = torch.zeros(tape.inputs)
    row[engine.places["theta"]] = theta[0]
    wide_N = torch.from_numpy(native.run(tape, row.numpy()))
    torch.testing.assert_close(wide_N.double(), flat(spec.expand(theta.double())), rtol=1e-5, atol=1e-5)
    _, pull_N = loss_of(spec, wide_N, tokens[0])
    made = torch.from_numpy(native.gradient(tape, row.numpy(), pull_N.numpy()))[engine.places["theta"]]
    assert float((made - expected_P).abs().max()) < tolerance(expected_P, rounded_P)


def gradient_of_theta(spec, theta_SP, tokens_STB):
    theta_SP = theta_SP.detach().requires_grad_()
    return torch.autograd.grad(step.loss(spec, theta_SP, tokens_STB).sum(), theta_SP)[0][0]


@pytest.mark.parametrize("name", ["763p", "456p", "262p"])
def test_a_bank_is_the_eager_one(name):
    """A few steps of three seeds: θ within what rounding makes of it, and the curves."""
    recipe = Recipe(steps=6, batch=PROBLEMS, eval_every=3, hold=0, warmup=2, lr=0.001)
    pairs = [Pair(recipe, Seed.of(n)) for n in range(3)]
    banks = [Bank(preset(name), pairs, compiled=compiled, futility=None) for compiled in (True, False)]
    assert isinstance(banks[0].programs, EngineBackend)
    for bank in banks:
        while bank.advance():
            pass
    for n in range(3):
        ours, eager = (bank.result(n) for bank in banks)
        assert not torch.equal(ours.theta_P, preset(name).initial(n))
        torch.testing.assert_close(ours.curve_EM, eager.curve_EM, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours.theta_P, eager.theta_P, rtol=0, atol=2e-4)
