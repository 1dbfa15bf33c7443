"""Each optimiser, wrapper and schedule against an independent reference, in float64, so that what differs is
the algorithm: torch.optim where torch has it, else the paper's formula, written here in plain loops.
"""

import math

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.banks import SPEC, finish, make, pair
from tests.contract.test_optimisers import CONSTANT, initial, state_of
from trainer import Recipe
from trainer.optimisers import optimiser_of
from trainer.step import schedule, step
from trainer.step.schedule import hyper_of

P, STEPS = SPEC.params, 12
LOOSE = {**CONSTANT, "clip": 1e9}


def numbers(recipe):
    """A slot's, in float64."""
    hyper = hyper_of([recipe], SPEC.layout)
    exact = {
        f: getattr(recipe, f) for f in hyper if isinstance(getattr(recipe, f, None), float)
    }  # float32 has no 0.9
    doubles = {f: torch.tensor([v], dtype=torch.float64) for f, v in exact.items()}
    return {name: t.double() if t.is_floating_point() else t for name, t in (hyper | doubles).items()}


def gradients(count=STEPS):
    draw = torch.Generator().manual_seed(0)
    sizes = torch.rand(count, 1, generator=draw, dtype=torch.float64)
    return torch.randn(count, P, generator=draw, dtype=torch.float64) * sizes


def ours(recipe, grads=None, **more):
    """θ [P] after each step, and the last state."""
    optimiser, hyper = optimiser_of(recipe), numbers(recipe) | more
    state, path = state_of(initial(1).double(), optimiser), []
    for grad_P in gradients() if grads is None else grads:
        state = step.apply_update(optimiser, state, hyper, grad_P[None])
        path.append(state["theta"][0])
    return torch.stack(path), state


def theirs(make, grads=None, before=lambda parameter, n: None, after=lambda parameter, n: None):
    """θ [P] after each step of an optimiser of torch."""
    parameter = torch.nn.Parameter(initial(1)[0].double())
    optimiser, path = make(parameter), []
    for n, grad_P in enumerate(gradients() if grads is None else grads):
        parameter.grad = grad_P.clone()
        before(parameter, n)
        optimiser.step()
        after(parameter, n)
        path.append(parameter.detach().clone())
    return torch.stack(path)


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert (found[-1] - initial(1)[0]).abs().max() > 1e-2, "it must have moved"


# Optimisers


def test_adam_is_torchs():
    recipe = Recipe(**LOOSE, optimiser="adam", lr=0.03, weight_decay=0.3, beta1=0.8, beta2=0.95)
    options = {"lr": 0.03, "weight_decay": 0.3, "betas": (0.8, 0.95), "eps": 1e-8}
    same(ours(recipe)[0], theirs(lambda p: torch.optim.Adam([p], **options)))


def test_sgd_is_torchs_with_nesterovs_momentum():
    recipe = Recipe(**LOOSE, optimiser="sgd", lr=0.03, weight_decay=0.3, beta1=0.8)
    options = {"lr": 0.03, "weight_decay": 0.3, "momentum": 0.8, "nesterov": True}
    same(ours(recipe)[0], theirs(lambda p: torch.optim.SGD([p], **options)))


def test_lion_is_its_papers_program():
    """Chen et al. 2023, program 1."""
    recipe = Recipe(**LOOSE, optimiser="lion", lr=0.03, weight_decay=0.3, beta1=0.8, beta2=0.95)
    w, m, path = initial(1)[0].double().numpy(), np.zeros(P), []
    for g in gradients().numpy():
        update = np.sign(0.8 * m + 0.2 * g) + 0.3 * w
        m, w = 0.95 * m + 0.05 * g, w - 0.03 * update
        path.append(w)
    same(ours(recipe)[0], torch.from_numpy(np.stack(path)))


# Wrappers


ADAMW = {"lr": 0.03, "weight_decay": 0.3, "beta1": 0.8, "beta2": 0.95}


def adamw(parameter):
    return torch.optim.AdamW([parameter], lr=0.03, weight_decay=0.3, betas=(0.8, 0.95), eps=1e-8)


def test_sam_takes_the_gradient_where_the_papers_algorithm_does():
    recipe = Recipe(**{**CONSTANT, **ADAMW}, sam_rho=0.3, clip=1e9)
    optimiser, hyper = optimiser_of(recipe), numbers(recipe)
    state = state_of(initial(1).double() + 0.1, optimiser)
    one = torch.ones(1, dtype=torch.int64)
    tokens = step.tokens_of(SPEC, *step.sample(3 * one, 3 * one, 10 * one, torch.zeros(1), 16))
    parameter = torch.nn.Parameter(state["theta"][0].clone())
    inner = adamw(parameter)
    for _ in range(5):
        state, loss = step.train_step(SPEC, optimiser, state, hyper, tokens)
        start = parameter.detach().clone()
        first = torch.autograd.grad(step.loss(SPEC, parameter[None], tokens).sum(), parameter)[0]
        with torch.no_grad():
            assert loss == pytest.approx(step.loss(SPEC, start[None], tokens).item())
            parameter.add_(0.3 * first / first.norm())
        parameter.grad = torch.autograd.grad(step.loss(SPEC, parameter[None], tokens).sum(), parameter)[0]
        with torch.no_grad():
            parameter.copy_(start)
        inner.step()
        torch.testing.assert_close(state["theta"][0], parameter.data, rtol=1e-6, atol=1e-8)
    assert (parameter - initial(1)[0]).abs().max() > 0.1


@pytest.mark.parametrize(("start", "end"), [(0, 0), (3, 8)])
def test_grokfast_is_its_papers_filter_before_clipping(start, end):
    """The authors' gradfilter_ema, whose mean begins with the first gradient that it sees."""
    recipe = Recipe(
        **{**CONSTANT, **ADAMW}, clip=0.5, grokfast_lambda=2.0, grokfast_alpha=0.7, grokfast_start=start,
        grokfast_end=end,
    )  # fmt: skip
    mean = None

    def before(parameter, n):
        nonlocal mean
        if n >= start and (not end or n < end):
            mean = parameter.grad.clone() if mean is None else mean
            mean = mean * 0.7 + parameter.grad * 0.3
            parameter.grad += 2.0 * mean
        norm = float(parameter.grad.norm())
        parameter.grad *= min(1.0, 0.5 / (norm + 1e-6))

    same(ours(recipe)[0], theirs(adamw, before=before))


def test_the_moving_mean_is_torchs():
    recipe = Recipe(**{**LOOSE, **ADAMW}, ema_decay=0.9)
    holder = torch.nn.ParameterList([torch.nn.Parameter(initial(1)[0].double())])
    mean = AveragedModel(holder, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    mean.update_parameters(holder)  # the first update copies

    def after(parameter, n):
        holder[0].data.copy_(parameter.data)
        mean.update_parameters(holder)

    expected = theirs(adamw, after=after)
    found, state = ours(recipe)
    same(found, expected)
    torch.testing.assert_close(state["average"][0], mean.module[0].data, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_factors_are_torchs_parameter_groups(name):
    recipe = Recipe(
        **{**LOOSE, **ADAMW}, optimiser=name, lr_factors=(("norm", 3.0), ("fc1", 0.25)),
        wd_factors=(("norm", 0.0), ("arc", 2.0)),
    )  # fmt: skip
    shapes = dict(zip(SPEC.layout.names, SPEC.layout.shapes, strict=True))
    split = SPEC.layout.split(initial(1).double())
    parameters = {n: torch.nn.Parameter(t[0].clone()) for n, t in split.items()}
    lr, wd = {"norm": 3.0, "fc1": 0.25}, {"norm": 0.0, "arc": 2.0}
    groups = [
        {"params": [p], "lr": 0.03 * lr.get(n, 1.0), "weight_decay": 0.3 * wd.get(n, 1.0)}
        for n, p in parameters.items()
    ]
    made = {
        "adamw": lambda: torch.optim.AdamW(groups, betas=(0.8, 0.95), eps=1e-8),
        "adam": lambda: torch.optim.Adam(groups, betas=(0.8, 0.95), eps=1e-8),
        "sgd": lambda: torch.optim.SGD(groups, momentum=0.8, nesterov=True),
    }[name]()
    for grad_P in gradients():
        for tensor, its in SPEC.layout.split(grad_P[None]).items():
            parameters[tensor].grad = its[0].reshape(shapes[tensor]).clone()
        made.step()
    same(ours(recipe)[0][-1:], SPEC.layout.join({n: p.data for n, p in parameters.items()})[None])


# Schedules


def lr_of(recipe, steps):
    return schedule.learning_rate(torch.tensor(steps), hyper_of([recipe] * len(steps), SPEC.layout)).tolist()


@pytest.mark.parametrize("growth", [1, 2, 3])
def test_restarts_are_torchs(growth):
    recipe = Recipe(
        warmup=0,
        lr=0.5,
        lr_floor=0.1,
        steps=1_000,
        lr_schedule="restarts",
        lr_cycle=70,
        lr_cycle_growth=growth,
    )
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=0.5)
    rates = CosineAnnealingWarmRestarts(optimiser, 70, growth, eta_min=0.05)
    expected = []
    for _ in range(1_000):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step(), rates.step()
    assert lr_of(recipe, list(range(1_000))) == pytest.approx(expected, rel=1e-4)


def test_wsd_warms_up_stays_and_decays():
    recipe = Recipe(warmup=10, lr=0.5, lr_floor=0.1, steps=1_000, lr_schedule="wsd", lr_decay=0.2)
    expected = {0: 0.05, 9: 0.5, 10: 0.5, 799: 0.5, 899: 0.05 + 0.45 / 2, 999: 0.05}
    assert lr_of(recipe, list(expected)) == pytest.approx(list(expected.values()), rel=1e-5)


DECAYS = {
    "drops": ({"wd_drops": ((10, 0.5), (20, 0.1))}, lambda t: 1 if t < 10 else 0.5 if t < 20 else 0.1),
    "cyclical": (
        {"wd_period": 8, "wd_low": 0.2}, lambda t: 0.2 + 0.8 * (1 + math.cos(2 * math.pi * t / 8)) / 2
    ),
    "warmup": ({"wd_warmup": 16}, lambda t: min(1, (t + 1) / 16)),
}  # fmt: skip


def decay_of(recipe, at, wd_scale=1.0):
    state = {"step": torch.tensor([at]), "wd_scale": torch.tensor([wd_scale])}
    return float(schedule.now(state, hyper_of([recipe], SPEC.layout))["decay"])


@pytest.mark.parametrize("name", DECAYS)
def test_decay_follows_its_schedule_and_the_learning_rate(name):
    fields, factor = DECAYS[name]
    recipe = Recipe(**CONSTANT, lr=0.5, weight_decay=0.3, wd_schedule=name, **fields)
    for at in range(30):
        assert decay_of(recipe, at) == pytest.approx(0.15 * factor(at), rel=1e-5)
    assert decay_of(recipe, 3, wd_scale=0.1) == pytest.approx(0.015 * factor(3), rel=1e-5)


def test_smooth_decay_falls_from_the_first_threshold_on_to_its_floor():
    """MicroAdder's: base · exp(−α (step − onset)), not below base · drop², never up again."""
    from trainer.recipe.weight_decay import scale

    recipe = Recipe(wd_schedule="smooth", wd_alpha=0.0005, wd_drop=0.5, wd_drop_exact=0.1, wd_drop_token=0.6)
    hyper, found, now = hyper_of([recipe], SPEC.layout), [], torch.ones(1)
    for exact, token in [(0.05, 0.9), (0.2, 0.5), (0.2, 0.7), (0.0, 0.0), (0.9, 0.9), (0.9, 0.9)]:
        now = scale(now, torch.tensor([exact]), torch.tensor([token]), hyper, 1_000)
        found.append(float(now))
    fall = math.exp(-0.5)
    assert found == pytest.approx([1, 1, fall, fall**2, 0.25, 0.25])


# At evaluations


def watched(bank, exact):
    """Have a bank's evaluations say `exact(θ)`, and keep every θ that was evaluated."""
    seen = []

    def evaluate(theta_SP):
        seen.append(theta_SP.clone())
        said, one = exact(theta_SP, len(seen)), torch.ones(len(theta_SP))
        return {"exact": said * one, "token": said * one, "loss": one}

    bank.programs.evaluate = evaluate
    return seen


@pytest.mark.usefixtures("few_selection_problems")
@pytest.mark.parametrize("first", [True, False])
def test_the_better_of_theta_and_its_mean_counts(first):
    bank = make([pair(1, ema_decay=0.9)])
    seen = watched(bank, lambda theta, n: 0.75 if (n % 2 == 1) == first else 0.25)
    result = finish(bank).result(0)
    raw, mean = seen[0::2], seen[1::2]
    assert not torch.equal(raw[0], mean[0]) and len(raw) == len(mean) == 2
    assert torch.equal(result.theta_P, (raw if first else mean)[0][0])
    assert result.curve_EM[:, 0].tolist() == [0.75, 0.75]
    assert torch.equal(bank.state["theta"][0], raw[1][0]), "training goes on with θ itself"
