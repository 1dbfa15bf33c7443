"""lab/scripts/arms.py: a study's arms in banks, and their counts as `adder-search table` reads them."""

import csv

import pandas as pd

from lab.scripts import arms
from reports.table import constraint_table
from search.analysis.frames import RecordSet
from search.study.file import load_study

STUDY = """
name: arms
model: 57p
recipe: {steps: 40, batch: 16, eval_every: 20, warmup: 4, curriculum: [], fade_start: 10, fade_end: 20}
toggle: [tie_vo]
seeds: {first: 5, count: 3}
stop: {hopeless: off, screen: {at: 20, keep: {token: 0.9}}}
"""


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_arms_are_trained_once_and_counted_as_the_table_wants_them(tmp_path):
    file, out = tmp_path / "arms.yaml", tmp_path / "arms.csv"
    file.write_text(STUDY)
    study = load_study(str(file))
    arms.train(study, out, [0], 2, 2)
    first = rows_of(out)
    assert [r["init_seed"] for r in first] == ["5", "6"] and len({r["configuration"] for r in first}) == 1
    assert {r["outcome"] for r in first} <= {"screened", "failed"} and first[0]["screen"] == "token 0.9 at 20"
    arms.train(study, out, [], 2, None)
    rows = rows_of(out)
    assert rows[:2] == first and len(rows) == 6 and not list(tmp_path.glob("*.state"))
    arms.frame(study, [out], tmp_path / "arms.parquet")
    frame = pd.read_parquet(tmp_path / "arms.parquet")
    assert list(frame["seeds"]) == [3, 3] and list(frame["screened"] + frame["failed"]) == [3, 3]
    table = constraint_table(frame.to_dict("records"), seeds=RecordSet([str(out)]).seeds())
    (cell,) = table.cells.values()
    assert (cell.constraint, cell.paired.n, cell.with_it.n) == ("tie_vo", 3, 3)
