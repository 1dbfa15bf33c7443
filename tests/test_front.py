"""The Pareto front."""

from hypothesis import given
from hypothesis import strategies as st

from search.store.stats import pareto


def test_few_parameters_and_high_rates_are_on_the_front():
    assert pareto([57, 60, 70, 70, 80], [0.1, 0.1, 0.5, 0.4, 0.5]) == [True, False, True, False, False]


def test_equals_are_on_the_front_together():
    assert pareto([57, 57, 60, 60], [0.2, 0.2, 0.2, 0.3]) == [True, True, False, True]
    assert pareto([57, 57], [0.0, 0.0]) == [True, True]
    assert pareto([], []) == []


def dominates(one, other):
    """Fewer or as many parameters, as high or a higher rate, one of them strictly better."""
    return one[0] <= other[0] and one[1] >= other[1] and one != other


@given(st.lists(st.tuples(st.integers(46, 52), st.integers(0, 6)), max_size=20))
def test_it_is_what_the_definition_says(points):
    expected = [not any(dominates(other, point) for other in points) for point in points]
    assert pareto([p for p, _ in points], [rate / 6 for _, rate in points]) == expected
