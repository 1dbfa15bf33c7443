"""`status --watch`: it shows a study while it is run, in place on a terminal, and ends with the run."""

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict

import pytest

from search.run.snapshot import Snapshot
from search.store.progress_file import write_progress
from tests.commands import call, fails_with_one
from tests.homes import Recorder, empty_home, study_of

pytestmark = pytest.mark.usefixtures("here", "quick")


@pytest.fixture
def running(here):
    """A study whose driver is this process: call it to say how many seeds have ended."""
    study = Recorder(empty_home("adder-runs"), study_of())
    study.seeds([1, 2], grokked=[2], shown=False)

    def say(ended):
        counts = Snapshot((0, 1), (ended, 4), 2, 1, ended - 1, "", 1.0, 50.0, 111.0, False, 5.0)
        owner = study.records.owner
        rest = {"owner": owner, "began": time.time(), "source": "", "training": [], "steps": []}
        write_progress(study.records, asdict(counts) | rest)

    say(2)
    say.done = study.done
    return say


def test_without_a_run_it_is_the_status(running):
    running.done()
    assert call("status", "sweep", "--watch").stdout == call("status", "sweep").stdout


def test_the_one_study_that_runs_needs_no_name(running):
    """A pipe gets lines until the run ends, and then its status."""
    Recorder(empty_home("adder-runs"), study_of(name="ended")).done()
    timer = threading.Timer(1.0, running.done)
    timer.start()
    lines = call("status", "--watch").stdout.splitlines()
    assert "seeds 2 of 4" in lines[0] and "about 1 min 51 s left" in lines[0]
    assert lines[1].startswith("sweep: 2 seeds (") and "ended" not in "".join(lines) and "\x1b" not in "".join(lines)


def test_what_cannot_be_watched_is_said(running):
    assert fails_with_one(2, "status", "sweep", "--json", "--watch").startswith("--watch draws a status again")
    other = Recorder(empty_home("adder-runs"), study_of(name="other"))
    assert fails_with_one(2, "status", "--watch").startswith("--watch: other, sweep run in ")
    other.done()
    running.done()
    assert fails_with_one(2, "status", "--watch").startswith("--watch: no study runs in ")
    assert fails_with_one(2, "status", "--watch", "--home", "nowhere").startswith("--watch: no study runs in ")


def terminal(folder):
    """`status --watch` on a terminal: the process, and where to read what it draws."""
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "adder_search", "status", "sweep", "--watch"]
    process = subprocess.Popen(words, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
                               env=os.environ | {"TERM": "xterm", "COLUMNS": "100"})  # fmt: skip
    os.close(theirs)
    return process, ours


def read_until(place, word):
    shown = ""
    while word not in shown:
        shown += os.read(place, 4096).decode()
    return shown


def test_a_terminal_is_drawn_again_in_place_and_ctrl_c_leaves_it_clean(running, here):
    process, place = terminal(here)
    read_until(place, "seeds 2 of 4")
    running(3)
    again = read_until(place, "seeds 3 of 4")
    assert "\x1b[1A" in again, "the cursor goes up to the first line"
    process.send_signal(signal.SIGINT)
    rest = read_until(place, "interrupted")
    assert process.wait(20) == 130 and "Traceback" not in rest and "\x1b[?25h" in rest, "its cursor is back"
    running.done()
