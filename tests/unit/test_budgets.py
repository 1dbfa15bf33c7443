"""How many numbers each part of a published model has."""

from fnmatch import fnmatch

import pytest

from model import PRESETS

# Each family's columns, as the names of their parts of θ, and its presets with the counts.
# 456p report, table 4; 777p, 582p, 311p and 262p from their checkpoints.
LOW_RANK = ["tokens", "pos*", "qkv* qk v q kv", "out*", "fc*", "norm*"]
LOW_RANK_COUNTS = """
    777p   98 245 147 49 196 42
    763p   98 231 147 49 196 42
    582p   98 120  84 42 196 42
    512p   98 120  84 42 126 42
    491p   98 120  84 42 126 21
    456p   98 120  63 28 126 21
    311p   56 111  36 24  72 12
    262p   56  74  36 24  60 12
"""
# Tables of digits, digit positions, corrections, z_hi, specials, q, k, phase, v, out, norms, fc1, fc2, head.
# Below 57p they are ours, a form of scores counted as q.
SPLIT_SUBSPACE = [
    "arc tokens", "digits spiral", "correction", "z_hi", "plus equals eos", "q_proj form", "k_proj", "phase", "v_proj",
    "out out_A out_B", "norm", "fc1 fc1_bias", "fc2 fc2_bias", "head",
]  # fmt: skip
SPLIT_SUBSPACE_COUNTS = """
    242p   42 30  0 3 9 18 18 0 18 36 18 14 18 18
    226p   42  4 10 3 9 18 18 0 18 36 18 14 18 18
    214p   42  4 10 3 9 18 18 0 18 24 18 14 18 18
    203p   42  4  2 3 6 18 18 0 18 24 18 14 18 18
    187p   42  4  2 3 6 18  0 2 18 24 18 14 18 18
    170p   28  4  2 4 8 24  0 2 12 24 18 14 18 12
    141p   28  4  2 3 6 15  0 1 10 20 15 12 15 10
    133p   20  4  2 3 6 15  0 1 10 20 15 12 15 10
    100p    4  4  2 3 6 15  0 1 10 10 15 10 10 10
     90p    4  4  2 3 6 15  0 1 10 10  5 10 10 10
     80p    4  4  2 3 6 15  0 1  0 10  5 10 10 10
     78p    4  4  0 3 6 15  0 1  0 10  5 10 10 10
     75p    4  4  0 3 3 15  0 1  0 10  5 10 10 10
     74p    3  4  0 3 3 15  0 1  0 10  5 10 10 10
     72p    4  4  0 0 3 15  0 1  0 10  5 10 10 10
     71p    4  3  0 0 3 15  0 1  0 10  5 10 10 10
     70p    3  0  0 3 3 15  0 1  0 10  5 10 10 10
     67p    3  0  0 3 3 12  0 1  0 10  5 10 10 10
     64p    3  0  0 3 3  9  0 1  0 10  5 10 10 10
     61p    3  0  0 3 3  6  0 1  0 10  5 10 10 10
     57p    3  0  0 3 3 12  0 1  0 10  5 10  0 10
     54p    3  0  0 0 3 12  0 1  0 10  5 10  0 10
     47p    3  0  0 0 3  9  0 0  0  7  5 10  0 10
     46p    3  0  0 0 3  9  0 0  0  6  5 10  0 10
"""
# AdderBoard's entries: table, Q, K, V, O, norms of queries and keys, MLP, norms.
ROPE = [
    "tokens arc", "q", "k kv k_scale k_angle", "v", "o o_A o_B", "q_norm k_norm qk_norm",
    "gate gate_scale up down down_angle", "norm norm12 norm1 norm2 norm3",
]  # fmt: skip
ROPE_COUNTS = """
    228p      40 32 16 16 32  8 72 12
    200p      30 24 12 12 24  8 81  9
    173p      30 24 12 12 24  8 54  9
    155p      30 24 12 12 24  8 36  9
    146p      30 24 12 12 24  8 27  9
    137p      30 24 12 12 24  8 18  9
    122p      30 12 12 12 12  8 27  9
    113p      30 12 12 12 12  8 18  9
    101p      30 12 12 12  0  8 18  9
    96p       30 12 12  0  7  8 18  9
    95p        3 12 12 12 12  8 27  9
    89p       30 12 12  0  0  8 18  9
    86p       30 12 12  0  0  8 18  6
    83p       30 12 12  0  0  8 18  3
    62p        3 12 12  0  0  8 18  9
    58p        3 12  1 12  0  8 13  9
    58p-kv     3 12 12  0  0  4 18  9
    55p        3 12  1 12  0  8 13  6
    52p        3 12 12  0  0  4 18  3
    52p-gate   3 12 12  0  0  4 12  9
    49p        3 12 12  0  0  4 12  6
    45p        3 12  1  0  0  8 18  3
    44p        3 12  0  0  0  8 18  3
    41p        3 12  1  0  0  4 18  3
    36p        3 12  1  0  0  4 13  3
"""
TABLES = {
    "low_rank": (LOW_RANK, LOW_RANK_COUNTS), "split_subspace": (SPLIT_SUBSPACE, SPLIT_SUBSPACE_COUNTS),
    "rope": (ROPE, ROPE_COUNTS),
}  # fmt: skip


@pytest.mark.parametrize("family", TABLES)
def test_budgets_are_the_published_ones(family):
    columns, text = TABLES[family]
    rows = {name: [*map(int, counts)] for name, *counts in map(str.split, text.strip().split("\n"))}
    specs = {name: spec for name, spec in PRESETS.items() if spec.family == family}
    assert rows.keys() == specs.keys()
    for name, spec in specs.items():
        ours = [0] * len(columns)
        for part, count in spec.layout.budget().items():
            (at,) = [n for n, column in enumerate(columns) if any(fnmatch(part, p) for p in column.split())]
            ours[at] += count
        assert ours == rows[name], name
        assert spec.params == sum(ours) == int(name.partition("p")[0])
