"""What is written in each of our ways outlasts a power cut from the moment on at which the call returns;
before it there is what was there, or the new, and nothing in between.
"""

import pytest
import torch

from model import PRESETS
from search.cli.options import save_checkpoint, write_text
from tests import homes
from tests.crashes import Disk
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files import durable

STUDY = homes.study_of()


def adder(step):
    """The same θ again: another one is refused."""
    return Checkpoint(PRESETS["57p"], torch.ones(PRESETS["57p"].params), step=step)


WAYS = {  # how the n-th is written in a folder, and the n that is read
    "file": (
        lambda folder, n: (durable.make_folder(folder / "in"), durable.write(folder / "in/file", b"1" * 1_000 * n)),
        lambda folder: len((folder / "in/file").read_bytes()) / 1_000 if (folder / "in/file").exists() else 0,
    ),
    "checkpoint": (
        lambda folder, n: save_checkpoint(adder(n), folder / "best"),
        lambda folder: Checkpoint.load(folder / "best").step if (folder / "best").exists() else 0,
    ),
    "page": (
        lambda folder, n: write_text(folder / "page", "1" * 1_000 * n),
        lambda folder: len((folder / "page").read_text()) / 1_000 if (folder / "page").exists() else 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_what_was_written_is_there_and_what_is_being_written_is_old_or_new(way, tmp_path):
    write, read = WAYS[way]
    (tmp_path / "seen").mkdir()
    disk, after = Disk(tmp_path / "seen"), []
    with disk.recording():
        for n in (1, 2, 3):
            write(tmp_path / "seen", n)
            after.append(disk.moments)
    assert len(disk.found) > 10
    for number, left in enumerate(disk.found):
        found = read(left.restore(tmp_path / str(number)))
        for moment in left.moments:
            written = sum(moment > end for end in after)
            assert found in (written, written + 1), left.how
    assert read(tmp_path / "seen") == 3
