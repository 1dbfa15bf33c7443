"""What problems are learnt by beside cross-entropy: each against torch's own function or its paper's formula
in float64; the engine's against the same.
"""

import ctypes

import pytest
import torch
from torch.nn import functional

from model import preset
from tests.banks import EVERY, SMALL, SPEC, finish, make, pair
from tests.specs import any_wide, some_theta, some_tokens
from trainer import Recipe
from trainer.engine import native
from trainer.engine.native import EngineBackend
from trainer.files.installed import missing_for_compilation
from trainer.step import step
from trainer.step.objective import PLAIN, Objective, operands_of
from trainer.step.schedule import hyper_of

PROBLEMS = 40  # two blocks and a half: the last has empty lanes
ALL = {"label_smoothing": 0.1, "focal_gamma": 1.5, "chain_beta": 2.0, "hardest": 0.4}
needs_compiler = pytest.mark.skipif(
    bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}"
)


def of_answers(logits_V, target_SAB, smoothing=0.0, gamma=0.0):
    """(1 - p)^γ times torch's smoothed cross-entropy [S, A, B]."""
    z = torch.stack(torch.broadcast_tensors(*logits_V), dim=1)  # [S, V, A, B], as torch has classes
    made = functional.cross_entropy(z, target_SAB.long(), label_smoothing=smoothing, reduction="none")
    p = z.softmax(1).gather(1, target_SAB.long()[:, None])[:, 0]
    return (1 - p) ** gamma * made


def numbers(tokens_TB, spec=SPEC):
    """Both operands of each problem."""
    digits = [[[int(d) for d in tokens_TB[list(ps), b]] for b in range(PROBLEMS)] for ps in operands_of(spec)]
    return [[sum(d * 10**i for i, d in enumerate(one)) for one in side] for side in digits]


def chain(a, b):
    """The longest run of columns of a + b that carry, by the carries' own marks."""
    carries = [int((a % 10**i) + (b % 10**i) >= 10**i) for i in range(1, 11)]
    return max(len(run) for run in "".join(map(str, carries)).split("0"))


def weights(tokens_1TB, spec, loss_AB, beta=0.0, share=1.0):
    """What each problem counts [B]."""
    per_problem = loss_AB.mean(0).tolist()
    kept = sorted(range(PROBLEMS), key=lambda n: (-per_problem[n], n))[: round(share * PROBLEMS)]
    made = [1 + beta * chain(a, b) / 10 for a, b in zip(*numbers(tokens_1TB[0], spec), strict=True)]
    made = torch.tensor([made[n] if n in kept else 0.0 for n in range(PROBLEMS)], dtype=torch.float64)
    return made * PROBLEMS / made.sum()


CASES = {
    "smoothing": ({"label_smoothing": 0.2}, {"smoothing": 0.2}, {}),
    "focal": ({"focal_gamma": 2.0}, {"gamma": 2.0}, {}),
    "half": ({"focal_gamma": 0.5}, {"gamma": 0.5}, {}),
    "chains": ({"chain_beta": 2.0}, {}, {"beta": 2.0}),
    "hardest": ({"hardest": 0.25}, {}, {"share": 0.25}),
    "all": (ALL, {"smoothing": 0.1, "gamma": 1.5}, {"beta": 2.0, "share": 0.4}),
}


@pytest.mark.parametrize("spec", [SPEC, preset("456p")], ids=["57p", "456p"])
@pytest.mark.parametrize(("fields", "answers", "problems"), CASES.values(), ids=CASES)
def test_torchs_objective_is_its_sources(fields, answers, problems, spec):
    tokens = some_tokens(spec, 1, PROBLEMS)
    theta = some_theta(spec).double().requires_grad_()
    logits = spec.forward(theta, tokens[:, :-1], first=spec.prompt - 1)
    target = tokens[:, spec.prompt :]
    weight_B = weights(tokens, spec, of_answers(logits, target)[0].detach(), **problems)
    expected = (of_answers(logits, target, **answers)[0].mean(0) * weight_B).mean()
    recipe = Recipe(**fields)
    hyper = {name: t.double() for name, t in hyper_of([recipe]).items()}
    got = Objective.of(spec, recipe)(spec, theta, tokens, hyper)
    torch.testing.assert_close(got[0], expected, rtol=1e-9, atol=1e-12)
    pulled, wanted = (torch.autograd.grad(x, theta)[0] for x in (got.sum(), expected))
    torch.testing.assert_close(pulled, wanted, rtol=1e-7, atol=1e-10)
    plain = step.loss(spec, theta, tokens)
    assert (got - plain).detach().abs() > 1e-4, "it must be another loss"


class Goal(ctypes.Structure):
    """`Goal` of model/cpp/goal.h."""

    _fields_ = [
        *((name, ctypes.c_float) for name in ("smoothing", "gamma", "alpha", "temperature")),
        *((name, ctypes.c_void_p) for name in ("weights", "teacher")),
    ]


def in_blocks(x_B):
    return functional.pad(x_B.float(), (0, -PROBLEMS % 16)).numpy()


def by_kernel(spec, wide, tokens, goal):
    """A kernel's loss and gradient towards the wide tensors."""
    kernel = native.built(spec.kernel(), Recipe(label_smoothing=0.1))
    kernel.kernel_train.restype = ctypes.c_float
    flat = torch.cat([t.detach().flatten() for t in wide.values()]).float().numpy()
    gradient = torch.zeros(len(flat)).numpy()
    blocks = native.blocks(tokens)
    loss = kernel.kernel_train(
        native.pointer(flat), native.pointer(blocks), PROBLEMS, native.pointer(gradient), ctypes.byref(goal)
    )
    return loss, torch.from_numpy(gradient)


@needs_compiler
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("name", ["57p", "54p", pytest.param("170p", marks=pytest.mark.full), "456p"])
def test_a_kernels_loss_and_gradient_are_the_sources(name, gamma):
    spec = preset(name)
    tokens = some_tokens(spec, 1, PROBLEMS)
    wide, seen = any_wide(spec)
    logits = spec.apply(wide, tokens[:, :-1], first=spec.prompt - 1)
    weight_B = torch.rand(PROBLEMS, generator=torch.Generator().manual_seed(0)) + 0.5
    loss = of_answers(logits, tokens[:, spec.prompt :], 0.15, gamma)[0].mean(0)
    expected = (loss * weight_B).mean()
    gradients = torch.autograd.grad(expected, list(wide.values()))
    kept = in_blocks(weight_B)
    got, gradient = by_kernel(spec, wide, tokens, Goal(0.15, gamma, 0, 1, kept.ctypes.data, None))
    assert got == pytest.approx(expected.item(), rel=2e-5)
    exact = torch.cat([(g * s).flatten() for g, s in zip(gradients, seen.values(), strict=True)])
    assert (gradient - exact).abs().max() < 2e-5 * exact.abs().max()


@needs_compiler
@pytest.mark.usefixtures("few_selection_problems")
@pytest.mark.parametrize(
    ("name", "fields"),
    [("57p", {name: value}) for name, value in ALL.items()] + [("57p", ALL), ("456p", ALL)],
)
def test_the_engine_takes_the_steps_that_torch_takes(name, fields):
    """The losses that the engine reports, and θ, before rounding has grown."""
    recipes = [pair(s, **fields, steps=4 * EVERY, warmup=3) for s in (1, 2)]
    engine, eager = (native_bank(name, recipes, compiled) for compiled in (True, False))
    assert isinstance(engine.programs, EngineBackend) and not isinstance(eager.programs, EngineBackend)
    for _ in range(2):
        engine.advance(), eager.advance()
        torch.testing.assert_close(engine.state["theta"], eager.state["theta"], rtol=2e-3, atol=2e-3)
    for n in range(2):
        found, expected = engine.result(n).curve_EM, eager.result(n).curve_EM
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


def native_bank(name, pairs, compiled):
    from trainer import Bank

    return Bank(preset(name), pairs, compiled=compiled, futility=None)


@pytest.mark.usefixtures("few_selection_problems")
def test_evaluations_measure_plain_cross_entropy():
    """A θ that does not move has the same measures whatever it is learnt by, and another training loss."""
    still = {"lr": 0.0, "weight_decay": 0.0}
    plain, other = (finish(make([pair(1, **still, **more)])).result(0) for more in ({}, ALL))
    assert torch.equal(plain.curve_EM[:, :3], other.curve_EM[:, :3])
    assert (plain.curve_EM[:, 3] - other.curve_EM[:, 3]).abs().min() > 1e-3


def test_what_is_off_is_plain_and_what_is_on_is_another_program():
    assert Objective.of(SPEC, Recipe()) is PLAIN and Recipe().losses == ()
    for name, value in ALL.items():
        recipe = Recipe(**{name: value})
        assert recipe.losses == (name,) and recipe.program() != Recipe().program()
    with pytest.raises(ValueError, match="agree in"):
        make([pair(1), pair(2, focal_gamma=2.0)])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"label_smoothing": 1.0}, "label_smoothing must be from 0 to 0.99, got 1.0"),
        ({"hardest": 0}, "hardest must be from 0.001 to 1, got 0"),
        ({"focal_gamma": -1.0}, "focal_gamma must be from 0 to 10, got -1.0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(fields, said):
    with pytest.raises(ValueError) as error:
        Recipe(**{**SMALL, **fields})
    assert str(error.value) == said
