"""A real run that is told to end, at any time and by more than one signal: cleanly, with nothing left behind."""

import os
import signal
import time

import pytest

from tests.commands import running
from tests.processes import short_folder
from tests.reference import QUICK, ends_whole, wait_for_progress, write_study

pytestmark = [pytest.mark.end_to_end, pytest.mark.full]
LONG = QUICK | {"recipe": QUICK["recipe"] | {"steps": 100_000}}


@pytest.fixture
def temporary():
    with short_folder() as folder:
        yield folder


@pytest.fixture
def command(temporary, tmp_path):
    """A run that ends cleanly by what a test does to it."""
    words = ("run", write_study(tmp_path, LONG), "--home", "home")
    environment = {"TMPDIR": str(temporary), "RAY_TMPDIR": str(temporary)}
    with running(*words, cwd=tmp_path, environment=environment) as command:
        yield command
        said = command.wait(120)
        assert said.code == 130 and "Traceback" not in said.out + said.err, said
        assert command.gone() and list(temporary.rglob("*")) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after_s", [0.0, 1.5])
def test_while_ray_starts(number, after_s, command, temporary):
    command.wait_for(lambda: list(temporary.iterdir()), "Ray did not begin")
    time.sleep(after_s)
    command.process.send_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_four_to_a_run_that_trains(number, command, tmp_path):
    wait_for_progress(command, tmp_path / "home")
    for _ in range(4):
        command.process.send_signal(number)
        time.sleep(0.7)


def test_a_terminal_that_is_closed(command, tmp_path):
    """It sends a SIGHUP to a run with all its processes."""
    wait_for_progress(command, tmp_path / "home")
    os.killpg(command.process.pid, signal.SIGHUP)


def test_a_sigterm_to_all_of_its_processes(temporary, tmp_path):
    """Ray's own may end first, which aborts the driver. What was saved stays, and the next run goes on."""
    words = ("run", write_study(tmp_path, QUICK), "--home", "home")
    environment = {"TMPDIR": str(temporary), "RAY_TMPDIR": str(temporary)}
    with running(*words, cwd=tmp_path, environment=environment) as command:
        wait_for_progress(command, tmp_path / "home")
        os.killpg(command.process.pid, signal.SIGTERM)
        command.wait(120)
        assert command.gone()
    said = ends_whole(QUICK, tmp_path, tmp_path / "home", environment=environment)
    assert "Traceback" not in said.err, said
    assert list(temporary.iterdir()) == []
