"""What is written in each of our ways outlasts a power cut from the moment on at which the call returns;
before it there is what was there, or the new, and nothing in between.
"""

import pytest
import torch

from model import PRESETS
from search.cli.options import save_checkpoint, write_text
from tests.crashes import Disk
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files import durable


def adder(step):
    """The same θ again: another one is refused."""
    return Checkpoint(PRESETS["57p"], torch.ones(PRESETS["57p"].params), step=step)


WAYS = {  # by what is written: how the n-th is, and the n that is read
    "in/file": (
        lambda path, n: (durable.make_folder(path.parent), durable.write(path, b"1" * 1_000 * n)),
        lambda path: len(path.read_bytes()) / 1_000,
    ),
    "best": (lambda path, n: save_checkpoint(adder(n), path), lambda path: Checkpoint.load(path).step),
    "page": (lambda path, n: write_text(path, "1" * 1_000 * n), lambda path: len(path.read_text()) / 1_000),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_what_was_written_is_there_and_what_is_being_written_is_old_or_new(name, tmp_path):
    write, read = WAYS[name]
    (tmp_path / "seen").mkdir()
    disk, after = Disk(tmp_path / "seen"), []
    with disk.recording():
        for n in (1, 2, 3):
            write(tmp_path / "seen" / name, n)
            after.append(disk.moments)
    assert len(disk.found) > 10
    for number, left in enumerate(disk.found):
        path = left.restore(tmp_path / str(number)) / name
        found = read(path) if path.exists() else 0
        for moment in left.moments:
            written = sum(moment > end for end in after)
            assert found in (written, written + 1), left.how
    assert read(tmp_path / "seen" / name) == 3
