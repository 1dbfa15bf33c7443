"""Outcomes of a plan's parts: all of a part or nothing of it, whoever writes beside."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from lab import outcomes

STUDY = {"name": "ties-38", "seeds": {"first": 1, "count": 5}}


def rows_of(seeds, title="x"):
    return pd.DataFrame({name: ["a"] * len(seeds) for name in outcomes.COLUMNS} | {"init_seed": seeds, "title": title})


@pytest.mark.parametrize("seeds", [{"first": 1, "count": 5}, [1, 2, 3, 4, 5]])
def test_parts_hold_each_seed_of_a_study_once_and_have_names_of_their_own(seeds, tmp_path):
    file = tmp_path / "ties-38.yaml"
    file.write_text(yaml.safe_dump(STUDY | {"seeds": seeds}))
    for study in (file, STUDY | {"seeds": seeds}):
        parts = outcomes.parts(study, 2, size=38)
        assert [part.study["seeds"] for part in parts] == [[1, 2], [3, 4], [5]]
        assert [part.study["name"] for part in parts] == ["ties-38-1", "ties-38-3", "ties-38-5"]
        assert all(part.columns == {"size": 38} for part in parts)


def test_a_part_is_added_in_one_write_and_known_from_then_on(tmp_path):
    table = tmp_path / "outcomes.csv"
    first, second = outcomes.parts(STUDY, 3, base=10)
    (other,) = outcomes.parts(STUDY, 5, base=2)
    assert not outcomes.has(table, first)
    outcomes.add(table, first, rows_of([2, 1, 3], ["x", "y", "x"]), "arm")
    outcomes.add(table, other, rows_of([1]), "arm")
    rows = pd.read_csv(table)
    assert list(rows.columns) == ["base", "arm", *outcomes.COLUMNS]
    assert list(zip(rows["base"], rows["arm"], rows["init_seed"], strict=True)) == [
        (10, "x", 2), (10, "x", 3), (10, "y", 1), (2, "x", 1)
    ]  # fmt: skip
    assert outcomes.has(table, first) and outcomes.has(table, other) and not outcomes.has(table, second)


def test_a_part_that_was_stopped_is_in_no_table(monkeypatch, tmp_path):
    table, homes, stopped = tmp_path / "outcomes.csv", [], []

    def run(study, home):
        homes.append(home)
        return SimpleNamespace(is_done=study["name"] not in stopped, seeds=rows_of(study["seeds"]))

    monkeypatch.setattr(outcomes.search, "run", run)
    parts = outcomes.parts(STUDY, 2, size=38)
    stopped.append("ties-38-3")
    with pytest.raises(SystemExit, match="is_done=False"):
        outcomes.train(parts, table, tmp_path, titled="ties")
    assert list(pd.read_csv(table)["init_seed"]) == [1, 2]
    stopped.clear()
    outcomes.train(parts, table, tmp_path, "1", "2", titled="ties")
    assert list(pd.read_csv(table)["init_seed"]) == [1, 2, 3, 4]
    for _ in range(2):
        outcomes.train(parts, table, tmp_path, titled="ties")
    assert list(pd.read_csv(table)["init_seed"]) == [1, 2, 3, 4, 5]
    assert homes == [tmp_path / f"ties-38-{first}" for first in (1, 3, 3, 5)]
    assert set(pd.read_csv(table)["ties"]) == {"x"} and isinstance(homes[0], Path)
