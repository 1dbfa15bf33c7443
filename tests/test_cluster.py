"""A study on a cluster: PostgreSQL, an MLflow server with authentication, a Ray head and two workers.

All of them are real and processes of their own on loopback.
"""

import time

import pytest

from search.home import Home
from search.ledger import Ledger
from tests.commands import running
from tests.reference import QUICK, check_whole, environment, expected, write_study
from tests.services import mlflow_server, postgres, ray_cluster
from trainer import Outcome

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(280)]

QUARTERS = QUICK | {
    "name": "quarters",
    "seeds": {"first": 5, "count": 5},
    "resources": QUICK["resources"] | {"gpu": 0.25, "seeds_per_trial": 1},
}
GRID = QUICK | {
    "name": "grid",
    "seeds": [5],
    "space": {"recipe.lr": {"choice": [0.01, 0.02]}},
    "sampler": {"name": "grid"},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The environment of a driver on the cluster, and the secrets that must stay where they are."""
    home = tmp_path_factory.mktemp("shared") / "home"
    with postgres() as db, mlflow_server(db) as mlflow, ray_cluster(workers=1, cpus=1) as ray:
        ray.wait_for(ray.add(cpus=4, gpus=1))  # one CPU less than five quarters of a GPU and a grid want
        values = db.environment() | mlflow.environment() | ray.environment()
        values |= {"ADDER_SEARCH_DATABASE": db.url("optuna"), "ADDER_SEARCH_HOME": str(home)}
        yield values, home, [db.password, mlflow.password, ray.token.read_text()]


def test_a_cluster_gives_what_one_machine_gives_and_keeps_its_secrets(cluster, tmp_path):
    values, home, secrets = cluster
    file = write_study(tmp_path, QUICK)
    with running("run", file, cwd=tmp_path, environment=values) as command:
        said = command.wait(200)
    assert said.code == 0, said
    with environment(values):
        check_whole(home, QUICK, tmp_path, expected(QUICK))
    assert not (home / "optuna.db").exists() and not (home / "mlflow.db").exists()
    for path in home.rglob("*"):
        text = path.read_bytes() if path.is_file() else b""
        assert not any(secret.encode() in text for secret in secrets), path
    assert not any(secret in said.out + said.err for secret in secrets)


def grid_wanted():
    """What the grid's two configurations come to."""
    plain = {k: v for k, v in GRID.items() if k not in ("space", "sampler")}
    found = [expected(plain | {"recipe": GRID["recipe"] | {"lr": lr}}) for lr in (0.01, 0.02)]
    return found[0] | found[1]


def test_two_drivers_share_a_cluster_and_four_quarters_a_gpu(cluster, tmp_path):
    values, home, _ = cluster
    files = {study["name"]: write_study(tmp_path, study) for study in (QUARTERS, GRID)}
    options = {"cwd": tmp_path, "environment": values}
    most = 0
    with (
        running("run", files["quarters"], **options) as quarters,
        running("run", files["grid"], **options) as grid,
        environment(values),
    ):
        ledger = Ledger(Home(home))
        while quarters.process.poll() is None:
            rows = ledger.rows("quarters")
            most = max(most, sum(r["outcome"] == Outcome.RUNNING for r in rows))
            assert most <= 4, "a fifth trial does not fit"
            time.sleep(0.1)
        said = quarters.wait(10), grid.wait(200)
        assert [s.code for s in said] == [0, 0], said
        assert most == 4, "four quarters at one time"
        check_whole(home, QUARTERS, tmp_path, expected(QUARTERS))
        check_whole(home, GRID, tmp_path, grid_wanted())
