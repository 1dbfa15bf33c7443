"""The low_rank family against its report. What every family must do is in tests/contract."""

import dataclasses
import importlib
import math

import pytest
import torch
from torch import nn

from model import add, make_spec, preset
from model.families.low_rank.spec import SHARED, TIES, LowRank
from trainer.step import step

# Counts (456p report, table 4; 777p, 582p, 311p and 262p from their checkpoints)

COMPONENTS = ("tokens", "pos", "qkv", "out", "fc", "norm")


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        ("777p", [98, 245, 147, 49, 196, 42]),
        ("763p", [98, 231, 147, 49, 196, 42]),
        ("582p", [98, 120, 84, 42, 196, 42]),
        ("512p", [98, 120, 84, 42, 126, 42]),
        ("491p", [98, 120, 84, 42, 126, 21]),
        ("456p", [98, 120, 63, 28, 126, 21]),
        ("311p", [56, 111, 36, 24, 72, 12]),
        ("262p", [56, 74, 36, 24, 60, 12]),
    ],
)
def test_budgets_are_the_published_ones(name, budget):
    spec = preset(name)
    parts = spec.layout.budget()
    assert [sum(n for part, n in parts.items() if part.startswith(c)) for c in COMPONENTS] == budget
    assert spec.params == sum(budget) == int(name[:-1])


def test_without_factors_none_are_shared():
    spec = preset("456p")
    assert spec.without("qkv_rank") == dataclasses.replace(spec, qkv_rank=0, tie_qkv="none")
    assert dataclasses.replace(spec, tie_qkv="kv").without("qkv_rank").tie_qkv == "kv"


# Specs


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *[({"tie_qkv": tie}, f"tie_qkv={tie} needs a qkv_rank above 0, got qkv_rank=0") for tie in SHARED],
        ({"no_eos": True, "positions": 35}, "no_eos needs positions=33"),
        ({"positions": 34}, "positions must be 33 or 35, got 34"),
        ({"tie_qkv": "vk"}, "tie_qkv must be none, all, qk, kv, shareA, .* got 'vk'"),
        ({"qkv_rank": -1}, "qkv_rank must be from 0 to 16, got -1"),
        ({"rank": 3}, "unknown constraint 'rank' of low_rank; did you mean .*pos_rank"),
    ],
)
def test_contradictions_are_explained(options, says):
    with pytest.raises(ValueError, match=says):
        make_spec("low_rank", **options)


@pytest.mark.parametrize("no_eos", [False, True])
def test_operands_begin_with_their_first_digit_and_the_sum_with_its_last(no_eos):
    a, b = (torch.tensor([[n]], dtype=torch.float64) for n in (1234567890, 9876543219))
    tokens = step.tokens_of(LowRank(no_eos=no_eos), a, b)[0, :, 0].tolist()
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 9, 11]
    assert tokens == prompt + [9, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1] + [13] * (not no_eos)


# Initial values


class Factors(nn.Module):
    """x · A · B, or the rows of A · B."""

    def __init__(self, reads, writes, rank, std=None):
        super().__init__()
        self.A = nn.Parameter(torch.empty(reads, rank))
        self.B = nn.Parameter(torch.empty(rank, writes))
        nn.init.normal_(self.A, std=std or math.sqrt(2 / (reads + rank)))
        nn.init.normal_(self.B, std=std or math.sqrt(2 / (rank + writes)))


class Published(nn.Module):
    """The modules of the report's training code in its order, under our names."""

    def __init__(self, spec):
        super().__init__()
        d, rank = spec.width, spec.qkv_rank

        def matrix(reads, writes, rank):
            return Factors(reads, writes, rank) if rank else nn.Linear(reads, writes, bias=False)

        def norm():
            return nn.RMSNorm(d) if spec.rms_norm else nn.LayerNorm(d)

        self.tokens = nn.Embedding(14, d)
        rows = spec.positions
        if spec.pos_rank:
            self.pos = Factors(rows, d, spec.pos_rank, std=0.02)
        else:
            self.positions = nn.Embedding(rows, d)
        self.norm1 = norm()
        modules = {"none": ["qkv"], "all": ["qkv"], "qk": ["qk", "v"], "kv": ["q", "kv"]}
        for name in modules.get(spec.tie_qkv, []):
            setattr(self, name, matrix(d, 3 * d if spec.tie_qkv == "none" else d, rank))
        factors = {
            "shareA": "A Bq Bk Bv",
            "shareA_tieQK": "A Bqk Bv",
            "shareA_tieKV": "A Bq Bkv",
            "shareB": "Aq Ak Av B",
            "shareB_tieQK": "Aqk Av B",
            "shareB_tieKV": "Aq Akv B",
        }
        for name in factors.get(spec.tie_qkv, "").split():
            drawn = torch.empty((d, rank) if name[0] == "A" else (rank, d)).normal_(
                0, math.sqrt(2 / (d + rank))
            )
            setattr(self, f"qkv_{name}", nn.Parameter(drawn))
        self.out = matrix(d, d, spec.out_rank)
        self.norm2 = norm()
        self.fc1 = matrix(d, spec.ffn, spec.ffn_rank)
        self.fc2 = matrix(spec.ffn, d, spec.ffn_rank)
        self.norm3 = norm()
        self.head = nn.Linear(d, 14, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self.draw_again)

    @staticmethod
    def draw_again(module):
        if isinstance(module, nn.Embedding | nn.Linear):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)


def published_tensors(spec, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        named = Published(spec).named_parameters()
    return {name.removesuffix(".weight").replace(".", "_"): t.detach() for name, t in named}


RANKS = {"pos_rank": 3, "out_rank": 2, "ffn_rank": 3}
SMALL = {"width": 4, "ffn": 6, "out_rank": 5, "no_eos": True}
PROJECTIONS = [(tie, 0) for tie in TIES] + [(tie, 3) for tie in (*TIES, *SHARED)]
DRAWN = [
    LowRank(tie_qkv=tie, qkv_rank=rank, rms_norm=n % 2 == 0, **sizes)
    for n, (tie, rank) in enumerate(PROJECTIONS)
    for sizes in ({}, RANKS, SMALL)
]


@pytest.mark.parametrize("spec", [*DRAWN, preset("777p"), preset("456p"), preset("262p")], ids=str)
def test_initial_values_are_the_published_draws(spec):
    expected, found = published_tensors(spec, 43), spec.layout.split(spec.initial(43)[None])
    assert found.keys() == expected.keys()
    for name, t in found.items():
        torch.testing.assert_close(t[0], expected[name][: t.shape[1]], rtol=2e-6, atol=5e-7, msg=name)
        assert len(expected[name]) - t.shape[1] == (spec.no_eos and name in ("positions", "pos_A")), name


# Decoding


@pytest.mark.parametrize(
    ("said", "answer"),
    [([4, 3, 13, 5], 34), ([4, 3, 12, 5], 34), ([10], 0), ([1] * 11, 11111111111), ([0, 2, 11], 20)],
)
def test_an_answer_ends_after_eleven_digits_or_at_the_first_token_that_is_none(said, answer, monkeypatch):
    said = said + [9] * (11 - len(said))
    template = importlib.import_module("model.submissions.low_rank")
    asked = []
    monkeypatch.setattr(template, "generate", lambda *call: asked.append(call[1:]) or said)
    assert template.add(nn.Identity(), 12, 3) == answer
    assert asked == [([0] * 8 + [1, 2, 10] + [0] * 9 + [3, 11], 11)]

    def forward(_self, theta_SP, tokens_STB, first):
        return [torch.full((1, 1, 1), float(v == said[first - 21])) for v in range(14)]

    monkeypatch.setattr(LowRank, "forward", forward)
    assert add(LowRank(), torch.zeros(763), [12], [3]) == [answer]
