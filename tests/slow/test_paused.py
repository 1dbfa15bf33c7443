"""A driver paused for longer than its lease, which comes back when another one has its study (make test-faults)."""

import os
import random
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests import ROOT
from tests.reference import QUICK, check_whole, ends_whole, expected, run_study, running_study, wait_for_progress

pytestmark = pytest.mark.faults

STUDY = QUICK | {"name": "paused"}
LEASE_S = 6.0
IN_PROCESS = {"cwd": ROOT, "program": (sys.executable, "-m", "tests.in_process")}
"""Driver, worker and outbox in one process: all of it is paused."""
TAKEN = "error: study paused: another driver took the study over, while this one was paused; it has written nothing"
INSTANTS, SEED = 10, 30


@pytest.fixture(scope="module")
def wanted():
    return expected(STUDY)


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """How often an undisturbed run writes to MLflow, and the seconds that it takes."""
    folder = tmp_path_factory.mktemp("counted")
    counting = {"PAUSE": "before any 0", "NOTE": folder / "count"}
    said = run_study(STUDY, folder, environment=counting, **IN_PROCESS)
    assert said.code == 0, said
    return int((folder / "count").read_text()), said.seconds


def is_stopped(pid):
    """True if all threads of a process have been stopped by a signal."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def pause_unlocked(command, home):
    """Pause a driver, where it holds no lock of a database: nobody can help that. It may have ended before."""
    while command.process.poll() is None:
        command.process.send_signal(signal.SIGSTOP)
        command.wait_for(lambda: is_stopped(command.process.pid), "it goes on")
        try:
            for name in ("records.db", "mlflow.db"):
                with closing(sqlite3.connect(home / name, timeout=0.1, isolation_level=None)) as db:
                    db.execute("BEGIN EXCLUSIVE")
                    db.execute("ROLLBACK")
            return
        except sqlite3.OperationalError:
            os.kill(command.process.pid, signal.SIGCONT)
            time.sleep(0.01)


def check_taken_over(folder, command, wanted):
    """Another driver takes the study to its end; the paused one comes back, and changes nothing of it."""
    time.sleep(LEASE_S)
    said = run_study(STUDY, folder, **IN_PROCESS)
    assert said.code == 0 and "not all of it is in MLflow" not in said.out, said
    command.process.send_signal(signal.SIGCONT)  # nothing, where it has ended
    said = command.wait()
    assert said.code == 0 or (said.code == 1 and said.err.splitlines()[-1].startswith(TAKEN)), said
    check_whole(folder / "home", STUDY, wanted)
    ends_whole(STUDY, folder, folder / "home", wanted, **IN_PROCESS)


CREATING = [f"{when} create_run {number}" for number in (1, 2) for when in ("before", "after")]


@pytest.mark.parametrize("call", [*CREATING, *range(INSTANTS - len(CREATING))])
def test_paused_in_a_call_to_mlflow(call, calls, wanted, tmp_path):
    """Before the call, when it has looked at its lease, or after it, before it hears of it."""
    if isinstance(call, int):
        draw = random.Random(SEED + call)
        call = f"{draw.choice(['before', 'after'])} any {draw.randrange(1, calls[0] + 1)}"
    environment = {"PAUSE": call, "LEASE_S": LEASE_S}
    with running_study(STUDY, tmp_path, environment=environment, **IN_PROCESS) as command:
        command.wait_for(lambda: is_stopped(command.process.pid), f"there was no call {call}")
        check_taken_over(tmp_path, command, wanted)


@pytest.mark.parametrize("instant", range(INSTANTS))
def test_paused_at_any_time(instant, calls, wanted, tmp_path):
    _, seconds = calls
    with running_study(STUDY, tmp_path, environment={"LEASE_S": LEASE_S}, **IN_PROCESS) as command:
        command.wait_for((tmp_path / "home" / "mlflow.db").exists, "it did not begin")
        time.sleep(random.Random(SEED + instant).uniform(0, 0.7 * seconds))
        pause_unlocked(command, tmp_path / "home")
        check_taken_over(tmp_path, command, wanted)


def test_paused_with_rays_workers_at_work(wanted, tmp_path):
    """They stand still while nobody replies, and end when their driver does."""
    with running_study(STUDY, tmp_path) as command:
        wait_for_progress(command, tmp_path / "home")
        pause_unlocked(command, tmp_path / "home")
        time.sleep(125)  # the lease as it is
        said = run_study(STUDY, tmp_path)
        assert said.code == 0, said
        os.kill(command.process.pid, signal.SIGCONT)
        said = command.wait()
        assert said.code == 1 and said.err.splitlines()[-1].startswith(TAKEN), said
        assert command.gone()
    check_whole(tmp_path / "home", STUDY, wanted)
