"""Banks, eager and small: slots, the queue, divergence, saved states.

That a seed is the same in any company is in tests/contract/test_seeds_of_their_own.py; what an evaluation
decides is in test_outcomes.py.
"""

from dataclasses import replace

import pytest
import torch

from model import preset
from tests.banks import EVERY, SPEC, assert_all_same, assert_same, finish, make, pair, results
from trainer import Bank, Outcome
from trainer.bank import saved as saved_state
from trainer.data.hard_examples import CAPACITY, COUNT, OPERANDS

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
    """Also once those have been removed."""
    bank = finish(make([pair(20, steps=EVERY)], 2))
    bank.remove([0])
    assert not bank.advance() and list(bank.add(FIRST)) == [0, 1]
    assert list(finish(bank).add(MORE)) == [2, 3, 4]
    assert_all_same(results(finish(bank)), expected)


def test_pairs_that_have_ended_are_removed_and_the_others_go_on(expected):
    """Those that stay are in the slots, and wait where they were saved; the ones between them go."""
    gone, later = [pair(s, steps=EVERY) for s in (20, 21)], MORE[:2]
    whole = make(later, 2)
    whole.advance()
    bank = make([gone[0], *FIRST, gone[1]], 2)
    for n, number in enumerate(bank.add(later)):
        assert bank.restore(number, whole.save(n))
    bank.advance()
    bank.advance()
    assert outcomes(bank) == ["failed", "running", "failed", "running", "queued", "queued"]
    bank.end([3])
    bank.spent = [5]
    bank.remove([0, 3])
    assert bank.spent == [3] and outcomes(bank) == ["running", "failed", "running", "queued"]
    bank.spent = []
    assert bank.pairs == [*FIRST, *later] and {len(t) for t in bank.tracker.records.values()} == {4}
    again = make([*FIRST, *later], 2)
    assert all(again.restore(n, data) for n, data in enumerate(bank.save_all(range(4))))
    for found in (bank, again):
        assert list(found.add(MORE[2:])) == [4]
        assert_all_same(results(finish(found)), expected)


# Saved states


def saved(pairs, evaluations):
    """The state of each pair of a bank that trained so far in the company of others."""
    bank = make(FIRST, 2)
    bank.add(MORE)
    for _ in range(evaluations):
        bank.advance()
    return {p: bank.save(bank.pairs.index(p)) for p in pairs}


@pytest.mark.parametrize(("evaluations", "slots"), [(1, 2), (4, 1)])
def test_pairs_go_on_from_their_states_in_any_company_and_number_of_slots(expected, evaluations, slots):
    for own, other in ((FIRST, MORE), (MORE, FIRST)):
        states = saved(own, evaluations)
        bank = make(other, slots)
        bank.advance()
        numbers = bank.add(own)
        assert bank.restore_all({n: states[bank.pairs[n]] for n in numbers}) == list(numbers)
        assert_all_same(results(finish(bank)), expected)


def test_a_saved_pair_that_waits_for_a_slot_goes_on_where_it_was(expected):
    """The slots are taken by others; saved again while it waits, it is still there."""
    bank = make([pair(20), pair(21)], 2)
    numbers = bank.add(MORE)
    for evaluations, steps in ((1, 0), (2, EVERY)):
        states = saved(MORE, evaluations)
        for n in numbers:
            assert bank.restore(n, states[bank.pairs[n]])
        assert outcomes(bank)[2:] == ["queued"] * 3 and bank.result(2).steps == steps
    again = make(MORE, 2)
    assert again.restore_all(dict(enumerate(bank.save_all(numbers)))) == [0, 1, 2]
    assert again.state["step"].tolist() == [EVERY, 0]
    for found in (bank, again):
        trained = finish(found).seed_steps
        assert trained == (11 if found is bank else 7) * EVERY, "what was trained is not trained again"
        assert_all_same({p: r for p, r in results(found).items() if p in MORE}, expected)


def test_torch_searches_errors_in_idle_slots_too():
    """Its bits depend on the number of rows."""
    bank = Bank(SPEC, [pair(1, targeted=0.5)], slots=3, compiled=False)
    rows, is_wrong = [], bank.backend.is_wrong
    bank.backend.is_wrong = lambda theta_SP, tokens: rows.append(len(theta_SP)) or is_wrong(theta_SP, tokens)
    bank.advance()
    assert rows == [3]


NO_BUFFERS = [
    (COUNT, CAPACITY + 1), (COUNT, 10**12), (COUNT, -1),
    (OPERANDS, 1e300), (OPERANDS, 1e10), (OPERANDS, 0.5), (OPERANDS, -1.0), (OPERANDS, float("nan")),
]  # fmt: skip


def test_a_state_with_errors_that_no_seed_can_have_is_not_used():
    """The engine reads as many as it says, and digits of what they are."""
    first, second = (Bank(SPEC, [pair(1, targeted=0.5)], compiled=False) for _ in range(2))
    first.advance()
    whole = first.save(0)
    for name, value in NO_BUFFERS:
        own = first.state[name]
        first.state[name] = torch.full_like(own, value)
        assert not second.restore(0, first.save(0)), (name, value)
        first.state[name] = own
    assert second.restore(0, first.save(0)) and first.save(0) == whole == second.save(0)


def one_advanced(pair_, slots=2):
    bank = Bank(SPEC, [pair_], slots=slots, compiled=False)
    bank.advance()
    return bank.save(0)


def telling(evaluations):
    """A state that says how many evaluations it has, with the digest of that."""
    rest = one_advanced(pair(1))[saved_state.DIGEST :]
    key, behind = rest[: saved_state.DIGEST], rest[saved_state.DIGEST + saved_state.HEAD.size :]
    told = key + saved_state.HEAD.pack(evaluations, True) + behind
    return saved_state.digest(told) + told


STATES = {
    "empty": lambda: b"",
    "half": lambda: (data := one_advanced(pair(1)))[: len(data) // 2],
    "a bit of a tensor": lambda: (data := one_advanced(pair(1)))[:-1] + bytes([data[-1] ^ 1]),
    "more": lambda: one_advanced(pair(1)) + b"0",
    "fewer evaluations than it has": lambda: telling(0),
    "more evaluations than it has": lambda: telling(10**9),
    "another seed": lambda: one_advanced(pair(2)),
    "another recipe": lambda: one_advanced(pair(1, lr=0.01)),
    "no rule ends it": lambda: one_advanced(replace(pair(1), spared=True)),
    "another start": lambda: one_advanced(replace(pair(1), start=(0.5,) * SPEC.params)),
    "torch rounds by the number of slots": lambda: one_advanced(pair(1), slots=1),
    "another spec": lambda: finish(Bank(preset("67p"), [pair(1)], compiled=False)).save(0),
}


@pytest.mark.parametrize("data", STATES.values(), ids=STATES)
def test_a_state_that_is_damaged_or_another_pairs_changes_nothing(data):
    bank = Bank(SPEC, [pair(1)], slots=2, compiled=False)
    before = {name: t.clone() for name, t in bank.state.items()}
    assert not bank.restore(0, data())
    assert all(torch.equal(t, before[name]) for name, t in bank.state.items()) and outcomes(bank) == ["running"]
