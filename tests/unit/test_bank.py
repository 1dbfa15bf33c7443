"""Banks, eager and small: company, slots, divergence, interruptions.

What an evaluation decides is in test_outcomes.py; that compiled banks do the same, in test_compiled.py.
"""

import pytest
import torch

from model import preset
from tests.banks import EVERY, SMALL, assert_all_same, assert_same, finish, make, pair, results
from trainer import Bank, Outcome, Pair, Recipe, Seed
from trainer.engine.replay import Replay

pytestmark = pytest.mark.usefixtures("few_selection_problems")


def final_thetas(pairs, slots):
    """θ after the last step by pair, of a bank in which every pair has its slot."""
    theta_SP = finish(make(pairs, slots)).state["theta"]
    return dict(zip(pairs, theta_SP, strict=False))


# A seed is its own


@pytest.fixture(scope="module")
def eight():
    pairs = [pair(s) for s in range(8)]
    return pairs, final_thetas(pairs, 8)


@pytest.mark.parametrize(
    "arrange",
    [
        lambda pairs: pairs[::-1],
        lambda pairs: [pairs[i] for i in (5, 2, 7, 0)] + [pair(s) for s in (90, 91, 92, 93)],
        lambda pairs: [pair(99, lr=0.5, weight_decay=3.0), *pairs[:7]],
        lambda pairs: pairs[3:6],
        lambda pairs: pairs[7:],
    ],
    ids=["other slots", "other neighbours", "another recipe beside", "short bank", "alone"],
)
def test_theta_is_bitwise_the_same_in_any_company_and_slot(eight, arrange):
    pairs, expected = eight
    found = final_thetas(arrange(pairs), 8)
    common = found.keys() & expected.keys()
    assert common and len({tuple(t.tolist()) for t in found.values()}) == len(found)
    assert all(torch.equal(found[p], expected[p]) for p in common)


def test_a_refilled_slot_starts_afresh():
    """Five pairs of different lengths through two slots, in two orders: predecessors are forgotten."""
    pairs = [pair(s, steps=n * EVERY) for s, n in enumerate((2, 1, 3, 1, 2))]
    one, other = finish(make(pairs, 2)), finish(make(pairs[::-1], 2))
    padded = results(finish(make(pairs[:1], 2)))
    for p, result in results(one).items():
        assert result.steps == p.recipe.steps and result.outcome is Outcome.FAILED
        assert_same(result, results(other)[p])
    assert_all_same(padded, results(one))
    assert one.seed_steps == other.seed_steps == 9 * EVERY


def test_init_and_data_seed_are_apart():
    recipe = Recipe(**SMALL)
    seeds = [Seed(1, 1), Seed(1, 2), Seed(2, 1)]
    fresh = make([Pair(recipe, s) for s in seeds], compiled=False)
    theta = fresh.state["theta"]
    assert torch.equal(theta[0], theta[1]) and not torch.equal(theta[0], theta[2])
    tokens = fresh.programs.make_block(fresh.state, fresh.hyper)
    assert torch.equal(tokens[:, 0], tokens[:, 2]) and not torch.equal(tokens[:, 0], tokens[:, 1])


@pytest.mark.parametrize("other", [{"batch": 64}, {"eval_every": 1}])
def test_what_shapes_the_program_must_agree(other):
    with pytest.raises(ValueError, match="agree in batch, eval_every, optimiser"):
        make([pair(1), pair(2, **other)])


# Live slots


@pytest.mark.parametrize("compiled", [True, False], ids=["engine", "eager"])
def test_only_live_slots_are_trained(monkeypatch, compiled):
    """Four long pairs stand apart until the four short ones between them have ended."""
    pairs = [pair(s, steps=EVERY * (3 if s % 2 else 1)) for s in range(8)]
    bank = make(pairs, compiled=compiled)
    counts, whole = [], bank._train
    monkeypatch.setattr(bank, "_train", lambda count: counts.append(count) or whole(count))
    finish(bank)
    assert counts == ([8, 4, 4] if compiled else [8, 8, 8]) and bank.seed_steps == 16 * EVERY
    assert_all_same(
        results(bank), results(finish(make(pairs, None if not compiled else 4, compiled=compiled)))
    )


def test_a_bank_without_a_live_slot_has_ended():
    bank = finish(make([pair(1)]))
    assert not bank.advance() and bank.result(0).steps == 2 * EVERY


def test_a_recorded_program_played_back_is_the_program():
    """On a GPU the record is a CUDA graph; here what is played is the body itself."""
    bank = make([pair(s, lr=0.01 * (s + 1)) for s in range(3)], compiled=False)
    programs, state, hyper = bank.programs, bank.state, bank.hyper
    replay = Replay(programs.train_block, state, hyper, record=lambda body: (body(), body)[1])
    again = replay.run(state, hyper, 2)
    for found, expected in zip(again, programs.train(state, hyper, 2 * programs.block), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    theta = again[0]["theta"].clone()
    replay.run(state, hyper, 1)
    assert torch.equal(again[0]["theta"], theta), "what was returned is not a buffer"


@pytest.mark.parametrize("slots", [0, -1])
def test_no_slots_is_an_error(slots):
    with pytest.raises(ValueError, match=f"at least one slot, got {slots}"):
        make([pair(1)], slots)


# Divergence


def test_divergence_stays_in_its_slot_and_frees_it():
    wild = pair(50, lr=1e9, warmup=0)
    calm, after = [pair(s) for s in range(3)], pair(7)
    bank = finish(make([calm[0], wild, *calm[1:], after], 4))
    found = results(bank)
    expected = results(finish(make([*calm, after], 4)))
    assert found[wild].outcome is Outcome.DIVERGED and found[wild].steps == EVERY
    assert found[wild].grok_step is None and not found[wild].held
    for p in (*calm, after):
        assert_same(found[p], expected[p])
        assert found[p].outcome is Outcome.FAILED
    assert bank.seed_steps == 9 * EVERY


def test_a_diverged_seed_keeps_no_theta_that_is_not_finite():
    result = finish(make([pair(50, lr=1e9, warmup=0)])).result(0)
    assert result.outcome is Outcome.DIVERGED
    assert result.theta_P.isfinite().all()


# Interruptions


# Every number differs, so that a slot that goes on with another pair's recipe is seen.


def test_another_banks_state_is_refused(tmp_path):
    path = tmp_path / "bank.state"
    bank = make([pair(1), pair(2)])
    bank.advance()
    bank.save(path)
    for other in (
        make([pair(1), pair(3)]),
        make([pair(1), pair(2)], slots=1),
        make([pair(1), pair(2, lr=0.01)]),
        Bank(preset("67p"), [pair(1), pair(2)], compiled=False),
    ):
        before = other.state["theta"].clone()
        assert not other.load(path)
        assert torch.equal(other.state["theta"], before) and other.state["step"].tolist()[0] == 0
