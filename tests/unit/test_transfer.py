"""A θ moved to another spec: what is exact is exact, what is not says how near it came."""

import pytest
import torch

from model import preset
from model.fold import fold
from model.tied import project
from model.transfer import fold_path, transfer
from tests.specs import some_theta, some_tokens
from tests.unit.test_tied import tied


def answers(spec, theta_P):
    """Logits of the eleven answer digits."""
    tokens = some_tokens(spec, 1)
    out = torch.stack(spec.forward(theta_P[None], tokens[:, :-1], first=spec.prompt - 1))
    return out[:, 0, :11]


@pytest.mark.parametrize(("one", "other"), [("54p", "46p"), ("57p", "46p"), ("57p", "54p"), ("54p", "47p")])
def test_where_folds_lead_it_is_folded(one, other):
    theta = some_theta(preset(one))[0]
    moved = transfer(preset(one), theta, preset(other))
    assert [f"folded: {s.description}" for s in fold_path(preset(one), preset(other))] == [*moved.how]
    if other == "46p":
        assert torch.equal(moved.theta_Q, fold(preset(one), theta).theta_P)
    assert torch.allclose(answers(preset(one), theta), answers(preset(other), moved.theta_Q), atol=1e-3)


def test_out_of_ties_and_into_them():
    theta = some_theta(tied())[0]
    free = transfer(tied(), theta, preset("46p"))
    assert torch.equal(free.theta_Q, tied().untie(theta[None])[0]) and free.how == ()
    back = transfer(preset("46p"), free.theta_Q, tied())
    assert torch.equal(back.theta_Q, theta) and back.how == ("projected on the ties",)
    other = some_theta(preset("46p"))[0]
    assert torch.equal(transfer(preset("46p"), other, tied()).theta_Q, project(tied().ties, other[None])[0])


def test_a_tighter_spec_takes_the_nearest_and_says_how_near():
    wide, narrow = preset("67p"), preset("57p")
    theta = wide.initial(3)
    moved = transfer(wide, theta, narrow)
    tensors = wide.layout.split(theta[None])
    by_name = narrow.layout.join({n: tensors[n][0] for n in narrow.layout.names})

    def distance(theta_Q):
        ours, theirs = wide.expand(theta[None]), narrow.expand(theta_Q[None])
        return sum(float((ours[n] - theirs[n]).square().sum()) for n in ours)

    assert 0 < distance(moved.theta_Q) < distance(by_name)
    assert "differ by at most" in moved.how[0]


def test_parameters_of_the_same_effect_are_fitted():
    """Their damping had come so near to 0 that a step had no solution."""
    rope = preset("62p")
    for seed in range(5):
        moved = transfer(rope, rope.initial(seed), rope.constrained("scaled_k", True))
        assert moved.theta_Q.isfinite().all()
        assert moved.how[0].startswith("nearest by its wide tensors")
