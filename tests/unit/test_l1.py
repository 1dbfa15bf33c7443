"""A penalty on named entries: beside torch's AdamW on the penalised loss, and what cannot be asked for."""

import pytest
import torch

from tests.banks import SPEC, make, pair
from tests.contract.test_optimisers import recipe_of, state_of
from trainer import Recipe
from trainer.optimisers import optimiser_of
from trainer.optimisers.l1 import strength
from trainer.step import step
from trainer.step.schedule import hyper_of

NAMES = ("fc1", "norm[0,4]")
PLACES = [p for name in NAMES for p in SPEC.layout.places(name)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [0.4] * 6),
        ({"l1_start": 2}, [0, 0, 0.4, 0.4, 0.4, 0.4]),
        ({"l1_start": 1, "l1_end": 3}, [0, 0.4, 0.4, 0, 0, 0]),
        ({"l1_start": 1, "l1_rise": 4}, [0, 0.1, 0.2, 0.3, 0.4, 0.4]),
        ({"l1_rise": 4, "l1_end": 2}, [0.1, 0.2, 0, 0, 0, 0]),
    ],
)
def test_its_strength_at_each_step(fields, expected):
    recipe = Recipe(l1_lambda=0.4, l1_entries=NAMES, **fields)
    hyper = hyper_of([recipe] * 6, SPEC.layout)
    assert strength({"step": torch.arange(6)}, hyper).tolist() == pytest.approx(expected)


def test_it_trains_as_torchs_adamw_on_the_penalised_loss():
    """In float64, the loss with the sum of absolute values written out; clipping sees both parts."""
    recipe = recipe_of("adamw", l1_lambda=2.0, l1_entries=NAMES, l1_start=5, l1_end=15, clip=7.0)
    hyper, optimiser = hyper_of([recipe], SPEC.layout), optimiser_of(recipe)
    state = state_of(SPEC.initial(777).double()[None], optimiser)
    theta = torch.nn.Parameter(state["theta"][0].clone())
    theirs = torch.optim.AdamW([theta], lr=recipe.lr, weight_decay=recipe.weight_decay)
    norms = []
    for n, tokens in enumerate(step.tokens_of(SPEC, *step.draw(state, hyper, 16, 20))):
        theirs.zero_grad()
        penalty = 2.0 * theta[PLACES].abs().sum() if 5 <= n < 15 else 0.0
        (step.loss(SPEC, theta[None], tokens).sum() + penalty).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_([theta], 7.0)))
        theirs.step()
        state, _ = step.train_step(SPEC, optimiser, state, hyper, tokens)
    torch.testing.assert_close(state["theta"][0], theta.detach(), rtol=0, atol=1e-6)
    assert min(norms) < 7.0 < max(norms), "clipping must be seen both on and off"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"l1_lambda": 0.1}, "l1_lambda=0.1 needs l1_entries"),
        ({"l1_entries": ("arc",)}, r"l1_entries=\('arc',\) needs l1_lambda"),
        ({"l1_lambda": 0.1, "l1_entries": (("arc", 1),)}, "l1_entries must be names"),
        ({"l1_lambda": 0.1, "l1_entries": ("arc",), "l1_start": 5, "l1_end": 5}, "must be after l1_start"),
    ],
)
def test_what_cannot_be_is_one_line(fields, line):
    with pytest.raises(ValueError, match=line) as error:
        Recipe(**fields)
    assert "\n" not in str(error.value)


def test_a_name_that_is_no_entry_says_the_nearest():
    with pytest.raises(ValueError, match=r"^l1_entries must be entries or tensors of θ: .*did you mean arc"):
        make([pair(1, l1_lambda=0.1, l1_entries=("ark",))])
