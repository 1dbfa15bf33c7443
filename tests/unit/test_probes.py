"""Probes: what they read of θ, against the definition by hand, on certificates and on fresh seeds."""

import math

import pytest
import torch

from model import preset
from model.families.split_subspace.forward import _NO_SCALARS, _attention_block, expand, ffn_inputs
from model.families.split_subspace.probes import _columns
from model.ops import scalars
from tests import CERTIFICATES
from trainer.checkpoints.checkpoint import Checkpoint


def certificate(name):
    found = Checkpoint.load(CERTIFICATES / name)
    return found.spec, found.theta_P


def read(spec, theta_P):
    return dict(zip(spec.probes(), spec.read(theta_P[None])[0].tolist(), strict=True))


def by_hand(theta_P, spec):
    """The 57p read-outs, written out on its own tensors."""
    t = {name: x[0] for name, x in spec.layout.split(theta_P[None].double()).items()}
    radius, start, stride = t["arc"].tolist()
    norm, head, fc1 = t["norm"][0], t["head"], t["fc1"]
    row = (head @ t["out_A"][:, 0]) * norm[:2]
    angles = [start + stride * d for d in range(10)]
    v = [radius * float(row[0] * math.cos(a) + row[1] * math.sin(a)) for a in angles]
    odd = abs(v[9] - v[0]) / (max(v) - min(v))
    f, b = fc1[:, :2] * norm[:2], t["out_B"][0] * (1 if v[9] > v[0] else -1)
    basin = odd > 0.9 and f[0, 0] > 0 > f[0, 1] and f[1, 1] > 0 > f[1, 0] and b[0] > 0 > b[1]
    return {"odd": odd, "basin": float(basin), "stride": stride}


def test_probes_of_57p_are_those_of_the_definition():
    spec, theta_P = certificate("57p")
    gen = torch.Generator().manual_seed(3)
    near = [theta_P * (1 + 0.7 * torch.randn(57, generator=gen)) for _ in range(300)]
    found = [read(spec, theta_P) for theta_P in near]
    for mine, theta_P in zip(found, near, strict=True):
        assert {k: mine[k] for k in ("odd", "basin", "stride")} == pytest.approx(by_hand(theta_P, spec))
    assert 5 < sum(f["basin"] for f in found) < 295
    assert 30 < sum(f["odd"] > 0.9 for f in found) < 270


@pytest.mark.parametrize("name", ["57p", "100p", "133p", "170p"])
def test_hidden_units_are_read_as_a_forward_pass_has_them(name):
    """To the bit, at any answer position: of all positions, with selects, and of one, by gathers."""
    spec = preset(name)
    theta_SP = torch.stack([spec.initial(n) for n in range(4)]).double() * 1.3
    tokens_TB = _columns(spec)[0]
    wide = expand(spec, theta_SP)
    p = {name: scalars(t) for name, t in wide.items() if name not in _NO_SCALARS}
    for length in (22, len(tokens_TB)):
        tokens_STB = tokens_TB[:length].expand(4, -1, -1)
        answers = slice(length - 22, length - 21)
        _, inputs = _attention_block(spec, wide, p, tokens_STB, answers)
        whole_SFB = torch.stack([h[:, 0] for h in inputs], dim=1)
        assert torch.equal(ffn_inputs(spec, theta_SP, tokens_TB[:length]), whole_SFB)


def test_lead_is_where_the_ring_part_of_the_scores_is_highest():
    spec, theta_P = certificate("57p")
    t = {name: x[0] for name, x in spec.layout.split(theta_P[None].double()).items()}
    q_proj, weights = t["q_proj"] * t["norm"][0, 2:], t["phase"].item()
    cos, sin = math.cos(weights), math.sin(weights)
    turn = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
    queries = torch.block_diag(turn, turn) @ q_proj
    form = (queries.T @ q_proj)[:2, :2]

    def score(ahead):
        """Averaged over the places on the ring."""
        places = torch.arange(40, dtype=torch.float64) * 2 * math.pi / 40
        seen = places + 2 * math.pi * ahead / 10
        ring, others = (torch.stack([p.cos(), p.sin()], dim=1) for p in (places, seen))
        return float(((ring @ form) * others).sum())

    best = max((n / 100 for n in range(-500, 500)), key=score)
    assert read(spec, theta_P)["lead"] == pytest.approx(best, abs=0.006)


@pytest.mark.parametrize("name", ["100p", "57p", "46p", "133p", "456p"])
def test_a_seed_is_read_alone_as_in_company_and_in_float64(name):
    spec = preset(name)
    theta_SP = torch.stack([spec.initial(n) for n in range(5)]) * 1.7
    found = spec.read(theta_SP)
    assert found.shape == (5, len(spec.probes())) and found.dtype == torch.float64
    alone = torch.cat([spec.read(theta_P[None]) for theta_P in theta_SP])
    torch.testing.assert_close(found, alone, rtol=0, atol=0, equal_nan=True)
