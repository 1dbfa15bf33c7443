"""Banks, eager and small: slots, the queue, divergence, saved states.

That a seed is the same in any company is in tests/contract/test_seeds_of_their_own.py; what an evaluation
decides is in test_outcomes.py.
"""

import pytest
import torch

from model import preset
from tests.banks import EVERY, assert_all_same, assert_same, finish, make, pair, results
from trainer import Bank, Outcome
from trainer.files import snapshot

pytestmark = pytest.mark.usefixtures("few_selection_problems")

# Slots


def test_only_live_slots_are_trained(monkeypatch):
    """Four long pairs stand apart until the four short ones between them have ended."""
    pairs = [pair(s, steps=EVERY * (3 if s % 2 else 1)) for s in range(8)]
    bank = make(pairs)
    counts, whole = [], bank._train
    monkeypatch.setattr(bank, "_train", lambda count: counts.append(count) or whole(count))
    finish(bank)
    assert counts == [8, 4, 4] and bank.seed_steps == 16 * EVERY
    assert_all_same(results(bank), results(finish(make(pairs, 4))))


# Divergence


def test_divergence_stays_in_its_slot_and_frees_it():
    wild = pair(50, lr=1e9, warmup=0)
    calm, after = [pair(s) for s in range(3)], pair(7)
    bank = finish(make([calm[0], wild, *calm[1:], after], 4))
    found = results(bank)
    expected = results(finish(make([*calm, after], 4)))
    assert found[wild].outcome is Outcome.DIVERGED and found[wild].steps == EVERY
    assert found[wild].grok_step is None and not found[wild].held
    assert found[wild].theta_P.isfinite().all()
    for p in (*calm, after):
        assert_same(found[p], expected[p])
        assert found[p].outcome is Outcome.FAILED
    assert bank.seed_steps == 9 * EVERY


# The queue: pairs that are added while others train, pairs that are ended from outside

FIRST = [pair(s, steps=n * EVERY, lr=0.01 * (s + 1)) for s, n in enumerate((3, 1))]
MORE = [pair(s, steps=n * EVERY, lr=0.01 * (s + 1)) for s, n in ((7, 2), (8, 5), (9, 1))]


@pytest.fixture(scope="module")
def expected():
    return results(finish(make([*FIRST, *MORE], 2)))


def outcomes(bank):
    return [bank.result(n).outcome.value for n in range(len(bank.pairs))]


def test_pairs_that_are_added_when_all_have_ended_begin_at_once(expected):
    bank = finish(make(FIRST, 2))
    assert list(bank.add(MORE)) == [2, 3, 4]
    assert_all_same(results(finish(bank)), expected)


def test_pairs_are_ended_where_they_are(expected):
    """One in its slot, one in the queue, one that had ended: that one stays as it is."""
    bank = make([*FIRST, *MORE], 2)
    bank.advance()
    bank.end([0, 1, 3])
    assert outcomes(bank) == ["censored", "failed", "running", "censored", "running"]
    finish(bank)
    assert [bank.result(n).steps // EVERY for n in range(5)] == [1, 1, 2, 0, 1]
    for n in (1, 2, 4):
        assert_same(bank.result(n), expected[bank.pairs[n]])


def test_pairs_that_have_ended_are_removed_and_the_others_go_on(tmp_path):
    """Two in the slots, and two that wait where they were saved."""
    gone, later = [pair(s, steps=EVERY) for s in (20, 21)], MORE[:2]
    whole = make(later, 2)
    whole.advance()
    whole.save(tmp_path / "later")
    bank = make([*gone, *FIRST], 2)
    assert bank.load(tmp_path / "later", bank.add(later)) and bank.advance()
    bank.spent = [4]
    bank.remove(range(2))
    assert bank.spent == [2] and outcomes(bank) == ["running"] * 2 + ["queued"] * 2
    bank.spent = []
    assert bank.pairs == [*FIRST, *later] and {len(t) for t in bank.tracker.records.values()} == {4}
    bank.save(tmp_path / "all")
    again = make([*FIRST, *later], 2)
    assert again.load(tmp_path / "all")
    for found in (bank, again):
        assert list(found.add(MORE[2:])) == [4]
        assert_all_same(results(finish(found)), results(finish(make([*FIRST, *MORE], 2))))


# Saved states


def saved(folder, evaluations):
    """A bank of two groups, saved apart."""
    bank = make(FIRST, 2)
    bank.add(MORE)
    for _ in range(evaluations):
        bank.advance()
    bank.save(folder / "first", range(2))
    bank.save(folder / "more", range(2, 5))


@pytest.mark.parametrize("evaluations", [1, 4])
def test_groups_saved_apart_go_on_in_any_company(expected, tmp_path, evaluations):
    saved(tmp_path, evaluations)
    for own, other, name in ((FIRST, MORE, "first"), (MORE, FIRST, "more")):
        bank = make(other, 2)
        bank.advance()
        numbers = bank.add(own)
        assert bank.load(tmp_path / name, numbers)
        assert_all_same(results(finish(bank)), expected)


def test_a_saved_pair_that_waits_for_a_slot_goes_on_where_it_was(expected, tmp_path):
    """The slots are taken by others; saved again while it waits, it is still there."""
    saved(tmp_path, 1)
    bank = make([pair(20), pair(21)], 2)
    numbers = bank.add(MORE)
    assert bank.load(tmp_path / "more", numbers)
    assert outcomes(bank)[2:] == ["queued"] * 3 and bank.result(2).steps == 0
    saved(tmp_path, 2)
    bank.load(tmp_path / "more", numbers)
    assert outcomes(bank)[2:] == ["queued"] * 3 and bank.result(2).steps == EVERY
    bank.save(tmp_path / "again", numbers)
    again = make(MORE, 2)
    assert again.load(tmp_path / "again") and again.state["step"].tolist() == [EVERY, 0]
    for found in (bank, again):
        trained = finish(found).seed_steps
        assert trained == (11 if found is bank else 7) * EVERY, "what was trained is not trained again"
        assert_all_same({p: r for p, r in results(found).items() if p in MORE}, expected)


def test_a_state_that_lacks_a_later_record_goes_on(expected, tmp_path):
    saved(tmp_path, 2)
    tensors, about = snapshot.read(tmp_path / "more")
    del tensors["records.screened_by"]
    snapshot.write(tmp_path / "more", tensors, about)
    bank = make(MORE, 2)
    assert bank.load(tmp_path / "more") and bank.result(0).steps == EVERY
    assert_all_same({p: r for p, r in results(finish(bank)).items() if p in MORE}, expected)


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
