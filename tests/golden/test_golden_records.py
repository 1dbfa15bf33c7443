"""What commands say of a recorded home is what was stored: names of fields, counts, rates, intervals."""

from tests.golden.make_golden import plain, records, stored


def test_the_commands_say_the_same():
    answers, expected = records(), stored("records")
    assert answers.keys() == expected.keys()
    for name, answer in answers.items():
        assert answer == plain(expected[name]), name
