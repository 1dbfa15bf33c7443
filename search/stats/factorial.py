"""Two-level factorial designs whose runs come in an order that can be stopped early.

A run is a bit mask: bit j is the level of factor j. A defining word is the mask of factors whose levels have the
same parity in every run of a fraction; the fewer factors the shortest word has (the fraction's *resolution*),
the more effects cannot be told apart. At resolution 3 main effects can be told from one another, at 4 from pairs
too, at 5 pairs from one another (Box and Hunter, Technometrics 3, 1961).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations


def nested_fractions(factors: int) -> list[int]:
    """Return all 2 ** `factors` runs, in an order in which leading blocks of 2 ** k runs are regular fractions.

    The smallest such block that has resolution 3 has minimum aberration: as few short words as possible (Fries
    and Hunter, Technometrics 22, 1980). So has each longer one, among those that contain the one before.
    """
    size = factors.bit_length()  # the smallest k with 2 ** k > factors
    columns = _first_columns(factors, size)
    runs = [0]
    for i in range(size):
        row = sum((column >> i & 1) << j for j, column in enumerate(columns))  # of basic factor i alone
        runs += [run ^ row for run in runs]

    # Each turn doubles the fraction by the coset of a row, until the empty word is left: then it has all runs.
    words = _defining_words(columns)
    while len(words) > 1:
        # A row that the fraction has would keep all words: more of some length than any other row keeps, of none fewer.
        row = min(range(1, 2**factors), key=lambda row: _lengths(_orthogonal(words, row), factors))
        words = _orthogonal(words, row)
        runs += [run ^ row for run in runs]
    return runs


def _first_columns(factors: int, size: int) -> list[int]:
    """Return, for each factor, the mask of basic factors whose product it is: 2 ** `size` runs, resolution 3."""
    basic = [1 << i for i in range(size)]
    products = [mask for mask in range(1, 2**size) if mask not in basic]
    designs = ([*basic, *chosen] for chosen in combinations(products, factors - size))
    return min(designs, key=lambda columns: _lengths(_defining_words(columns), factors))


def _defining_words(columns: Sequence[int]) -> list[int]:
    """Return the masks of all sets of factors whose columns multiply to a constant, the empty one included."""
    products = [0]  # the product of the columns of each set, by its mask
    for column in columns:
        products += [product ^ column for product in products]
    return [word for word, product in enumerate(products) if not product]


def _orthogonal(words: Iterable[int], row: int) -> list[int]:
    """Return the words that still define the fraction when a run `row` and its coset are added."""
    return [word for word in words if not (word & row).bit_count() & 1]


def _lengths(words: Iterable[int], factors: int) -> list[int]:
    """Return the number of words by their length, as a sorting key of a fraction: of one factor, of two, ..."""
    counts = Counter(map(int.bit_count, words))
    return [counts[length] for length in range(1, factors + 1)]
