"""What wrappers do at evaluations: a second θ beside the first, perturbation and the best of some."""

import pytest
import torch

from model import preset
from tests.banks import EVERY, SPEC, finish, make, pair
from trainer import Recipe
from trainer.engine.native import EngineBackend
from trainer.files.installed import missing_for_compilation
from trainer.optimisers.jiggle import perturbed
from trainer.step.schedule import hyper_of

pytestmark = pytest.mark.usefixtures("few_selection_problems")


@pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")
def test_what_is_off_costs_no_operation():
    """As many in 57p's expand, probe and take as before there were wrappers; what is on adds some."""
    counts = [t.reads.shape[1] for t in EngineBackend(preset("57p"), Recipe()).tapes]
    assert counts[1:] == [3_174, 0, 1_058]
    for fields in ({"sam_rho": 0.1}, {"noise_eta": 0.1}, {"wd_schedule": "warmup"}):
        assert sum(t.reads.shape[1] for t in EngineBackend(preset("57p"), Recipe(**fields)).tapes) > sum(
            counts
        )


def watched(bank, exact):
    """Have a bank's evaluations say `exact(θ)`, and keep every θ that was evaluated."""
    seen = []

    def evaluate(theta_SP):
        seen.append(theta_SP.clone())
        said, one = exact(theta_SP, len(seen)), torch.ones(len(theta_SP))
        return {"exact": said * one, "token": said * one, "loss": one}

    bank.programs.evaluate = evaluate
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


JIGGLE = {"jiggle_every": 4 * EVERY, "jiggle_settle": EVERY, "jiggle_candidates": 2, "steps": 8 * EVERY}


@pytest.mark.parametrize("best", [5, 6, 7])
def test_a_jiggle_keeps_the_best_of_its_candidates(best):
    """It begins at the fourth evaluation; at the fifth θ has settled without a perturbation, at the sixth and
    seventh after one from where it began. Nothing is learnt here, so θ says where it comes from.
    """
    bank = make([pair(1, **JIGGLE, lr=1e-3, warmup=0, lr_floor=1.0, weight_decay=0.0, jiggle_strength=100.0)])
    seen = watched(bank, lambda theta, n: 0.9 if n == best else 0.1 * (n < 5))
    moved = bank.programs.train

    def train(state, hyper, steps):
        """θ grows by what it can be known by."""
        new, loss = moved(state, hyper, steps)
        return new | {"theta": state["theta"] + 1e-3}, loss

    bank.programs.train = train
    finish(bank)
    theta = {n: t[0] for n, t in enumerate(seen, start=1)}
    torch.testing.assert_close(theta[5], theta[4] + 1e-3)
    for n in (6, 7):
        assert (theta[n] - theta[5]).abs().max() > 0.01, "from a perturbation of where it began"
    torch.testing.assert_close(theta[8], theta[best] + 1e-3)


def test_a_perturbation_is_of_each_tensors_own_size():
    theta = torch.stack([SPEC.initial(s) for s in (1, 2)])
    now = hyper_of([Recipe(jiggle_every=10_000, jiggle_strength=2.0, lr=0.05)] * 2)
    state = {"data_seed": torch.tensor([1, 2]), "step": torch.tensor([1_000, 1_000])}
    moved = perturbed(SPEC, theta, state, now)
    pairs = zip(SPEC.layout.split(moved - theta).values(), SPEC.layout.split(theta).values(), strict=True)
    for change, tensor in pairs:
        size = tensor.flatten(1).square().mean(1).sqrt()
        torch.testing.assert_close(
            change.flatten(1).square().mean(1).sqrt(), 0.1 * size, rtol=1e-4, atol=1e-7
        )
    again = perturbed(
        SPEC, theta[1:], {k: t[1:] for k, t in state.items()}, {k: t[1:] for k, t in now.items()}
    )
    assert torch.equal(again[0], moved[1]) and not torch.equal(moved[0] - theta[0], moved[1] - theta[1])


def test_the_engines_random_numbers_are_torchs(monkeypatch):
    from trainer.data.problems import uniforms

    bank = make([pair(7, noise_eta=1e-12, steps=EVERY)])
    place = bank.programs.places["draws"]
    kept = []
    whole = torch.from_numpy
    monkeypatch.setattr(torch, "from_numpy", lambda array: kept.append(array) or whole(array))
    finish(bank)
    row = next(a for a in kept if a.ndim == 2 and a.shape[1] == bank.programs.program.row)
    expected = uniforms(torch.tensor([7]), torch.tensor([EVERY - 1]), 2 * SPEC.params)
    assert torch.equal(whole(row[:, place].copy()), expected)
    assert 0 < expected.min() < expected.max() < 1
