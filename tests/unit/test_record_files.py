"""Files of records that ask for much, or hold what no record has: refused in one line, within two seconds of a core."""

import re
import resource
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from search.analysis import frames
from search.analysis.frames import RecordSet
from search.errors import UserError

pytestmark = pytest.mark.usefixtures("here")
LARGE_CSV = {
    "one line of commas": lambda: "a" + "," * 20_000_000,
    "lines": lambda: "study\n" + "1\n" * 9_000_000,
    "lines of old": lambda: "study\r" + "1\r" * 9_000_000,
    "a text without end": lambda: 'study\n"' + "x\n" * 9_000_000,
    "columns": lambda: ",".join("c" * 2_000) + "\n1",
    "wider than its head": lambda: "study\n" + "," * 5_000,
    "cells": lambda: (",".join("1" * 900) + "\n") * 11_200,
    "bytes": lambda: "study\n" + "x" * 50_000_001,
}


def parquet(table, **options):
    pq.write_table(table, "x.parquet", compression="zstd", **options)
    return "x.parquet"


def nulls(rows):
    """A file of a few hundred bytes."""
    return parquet(pa.table({"study": pa.nulls(rows, pa.int8())}))


LARGE_PARQUET = {
    "rows": lambda: nulls(30_000_000),
    "rows by one": lambda: nulls(frames.MOST_ROWS + 1),
    "columns": lambda: parquet(pa.table({f"c{n}": [1] for n in range(frames.MOST_COLUMNS + 1)})),
    "cells": lambda: parquet(pa.table({f"c{n}": pa.nulls(20_000, pa.int8()) for n in range(600)})),
    "a list": lambda: parquet(
        pa.table({"study": pa.ListArray.from_arrays([0, 11_000_000], pa.nulls(11_000_000, pa.int8()))})
    ),
    "150 GB in 600 bytes": lambda: parquet(
        pa.table({"study": pa.DictionaryArray.from_arrays(pa.array([0] * 150_000, pa.int32()), ["x" * 1_000_000])}),
        store_schema=False,
    ),
}  # fmt: skip


def refusal(name):
    """The line with which a file of records is refused, and that it takes little time and keeps no limit."""
    limits, begun = resource.getrlimit(resource.RLIMIT_DATA), time.process_time()
    with pytest.raises(UserError) as refused:
        RecordSet([name])
    assert time.process_time() - begun < 2
    assert resource.getrlimit(resource.RLIMIT_DATA) == limits
    return str(refused.value)


@pytest.mark.parametrize("case", LARGE_CSV)
def test_a_csv_that_asks_for_much(case):
    Path("x.csv").write_text(LARGE_CSV[case]())
    assert refusal("x.csv").startswith("x.csv: larger than any table of records (")


@pytest.mark.parametrize("case", LARGE_PARQUET)
def test_a_parquet_that_asks_for_much(case, monkeypatch):
    monkeypatch.setattr(frames, "MOST_MEMORY", 100_000_000)
    assert re.fullmatch(r"x.parquet: larger than any table of records \([^()]*\)", refusal(LARGE_PARQUET[case]()))


def test_metadata_of_many_groups_are_not_gone_through():
    chunk = SimpleNamespace(num_values=1, total_uncompressed_size=1)
    group = Mock(return_value=SimpleNamespace(column=lambda n: chunk))
    about = SimpleNamespace(num_rows=1, num_columns=10, num_row_groups=10**9, row_group=group)
    with pytest.raises(UserError, match=r"x: larger than any table of records \(1,000,000,000 rows\)"):
        frames._check_metadata(Path("x"), about)
    assert group.call_count * 10 <= frames.MOST_ROWS


@pytest.mark.full
def test_the_largest_table_of_seeds_is_read():
    row = dict.fromkeys(frames.NEEDED, 1.5) | dict.fromkeys(("study", "configuration", "outcome"), "a name")
    frame = pd.DataFrame([row]).loc[[0] * frames.MOST_ROWS]
    frame.assign(**{f"c{n}": 1.5 for n in range(13)}).to_parquet("x.parquet")
    assert len(RecordSet(["x.parquet"]).seeds()) == frames.MOST_ROWS


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_what_is_no_file_of_records(name):
    assert refusal(name) == f"{name}: no such file"
    Path(name).mkdir()
    assert refusal(name) == f"{name}: not a file"
    Path(name).rmdir()
    for data in (b"", b"PAR1", b"\0" * 10_000, b'PAR1"\xff' * 100):
        Path(name).write_bytes(data)
        try:
            assert len(RecordSet([name]).file_rows) < 200
        except UserError as error:
            kind = frames.FILES[Path(name).suffix]
            assert str(error) in (f"{name}: cannot be read as {kind}", f"{name}: has no rows")


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_a_file_without_rows_says_so(name):
    frame = pd.DataFrame(columns=["study", "configuration", "init_seed"])
    frame.to_csv(name, index=False) if name == "x.csv" else frame.to_parquet(name)
    assert refusal(name) == f"{name}: has no rows"
