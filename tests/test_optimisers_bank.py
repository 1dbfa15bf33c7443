"""What wrappers do at evaluations: a second θ beside the first."""

import pytest
import torch

from model import preset
from tests.banks import finish, make, pair
from trainer import Recipe
from trainer.engine.native import EngineBackend
from trainer.files.installed import missing_for_compilation

pytestmark = pytest.mark.usefixtures("few_selection_problems")


@pytest.mark.skipif(bool(missing_for_compilation()), reason=f"needs {missing_for_compilation()}")
def test_what_is_off_costs_no_operation():
    """As many in 57p's expand, probe and take as before there were wrappers; what is on adds some."""
    counts = [t.reads.shape[1] for t in EngineBackend(preset("57p"), Recipe()).tapes]
    assert counts[1:] == [3_174, 0, 1_058]
    for fields in ({"sam_rho": 0.1}, {"wd_schedule": "warmup"}):
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
