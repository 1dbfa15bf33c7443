"""The rope family: the record from outside, and what cannot be."""

from dataclasses import replace

import pytest

from model import verify
from model.adderboard import failures, official_pairs
from model.families.rope import Rope
from model.tied import count
from tests.outside import WRONG, hyra


def test_the_record_from_outside_is_wrong_where_it_was_found_to_be():
    spec, theta_P = hyra()
    counted = count(spec)
    assert (counted.across, counted.inside, counted.constants) == (15, 20, 21)
    pairs = [(a, b) for a, b, _ in WRONG]
    others = [pair for pair in official_pairs()[:200] if pair not in pairs]
    assert failures(spec, theta_P, [*pairs, *others]) == WRONG


@pytest.mark.full
def test_the_record_from_outside_has_10005_of_10010():
    spec, theta_P = hyra()
    for precision in (theta_P, theta_P.double()):
        result = verify(spec, precision)
        assert result.correct == 10_005 and sorted(result.failures) == sorted(WRONG)


def test_what_cannot_be_is_refused():
    for fields, message in (
        ({"turned_down": True, "ffn": 1}, "no pair of units"),
        ({"arc": True, "sine_input": True, "width": 2}, "needs a third dimension"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(Rope(), **fields)
