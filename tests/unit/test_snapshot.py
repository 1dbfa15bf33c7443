import subprocess
import sys

import pytest
import torch

from trainer.files import snapshot

OLD = ({"theta": torch.arange(6.0).reshape(2, 3)}, {"slot_pair": [0, None]})
NEW = ({"theta": torch.ones(2, 3), "step": torch.tensor([7])}, {"slot_pair": [1, 2]})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deeper" / "bank.state"


def assert_reads(path, expected):
    tensors, meta = snapshot.read(path)
    assert meta == expected[1] and tensors.keys() == expected[0].keys()
    assert all(torch.equal(tensors[k], t) for k, t in expected[0].items())


def test_what_was_written_is_read(path):
    snapshot.write(path, *NEW)
    assert_reads(path, NEW)


def test_the_newest_wins(path):
    snapshot.write(path, *OLD)
    snapshot.write(path, *NEW)
    assert_reads(path, NEW)


@pytest.mark.parametrize("keep", [0, 10, 64, 100, -1])
def test_a_truncated_file_yields_its_predecessor(path, keep):
    snapshot.write(path, *OLD)
    snapshot.write(path, *NEW)
    path.write_bytes(path.read_bytes()[:keep])
    assert_reads(path, OLD)


@pytest.mark.parametrize("place", [0, 70, -1])
def test_one_flipped_bit_yields_the_predecessor(path, place):
    snapshot.write(path, *OLD)
    snapshot.write(path, *NEW)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert_reads(path, OLD)


def test_torn_without_predecessor_is_none(path):
    snapshot.write(path, *OLD)
    path.write_bytes(path.read_bytes()[:-1])
    assert snapshot.read(path) is None


def test_a_crash_between_the_two_renames_loses_nothing(path):
    snapshot.write(path, *OLD)
    snapshot.write(path, *NEW)
    path.unlink()
    assert_reads(path, OLD)


NO_ROOM = """
import resource, signal, sys
from pathlib import Path
import torch
from trainer.files import snapshot

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))  # no file may grow beyond: as on a full disk
try:
    snapshot.write(Path(sys.argv[1]), {"theta": torch.ones(1_000)}, {})
except OSError as error:
    print(error.strerror)
"""


def test_a_full_disk_is_an_error_and_the_state_before_is_kept(path):
    """In a process of its own, since whatever this one writes would be cut off too."""
    snapshot.write(path, *OLD)
    command = [sys.executable, "-c", NO_ROOM, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout == "File too large\n"
    assert [f.name for f in path.parent.iterdir()] == [path.name]
    assert_reads(path, OLD)
