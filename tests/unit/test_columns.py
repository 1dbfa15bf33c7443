"""A column of a seed's record is declared in one place, and what shows or keeps records follows."""

import json

from benchmarks import rows
from search.stats.record import COLUMNS
from tests.commands import done, python


def test_a_column_is_declared_once_and_measured(tmp_path):
    """A home that lacks it gets it with its default; then it is written, read, shown and summarised."""
    home = rows.write_home(tmp_path / "home", 1, 3).parent
    said = python("-m", "tests.with_column", home)
    after = [0.5, 0.5, 0.5, 0.125]
    assert json.loads(said.splitlines()[-1]) == {
        "before": [0.5] * 3,
        "parquet": after,
        "json": after,
        "status": after,
        "result": 0.125,
        "metric": 0.5,
        "configurations": [0.5],
        "help": True,
    }


def test_every_column_says_what_it_is():
    said = done("records", "--help")
    for name, column in COLUMNS.items():
        assert column.help and column.help == column.help.strip(" ."), name
        assert not column.shown or f"  {name} " in said, name
        assert column.unit or column.kind is not float, f"{name} is a number of what?"
