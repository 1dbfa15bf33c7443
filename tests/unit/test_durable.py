"""What is written in each of our ways outlasts a power cut from the moment on at which the call returns;
before it there is what was there, or the new, and nothing in between.
"""

import pytest
import torch

from model import PRESETS
from search.cli.options import save_checkpoint, write_text
from search.store import results as part
from tests import homes
from tests.crashes import Disk, failing
from trainer.checkpoints.checkpoint import Checkpoint
from trainer.files import durable, snapshot

STUDY = homes.study_of()


def adder(step):
    """The same θ again: another one is refused."""
    return Checkpoint(PRESETS["57p"], torch.ones(PRESETS["57p"].params), step=step)


WAYS = {  # how the n-th is written in a folder, and the n that is read
    "file": (
        lambda folder, n: (durable.make_folder(folder / "in"), durable.write(folder / "in/file", b"1" * 1_000 * n)),
        lambda folder: len((folder / "in/file").read_bytes()) / 1_000 if (folder / "in/file").exists() else 0,
    ),
    "state": (
        lambda folder, n: snapshot.write(folder / "trials/bank.state", {"theta": torch.full((50,), 1.0 * n)}, {"n": n}),
        lambda folder: found[1]["n"] if (found := snapshot.read(folder / "trials/bank.state")) else 0,
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


def test_parts_are_there_whole_or_not_at_all_whenever_the_power_goes_or_a_call_fails(tmp_path):
    home = homes.Home(tmp_path / "home")
    configuration = homes.Configuration(*STUDY.listed[0])
    trial = homes.trial_of(STUDY, (configuration, 1), (configuration, 2))
    home.create()
    disk = Disk(home.path)
    with disk.recording():
        trial.write(home.trial("sweep", trial.key))
        described = disk.moments
        homes.leave_parts(home, trial)
        ended = disk.moments
    for number, left in enumerate(disk.found):
        folder = homes.Home(left.restore(tmp_path / str(number))).trial("sweep", trial.key)
        if left.moments[-1] > described:
            assert part.Trial.read(folder) == trial, left.how
        assert len(part.read_parts(folder)) == 1 or left.moments[-1] <= ended, left.how
    assert len(part.read_parts(folder)) == 1
    full = homes.empty_home(tmp_path / "full")
    trial.write(folder := full.trial("sweep", trial.key))
    with failing(3), pytest.raises(OSError):
        homes.leave_parts(full, trial)
    assert not part.has_parts(folder) and part.read_parts(folder) == []
    assert len(part.read_parts(homes.leave_parts(full, trial))) == 1, "remains are in nobody's way"


# Saved states of banks

OLD = ({"theta": torch.arange(6.0).reshape(2, 3)}, {"slot_pair": [0, None]})
NEW = ({"theta": torch.ones(2, 3), "step": torch.tensor([7])}, {"slot_pair": [1, 2]})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deeper" / "bank.state"


def assert_reads(path, expected):
    tensors, meta = snapshot.read(path)
    assert meta == expected[1] and tensors.keys() == expected[0].keys()
    assert all(torch.equal(tensors[k], t) for k, t in expected[0].items())


DAMAGES = {
    "nothing": lambda data: data,
    "empty": lambda data: b"",
    "half": lambda data: data[:100],
    "a bit of a tensor": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_newest_whole_state_is_read(damage, path):
    snapshot.write(path, *OLD)
    snapshot.write(path, *NEW)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert_reads(path, NEW if damage == "nothing" else OLD)
