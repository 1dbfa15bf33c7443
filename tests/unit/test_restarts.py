"""Restarts: another vector where a seed has not got somewhere, within the same budget. Recycling: hidden units
that do not turn over become the opposite of one that does.
"""

import dataclasses

import torch

from model import preset
from model.families.split_subspace.probes import opposed, turns
from model.tied import Tied, constrained, free, project, tie
from tests import CERTIFICATES
from tests.banks import EVERY, SPEC, finish, make, pair
from trainer import Outcome, Pair, Seed
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.recipe.restarts import is_recycling_due, restart_seed

ON = {
    "recycle_every": EVERY, "recycle_from": EVERY, "recycle_until": 2 * EVERY,
    "recycle_unless": [["switches", 0.95]], "steps": 4 * EVERY,
}  # fmt: skip


def certificate():
    return Checkpoint.load(CERTIFICATES / "57p")


def with_units(first, second):
    """A certificate's θ [1, P] with each hidden unit's weights those of one of its own, times a number."""
    found = certificate()
    theta_SP = found.theta_P[None].clone()
    own = found.spec.layout.split(found.theta_P[None])["fc1"][0]
    fc1 = found.spec.layout.split(theta_SP)["fc1"]
    fc1[0] = torch.stack([own[unit] * factor for unit, factor in (first, second)])
    return found.spec, theta_SP


def units(spec, theta_SP):
    return spec.layout.split(theta_SP)["fc1"][0]


def test_a_unit_that_does_not_turn_over_becomes_the_opposite_of_the_one_that_does():
    spec, theta_SP = with_units((0, 1), (1, 0))  # the second reads nothing
    up, dead = turns(spec, theta_SP.double())[0].tolist()
    assert abs(up) == 1 != abs(dead)
    made_SP = opposed(spec, theta_SP)
    assert torch.equal(units(spec, made_SP)[1], -units(spec, theta_SP)[0])
    assert spec.read(made_SP)[0, list(spec.probes()).index("switches")] == 1
    changed_P = (made_SP != theta_SP)[0]
    assert changed_P.sum() == 5 and torch.equal(made_SP.isfinite(), theta_SP.isfinite())
    spec, theta_SP = with_units((0, 0), (1, 1))
    made_SP = opposed(spec, theta_SP)
    assert torch.equal(units(spec, made_SP)[0], -units(spec, theta_SP)[1])


def test_of_several_hidden_units_the_first_idle_one_becomes_the_opposite_of_the_first_that_switches():
    """Of the last, where all switch the same way; no unit changes where some switch either way, or none."""
    small, theta_SP = with_units((0, 1), (1, 1))
    wide, tensors = dataclasses.replace(preset("67p"), hidden=4), small.layout.split(theta_SP)
    up, down = tensors["fc1"][0]
    for given, expected in (
        ([0 * up, up, 0 * up, 2 * up], [-up, up, 0 * up, 2 * up]),
        ([down, 3 * down, down, down], [down, 3 * down, down, -down]),
        ([down, 0 * up, 0 * up, up], [down, 0 * up, 0 * up, up]),
        ([0 * up] * 4, [0 * up] * 4),
    ):
        fc2 = torch.zeros(1, *wide.shapes()["fc2"])
        theta_SQ = wide.layout.join({**tensors, "fc1": torch.stack(given), "fc2": fc2})[None]
        assert torch.equal(units(wide, opposed(wide, theta_SQ)), torch.stack(expected))


def test_of_a_tied_model_the_nearest_that_keeps_the_ties():
    """Units that mirror each other in every token: the opposite of one is half of each."""
    small, wide_SP = with_units((0, 1), (1, 0))
    mirrored = tie(small, constrained(small, ["fc1[1,1] = fc1[0,0]"]))
    theta_SR = project(mirrored.ties, wide_SP)
    made_SR = mirrored.recycled()(mirrored, theta_SR)
    expected_SP = opposed(small, mirrored.untie(theta_SR))
    assert torch.equal(made_SR, project(mirrored.ties, expected_SP))
    assert 0 < (made_SR != theta_SR).sum() <= 5
    whole = tie(small, constrained(small, ["norm[0,3] = norm[0,0]", "arc[2] = 0"]))
    theta_SR = project(whole.ties, certificate().theta_P[None])
    assert torch.equal(whole.recycled()(whole, theta_SR), theta_SR)  # one each way already
    assert Tied(base=preset("456p"), ties=free(456)).recycled() is None


def near(count):
    """θ [S, P] near a certificate's, of a third the second hidden unit reading what the first does."""
    gen = torch.Generator().manual_seed(1)
    theta_SP = certificate().theta_P * (1 + 0.02 * torch.randn(count, 57, generator=gen))
    fc1 = SPEC.layout.split(theta_SP)["fc1"]
    fc1[::3, 1] = fc1[::3, 0]
    return theta_SP


def begun(seed, **recipe):
    """A pair that starts near a certificate, and stays there."""
    plain = pair(seed, lr=1e-5, **recipe)
    return Pair(plain.recipe, plain.seed, start=tuple(near(9)[seed % 9].tolist()))


def test_units_are_recycled_at_a_distance_between_two_ages():
    """The second pair never."""
    numbers = {"recycle_every": (4, 0), "recycle_from": (6, 6), "recycle_until": (14, 14)}
    limits = {name: torch.tensor(pair) for name, pair in numbers.items()}
    for n, expected in ((0, [6, 10, 14]), (1, [])):
        due_L = is_recycling_due(limits, torch.full((20,), n), torch.arange(20))
        assert due_L.nonzero().flatten().tolist() == expected


def test_a_bank_recycles_and_the_optimiser_forgets_the_units_that_changed():
    one, other = (make([begun(s, **how) for s in range(9)]) for how in (ON, {"steps": ON["steps"]}))
    one.advance(), other.advance()
    before, after = other.state, one.state
    assert torch.equal(opposed(SPEC, before["theta"]), after["theta"])
    changed = before["theta"] != after["theta"]
    seeds = changed.any(1)
    assert 2 < seeds.sum() < 9
    for name in ("m", "v"):
        assert (before[name][changed] != 0).any() and (after[name][changed] == 0).all()
        assert torch.equal(after[name][~changed], before[name][~changed])
    finish(one), finish(other)
    for n in range(9):
        mine, theirs = one.result(n).curve_EM, other.result(n).curve_EM
        assert torch.equal(mine[0], theirs[0]) and torch.equal(mine, theirs) is not bool(seeds[n])


# Restarts

AGAIN = {"again_at": 2 * EVERY, "again_unless": [["token", 1]], "again_most": 2, "steps": 8 * EVERY}
"""Nobody gets there, so all begin again."""


def alone(seed, steps, data_seed=None):
    """The curve of a seed that begins once, of AGAIN's schedules."""
    plain = pair(seed, steps=8 * EVERY)
    bank = make([Pair(plain.recipe, Seed(seed, data_seed or seed))])
    for _ in range(steps // EVERY):
        bank.advance()
    return bank.result(0).curve_EM


def test_each_try_is_a_run_of_its_own_vector_from_step_0_on():
    """The curve is three curves, one after the other, and counts every step."""
    bank = finish(make([pair(3, **AGAIN)]))
    mine = bank.result(0)
    assert mine.steps == 8 * EVERY and bank.seed_steps == 8 * EVERY and mine.outcome is Outcome.FAILED
    parts = [(3, 2), (restart_seed(3, 1), 2), (restart_seed(3, 2), 4)]
    expected = torch.cat([alone(vector, count * EVERY, 3)[:count] for vector, count in parts])
    assert torch.equal(mine.curve_EM, expected) and len({vector for vector, _ in parts}) == 3


def test_whoever_gets_there_goes_on_as_if_nothing_were_asked():
    reached = {**AGAIN, "again_unless": [["token", 0]]}
    mine = finish(make([pair(3, **reached)])).result(0)
    assert torch.equal(mine.curve_EM, alone(3, 8 * EVERY))
