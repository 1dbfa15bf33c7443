"""Outcomes of a plan's parts: all of a part or nothing of it, whoever writes beside."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from lab import outcomes

SEEDS = pd.DataFrame({name: ["b", "a"] for name in outcomes.COLUMNS} | {"init_seed": [2, 1], "title": ["x", "y"]})


def test_a_part_is_added_in_one_write_and_known_from_then_on(tmp_path):
    table = tmp_path / "outcomes.csv"
    assert not outcomes.has(table, base=10)
    for base in (10, 2):
        outcomes.add(table, SEEDS, base=base, arm=SEEDS["title"])
    rows = pd.read_csv(table)
    assert list(rows.columns) == ["base", "arm", *outcomes.COLUMNS]
    assert list(zip(rows["base"], rows["arm"], rows["init_seed"], strict=True)) == [
        (10, "x", 2), (10, "y", 1), (2, "x", 2), (2, "y", 1)
    ]  # fmt: skip
    assert outcomes.has(table, base=2, arm="y") and not outcomes.has(table, base=2, arm="z")
    assert not outcomes.has(table, base=3)


@pytest.mark.parametrize("study", [Path("ties-38.yaml"), {"name": "ties-38"}])
def test_a_study_that_was_stopped_is_in_no_table(study, monkeypatch, tmp_path):
    table, homes = tmp_path / "outcomes.csv", []
    trained = SimpleNamespace(is_done=False, seeds=SEEDS)
    monkeypatch.setattr(outcomes.search, "run", lambda study, home: homes.append(home) or trained)
    with pytest.raises(SystemExit, match="is_done=False"):
        outcomes.train(study, tmp_path, table, "ties", size=38)
    assert not table.exists()
    trained.is_done = True
    for _ in range(2):
        outcomes.train(study, tmp_path, table, "ties", size=38)
    assert homes == [tmp_path / "ties-38"] * 2 and len(pd.read_csv(table)) == 2
