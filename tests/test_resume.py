"""A bank's process is killed for real; the next goes on, and nobody can tell."""

import random

from benchmarks import resume


def test_a_bank_that_is_killed_twice_ends_as_one_that_is_not(tmp_path):
    path = tmp_path / "bank.state"
    resume.kill_at_random(path, 2, random.Random(4))
    assert resume.is_seamless(path)


def test_a_difference_is_seen(tmp_path):
    path = tmp_path / "bank.state"
    bank = resume.small_bank()
    bank.advance()
    bank.state["theta"][0, 0] += 1e-3
    while bank.advance():
        pass
    bank.save(path)
    assert not resume.is_seamless(path)


def test_a_thousand_seeds_are_saved_in_time():
    """The promise is 50 ms (docs/performance.md); a busy machine gets ten times that."""
    median, _, size = resume.save_s(1_024, repeat=5)
    assert median < 0.5 and size > 1_024 * 57 * 4 * 3
