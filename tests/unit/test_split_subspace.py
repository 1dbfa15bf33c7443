"""Specs: counts, names, errors, and the split_subspace family against its papers. See tests/contract."""

import math

import pytest
import torch
from torch import nn

from model import preset

# Counts

# The published budgets; below 57p they are ours, a form of scores counted as q.


# Initial values


def published_initial(spec, seed):
    """The published module's draws, with torch's own modules and its global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        q_proj = nn.Linear(3, spec.query_dim, bias=False).weight
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
@pytest.mark.parametrize("name", ["74p", "67p", "57p"])
def test_initial_values_are_the_published_draws(name, seed):
    expected = published_initial(preset(name), seed)
    torch.testing.assert_close(preset(name).initial(seed), expected, rtol=5e-7, atol=1e-7)


def initial_tensors(spec, seed=777):
    return {name: t[0] for name, t in spec.layout.split(spec.initial(seed)[None]).items()}


def test_below_57p_what_remains_starts_as_it_would_have():
    start = initial_tensors(preset("57p"))
    smaller = {name: initial_tensors(preset(name)) for name in ("54p", "47p", "46p")}
    for name, tensors in smaller.items():
        same = tensors.keys() & start.keys() - ({"out_A", "out_B"} if name != "54p" else set())
        assert len(same) >= 5 and all(torch.equal(tensors[n], start[n]) for n in same)
    q_proj, head, out_A = (start[n].double() for n in ("q_proj", "head", "out_A"))
    torch.testing.assert_close(smaller["47p"]["form"], (q_proj.T @ q_proj / 2).float())
    torch.testing.assert_close(smaller["47p"]["out_A"], (head @ out_A).float())
    assert not smaller["47p"]["out_B"].any() and not smaller["46p"]["out_A"].any()
