"""The low_rank family against its report. What every family must do is in tests/contract."""

import math

import pytest
import torch
from torch import nn

from model import preset
from model.families.low_rank.spec import SHARED, TIES, LowRank

# Counts (456p report, table 4; 777p, 582p, 311p and 262p from their checkpoints)

# Initial values

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
def test_initial_values_are_the_published_draws(spec):
    expected, ours = published_tensors(spec, 43), spec.layout.split(spec.initial(43)[None])
    assert ours.keys() == expected.keys()
    for name, t in ours.items():
        torch.testing.assert_close(t[0], expected[name][: t.shape[1]], rtol=2e-6, atol=5e-7, msg=name)
        assert len(expected[name]) - t.shape[1] == (spec.no_eos and name in ("positions", "pos_A")), name
