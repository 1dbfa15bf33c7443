"""Each optimiser and wrapper against an independent reference, in float64, so that what differs is
the algorithm: torch.optim where torch has it, else the paper's formula, written here in plain loops.
"""

import numpy as np
import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.banks import SPEC, finish, make, pair
from tests.contract.test_optimisers import CONSTANT, initial, state_of
from trainer import Recipe
from trainer.optimisers import optimiser_of
from trainer.step import step
from trainer.step.schedule import hyper_of

pytestmark = pytest.mark.usefixtures("few_selection_problems")
P, STEPS = SPEC.params, 12
LOOSE = {**CONSTANT, "clip": 1e9, "lr": 0.03, "weight_decay": 0.3, "beta1": 0.8, "beta2": 0.95}


def numbers(recipe):
    """A slot's, in float64."""
    hyper = hyper_of([recipe], SPEC.layout)
    exact = {f: getattr(recipe, f) for f in hyper if isinstance(getattr(recipe, f, None), float)}  # float32 has no 0.9
    doubles = {f: torch.tensor([v], dtype=torch.float64) for f, v in exact.items()}
    return {name: t.double() if t.is_floating_point() else t for name, t in (hyper | doubles).items()}


def gradients(count=STEPS):
    draw = torch.Generator().manual_seed(0)
    sizes = torch.rand(count, 1, generator=draw, dtype=torch.float64)
    return torch.randn(count, P, generator=draw, dtype=torch.float64) * sizes


def ours(recipe):
    """θ [P] after each step, and the last state."""
    optimiser, hyper = optimiser_of(recipe), numbers(recipe)
    state, path = state_of(initial(1).double(), optimiser), []
    for grad_P in gradients():
        state = step.apply_update(optimiser, state, hyper, grad_P[None])
        path.append(state["theta"][0])
    return torch.stack(path), state


def theirs(make, before=lambda parameter, n: None, after=lambda parameter, n: None):
    """θ [P] after each step of an optimiser of torch."""
    parameter = torch.nn.Parameter(initial(1)[0].double())
    optimiser, path = make([parameter]), []
    for n, grad_P in enumerate(gradients()):
        parameter.grad = grad_P.clone()
        before(parameter, n)
        optimiser.step()
        after(parameter, n)
        path.append(parameter.detach().clone())
    return torch.stack(path)


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert (found[-1] - initial(1)[0]).abs().max() > 1e-2, "it must have moved"


MOMENTS = {"lr": 0.03, "weight_decay": 0.3, "betas": (0.8, 0.95), "eps": 1e-8}
TORCHS = {  # of parameters, or of groups of them that have rates of their own
    "adamw": lambda of: torch.optim.AdamW(of, **MOMENTS),
    "adam": lambda of: torch.optim.Adam(of, **MOMENTS),
    "sgd": lambda of: torch.optim.SGD(of, lr=0.03, weight_decay=0.3, momentum=0.8, nesterov=True),
}


# Optimisers


@pytest.mark.parametrize("name", TORCHS)
def test_it_is_torchs(name):
    recipe = Recipe(**LOOSE, optimiser=name)
    same(ours(recipe)[0], theirs(TORCHS[name]))


def test_lion_is_its_papers_program():
    """Chen et al. 2023, program 1."""
    recipe = Recipe(**LOOSE, optimiser="lion")
    w, m, path = initial(1)[0].double().numpy(), np.zeros(P), []
    for g in gradients().numpy():
        update = np.sign(0.8 * m + 0.2 * g) + 0.3 * w
        m, w = 0.95 * m + 0.05 * g, w - 0.03 * update
        path.append(w)
    same(ours(recipe)[0], torch.from_numpy(np.stack(path)))


# Wrappers


def test_sam_takes_the_gradient_where_the_papers_algorithm_does():
    recipe = Recipe(**LOOSE, sam_rho=0.3)
    optimiser, hyper = optimiser_of(recipe), numbers(recipe)
    state = state_of(initial(1).double() + 0.1, optimiser)
    one = torch.ones(1, dtype=torch.int64)
    tokens = step.tokens_of(SPEC, *step.sample(3 * one, 3 * one, 10 * one, torch.zeros(1), 16))
    parameter = torch.nn.Parameter(state["theta"][0].clone())
    inner = TORCHS["adamw"]([parameter])
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


def test_grokfast_is_its_papers_filter_before_clipping(end=8):
    """The authors' gradfilter_ema, whose mean begins with the first gradient that it sees."""
    recipe = Recipe(**LOOSE | {"clip": 0.5}, grokfast_lambda=2.0, grokfast_alpha=0.7, grokfast_end=end)
    mean = None

    def before(parameter, n):
        nonlocal mean
        if n < end:
            mean = parameter.grad.clone() if mean is None else mean
            mean = mean * 0.7 + parameter.grad * 0.3
            parameter.grad += 2.0 * mean
        norm = float(parameter.grad.norm())
        parameter.grad *= min(1.0, 0.5 / (norm + 1e-6))

    same(ours(recipe)[0], theirs(TORCHS["adamw"], before=before))


def test_the_moving_mean_is_torchs():
    recipe = Recipe(**LOOSE, ema_decay=0.9)
    holder = torch.nn.ParameterList([torch.nn.Parameter(initial(1)[0].double())])
    mean = AveragedModel(holder, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    mean.update_parameters(holder)  # the first update copies

    def after(parameter, n):
        holder[0].data.copy_(parameter.data)
        mean.update_parameters(holder)

    expected = theirs(TORCHS["adamw"], after=after)
    found, state = ours(recipe)
    same(found, expected)
    torch.testing.assert_close(state["average"][0], mean.module[0].data, rtol=1e-9, atol=1e-9)


# At evaluations


def watched(bank, exact):
    """Have a bank's evaluations say `exact(θ)`, and keep every θ that was evaluated."""
    seen = []

    def evaluate(theta_SP):
        seen.append(theta_SP.clone())
        said, one = exact(theta_SP, len(seen)), torch.ones(len(theta_SP))
        return {"exact": said * one, "token": said * one, "loss": one}

    bank.backend.evaluate = evaluate
    return seen


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
