"""Initial values of low_rank and split_subspace against the draws of what was published."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from model import preset
from model.families.low_rank.spec import SHARED, TIES, LowRank

# low_rank, after the training code of the 456p report

PLAIN = {"none": ("qkv",), "all": ("qkv",), "qk": ("qk", "v"), "kv": ("q", "kv")}
FACTORS = {
    "shareA": "A Bq Bk Bv", "shareA_tieQK": "A Bqk Bv", "shareA_tieKV": "A Bq Bkv", "shareB": "Aq Ak Av B",
    "shareB_tieQK": "Aqk Av B", "shareB_tieKV": "Aq Akv B",
}  # fmt: skip


def published_tensors(spec, seed):
    """The draws of the report's training code in its order: modules as torch makes them, then N(0, 0.02)."""
    d, rank, tensors = spec.width, spec.qkv_rank, {}

    def factors(name, reads, writes, rank, std=None):
        for part, shape in (("A", (reads, rank)), ("B", (rank, writes))):
            tensors[f"{name}_{part}"] = torch.empty(shape).normal_(0, std or math.sqrt(2 / sum(shape)))

    def matrix(name, reads, writes, rank):
        if rank:
            factors(name, reads, writes, rank)
        else:
            tensors[name] = nn.Linear(reads, writes, bias=False).weight

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tensors["tokens"] = nn.Embedding(14, d).weight
        if spec.pos_rank:
            factors("pos", spec.positions, d, spec.pos_rank, std=0.02)
        else:
            tensors["positions"] = nn.Embedding(spec.positions, d).weight
        for name in PLAIN.get(spec.tie_qkv, ()):
            matrix(name, d, 3 * d if spec.tie_qkv == "none" else d, rank)
        for name in FACTORS.get(spec.tie_qkv, "").split():
            shape = (d, rank) if name[0] == "A" else (rank, d)
            tensors[f"qkv_{name}"] = torch.empty(shape).normal_(0, math.sqrt(2 / (d + rank)))
        matrix("out", d, d, spec.out_rank)
        matrix("fc1", d, spec.ffn, spec.ffn_rank)
        matrix("fc2", spec.ffn, d, spec.ffn_rank)
        nn.Linear(d, 14, bias=False)  # the head, before it is tied
        for tensor in tensors.values():
            if isinstance(tensor, nn.Parameter):
                nn.init.normal_(tensor, mean=0.0, std=0.02)
        nn.init.normal_(tensors["tokens"], mean=0.0, std=0.02)  # once more, as the head
    for name in ("norm1", "norm2", "norm3"):
        tensors[name] = torch.ones(d)
        tensors |= {} if spec.rms_norm else {f"{name}_bias": torch.zeros(d)}
    return {name: tensor.detach() for name, tensor in tensors.items()}


RANKS = {"pos_rank": 3, "out_rank": 2, "ffn_rank": 3}
SMALL = {"width": 4, "ffn": 6, "out_rank": 5, "no_eos": True}
DRAWN = [
    LowRank(tie_qkv=tie, qkv_rank=rank, rms_norm=n % 2 == 0, **(RANKS if n % 3 else SMALL))
    for n, (tie, rank) in enumerate([(t, 0) for t in TIES] + [(t, 3) for t in (*TIES, *SHARED)])
]


@pytest.mark.parametrize("spec", [*DRAWN, preset("777p"), preset("456p"), preset("262p")], ids=str)
def test_initial_values_of_low_rank_are_the_published_draws(spec):
    expected, ours = published_tensors(spec, 43), spec.layout.split(spec.initial(43)[None])
    assert ours.keys() == expected.keys()
    for name, t in ours.items():
        torch.testing.assert_close(t[0], expected[name][: t.shape[1]], rtol=2e-6, atol=5e-7, msg=name)
        assert len(expected[name]) - t.shape[1] == (spec.no_eos and name in ("positions", "pos_A")), name


# split_subspace, after its published module


def published_initial(spec, seed):
    """The published module's draws, with torch's own modules and its global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        q_proj = nn.Linear(3, spec.query_dim, bias=False).weight
        out_A, out_B = torch.empty(5, 1), torch.zeros(1, 5)
        nn.init.kaiming_uniform_(out_A, a=math.sqrt(5))
        fc1 = nn.Linear(5, spec.hidden, bias=False).weight
        fc2 = [] if spec.tie_fc2_head else [nn.Linear(spec.hidden, 5, bias=False).weight]
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
@pytest.mark.parametrize("name", ["74p", "67p", "57p", "67p hidden=3", "67p hidden=8", "67p hidden=16"])
def test_initial_values_of_split_subspace_are_the_published_draws(name, seed):
    """With more hidden units: the same draws in the same order, of larger matrices."""
    base, _, hidden = name.partition(" hidden=")
    spec = dataclasses.replace(preset(base), hidden=int(hidden or 2))
    torch.testing.assert_close(spec.initial(seed), published_initial(spec, seed), rtol=5e-7, atol=1e-7)


def initial_tensors(spec):
    return {name: t[0] for name, t in spec.layout.split(spec.initial(777)[None]).items()}


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
