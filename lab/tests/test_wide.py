"""The road from a wide net to 57 numbers: its recipe, its choice of units, and what one stage hands to the next."""

import dataclasses
import sys

import torch

from lab.plans import LAB
from model import preset
from tests import CERTIFICATES
from tests.specs import some_tokens
from trainer.checkpoints.checkpoint import Checkpoint

sys.path.insert(0, str(LAB / "2026-11-28-wide"))
import road

WIDE = road.ARMS["eight"].spec


def wide_theta(places):
    """A θ of eight hidden units of which two, at these places, are a certificate's; the others say little."""
    small = Checkpoint.load(CERTIFICATES / "57p")
    tensors = {name: t[0] for name, t in small.spec.layout.split(small.theta_P[None]).items()}
    gen = torch.Generator().manual_seed(1)
    fc1, fc2 = torch.randn(8, 5, generator=gen), 1e-3 * torch.randn(5, 8, generator=gen)
    fc1[places], fc2[:, places] = tensors["fc1"], tensors["head"].T
    return WIDE.layout.join({**tensors, "fc1": fc1, "fc2": fc2}), small.theta_P


def net(seed, grokked, exact, units=(0, 1)):
    return road.Net(seed, units, grokked, exact, torch.zeros(1))


def test_the_wide_stage_is_57p_longer_without_restarts_and_recycling():
    recipe, longer = road.ARMS["eight"].recipe("wide"), road.LONGER
    changed = {f.name for f in dataclasses.fields(recipe) if getattr(recipe, f.name) != getattr(longer, f.name)}
    assert changed == {*road.AGAIN, "steps"} - {"recycle_from"} and recipe.steps == 60_000
    assert not recipe.recycle_every and not recipe.again_at


def test_the_units_that_add_come_first_and_are_a_57p_by_themselves(monkeypatch):
    monkeypatch.setattr(road, "RANKING_PROBLEMS", 50)
    theta_P, small_P = wide_theta([5, 2])
    first, *_ = tries = road.pairs_of(WIDE, road.Net(1, (), True, 1.0, theta_P), 3)
    assert len(tries) == 3 and first.units == (2, 5) and first.cut_loss < 0.1 < tries[1].cut_loss
    tied = road.Net(1, (5, 2), True, 1.0, theta_P)
    one, other = road.namings_of(WIDE, tied)
    assert one.units == (5, 2) and other.units == (2, 5)
    assert torch.equal(road.without_fc2(one.start), small_P)
    tokens = some_tokens(preset("57p"))[:, :-1]
    cut_P = theta_P.clone()
    cut_P[[n for n, k in enumerate(first.ties) if k == 0]] = 0
    expected = torch.stack(WIDE.forward(cut_P[None], tokens, 21))
    for start in (one.start, other.start):
        torch.testing.assert_close(torch.stack(road.NARROW.forward(start[None], tokens, 21)), expected)


def test_a_stage_hands_on_the_first_that_grokked_or_else_what_is_nearly_right():
    nets = [
        net(1, False, 0.99), net(1, True, 1.0, (3, 4)), net(1, True, 1.0, (5, 6)),
        net(2, False, 0.95, (1, 2)), net(2, False, 0.97, (3, 4)), net(3, False, 0.949),
    ]  # fmt: skip
    assert [(n.seed, n.units) for n in road.handed_on(nets)] == [(1, (3, 4)), (2, (3, 4))]
    assert [n.seed for n in road.missing(road.handed_on(nets), nets)] == [2]
