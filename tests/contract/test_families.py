"""What every family must do, over specs that are drawn from its own fields: a new one is tested as it is.

The plain copy in `model/submissions` is what a family means: one seed, no shortcuts. Forward pass and
gradient are compared with it in float64, so what holds for it (causality, a loss's gradient) is not tested
again.
"""

import importlib
import pkgutil
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from hypothesis import given, settings

from model import PRESETS, families, make_spec, preset_name, submissions
from model.families.low_rank.spec import SHARED
from model.fold import fold
from model.spec import FAMILIES
from tests import by_tier, needs_compiler
from tests.banks import assert_is_eager
from tests.specs import any_tokens, bases, reference, some_theta, some_tokens, specs, variants
from trainer import Pair, Recipe, Seed
from trainer.engine import kernel, native
from trainer.engine.native import EngineBackend
from trainer.step import step

HIDDEN = {f"67p hidden={n}": replace(PRESETS["67p"], hidden=n) for n in (3, 8, 16)}
ASKED = {
    f"{family} {task}": make_spec(family, task=task)
    for family in ("low_rank", "rope")  # whose plain copies know no length
    for task in ("subtraction base=3 digits=4", "addition base=4 digits=3 terms=3", "reverse base=5 digits=4")
}
VARIANTS = variants() | HIDDEN | ASKED
every_family = pytest.mark.parametrize("family", FAMILIES)
SMALLEST = [bases(family)[-1] for family in FAMILIES]
ENDS = [*SMALLEST, *(bases(family)[1] for family in FAMILIES)]


def logits_of(spec, theta_SP, tokens_STB, first=None):
    """Logits [V, S, A, B] of the answer, or from a later position on, every problem written out."""
    first = spec.prompt - 1 if first is None else first
    logits = spec.forward(theta_SP, tokens_STB, first)
    assert len(logits) == spec.tokens
    shape = (len(theta_SP), tokens_STB.shape[1] - first, tokens_STB.shape[2])
    return torch.stack([v.expand(shape) for v in logits])


def tensors_of(spec, theta_P):
    return {name: t[0] for name, t in spec.layout.split(theta_P[None]).items()}


# The contract


def is_a_value(spec):
    """It is made again from its dictionary, cannot be changed, and its constraints come off."""
    assert make_spec(**spec.as_dict()) == spec and hash(make_spec(**spec.as_dict())) == hash(spec)
    with pytest.raises(FrozenInstanceError):
        setattr(spec, fields(spec)[0].name, 1)
    for name, value in spec.applied().items():
        less = spec.without(name)
        assert less.applied().keys() < spec.applied().keys()
        assert spec.saved_by(name) == less.params - spec.params
        assert getattr(spec.constrained(name, value), name) == value


def counts_what_the_plain_copy_has(spec):
    theta = some_theta(spec)[0]
    assert spec.params == len(theta) == sum(spec.layout.budget().values())
    assert {n: t.shape for n, t in reference(spec, theta).weights.items()} == spec.shapes()
    assert set(spec.layout.names) <= set(spec.roles)
    assert torch.equal(spec.layout.join(tensors_of(spec, theta)), theta)


def starts_from_its_seed_alone(spec):
    state = torch.get_rng_state()
    first = spec.initial(1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(1)
    again, other = spec.initial(1), spec.initial(2)
    assert first.dtype == torch.float32 and first.shape == (spec.params,) and first.isfinite().all()
    assert torch.equal(first, again) and not torch.equal(first, other)


def computes_what_the_plain_copy_does(spec):
    """Logits, whatever θ started from, and gradient; and what no logit reads can be folded away."""
    theta, tokens = some_theta(spec), any_tokens(spec)
    wide = theta.double().requires_grad_()
    plain, got = reference(spec, wide[0]), logits_of(spec, wide, tokens)
    expected = plain(tokens[0].T.long()).permute(2, 1, 0)[:, None, spec.prompt - 1 :]
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    assert got.std() > 0.001  # far above what the comparison lets pass
    single = logits_of(spec, theta, tokens)
    torch.testing.assert_close(single.double(), got, rtol=1e-4, atol=4e-4)
    assert torch.equal(logits_of(spec.trained(), theta, tokens), single)

    target = torch.randn(got.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((got * target).sum(), wide)
    (expected * target).sum().backward()
    read = {n: torch.zeros_like(t) if t.grad is None else t.grad for n, t in plain.weights.items()}
    torch.testing.assert_close(gradient[0], spec.layout.join(read), rtol=1e-7, atol=1e-8)
    unread = {name for name, part in spec.layout.split(gradient).items() if not part.any()}
    folded = [f.to.shapes() for f in spec.folds()]
    assert all(any(f.get(name) != spec.shapes()[name] for f in folded) for name in unread), unread


def is_a_loop_over_banks_of_one(spec):
    """Each seed with problems of its own or with all others', from any position on, whatever comes later."""
    theta, tokens, start = some_theta(spec, 2), any_tokens(spec, 2), spec.prompt - 1
    own, swapped = logits_of(spec, theta, tokens), logits_of(spec, theta.flip(0), tokens)
    one = logits_of(spec, theta[1:], tokens[1:])
    torch.testing.assert_close(own[:, 1:], one)
    shared = logits_of(spec, theta, tokens[:1])
    expected = torch.stack([own[:, 0], swapped[:, 0]], dim=1)
    torch.testing.assert_close(shared, expected, rtol=1e-4, atol=1e-4)
    later = logits_of(spec, theta, tokens, first=start + 3)
    torch.testing.assert_close(later, own[:, :, 3:], rtol=1e-4, atol=1e-4)
    for length in (start + 1, start + 4):
        prefix = logits_of(spec, theta, tokens[:, :length], first=length - 1)
        torch.testing.assert_close(prefix[:, :, 0], own[:, :, length - 1 - start], rtol=1e-4, atol=1e-4)


def folds_to_the_same_answers(spec):
    """By each fold alone, also one that saves nothing, and by all that save; then none remains."""
    theta, tokens = some_theta(spec)[0].double(), any_tokens(spec)[:, : spec.prompt + spec.task.answers - 1]
    ways = [(f.to, f.rescales, f.to.layout.join(f.rewrite(tensors_of(spec, theta)))) for f in spec.folds()]
    folded = fold(spec, theta)
    expected = logits_of(spec, theta[None], tokens, spec.prompt - 1)
    rescaled = any(f.rescales for f in spec.folds())
    for to, rescales, theta_P in [*ways, (folded.spec, rescaled, folded.theta_P)]:
        got = logits_of(to, theta_P[None], tokens, spec.prompt - 1)
        got = got * (expected.norm(dim=0) / got.norm(dim=0)) if rescales else got
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))
    assert folded.theta_P.dtype == theta.dtype and len(set(folded.steps)) == len(folded.steps)
    assert (folded.spec.params < spec.params) == bool(folded.steps)
    again = fold(folded.spec, folded.theta_P)
    assert not again.steps and torch.equal(again.theta_P, folded.theta_P)


def its_tape_is_what_expand_makes(spec):
    """The engine runs expand from a tape: every operation of it must be one that a tape has."""
    if spec.kernel() is None:
        return
    theta = some_theta(spec)
    tape = native.record(
        lambda g: list(spec.expand(g["theta"]).values()), {"theta": (spec.params,)}, native.constant_fold
    )
    made = torch.from_numpy(native.run(tape, theta[0].numpy()))
    expected = torch.cat([t.flatten() for t in spec.expand(theta.double()).values()])
    torch.testing.assert_close(made.double(), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


CONTRACT = [
    is_a_value, counts_what_the_plain_copy_has, starts_from_its_seed_alone, computes_what_the_plain_copy_does,
    is_a_loop_over_banks_of_one, folds_to_the_same_answers, its_tape_is_what_expand_makes,
]  # fmt: skip


@pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_is_a_value(spec):
    is_a_value(spec)


FULL = " without ", " mixture "
QUICK = [
    spec
    for name, spec in VARIANTS.items()
    if spec in ENDS or not (name in PRESETS or any(word in name for word in FULL))
]


@pytest.mark.parametrize("spec", by_tier(VARIANTS, QUICK))
def test_every_variant_keeps_the_contract(spec):
    for promise in CONTRACT:
        promise(spec)


@pytest.mark.full
@every_family
def test_any_spec_keeps_the_contract(family):
    @settings(max_examples=300, deadline=None, database=None, derandomize=True)
    @given(specs(family))
    def keeps(spec):
        for promise in CONTRACT:
            promise(spec)

    keeps()


# Not all of it for every variant


@pytest.mark.parametrize("spec", by_tier(PRESETS, ENDS))
def test_a_seeds_gradient_is_bit_for_bit_the_same_in_every_slot(spec):
    """Matrix products along problems may add in another order where a matrix begins elsewhere in memory."""
    slots = torch.tensor([3, 0, 4, 2, 1])
    theta, tokens = some_theta(spec, 5), some_tokens(spec, 5, 30)

    def gradient(theta_SP, tokens_STB):
        return torch.func.grad(lambda t: step.loss(spec, t, tokens_STB).sum())(theta_SP)

    assert torch.equal(gradient(theta[slots], tokens[slots]), gradient(theta, tokens)[slots])


# The C++ kernel

TIED = make_spec("tied", base=PRESETS["46p"].as_dict(), ties=["form[0,2] = 0", "fc1[0,3] = -equals[1]"])
KERNELS = {"46p tied": TIED, **HIDDEN, **PRESETS} | {
    f"{family} {name}": spec
    for family in FAMILIES
    for name, spec in {
        "alone": FAMILIES[family](),
        **{f"tie_qkv={t}": replace(PRESETS["582p"], tie_qkv=t) for t in SHARED if family == "low_rank"},
    }.items()
}
KERNELS = {name: spec for name, spec in KERNELS.items() if spec.kernel()}
BATCH = 40  # problems: two blocks of lanes and a half
kernels_by_tier = pytest.mark.parametrize("spec", by_tier(KERNELS, [*SMALLEST, TIED, HIDDEN["67p hidden=8"]]))


def loss_gradient(spec, theta_SP, tokens_STB):
    theta_SP = theta_SP.detach().requires_grad_()
    return torch.autograd.grad(step.loss(spec, theta_SP, tokens_STB).sum(), theta_SP)[0][0]


@needs_compiler
@kernels_by_tier
def test_the_kernel_has_the_loss_and_gradient_of_theta(spec):
    """Through the tape of expand and the kernel, against float64 autograd through everything."""
    theta, tokens = some_theta(spec), some_tokens(spec, batch=BATCH)
    problems = kernel.KernelLoss(spec, tokens)
    loss, slope_P = problems.slope(theta[0].numpy())
    assert loss == pytest.approx(step.loss(spec, theta.double(), tokens).item(), rel=1e-5)
    exact_P, rounded_P = (loss_gradient(spec, theta.to(t), tokens) for t in (torch.float64, torch.float32))
    # A norm's gradient can be large, and its rounding with it: float32 autograd shows how much.
    tolerance = max(1e-5 * float(exact_P.abs().max()), 8 * float((rounded_P - exact_P).abs().max()))
    assert float((torch.from_numpy(slope_P) - exact_P).abs().max()) < tolerance


@needs_compiler
@kernels_by_tier
def test_the_engine_measures_what_evaluate_does(spec):
    """On 5,000 problems, which leave half of the last block empty."""
    theta = some_theta(spec, 3)
    measures = EngineBackend(spec, Recipe(batch=BATCH)).evaluate(theta)
    expected = step.evaluate(spec, theta, step.tokens_of(spec, *native.selection()))
    torch.testing.assert_close(measures["loss"], expected["loss"], rtol=1e-5, atol=0)
    for name in ("exact", "token"):  # two logits may be equal but for rounding
        torch.testing.assert_close(measures[name], expected[name], rtol=0, atol=1e-4)


@needs_compiler
@kernels_by_tier
def test_a_bank_of_the_engine_is_the_eager_one(spec):
    recipe = Recipe(steps=6, batch=BATCH, eval_every=3, hold=0, warmup=2, lr=0.001)
    pairs = [Pair(recipe, Seed.of(n)) for n in range(3)]
    assert_is_eager(spec, pairs)


# The registry


def test_families_are_the_files_of_their_folder():
    names = [found.name for found in pkgutil.iter_modules(families.__path__)]
    assert list(FAMILIES) == names and len(names) >= 2
    assert {found.name for found in pkgutil.iter_modules(submissions.__path__)} == set(names)
    for name, cls in FAMILIES.items():
        assert cls.family == name and cls.__module__.startswith(f"model.families.{name}")
        assert cls.about and all(len(role) > 3 for role in cls.roles.values())
        assert importlib.import_module(f"model.submissions.{name}").architecture(cls().as_dict())


def test_a_spec_is_named_after_the_preset_that_is_one_size_away():
    for near, field, name in (
        ("67p", {"hidden": 8}, "127 parameters (67p with hidden=8)"),
        ("122p", {"ffn": 8}, "167 parameters (122p with ffn=8)"),
        ("67p", {"hidden": 8, "no_ffn_bias": False}, "140 parameters (split_subspace)"),
    ):
        assert preset_name(replace(PRESETS[near], **field)) == name


def test_a_name_is_found_once_though_each_row_of_a_frame_asks_for_it():
    spec = replace(PRESETS["67p"], hidden=5)
    preset_name(spec)
    before = preset_name.cache_info()
    preset_name(replace(PRESETS["67p"], hidden=5))
    after = preset_name.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


@every_family
def test_constraints_name_only_fields_that_there_are(family):
    constraints, known = FAMILIES[family].constraints(), FAMILIES[family].__dataclass_fields__
    for name, field in constraints.items():
        assert field.default == field.metadata["off"], name
        assert field.metadata["needs"].keys() <= known.keys(), name
        assert set(field.metadata["excludes"]) <= constraints.keys() - {name}, name


@every_family
def test_every_constraint_is_in_some_variant(family):
    applied = {name for spec in VARIANTS.values() if spec.family == family for name in spec.applied()}
    assert applied == FAMILIES[family].constraints().keys()
