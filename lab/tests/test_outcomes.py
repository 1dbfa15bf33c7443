"""Outcomes of a plan's parts: all of a part or nothing of it, whoever writes beside."""

import pandas as pd

from lab import outcomes


def test_a_part_is_added_in_one_write_and_known_from_then_on(tmp_path):
    table = tmp_path / "outcomes.csv"
    seeds = pd.DataFrame({name: ["b", "a"] for name in outcomes.COLUMNS} | {"init_seed": [2, 1], "title": ["x", "y"]})
    assert not outcomes.has(table, base=10)
    for base in (10, 2):
        outcomes.add(table, seeds, base=base, arm=seeds["title"])
    rows = pd.read_csv(table)
    assert list(rows.columns) == ["base", "arm", *outcomes.COLUMNS]
    assert list(zip(rows["base"], rows["arm"], rows["init_seed"], strict=True)) == [
        (10, "x", 2), (10, "y", 1), (2, "x", 2), (2, "y", 1)
    ]  # fmt: skip
    assert outcomes.has(table, base=2, arm="y") and not outcomes.has(table, base=2, arm="z")
    assert not outcomes.has(table, base=3)
