"""What a study survives, killed for real: drivers, workers, nodes, checkpoints, trials that go wrong; services
that are away, a disk that is full, clocks that jump, and to be a container's first process.

Every record is compared with training that nothing interrupted. Minutes long: `make test-faults`.
"""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT
from tests.commands import COMMAND
from tests.reference import (
    QUICK,
    check_whole,
    ends_whole,
    environment,
    expected,
    rows_of,
    run_study,
    running_study,
    states,
    wait_for_progress,
)
from tests.scenarios.test_full_disk import fill, small_disk
from tests.services import mlflow_server, postgres
from trainer import Outcome

pytestmark = pytest.mark.faults

STEPS_200 = QUICK["recipe"] | {"steps": 200}
SWEEP = QUICK | {
    "name": "sweep",
    "seeds": {"first": 5, "count": 12},
    "recipe": STEPS_200,
    "faults": {"max_failures": 5},
}
GRID = QUICK | {
    "name": "grid",
    "recipe": STEPS_200,
    "seeds": [5, 6],
    "space": {"recipe.lr": {"choice": [0.01, 0.02]}, "recipe.clip": {"choice": [0.5, 1.0, 2.0]}},
    "sampler": {"name": "grid"},
    "faults": {"max_failures": 5},
}
LONG = QUICK | {"name": "long", "recipe": QUICK["recipe"] | {"steps": 600}, "faults": {"max_failures": 10}}


@cache
def wanted():
    """What becomes of LONG."""
    return expected(LONG)


# ---- the driver


@pytest.mark.parametrize("study", [SWEEP, GRID])
def test_a_driver_killed_at_random_instants(study, tmp_path):
    """At 20 in all, of the time that an undisturbed run takes here. A study that ends before its instant is
    checked and begun again in another home.
    """
    draw, killed, kills, homes, known = random.Random(57), 0, 10, 0, expected(study)
    whole = run_study(study, tmp_path, "undisturbed")
    assert whole.code == 0, whole
    while killed < kills:
        homes += 1
        home, ended = tmp_path / f"home-{homes}", False
        while killed < kills and not ended:
            with running_study(study, tmp_path, home) as command:
                instant = command.started + draw.uniform(0, whole.seconds)
                while time.monotonic() < instant and command.process.poll() is None:
                    time.sleep(0.05)
                ended = command.process.poll() is not None
                if not ended:
                    os.kill(command.process.pid, signal.SIGKILL)
                    killed += 1
                assert command.wait(20).code == (0 if ended else -signal.SIGKILL), command.wait()
        ends_whole(study, tmp_path, home, known)


# ---- workers and nodes


def test_killed_workers_are_replaced(tmp_path):
    home = tmp_path / "home"
    with running_study(LONG, tmp_path) as command:
        for _ in range(3):
            wait_for_progress(command, home)
            os.kill(command.training()[0], signal.SIGKILL)
        command.done()
    check_whole(home, LONG, wanted())


@pytest.mark.parametrize("process", ["raylet", "gcs_server"])
def test_a_process_of_rays_own_is_killed(process, tmp_path):
    """Ray would end the driver by itself, some time later and in words of its own."""
    home = tmp_path / "home"
    with running_study(LONG, tmp_path) as command:
        wait_for_progress(command, home)
        (pid,) = (pid for pid in command.descendants() if process in Path(f"/proc/{pid}/comm").read_text())
        os.kill(pid, signal.SIGKILL)
        said = command.wait()
        assert command.gone(killed=True)
    (line,) = said.err.splitlines()
    assert said.code == 1 and line.startswith(f"error: Ray's {process} on this machine has died")
    assert line.endswith(f"To go on: adder-search run {tmp_path / 'long.yaml'} --home home")
    ends_whole(LONG, tmp_path, home, wanted())


# ---- checkpoints


def test_torn_states_cost_steps_and_no_result(tmp_path):
    home = tmp_path / "home"
    with running_study(LONG, tmp_path) as command:
        command.wait_for(lambda: len(states(home)) >= 2, "two seeds saved no states")
        os.kill(command.process.pid, signal.SIGKILL)
        command.wait(20)
        assert command.gone(killed=True)
    with closing(sqlite3.connect(home / "records.db")) as ledger, ledger:
        ledger.execute("UPDATE ledger_states SET state = substr(state, 1, length(state) - 9)")
        ledger.execute(
            "UPDATE ledger_states SET state = x'' WHERE init_seed = (SELECT min(init_seed) FROM ledger_states)"
        )
    ends_whole(LONG, tmp_path, home, wanted())


# ---- workers that go wrong


def run_faulty(how, times, most, folder):
    """Run a study in which the worker of seed 5 goes wrong so many times, and may at most so often. Returns both."""
    study = QUICK | {"name": how, "faults": {"max_failures": most, "stall_s": 45}}
    said = run_study(study, folder, program=(sys.executable, "-P", f"{ROOT}/tests/faulty.py", how, times))
    if how == "memory" and "no control group" in said.err:
        pytest.skip(said.err.strip())
    return study, said


@pytest.mark.parametrize("how", ["raise", "memory", "hang", "freeze"])
def test_a_worker_that_goes_wrong_is_started_again(how, tmp_path):
    study, said = run_faulty(how, 1, 2, tmp_path)
    assert said.code == 0, said
    check_whole(tmp_path / "home", study, expected(study))


@pytest.mark.parametrize(
    ("how", "reason"),
    [("raise", "RuntimeError: no luck"), ("memory", "its process died"), ("hang", "stalled: nothing was")],
)
def test_a_worker_that_goes_on_going_wrong_is_recorded_with_its_reason(how, reason, tmp_path):
    study, said = run_faulty(how, 99, 1, tmp_path)
    assert said.code == 1 and reason in said.out and "To go on:" in said.out, said
    rows = rows_of(tmp_path / "home", how)
    assert len(rows) == 4
    failed = [r for r in rows if not r.is_final]
    assert failed and all(r["outcome"] == Outcome.CENSORED and reason in r["reason"] for r in failed)
    assert all(r["outcome"] == Outcome.FAILED for r in rows if r.is_final), "the others went on"
    ends_whole(study, tmp_path, tmp_path / "home")


# ---- services that are away, and a disk that is full

AWAY_S = 60


def trains_meanwhile(command, home, seconds):
    """Whether banks save states in the first and in the second half of a time."""
    for _ in range(2):
        before, until = states(home), time.monotonic() + seconds / 2
        while time.monotonic() < until:
            assert command.process.poll() is None, command.wait()
            time.sleep(0.2)
        if states(home) <= before:
            return False
    return True


def test_mlflow_is_away_for_a_minute(tmp_path):
    slow = QUICK["recipe"] | {"steps": 4_000, "eval_every": 50}
    study = QUICK | {"name": "minute", "recipe": slow, "seeds": [5, 6]}
    study |= {"resources": QUICK["resources"] | {"slots": 1}}
    home = tmp_path / "home"
    with mlflow_server() as mlflow:
        values = mlflow.environment()
        with running_study(study, tmp_path, environment=values) as command:
            wait_for_progress(command, home)
            mlflow.stop()
            assert trains_meanwhile(command, home, AWAY_S)
            command.wait_for(lambda: "MLflow is away" in command.warned(), "not said that MLflow is away")
            mlflow.start()
            said = command.done()
        assert "MLflow is away" in said.err and "MLflow is back" in said.err and "Traceback" not in said.err
        with environment(values):
            check_whole(home, study, expected(study))


def test_mlflow_is_away_until_after_the_end(tmp_path):
    home = tmp_path / "home"
    with mlflow_server() as mlflow:
        values = mlflow.environment()
        with running_study(QUICK, tmp_path, environment=values) as command:
            wait_for_progress(command, home)
            mlflow.stop()
            said = command.done()
        sync = f"MLFLOW_TRACKING_URI={mlflow.uri} adder-search sync quick"
        assert f"not all of it is in MLflow yet: {sync}" in said.out, said.out
        mlflow.start()
        with environment(values):
            said = ends_whole(QUICK, tmp_path, home, environment=values)
        assert "nothing left to train" in said.out, said


def test_postgresql_is_restarted(tmp_path):
    home = tmp_path / "home"
    with postgres() as db, mlflow_server(db) as mlflow:
        values = db.environment() | mlflow.environment() | {"ADDER_SEARCH_DATABASE": db.url("optuna")}
        with environment(values), running_study(GRID, tmp_path, environment=values) as command:
            for down_s in (0, 5, 10):
                wait_for_progress(command, home)
                db.stop()
                time.sleep(down_s)
                db.start()
            said = command.done()
            assert "Traceback" not in said.err, said
            check_whole(home, GRID, expected(GRID))


def test_a_full_disk_costs_time_and_no_result(tmp_path):
    """Under ledger, MLflow's store and artifacts: the run waits for room, and its workers with it."""
    home = tmp_path / "home"
    with small_disk(home, 8) as disk:
        with running_study(LONG, tmp_path) as command:
            wait_for_progress(command, home)
            fill(disk / "filler")
            before = states(home)
            time.sleep(10)
            assert command.process.poll() is None, command.wait()
            assert states(home) == before, "there was room for a state"
            (disk / "filler").unlink()
            wait_for_progress(command, home)
            said = command.done()
        assert "Traceback" not in said.err, said
        again = ends_whole(LONG, tmp_path, home, wanted())  # writes what MLflow could not take
        assert "nothing left to train" in again.out, again


# ---- clocks and namespaces

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
    fake = {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": offset, "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1"}  # fmt: skip
    program = (sys.executable, "-m", "tests.in_process")
    with running_study(QUICK, tmp_path, cwd=ROOT, environment=fake, program=program) as command:
        wait_for_progress(command, tmp_path / "home")
        offset.write_text(jump)
        command.done()
    check_whole(tmp_path / "home", QUICK, expected(QUICK))


@can_be_alone
def test_as_a_containers_first_process(tmp_path):
    """Which has to take up what others leave, and gets no signal that it does not ask for."""
    endless, alone = QUICK | {"recipe": QUICK["recipe"] | {"steps": 100_000}}, {"program": (*ALONE, COMMAND)}
    with running_study(endless | {"name": "endless"}, tmp_path, **alone) as command:
        wait_for_progress(command, tmp_path / "home")
        (first,) = Path(f"/proc/{command.process.pid}/task/{command.process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        said = command.wait(120)
        assert said.code == 130 and "Traceback" not in said.err and command.gone(), said
    ends_whole(QUICK, tmp_path, tmp_path / "home", **alone)
