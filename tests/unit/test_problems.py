import pytest
import torch

from model import PRESETS, adderboard
from tests.specs import FIVE_WIDE
from trainer.data import problems
from trainer.step import step

LARGEST = 9_999_999_999
SELECTION = [
    (5426207727, 1929135910),
    (3323739981, 7536909021),
    (1013518865, 1027188691),
    (9666718980, 6125227548),
]
SELECTION_SUM = 100308096150281  # of 3a + b


def sample(data_seed, at, digits, mix, batch):
    """One row of problems: int64 operands [B]."""
    row = [torch.tensor([v]) for v in (data_seed, at, digits)]
    a, b = problems.sample(*row, torch.tensor([mix]), batch)
    assert torch.equal(a, a.floor()) and torch.equal(b, b.floor())
    return a[0].long(), b[0].long()


def pairs_of(a, b):
    return list(zip(a.tolist(), b.tolist(), strict=True))


def carries(digits, kind, batch=20_000):
    """The carry problems of one kind in one row of nothing but carry problems."""
    a, b = sample(777, digits, digits, 1.0, batch)
    word = problems.words(torch.tensor([777]), torch.tensor([digits]), batch, 4)[2][0]
    mine = (word & 3) == kind
    return pairs_of(a[mine], b[mine])


def state_of(data_seeds, steps):
    rows = {"data_seed": torch.tensor(data_seeds), "step": torch.tensor(steps)}
    return rows | {"mix_scale": torch.ones(len(steps))}


def chi_square(values, bins):
    counts = torch.bincount(values, minlength=bins).double()
    assert len(counts) == bins
    expected = counts.sum() / bins
    return float(((counts - expected) ** 2 / expected).sum())


def test_the_selection_problems_never_change():
    a, b = problems.selection()
    assert pairs_of(a[0, :4].long(), b[0, :4].long()) == SELECTION
    assert int((a * 3 + b).long().sum()) == SELECTION_SUM


def test_selection_problems_are_5000_different_pairs_and_none_is_official():
    a, b = problems.selection()
    selection = set(pairs_of(a[0].long(), b[0].long()))
    assert len(selection) == 5_000
    assert all(0 <= n <= LARGEST for pair in selection for n in pair)
    assert not selection & set(adderboard.official_pairs())


def test_a_row_does_not_depend_on_its_neighbours():
    rows = [torch.tensor(c) for c in ([777, 5, 777, 0], [3, 3, 40_000, 0], [10, 2, 10, 3])]
    mix = torch.tensor([0.8, 0.5, 0.2, 1.0])
    together = problems.sample(*rows, mix, 64)
    for r in range(4):
        alone = problems.sample(*(t[r : r + 1] for t in rows), mix[r : r + 1], 64)
        assert all(torch.equal(x[r], y[0]) for x, y in zip(together, alone, strict=True))


@pytest.mark.parametrize("digits", range(1, 11))
@pytest.mark.parametrize("mix", [0.0, 0.8, 1.0])
def test_operands_are_in_range(digits, mix):
    a, b = sample(digits, 0, digits, mix, 20_000)
    assert int(min(a.min(), b.min())) >= 0 and int(max(a.max(), b.max())) <= LARGEST
    if mix == 0:
        assert int(max(a.max(), b.max())) < 10**digits


@pytest.mark.parametrize("digits", [1, 4, 10])
def test_ordinary_problems_are_uniform(digits):
    """Chi-square with 9 and 99 degrees of freedom; 33 and 158 are exceeded once in 10,000 streams."""
    a, b = sample(2, 0, digits, 0.0, 100_000)
    for i in range(digits):
        x, y = a // 10**i % 10, b // 10**i % 10
        assert chi_square(x, 10) < 33.7 and chi_square(y, 10) < 33.7
        assert chi_square(10 * x + y, 100) < 160


@pytest.mark.parametrize("mix", [0.05, 0.3, 0.8])
def test_the_share_of_carry_problems_is_the_carry_mix(mix):
    count = 100_000
    plain, mixed = sample(3, 1, 10, 0.0, count), sample(3, 1, 10, mix, count)
    differ = (plain[0] != mixed[0]) | (plain[1] != mixed[1])
    assert abs(int(differ.sum()) - count * mix) < 4 * (count * mix * (1 - mix)) ** 0.5


@pytest.mark.parametrize("digits", [1, 3, 6, 10])
def test_the_four_kinds_are_equally_likely(digits):
    shares = [len(carries(digits, kind)) for kind in range(4)]
    assert sum(shares) == 20_000
    assert all(abs(n - 5_000) < 4 * (20_000 * 3 / 16) ** 0.5 for n in shares)


EXTREMES = [(0, 0), (LARGEST, LARGEST), (LARGEST, 1), (0, LARGEST), (10**9, 9 * 10**9), (5, 5), (99, 1)]


def test_digit_columns_agree_with_integers():
    random = pairs_of(*sample(4, 0, 10, 0.0, 5_000)) + pairs_of(*sample(4, 1, 10, 1.0, 5_000))
    edges = [(10**i - j, 10**k) for i in range(11) for j in (0, 1) for k in range(10) if 10**i - j <= LARGEST]
    round_numbers = [
        (d * 10**k, (10 - d) * 10**j) for d in range(1, 10) for k in range(10) for j in range(10)
    ]
    pairs = EXTREMES + edges + round_numbers + random
    a, b = (torch.tensor(c, dtype=torch.float64) for c in zip(*pairs, strict=True))
    got = [torch.stack(c, 1).long().tolist() for c in problems.sequence_columns(a, b)]
    for numbers, digits, width in zip(zip(*pairs, strict=True), got, (10, 10, 11), strict=False):
        assert digits == [[n // 10**i % 10 for i in range(width)] for n in numbers]
    assert got[2] == [[(x + y) // 10**i % 10 for i in range(11)] for x, y in pairs]


@pytest.mark.parametrize(
    ("spec", "plus", "equals", "end"),
    [
        (FIVE_WIDE, [0], [0], [0]),
        (PRESETS["54p"], [0], [0], []),
        (PRESETS["242p"], [10], [11], [12]),
        (PRESETS["141p"], [10], [11], [12]),
    ],
)
def test_sequences_are_written_units_first_with_delimiters(spec, plus, equals, end):
    a, b = (torch.tensor([n], dtype=torch.float64) for n in (1234567890, 9876543219))
    tokens = step.tokens_of(spec, a, b)
    x, y, z = (list(map(int, n)) for n in ("0987654321", "9123456789", "90111111111"))
    assert tokens[:, 0].tolist() == [*x, *plus, *y, *equals, *z, *end]
    assert tokens.dtype == torch.int32


def lengths_of(mixed, count=40_000, digits=10):
    """How many digits the longer operand has, in one row without carry problems."""
    row = [torch.tensor([v]) for v in (5, 0, digits)]
    a, b = problems.sample(*row, torch.zeros(1), count, torch.tensor([mixed]))
    return torch.tensor([len(str(max(x, y))) for x, y in pairs_of(a[0].long(), b[0].long())])


def test_mixed_lengths_draw_a_length_for_each_problem():
    mixed = lengths_of(1.0)
    share = torch.bincount(mixed, minlength=11)[1:].double() / len(mixed)
    # The longer of two uniform numbers below 10^n has n digits in 99 of 100 cases.
    assert share.tolist() == pytest.approx([0.1] * 10, abs=0.012)
    three = lengths_of(1.0, digits=3)
    assert int(three.max()) == 3 and float((three == 1).double().mean()) == pytest.approx(1 / 3, abs=0.02)
    half = lengths_of(0.5)
    assert float((half >= 9).double().mean()) == pytest.approx(0.5 + 0.5 * 0.2, abs=0.02)
