"""Specs: their counts, names, layouts and initial values. What they compute is in test_forward.py."""

import math
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from torch import nn

from model import RUNGS, make_spec, name_of, rung
from model.layout import Layout
from tests.specs import SPECS, UNTIED, every_spec, some_theta, some_tokens
from trainer import step

# Counts


@pytest.mark.parametrize(("name", "count"), [("57p", 57), ("67p", 67), ("74p", 74)])
def test_published_counts(name, count):
    spec = rung(name)
    assert spec.params == count == spec.initial(0).numel() == sum(spec.layout.budget().values())
    assert name_of(spec) == name


def test_75p_has_no_name():
    assert SPECS["75p"].params == 75
    assert name_of(SPECS["75p"]) == "split_subspace 75p"


def test_budget_of_57p_is_the_papers():
    published = {"arc": 3, "z_hi": 3, "equals": 3, "phase": 1, "q_proj": 12}
    published |= {"out": 10, "fc1": 10, "head": 10, "norm": 5}
    ours = rung("57p").layout.budget()
    ours["out"] = ours.pop("out_A") + ours.pop("out_B")
    assert ours == published


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        (
            "57p",
            {
                "circular": 1,
                "frozen_spiral": 4,
                "qk_dim": 3,
                "tie_vo": 10,
                "tie_fc2_head": 10,
                "rank1_out": 15,
                "shared_norm": 10,
            },
        ),
        ("74p", {"circular": 1, "frozen_spiral": 0, "qk_dim": 0, "tie_vo": 10, "tie_fc2_head": 0}),
    ],
)
def test_what_constraints_save(name, saved):
    assert {c: rung(name).saved_by(c) for c in saved} == saved


def test_savings_add_up_to_the_unconstrained_model():
    spec = rung("57p")
    assert spec.params + sum(spec.saved_by(c) for c in spec.constraints()) == UNTIED.params


def test_specs_are_values():
    assert make_spec(**rung("57p").as_dict()) == rung("57p")
    assert len({*RUNGS.values(), *map(replace, RUNGS.values())}) == len(RUNGS)
    with pytest.raises(FrozenInstanceError):
        rung("57p").qk_dim = 5


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: rung("57"), "unknown rung '57'.*57p"),
        (lambda: rung("p76"), "57p"),
        (lambda: make_spec("split_subspce"), "unknown family.*split_subspace"),
        (lambda: make_spec("split_subspace", tie_fc_head=True), "unknown constraint.*tie_fc2_head"),
        (lambda: make_spec("split_subspace", qkdim=4), "unknown constraint.*qk_dim"),
        (lambda: make_spec("split_subspace", qk_dim=1), "qk_dim must be from 2 to 16, got 1"),
        (lambda: make_spec("split_subspace", qk_dim=17), "qk_dim must be from 2 to 16, got 17"),
        (lambda: make_spec("split_subspace", qk_dim=4.0), "qk_dim must be an integer, got 4.0"),
        (lambda: make_spec("split_subspace", qk_dim=True), "qk_dim must be an integer, got True"),
        (lambda: make_spec("split_subspace", tie_vo=1), "tie_vo must be true or false, got 1"),
        (lambda: rung("57p").saved_by("tie_fc_head"), "tie_fc2_head"),
    ],
)
def test_wrong_names_and_values_are_explained(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# Layout


@every_spec
def test_split_and_join_are_inverse(spec):
    theta = torch.randn(3, spec.params)
    parts = spec.layout.split(theta)
    assert {n: tuple(t.shape[1:]) for n, t in parts.items()} == spec.shapes()
    for s in range(3):
        assert torch.equal(spec.layout.join({n: t[s] for n, t in parts.items()}), theta[s])


@every_spec
def test_every_parameter_moves_the_loss(spec):
    """A number that the forward pass never reads would be counted for nothing."""
    theta = some_theta(spec).requires_grad_()
    loss = step.loss(spec, theta, some_tokens(spec, batch=64)).sum()
    assert (torch.autograd.grad(loss, theta)[0] != 0).all()


def test_join_refuses_missing_and_ill_sized_tensors():
    layout = Layout.of({"a": (2, 3), "b": (1,)})
    good = {"a": torch.zeros(2, 3), "b": torch.zeros(1)}
    assert layout.join(good).shape == (7,)
    with pytest.raises(ValueError, match=r"b must have shape \(1,\), found \(2,\)"):
        layout.join({**good, "b": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"a must have shape .* found nothing"):
        layout.join({"b": torch.zeros(1)})


# Initial values


def published_initial(spec, seed):
    """The published module's draws, with torch's own modules and its global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        q_proj = nn.Linear(3, spec.qk_dim, bias=False).weight
        out_A, out_B = torch.empty(5, 1), torch.zeros(1, 5)
        nn.init.kaiming_uniform_(out_A, a=math.sqrt(5))
        fc1 = nn.Linear(5, 2, bias=False).weight
        fc2 = [] if spec.tie_fc2_head else [nn.Linear(2, 5, bias=False).weight]
        head = nn.Linear(5, 2, bias=False).weight
        z_hi, equals = (nn.init.normal_(torch.empty(3), 0, 0.02) for _ in range(2))
        for weight in (q_proj, fc1, *fc2, head):
            nn.init.xavier_uniform_(weight)
    arc = torch.tensor([2.5, -1.2, 0.29])
    spiral = [] if spec.frozen_spiral else [torch.tensor([3.5, 0.0, 0.15, 0.0])]
    positions = [*spiral, z_hi, equals]
    matrices = [q_proj, out_A, out_B, fc1, *fc2, head]
    ordered = [arc, *positions, torch.zeros(1), *matrices, torch.ones(5)]
    return torch.cat([t.detach().reshape(-1) for t in ordered])


@pytest.mark.parametrize("seed", [0, 777, 71046, 45214])
@pytest.mark.parametrize("name", RUNGS)
def test_initial_values_are_the_published_draws(name, seed):
    assert torch.equal(rung(name).initial(seed), published_initial(rung(name), seed))


def test_initial_values_of_seed_777_never_change():
    stored = [0.02538074, 0.04442274, 0.01261762, 0.00866001, 0.00964772, 0.0303326, 0.0, 0.02448213]
    assert rung("57p").initial(777)[3:11].tolist() == pytest.approx(stored, abs=1e-7)


def test_initial_values_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    first = rung("57p").initial(5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    assert torch.equal(rung("57p").initial(5), first)
    assert not torch.equal(rung("57p").initial(6), first)
