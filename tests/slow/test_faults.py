"""What a study survives, killed for real: drivers, workers, nodes, checkpoints, trials that go wrong; services
that are away, and a disk that is full.

Every record is compared with training that nothing interrupted. Minutes long: `make test-faults`.
"""

import os
import random
import signal
import sys
import time
from functools import cache
from pathlib import Path

import pytest

from search.store.record import is_final
from tests.commands import adder_search, running
from tests.reference import (
    QUICK,
    check_whole,
    ends_whole,
    environment,
    expected,
    rows_of,
    states,
    wait_for_progress,
    write_study,
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
FAULTY = Path(__file__).parents[1] / "faulty.py"


@cache
def long_wanted():
    return expected(LONG)


@cache
def grid_wanted():
    return expected(GRID)


def wait_for_both_banks(command, home):
    command.wait_for(lambda: len({f.parent for f, _ in states(home)}) >= 2, "two banks saved no states")


def trial_processes(command):
    """The processes of its own that train trials now."""
    found = []
    for pid in command.descendants():
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if title.startswith(b"ray::") and b"Dashboard" not in title and b"RuntimeEnv" not in title:
            found += [pid] if b"IDLE" not in title else []
    return found


# ---- the driver


@pytest.mark.parametrize("study", [SWEEP, GRID])
def test_a_driver_killed_at_random_instants(study, tmp_path):
    """At 20 in all, of the time that an undisturbed run takes here. A study that ends before its instant is
    checked and begun again in another home.
    """
    draw, killed, kills, homes, wanted = random.Random(57), 0, 10, 0, expected(study)
    file = write_study(tmp_path, study)
    whole = adder_search("run", file, "--home", "undisturbed", cwd=tmp_path)
    assert whole.code == 0, whole
    while killed < kills:
        homes += 1
        home, ended = tmp_path / f"home-{homes}", False
        while killed < kills and not ended:
            with running("run", file, "--home", str(home), cwd=tmp_path) as command:
                instant = command.started + draw.uniform(0, whole.seconds)
                while time.monotonic() < instant and command.process.poll() is None:
                    time.sleep(0.05)
                ended = command.process.poll() is not None
                if not ended:
                    os.kill(command.process.pid, signal.SIGKILL)
                    killed += 1
                assert command.wait(20).code == (0 if ended else -signal.SIGKILL), command.wait()
        ends_whole(study, tmp_path, home, wanted)


# ---- workers and nodes


def test_killed_workers_are_replaced(tmp_path):
    home = tmp_path / "home"
    with running("run", write_study(tmp_path, LONG), "--home", str(home), cwd=tmp_path) as command:
        for _ in range(3):
            wait_for_progress(command, home)
            victims = trial_processes(command)
            assert victims
            os.kill(victims[0], signal.SIGKILL)
        said = command.wait()
    assert said.code == 0, said
    check_whole(home, LONG, tmp_path, long_wanted())


# ---- checkpoints


def test_torn_states_cost_steps_and_no_result(tmp_path):
    home, file = tmp_path / "home", write_study(tmp_path, LONG)
    with running("run", file, "--home", str(home), cwd=tmp_path) as command:
        wait_for_both_banks(command, home)
        for _ in range(3):
            wait_for_progress(command, home)
        os.kill(command.process.pid, signal.SIGKILL)
        command.wait(20)
        assert command.gone(killed=True)
    one, *_, other = sorted(f for f, _ in states(home))
    one.write_bytes(one.read_bytes()[:-100])  # its predecessor is whole
    for torn in other.parent.glob("bank.state*"):
        torn.write_bytes(b"")
    ends_whole(LONG, tmp_path, home, long_wanted())


# ---- trials that go wrong


def run_faulty(how, times, most, folder):
    """Run a study whose trial of seed 5 goes wrong so many times, and may at most so often. Returns both."""
    study = QUICK | {"name": how, "faults": {"max_failures": most, "stall_s": 45}}
    program = (sys.executable, "-P", str(FAULTY), how, str(times))
    said = adder_search("run", write_study(folder, study), "--home", "home", cwd=folder, program=program)
    if how == "memory" and "no control group" in said.err:
        pytest.skip(said.err.strip())
    return study, said


@pytest.mark.parametrize("how", ["raise", "memory", "hang", "freeze"])
def test_a_trial_that_goes_wrong_is_started_again(how, tmp_path):
    study, said = run_faulty(how, 1, 2, tmp_path)
    assert said.code == 0, said
    check_whole(tmp_path / "home", study, tmp_path, expected(study))


@pytest.mark.parametrize(
    ("how", "reason"),
    [("raise", "RuntimeError: no luck"), ("memory", "its process died"), ("hang", "stalled: nothing was")],
)
def test_a_trial_that_goes_on_going_wrong_is_recorded_with_its_reason(how, reason, tmp_path):
    study, said = run_faulty(how, 99, 1, tmp_path)
    assert said.code == 1 and reason in said.out and "To go on:" in said.out, said
    rows = rows_of(tmp_path / "home", how)
    assert len(rows) == 4
    failed = [r for r in rows if not is_final(r)]
    assert failed and all(r["outcome"] == Outcome.CENSORED and reason in r["reason"] for r in failed)
    assert all(r["outcome"] == Outcome.FAILED for r in rows if is_final(r)), "the others went on"
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
    study |= {"resources": QUICK["resources"] | {"seeds_per_trial": 1}}
    home = tmp_path / "home"
    with mlflow_server() as mlflow:
        values = mlflow.environment()
        words = ("run", write_study(tmp_path, study), "--home", str(home))
        with running(*words, cwd=tmp_path, environment=values) as command:
            wait_for_progress(command, home)
            mlflow.stop()
            assert trains_meanwhile(command, home, AWAY_S)
            command.wait_for(lambda: "MLflow is away" in command.warned(), "not said that MLflow is away")
            mlflow.start()
            said = command.wait()
        assert said.code == 0, said
        assert "MLflow is away" in said.err and "MLflow is back" in said.err and "Traceback" not in said.err
        with environment(values):
            check_whole(home, study, tmp_path, expected(study))


def test_mlflow_is_away_until_after_the_end(tmp_path):
    home = tmp_path / "home"
    with mlflow_server() as mlflow:
        options = {"cwd": tmp_path, "environment": mlflow.environment()}
        words = ("run", write_study(tmp_path, QUICK), "--home", str(home))
        with running(*words, **options) as command:
            wait_for_progress(command, home)
            mlflow.stop()
            said = command.wait()
        assert said.code == 0, said
        assert "MLflow has not got 4 seeds yet: the next run writes what is left" in said.out
        mlflow.start()
        with environment(mlflow.environment()):
            said = ends_whole(QUICK, tmp_path, home, environment=mlflow.environment())
        assert "nothing left to train" in said.out, said


def test_postgresql_is_restarted(tmp_path):
    home = tmp_path / "home"
    with postgres() as db, mlflow_server(db) as mlflow:
        values = db.environment() | mlflow.environment() | {"ADDER_SEARCH_DATABASE": db.url("optuna")}
        words = ("run", write_study(tmp_path, GRID), "--home", str(home))
        with running(*words, cwd=tmp_path, environment=values) as command:
            for down_s in (0, 5, 10):
                wait_for_progress(command, home)
                db.stop()
                time.sleep(down_s)
                db.start()
            said = command.wait()
        assert said.code == 0 and "Traceback" not in said.err, said
        with environment(values):
            check_whole(home, GRID, tmp_path, grid_wanted())


@pytest.mark.parametrize(("where", "megabytes"), [("trials", 2), ("", 8)])
def test_a_full_disk_costs_states_and_no_result(where, megabytes, tmp_path):
    """Of trials alone, and of all that there is: ledger, MLflow's store and artifacts too."""
    home = tmp_path / "home"
    words = ("run", write_study(tmp_path, LONG), "--home", str(home))
    with small_disk(home / where, megabytes) as disk:
        with running(*words, cwd=tmp_path) as command:
            wait_for_progress(command, home)
            fill(disk / "filler")
            before = states(home)
            time.sleep(10)
            assert command.process.poll() is None, command.wait()
            assert states(home) == before, "there was room for a state"
            (disk / "filler").unlink()
            wait_for_progress(command, home)
            said = command.wait()
        assert said.code == 0 and "Traceback" not in said.err, said
        again = ends_whole(LONG, tmp_path, home, long_wanted())  # writes what MLflow could not take
        assert "nothing left to train" in again.out, again
