"""A bank's queue: pairs that are added while others train, pairs that are ended from outside, groups of pairs
whose states are saved apart. Eager and small.
"""

import pytest

from tests.banks import EVERY, assert_all_same, assert_same, finish, make, pair, results
from trainer import Outcome

pytestmark = pytest.mark.usefixtures("few_selection_problems")

FIRST = [pair(s, steps=n * EVERY, lr=0.01 * (s + 1)) for s, n in enumerate((3, 1))]
MORE = [pair(s, steps=n * EVERY, lr=0.01 * (s + 1)) for s, n in ((7, 2), (8, 5), (9, 1))]


@pytest.fixture(scope="module")
def expected():
    return results(finish(make([*FIRST, *MORE], 2)))


def outcomes(bank):
    return [bank.result(n).outcome.value for n in range(len(bank.pairs))]


@pytest.mark.parametrize("evaluations", [0, 1, 3])
def test_pairs_that_are_added_train_as_if_they_had_been_there(expected, evaluations):
    bank = make(FIRST, 2)
    for _ in range(evaluations):
        bank.advance()
    assert list(bank.add(MORE)) == [2, 3, 4]
    assert_all_same(results(finish(bank)), expected)


def test_a_bank_that_is_done_goes_on_with_what_is_added(expected):
    bank = finish(make(FIRST, 2))
    assert not bank.advance()
    bank.add(MORE)
    assert_all_same(results(finish(bank)), expected)


def test_pairs_of_another_program_are_refused():
    bank = make(FIRST, 2)
    with pytest.raises(ValueError, match="agree in batch, eval_every, optimiser"):
        bank.add([pair(9, batch=64)])
    assert bank.pairs == FIRST


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


def saved(folder, evaluations):
    """A bank of two groups, saved apart."""
    bank = make(FIRST, 2)
    bank.add(MORE)
    for _ in range(evaluations):
        bank.advance()
    bank.save(folder / "first", range(2))
    bank.save(folder / "more", range(2, 5))


@pytest.mark.parametrize("evaluations", [1, 2, 4])
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


def test_a_group_is_not_loaded_as_another(tmp_path):
    saved(tmp_path, 1)
    bank = make([*FIRST, *MORE], 2)
    assert not bank.load(tmp_path / "first", range(2, 5)) and not bank.load(tmp_path / "first")
    assert bank.load(tmp_path / "first", range(2)) and bank.result(1).outcome is Outcome.FAILED


def test_curves_of_longer_and_shorter_seeds_share_a_bank(tmp_path):
    long, short = pair(1, steps=4 * EVERY), pair(2, steps=EVERY)
    bank = make([long, short], 2)
    bank.advance()
    bank.save(tmp_path / "short", [1])
    other = make([pair(3, steps=2 * EVERY)], 2)
    assert other.load(tmp_path / "short", other.add([short]))
    assert_same(finish(other).result(1), bank.result(1))
