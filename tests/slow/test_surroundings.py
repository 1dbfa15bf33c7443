"""A run on clocks that jump, and as a container's first process (make test-faults)."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.commands import COMMAND, running
from tests.reference import QUICK, check_whole, ends_whole, expected, wait_for_progress, write_study

pytestmark = pytest.mark.faults
LONG = QUICK | {"recipe": QUICK["recipe"] | {"steps": 100_000}}
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
ALONE = ("unshare", "--pid", "--fork", "--mount-proc")
can_be_alone = pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run([*ALONE, "true"], capture_output=True).returncode != 0,
    reason="no namespace of processes can be made here",
)


@pytest.mark.skipif(FAKETIME is None, reason="needs libfaketime (apt-get install faketime)")
@pytest.mark.parametrize("jump", ["+3600", "-3600"])
def test_a_clock_that_jumps(jump, tmp_path):
    """By an hour while a bank trains: the clock by which leases are, as it is set by hand or by a server."""
    offset = tmp_path / "offset"
    offset.write_text("+0")
    fake = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1"}  # fmt: skip
    words = ("run", write_study(tmp_path, QUICK), "--home", str(tmp_path / "home"))
    program = (sys.executable, "-m", "tests.in_process")
    with running(*words, cwd=ROOT, environment=fake, program=program) as command:
        wait_for_progress(command, tmp_path / "home")
        offset.write_text(jump)
        said = command.wait()
    assert said.code == 0, said
    check_whole(tmp_path / "home", QUICK, tmp_path, expected(QUICK))


@can_be_alone
def test_as_a_containers_first_process(tmp_path):
    """Which has to take up what others leave, and gets no signal that it does not ask for."""
    long, words = LONG | {"name": "long"}, ("--home", str(tmp_path / "home"))
    with running("run", write_study(tmp_path, long), *words, cwd=tmp_path, program=(*ALONE, str(COMMAND))) as command:
        wait_for_progress(command, tmp_path / "home")
        (first,) = Path(f"/proc/{command.process.pid}/task/{command.process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        said = command.wait(120)
        assert said.code == 130 and "Traceback" not in said.err and command.gone(), said
    ends_whole(QUICK, tmp_path, tmp_path / "home", program=(*ALONE, str(COMMAND)))
