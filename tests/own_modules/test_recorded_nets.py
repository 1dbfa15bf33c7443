"""Ordinary modules by their tapes: they have torch's loss and gradient, and bits that depend on nothing."""

import ctypes
import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from model import preset
from model.spec import Choice, Kernel
from own_modules.tapes import choice
from own_modules.tapes.recording import record
from tests import needs_compiler
from tests.arm import assert_same_there, needs_arm
from tests.banks import assert_alone_as_in_company, assert_is_eager
from tests.own_modules.recorded_nets import GPT_SMALL, MLP_97, NETS, PARITY, Gpt, Mlp, Wrapped
from tests.unit.test_native import KINDS
from trainer import MEASURES, Bank, Pair, Recipe, Seed
from trainer.engine import kernel, native
from trainer.engine.build import build, job_of
from trainer.engine.native import EngineBackend
from trainer.engine.torch_backend import TorchBackend
from trainer.files.installed import compiler_command
from trainer.recipe.teacher import Teacher
from trainer.step import step

pytestmark = needs_compiler
nets = pytest.mark.parametrize("spec", NETS.values(), ids=NETS)
BATCH = 40  # problems: two blocks of lanes and a half


LIMITS = {"MOST_TOKENS": "logits", "MOST_NUMBERS": "numbers", "MOST_REGISTERS": "intermediate results"}


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    """Whatever is faster."""
    for name in LIMITS:
        monkeypatch.setattr(choice, name, 10**9)


def some_tokens(spec, batch=BATCH):
    gen = torch.Generator().manual_seed(1)
    return torch.randint(spec.tokens, (1, spec.prompt + spec.answers, batch), generator=gen, dtype=torch.int32)


def some_theta(spec):
    gen = torch.Generator().manual_seed(2)
    return spec.initial(3) + 0.1 * torch.randn(spec.params, generator=gen)


def has_all_columns(spec):
    """Whether it is asked all that its task's answer is measured by."""
    return spec.answers == spec.task.answers


def gradient(spec, theta_P, tokens):
    return torch.func.grad(lambda t: step.loss(spec, t[None], tokens).sum())(theta_P)


@nets
def test_a_tape_has_the_loss_and_gradient_of_torch(spec):
    theta, tokens = some_theta(spec), some_tokens(spec)
    loss, slope = kernel.KernelLoss(spec, tokens).slope(theta.numpy())
    assert loss == pytest.approx(step.loss(spec, theta.double()[None], tokens).item(), rel=1e-6)
    exact = gradient(spec, theta.double(), tokens)
    apart = (torch.from_numpy(slope) - exact).abs().max() / exact.abs().max()
    assert apart < 1e-6
    assert (exact != 0).float().mean() > 0.5


@nets
def test_a_tape_answers_and_is_wrong_where_torch_is(spec):
    theta, tokens = some_theta(spec), some_tokens(spec, 200)
    engine, eager = EngineBackend(spec, Recipe(batch=16)), TorchBackend(spec, Recipe(batch=16), "cpu")
    measured, expected = (b.evaluate(theta[None], tokens) for b in (engine, eager))
    torch.testing.assert_close(measured["loss"], expected["loss"], rtol=1e-5, atol=0)
    for name in ("exact", "token")[: 1 + has_all_columns(spec)]:
        torch.testing.assert_close(measured[name], expected[name], rtol=0, atol=0.005)
    logits = kernel.KernelLoss(spec, tokens).logits(theta.numpy())
    found = torch.stack(spec.forward(theta.double()[None], tokens[:, :-1], spec.prompt - 1))[:, 0].movedim(0, 1)
    np.testing.assert_allclose(logits, found, rtol=0, atol=1e-5 * float(found.abs().max()))


def test_a_familys_own_net_is_recorded_as_its_kernel_computes_it():
    spec, tokens = preset("57p"), step.tokens_of(preset("57p"), *native.selection(count=BATCH))
    program = record(spec, native.constant_fold)
    ours = kernel.KernelLoss(spec, tokens)
    theta = spec.initial(1).numpy()
    theirs = kernel.KernelLoss(spec, tokens)
    theirs.library = native.library(*dataclasses.astuple(choice._kernel(spec, program)))
    (loss, slope), (expected, exact) = theirs.slope(theta), ours.slope(theta)
    assert loss == pytest.approx(expected, rel=1e-6)
    assert np.abs(slope - exact).max() < 1e-6 * np.abs(exact).max()


class Tokens(nn.Module):
    """A row of a table for each token, and what all have in common."""

    def __init__(self):
        super().__init__()
        self.token, self.head = nn.Embedding(12, 8), nn.Linear(8, 12)

    def forward(self, tokens):
        rows = self.rows(tokens)
        return self.head(rows + rows.mean(1, keepdim=True))


class Begins(Tokens):
    """The token before, and whether it is less: constants begin both."""

    def rows(self, tokens):
        first = torch.zeros_like(tokens[:, :1])
        before = self.token(torch.cat([first, tokens[:, :-1]], 1))
        rises = torch.cat([first == 1, tokens[:, :-1] < tokens[:, 1:]], 1)
        return torch.where(rises[..., None], before, -before)


class Wraps(Tokens):
    """From -1 on, the last row."""

    def rows(self, tokens):
        return self.token.weight[tokens - 1]


class Turns(Tokens):
    """By angles of its places, which are computed in double."""

    def rows(self, tokens):
        place = torch.arange(tokens.shape[1], dtype=torch.float64)[:, None]
        return self.token(tokens) * (place * 0.5 ** torch.arange(8)).cos().float()


@pytest.mark.parametrize("make", [Begins, Wraps, Turns])
def test_numbers_that_a_net_makes_of_tokens_and_places_are_torchs(make):
    spec = Wrapped(make=make)
    theta, tokens = some_theta(spec), some_tokens(spec)
    theta[0] = 5  # no row that begins
    loss, _ = kernel.KernelLoss(spec, tokens).slope(theta.numpy())
    assert loss == pytest.approx(step.loss(spec, theta[None], tokens).item(), rel=1e-5)


class Ties(Tokens):
    """All that bends is at its bend, at the first values."""

    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.token.weight)

    def rows(self, tokens):
        x = self.token(tokens)
        return F.relu(x) + x.abs() + x.clamp(min=0)


def test_slopes_at_ties_are_torchs():
    spec = Wrapped(make=Ties)
    theta, tokens = spec.initial(3), some_tokens(spec)
    _, slope = kernel.KernelLoss(spec, tokens).slope(theta.numpy())
    exact = gradient(spec, theta.double(), tokens)
    torch.testing.assert_close(torch.from_numpy(slope), exact.float(), rtol=1e-5, atol=1e-6)
    assert (spec.layout.split(exact[None])["token.weight"] != 0).any()


# Banks


def small(spec, seeds, **recipe):
    how = {"steps": 20, "batch": 24, "eval_every": 10, "warmup": 5, "hold": 0, **recipe}
    return Bank(spec, [Pair(Recipe(**how), Seed.of(s)) for s in seeds])


TAUGHT = preset("100p")
WORD = Teacher(TAUGHT, tuple((0.3 * TAUGHT.initial(5) + 0.1).tolist())).word


class Pupil(Wrapped, listed=False):
    """It reads the sequence of its teacher."""

    def sequence(self, x, y, z):
        return TAUGHT.sequence(x, y, z)


PUPIL = Pupil(
    make=lambda: Gpt(TAUGHT.tokens, 40, TAUGHT.tokens, 4, 8),
    vocabulary=TAUGHT.tokens,
    answers=TAUGHT.answers,
    decoded=TAUGHT.decoded,
    given=TAUGHT.prompt,
)
RECIPES = {
    "sums": (GPT_SMALL, {}),
    "bits": (PARITY, {}),
    "teacher": (PUPIL, {"teacher": WORD, "distill_alpha": 0.7}),
    "sgd, SAM, Grokfast": (GPT_SMALL, {"optimiser": "sgd", "sam_rho": 0.05, "grokfast_lambda": 2.0, "lr": 0.1}),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_bank_by_tapes_is_the_eager_one(name):
    spec, recipe = RECIPES[name]
    pairs = small(spec, range(3), **recipe).pairs
    measured = [n for n, name in enumerate(MEASURES) if name != "token" or has_all_columns(spec)]
    assert_is_eager(spec, pairs, curve=1e-3, theta=1e-3, measured=measured)


def test_theta_is_the_same_in_any_company_slot_and_number_of_threads():
    assert_alone_as_in_company(partial(small, GPT_SMALL))


# Bits


def slopes_on(spec, capability, folder):
    """The loss and gradient by a build for another kind of CPU."""
    made = native.kernel_of(spec)
    job = job_of(made.source, made.shape, made.folders, capability)
    library = build(job.command(compiler_command()), folder, f"{capability}-")
    library.kernel_train.restype = ctypes.c_float
    problems = kernel.KernelLoss(spec, some_tokens(spec))
    problems.library = library
    return problems.slope(some_theta(spec).numpy())


@pytest.mark.full
@pytest.mark.parametrize("name", NETS)
def test_every_kind_of_cpu_makes_the_same_bits(name, tmp_path):
    """Registers of 4, 8 and 16 lanes."""
    if len(KINDS) == 1:
        pytest.skip("this CPU is of one kind only")
    found = [slopes_on(NETS[name], kind.upper(), tmp_path) for kind in KINDS]
    assert len({loss for loss, _ in found}) == 1
    assert all(np.array_equal(found[0][1].view(np.int32), slope.view(np.int32)) for _, slope in found)


@needs_arm
@pytest.mark.full
@pytest.mark.usefixtures("few_selection_problems")
def test_neon_has_the_same_bits(tmp_path):
    bank = small(GPT_SMALL, (777, 1))
    slots = bank.backend.slots_of(bank.state, bank.hyper)
    assert_same_there(bank.backend, slots, 20, tmp_path, "-O1")


# What goes by torch


class Branches(Tokens):
    def forward(self, tokens):
        x = self.token(tokens)
        return self.head(x if x.sum() > 0 else -x)


class Drops(Branches):
    def forward(self, tokens):
        return self.head(F.dropout(self.token(tokens), 0.1))


class Rounds(Branches):
    def forward(self, tokens):
        return self.head(self.token((self.token(tokens).sum(-1) + 3).long()))


class Fills(Branches):
    """A tensor of its own, part by part."""

    def forward(self, tokens):
        x = torch.zeros(*tokens.shape, 8)
        x[..., 1] = self.token(tokens)[..., 0]
        return self.head(x)


class Reaches(Branches):
    """Beyond the table, which torch refuses."""

    def forward(self, tokens):
        return self.head(self.token(tokens + 5))


class Remembers(Branches):
    """What the call before it was, so that the tape is of another net."""

    def forward(self, tokens):
        self.calls = getattr(self, "calls", 0) + 1
        return self.head(self.token(tokens) * self.calls)


class Straight(Branches):
    """Signs, with the slope of what they are of."""

    def forward(self, tokens):
        x = self.token(tokens)
        return self.head(x + (torch.sign(x) - x).detach())


class Stops(Branches):
    """A part of which torch keeps no slope; a recorder, which keeps none of anything, sees no difference."""

    def forward(self, tokens):
        x = self.token(tokens)
        with torch.no_grad():
            scale = x.square().mean(-1, keepdim=True) + 1
        return self.head(x / scale)


class Equals(Branches):
    """At the first values both numbers are equal, where torch gives half of the slope to each."""

    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.token.weight)

    def forward(self, tokens):
        x = self.token(tokens)
        return self.head(torch.maximum(x, 3 * x))


class Halves(Branches):
    def forward(self, tokens):
        return self.head(self.token(tokens).half().float())


class Doubles(Branches):
    def forward(self, tokens):
        return self.head((self.token(tokens) * torch.ones(8, dtype=torch.float64)).float())


class Asks(Branches):
    def forward(self, tokens):
        if type(tokens) is not torch.Tensor:
            raise TypeError("of plain tensors alone\nand more")
        return self.head(self.token(tokens))


class Pads(Branches):
    """Its first row is not trained."""

    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(12, 8, padding_idx=0)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Branches, "_local_scalar_dense"),
        (Drops, "dropout, or another draw of random numbers, is not supported by the engine"),
        (Rounds, "a conversion from torch.float32 to torch.int64 is not supported by the engine"),
        (Fills, "copy_ to a tensor of known numbers"),
        (Reaches, "index out of range"),
        (Remembers, "the engine has other logits"),
        (Straight, "the engine has other gradients"),
        (Stops, "the engine has other gradients"),
        (Equals, "the engine has other gradients"),
        (Halves, "torch.float16 is not supported by the engine"),
        (Doubles, "torch.float64 is not supported by the engine"),
        (Asks, "torch: TypeError: of plain tensors alone"),
        (Pads, "embedding with padding_idx or scale_grad_by_freq is not supported by the engine"),
    ],
)
def test_what_tapes_do_not_have_is_named_and_goes_by_torch(make, why):
    found = native.choice_of(Wrapped(make=make))
    assert found.kernel is None and found.why.startswith("torch: ") and why in found.why, found.why
    assert "\n" not in found.why


def test_what_is_large_goes_by_torch(monkeypatch):
    for name, word in LIMITS.items():
        choice._choose.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(choice, name, 5)
            found = native.choice_of(GPT_SMALL)
        assert found.kernel is None
        assert found.why.startswith("torch: ") and found.why.endswith(f" {word}; the engine is faster up to 5")
    choice._choose.cache_clear()
    assert native.choice_of(GPT_SMALL).why == "the C++ engine"


@pytest.mark.parametrize(("width", "hidden", "by_tape"), [(24, 48, True), (32, 64, False)])
def test_a_number_that_is_read_once_costs_more(width, hidden, by_tape):
    spec = dataclasses.replace(MLP_97, make=lambda: Mlp(97, width, hidden))
    found = native.choice_of(spec)
    assert (found.kernel is not None) == by_tape
    assert (
        by_tape or found.why == "torch: 13,601 numbers, of which few are read twice; the engine is faster up to 10,000"
    )


def test_the_spec_of_a_family_has_its_own_kernel():
    spec = preset("57p")
    assert isinstance(spec.kernel(), Kernel) and native.choice_of(spec) == Choice(spec.kernel(), "")


def test_a_recording_is_the_same_every_time():
    """Its text names the library in the cache, and orders its sums."""
    assert record(GPT_SMALL, native.constant_fold) == record(GPT_SMALL, native.constant_fold)
