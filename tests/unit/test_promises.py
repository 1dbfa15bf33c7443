"""Each sentence and row of SECURITY.md and docs/reliability.md names the tests that hold it, in promises.txt."""

import pytest

from tests.promises import NOTHING, PAGES, is_there, registered, sentences


@pytest.mark.parametrize("page", PAGES)
def test_each_sentence_has_its_tests(page):
    """One that is new or changed is to be read against its tests, which `python -m tests.promises` leaves open."""
    held = registered()[page]
    assert list(held) == sentences(page)
    for sentence, tests in held.items():
        assert tests, sentence
        missing = [test for test in tests if not (test.startswith(NOTHING) or is_there(test))]
        assert not missing, sentence
