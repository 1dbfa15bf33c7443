"""What is drawn over is drawn on a terminal that someone watches. A notebook's cell is none; its commands end well."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from search.cli.options import progress_bar
from search.run.progress import Display
from search.run.snapshot import Snapshot, bar
from tests import ROOT
from tests.commands import OTHERS
from tests.processes import wait_until

CELL = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "FORCE_COLOR": "1", "TERM": "xterm-color"}
WITHOUT = dict.fromkeys((*CELL, "NO_COLOR", "TTY_COMPATIBLE")) | {"TERM": "xterm"}
HALFWAY = Snapshot((0, 1), (3, 8), 5, 1, 2, "", 0.5, 1_000.0, 60.0, False, 60.0)


@pytest.fixture
def terminal():
    """A terminal that a test reads: its file, and what returns what was written to it."""
    master, slave = pty.openpty()
    os.set_blocking(master, False)

    def written():
        parts = []
        with contextlib.suppress(BlockingIOError):
            while True:
                parts.append(os.read(master, 1 << 12))
        return b"".join(parts).decode()

    with open(slave, "w") as file:  # noqa: PTH123 (no path)
        yield file, written
    os.close(master)


@pytest.fixture
def surroundings(monkeypatch, tmp_path, terminal):
    """Set variables, and make the terminal or a file this process's output."""

    def enter(variables, is_terminal):
        monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # of another test's: this is no kernel
        for name, value in (WITHOUT | variables).items():
            monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
        file = terminal[0] if is_terminal else (tmp_path / "out").open("w")
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, file)
        return file, (terminal[1] if is_terminal else lambda: (file.flush(), (tmp_path / "out").read_text())[1])

    return enter


PLACES = {
    "a terminal": ({}, True, True),
    "a cell": (CELL, True, False),
    "a dumb terminal": ({"TERM": "dumb"}, True, False),
    "a log that asks for colours": ({"FORCE_COLOR": "1"}, False, False),
    "a file": ({}, False, False),
}


@pytest.mark.parametrize("place", PLACES)
def test_only_on_a_terminal_a_run_draws_over_what_it_has_shown(place, surroundings, monkeypatch):
    variables, is_terminal, is_live = PLACES[place]
    file, written = surroundings(variables, is_terminal)
    now = 0.0
    monkeypatch.setattr("search.run.progress.time.monotonic", lambda: now)
    with Display(Console(file=file, width=200)) as display:
        for _ in range(600):  # two minutes, looked at five times a second
            now += 0.2
            if display.due():
                display.show(HALFWAY)
    file.flush()
    text = written()
    assert "seeds 3 of 8" in text and "1,000 seed-steps/s, about 1 min 0 s left" in text
    lines = [line for line in text.splitlines() if "seeds 3 of 8" in line]
    assert is_live == ("\x1b[" in text) and is_live == (display.live is not None)
    if not is_live:
        assert 12 < len(lines) < 24 and "\r\r" not in text, "one every few seconds"
        assert all(line.startswith("[##########..........] seeds") for line in lines) == (place == "a cell")


@pytest.mark.parametrize("place", PLACES)
def test_nor_does_a_command_that_goes_on_for_long_draw_elsewhere(place, surroundings):
    variables, is_terminal, is_live = PLACES[place]
    file, written = surroundings(variables, is_terminal)
    with progress_bar("proving") as say:
        say("still proving", 1, 2)
    file.flush()
    assert ("\x1b[" in written()) == is_live


@pytest.mark.parametrize(
    ("elapsed", "left", "full"), [(0.0, None, 0), (5.0, None, 0), (0.0, 0.0, 0), (30.0, 90.0, 5), (9.0, 0.0, 20)]
)
def test_a_bar_is_the_share_of_the_time_that_a_run_takes(elapsed, left, full):
    snapshot = Snapshot((0, 1), (0, 8), 5, 0, 0, "", 0.0, 1_000.0, left, False, elapsed)
    assert bar(snapshot) == f"[{'#' * full}{'.' * (20 - full)}]"


COMMAND = """
import sys, time
from search.run.terminal import leave_cell
leave_cell()
try:
    print("begun", flush=True)
    time.sleep(float(sys.argv[1]))
except KeyboardInterrupt:
    time.sleep(0.6)
    open("saved", "x").close()
sys.exit(3)
"""


@pytest.fixture
def command(terminal, tmp_path):
    """Start a command in a cell, or elsewhere. It sleeps, and saves what it has if it is interrupted."""

    def start(seconds, variables=CELL):
        environment = {k: v for k, v in os.environ.items() if k not in (*CELL, *OTHERS)}
        words = [sys.executable, "-c", COMMAND, str(seconds)]
        variables = {**environment, **variables, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(words, cwd=tmp_path, stdout=terminal[0], stderr=terminal[0], env=variables)
        said = []
        wait_until(lambda: said.append(terminal[1]()) or "begun" in "".join(said), "it did not begin")
        return process

    return start


def kill_as_a_kernel_does(process):
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGINT, signal.SIGKILL):
        process.send_signal(number)
        time.sleep(0.1)


def test_a_command_that_a_kernel_kills_saves_what_it_has(command, terminal, tmp_path):
    process = command(60)
    kill_as_a_kernel_does(process)
    assert process.wait(1) == -signal.SIGKILL and "stopping: what trains is being saved" in terminal[1]()
    assert not (tmp_path / "saved").exists()
    wait_until((tmp_path / "saved").exists, "nothing was saved")


def test_elsewhere_it_is_one_process_that_ends_with_its_terminal(command, tmp_path):
    process = command(60, {})
    kill_as_a_kernel_does(process)
    process.wait(1)
    time.sleep(0.6)
    assert not (tmp_path / "saved").exists()


def test_a_command_in_a_cell_ends_with_its_own_code(command):
    assert command(0).wait(10) == 3
