"""Two-level factorial designs whose runs come in an order that can be stopped early.

A run is a bit mask: bit j is the level of factor j. A defining word is the mask of factors whose levels have the
same parity in every run of a fraction; the fewer factors the shortest word has (the fraction's *resolution*),
the more effects cannot be told apart. At resolution 3 main effects can be told from one another, at 4 from pairs
too, at 5 pairs from one another (Box and Hunter, Technometrics 3, 1961).
"""

from collections.abc import Iterable, Sequence
from itertools import combinations


def nested_fractions(factors: int) -> list[int]:
    """Return all 2 ** `factors` runs, in an order in which leading blocks of 2 ** k runs are regular fractions.

    The smallest such block that has resolution 3 has minimum aberration: as few short words as possible (Fries
    and Hunter, Technometrics 22, 1980). So has each longer one, among those that contain the one before.
    """
    size = factors.bit_length()  # the smallest k with 2 ** k > factors
    columns = _first_columns(factors, size)
    words = _defining_words(columns)

    # Each turn doubles the fraction by the coset of a row, until the empty word is left: then it has all runs.
    while len(words) > 1:
        row = min(range(1, 2**factors), key=lambda row: _pattern(_orthogonal(words, row), len(words), factors))
        words = _orthogonal(words, row)
        columns = [column | (row >> j & 1) << size for j, column in enumerate(columns)]
        size += 1

    runs = []
    for basic_levels in range(2**size):
        run = 0
        for j, column in enumerate(columns):
            level = (basic_levels & column).bit_count() & 1  # the product of the basic factors in the column
            run |= level << j
        runs.append(run)
    return runs


def _first_columns(factors: int, size: int) -> list[int]:
    """Return, for each factor, the mask of basic factors whose product it is: 2 ** `size` runs, resolution 3."""
    basic = [1 << i for i in range(size)]
    products = [mask for mask in range(1, 2**size) if mask not in basic]
    designs = ([*basic, *chosen][:factors] for chosen in combinations(products, max(0, factors - size)))
    return min(designs, key=lambda columns: _lengths(_defining_words(columns), factors))


def _defining_words(columns: Sequence[int]) -> list[int]:
    """Return the masks of all sets of factors whose columns multiply to a constant, the empty one included."""
    reduced: dict[int, tuple[int, int]] = {}  # by highest bit: a column, and the factors it is the product of
    words = [0]
    for j, column in enumerate(columns):
        word = 1 << j
        while column.bit_length() in reduced:
            other, mask = reduced[column.bit_length()]
            column ^= other
            word ^= mask
        if column:
            reduced[column.bit_length()] = column, word
        else:  # the column is a product of others: with every word so far this makes another
            words += [word ^ before for before in words]
    return words


def _orthogonal(words: Iterable[int], row: int) -> list[int]:
    """Return the words that still define the fraction when a run `row` and its coset are added."""
    return [word for word in words if not (word & row).bit_count() & 1]


def _pattern(words: Sequence[int], before: int, factors: int) -> tuple[int, ...]:
    """Return a sorting key of a larger fraction; one that is no larger comes last."""
    return (len(words) == before, *_lengths(words, factors))


def _lengths(words: Iterable[int], factors: int) -> tuple[int, ...]:
    """Return the number of words by their length: one factor, two, ..."""
    counts = [0] * (factors + 1)
    for word in words:
        counts[word.bit_count()] += 1
    return tuple(counts[1:])
