"""Services that are away and a disk that is full, in the middle of a study; run by `make test-faults`."""

import time

import pytest

from tests.commands import adder_search, running
from tests.reference import QUICK, check_whole, environment, expected, states, wait_for_progress, write_study
from tests.scenarios.test_full_disk import fill, small_disk
from tests.services import mlflow_server, postgres
from tests.slow.test_faults import GRID, LONG, grid_wanted, long_wanted

pytestmark = pytest.mark.faults

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
        said = adder_search(*words, **options)
        assert said.code == 0 and "nothing left to train" in said.out, said
        with environment(mlflow.environment()):
            check_whole(home, QUICK, tmp_path, expected(QUICK))


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
        again = adder_search(*words, cwd=tmp_path)  # writes what MLflow could not take
        assert again.code == 0 and "nothing left to train" in again.out, again
        check_whole(home, LONG, tmp_path, long_wanted())
