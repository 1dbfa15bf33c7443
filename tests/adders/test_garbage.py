"""Damaged files of other programs: no crash, one line of complaint (tests/unit/test_garbage.py)."""

import io
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st

from tests.adders.foreign import SMALL, microadder, repacked, report
from tests.unit.test_garbage import VALUES, bitten, damaged, feed, read_checkpoint

pytestmark = pytest.mark.usefixtures("here")


def saved(content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def pickle_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


def read_file(data):
    file = Path("theirs.pt")
    file.write_bytes(data)
    return read_checkpoint(file)


@pytest.mark.parametrize("content", [microadder(), report(SMALL)], ids=["MicroAdder", "report"])
def test_other_programs_files(content):
    data = saved(content)
    assert read_file(data) is None
    arc = torch.tensor(2.0)
    objects = VALUES | st.sampled_from([arc * torch.nan, arc.long(), arc.expand(10**6, 10**6), {1, 2}])
    feed(bitten(data) | damaged(content, objects).map(saved), 25, read_file)
    feed(bitten(pickle_of(data)).map(lambda pickled: repacked(data, lambda _: pickled)), 25, read_file)
    assert {f.name for f in Path().iterdir()} == {"theirs.pt", "again"}
