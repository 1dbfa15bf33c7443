"""Losses beside cross-entropy, a teacher's too: each against torch's own function or its paper's formula in
float64; the engine's against the same.
"""

import ctypes
import json

import pytest
import torch
from torch.nn import functional

from model import preset
from search.study.file import parse_study
from search.study.trial import Configuration
from tests import needs_compiler
from tests.banks import SPEC
from tests.specs import any_wide, some_theta, some_tokens
from trainer import Recipe
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.checkpoints.teachers import read_teacher
from trainer.engine import native
from trainer.recipe.teacher import Teacher, teacher_of
from trainer.step import step
from trainer.step.objective import Objective, operands_of
from trainer.step.schedule import hyper_of

PROBLEMS = 40  # two blocks and a half: the last has empty lanes
ALL = {"label_smoothing": 0.1, "focal_gamma": 1.5, "chain_beta": 2.0, "hardest": 0.4}


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
@pytest.mark.parametrize("name", ["57p", "456p"])
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


# A teacher

WIDER = preset("100p")  # of the same sequence, and attention differs by problem
THETA = tuple((0.3 * WIDER.initial(5) + 0.1).tolist())
WORD = Teacher(WIDER, THETA).word
FIELDS = {"teacher": WORD, "distill_alpha": 0.75, "distill_temperature": 3.0}


def test_torchs_loss_is_hintons():
    """(1 - α) of the other loss, α T² KL by torch's own function, in float64."""
    tokens = some_tokens(SPEC, 1, PROBLEMS)
    theta = (SPEC.initial(1)[None].double() + 0.1).requires_grad_()
    recipe = Recipe(**FIELDS, label_smoothing=0.125, focal_gamma=1.5)
    hyper = {n: t.double() for n, t in hyper_of([recipe]).items()}
    target = tokens[:, SPEC.prompt :].long()
    mine, theirs = (
        torch.stack(torch.broadcast_tensors(*spec.forward(t, tokens[:, :-1], first=spec.prompt - 1)), dim=-1)
        for spec, t in ((SPEC, theta), (WIDER, torch.tensor([THETA], dtype=torch.float64)))
    )
    apart = functional.kl_div(
        (mine / 3).log_softmax(-1), (theirs / 3).log_softmax(-1), reduction="none", log_target=True
    )
    hard = functional.cross_entropy(
        mine.flatten(0, -2), target.flatten(), label_smoothing=0.125, reduction="none"
    )
    right = mine.softmax(-1).gather(-1, target[..., None]).flatten()
    hard = (1 - right) ** 1.5 * hard
    expected = 0.25 * hard.mean() + 0.75 * 9 * apart.sum(-1).mean()
    got = Objective.of(SPEC, recipe)(SPEC, theta, tokens, hyper)
    torch.testing.assert_close(got[0], expected, rtol=1e-9, atol=1e-12)
    pulled, wanted = (torch.autograd.grad(x, theta)[0] for x in (got.sum(), expected))
    torch.testing.assert_close(pulled, wanted, rtol=1e-7, atol=1e-10)


# A recipe has the teacher itself


def saved(folder, spec=WIDER, theta=THETA, **more):
    Checkpoint(spec=spec, theta_P=torch.tensor(theta), **more).save(folder)
    return folder


@pytest.fixture
def perfect(monkeypatch):
    """Every checkpoint gets everything right."""
    whole = step.evaluate
    one = {"exact": torch.ones(1)}
    monkeypatch.setattr(step, "evaluate", lambda *given: whole(*given) | one)


@pytest.mark.usefixtures("perfect")
def test_a_word_is_of_what_was_read_and_not_of_where_it_lay(tmp_path):
    words = [read_teacher(saved(tmp_path / name, step=n)) for n, name in enumerate(("a", "b"))]
    assert words[0] == words[1] == WORD and teacher_of(WORD) == Teacher(WIDER, THETA)
    assert json.loads(json.dumps(Recipe(**FIELDS).as_dict()))["teacher"] == WORD
    other = read_teacher(saved(tmp_path / "c", theta=(THETA[0] + 1e-3, *THETA[1:])))
    keys = [Configuration(SPEC, Recipe(**{**FIELDS, "teacher": w})).key for w in (WORD, other)]
    assert len({*keys, Configuration(SPEC, Recipe()).key}) == 3
    assert Recipe(**FIELDS).program() != Recipe(**{**FIELDS, "teacher": other}).program()


STUDY = """
name: x
model: 57p
seeds: [1]
recipe: {{teacher: {}, distill_alpha: 0.5}}
"""


@pytest.mark.usefixtures("perfect")
def test_a_study_names_a_folder_and_has_what_is_there(tmp_path):
    study = parse_study(STUDY.format(saved(tmp_path / "t")), "file")
    ((_, recipe),) = study.listed
    assert recipe.teacher == WORD and study.recipe["teacher"] == WORD, "what is recorded needs no file"
    again = parse_study(STUDY.format(json.dumps(WORD)), "file")
    assert again.listed == study.listed, "nor does a file that has the word"
    told = Configuration(SPEC, recipe).as_params()["recipe.teacher"]
    assert told == f"100p {WORD[:12]}"
    listed = STUDY.replace("recipe: {{", "configurations: [{{recipe: {{").rstrip() + "}}]\n"
    ((_, recipe),) = parse_study(listed.format(tmp_path / "t"), "file").listed
    assert recipe.teacher == WORD
