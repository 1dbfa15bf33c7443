"""A real run that is told to end, at any time and by more than one signal: cleanly, with nothing left behind."""

import os
import signal
import time

import pytest

from tests.reference import LONG, QUICK, ends_whole, running_study, wait_for_progress

pytestmark = [pytest.mark.end_to_end, pytest.mark.full]


def environment_of(temporary):
    return {"TMPDIR": temporary, "RAY_TMPDIR": temporary}


@pytest.fixture
def command(temporary, tmp_path):
    """A run that ends cleanly by what a test does to it."""
    with running_study(LONG, tmp_path, environment=environment_of(temporary)) as command:
        yield command
        said = command.wait(120)
        assert said.code == 130 and "Traceback" not in said.out + said.err, said
        assert command.gone() and list(temporary.rglob("*")) == []


@pytest.mark.parametrize(("number", "after_s"), [(signal.SIGTERM, 0.0), (signal.SIGHUP, 1.5)])
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
    environment = environment_of(temporary)
    with running_study(QUICK, tmp_path, environment=environment) as command:
        wait_for_progress(command, tmp_path / "home")
        os.killpg(command.process.pid, signal.SIGTERM)
        command.wait(120)
        assert command.gone()
    said = ends_whole(QUICK, tmp_path, tmp_path / "home", environment=environment)
    assert "Traceback" not in said.err, said
    assert list(temporary.iterdir()) == []
