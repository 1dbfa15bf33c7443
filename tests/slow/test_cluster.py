"""PostgreSQL, MLflow with authentication, a Ray head and two nodes, as processes on loopback: a study on
all of them, strangers at Ray's door. `make test-full`; without Ray: tests/scenarios/test_driver.py.
"""

import secrets
import time
from types import SimpleNamespace

import pytest

from tests import services
from tests.homes import records_of
from tests.processes import wait_until
from tests.reference import QUICK, check_whole, environment, expected, run_study, running_study
from tests.services import mlflow_server, postgres, ray_cluster

pytestmark = [pytest.mark.end_to_end, pytest.mark.full]


@pytest.fixture(scope="module")
def around(tmp_path_factory):
    """The services, the environment that a driver needs (`known`), and the secrets in it (`keys`)."""
    with postgres() as database, mlflow_server(database) as mlflow, ray_cluster(workers=1, cpus=1) as ray:
        ray.wait_for(ray.add(cpus=4, gpus=1))  # one CPU less than five quarters of a GPU and a grid want
        known = database.environment() | mlflow.environment() | ray.environment()
        known["ADDER_SEARCH_DATABASE"] = database.url("optuna")
        keys = (database.password, mlflow.password, ray.token.read_text())
        yield SimpleNamespace(database=database, mlflow=mlflow, ray=ray, known=known, keys=keys)
        processes = [mlflow.process, ray.head, *ray.nodes]
    assert not any(process.processes() for process in processes)


# ---- studies

QUARTERS = QUICK | {
    "name": "quarters",
    # Four train at one time. Two end soon: the others are long enough for the second driver's workers to begin.
    "space": {"recipe.steps": {"choice": [300, 2_500]}},
    "sampler": {"name": "grid"},
    "seeds": {"first": 5, "count": 2},
    "resources": QUICK["resources"] | {"gpu": 0.25, "slots": 1},
}
MORE = QUARTERS | {"name": "more"}
GRID = QUICK | {"name": "grid", "seeds": [5]}
GRID |= {"space": {"recipe.lr": {"choice": [0.01, 0.02]}}, "sampler": {"name": "grid"}}


def in_training(home, study):
    """Seeds of which a state was saved: their workers are placed, whatever a driver believes to fit."""
    records = records_of(home, study)
    count = records.count_states()
    records.database.engine.dispose()  # a loop that looks often would take all of a server's connections
    return count


def test_three_drivers_share_a_cluster_and_get_what_one_machine_gives(around, tmp_path):
    """To the bit. Two of them want eight quarters of the one GPU at a time, and Ray places four: neither
    counts the other's, and who has nothing left to train leaves its quarters. No secret is in any file.
    """
    home = tmp_path / "home"
    options = {"environment": around.known}
    placed, is_shared = 0, False
    with (
        running_study(QUARTERS, tmp_path, **options) as quarters,
        running_study(MORE, tmp_path, **options) as more,
        running_study(GRID, tmp_path, **options) as grid,
        environment(around.known),
    ):
        wait_until(home.exists, "no home was made")
        while quarters.process.poll() is None or more.process.poll() is None:
            counts = [in_training(home, study) for study in ("quarters", "more")]
            placed, is_shared = max(placed, sum(counts)), is_shared or all(counts)
            assert placed <= 4, "a fifth trial does not fit"
            time.sleep(0.1)
        said = quarters.wait(), more.wait(), grid.wait()
        assert [(s.code, s.err) for s in said] == [(0, ""), (0, ""), (0, "")], said
        assert placed == 4 and is_shared, "four quarters at one time, of both drivers"
        for study in (QUARTERS, MORE, GRID):
            check_whole(home, study, expected(study))
    assert not (home / "records.db").exists() and not (home / "mlflow.db").exists()
    texts = [s.out + s.err for s in said]
    texts += [f.read_bytes().decode("latin-1") for f in home.rglob("*") if f.is_file()]
    assert not [text for text in texts if any(key in text for key in around.keys)], "a secret was kept"


# ---- strangers


@pytest.mark.parametrize("token", ["nowhere", "guess"])
def test_ray_without_its_token_is_one_line(token, around, tmp_path):
    services.write_secret(tmp_path / "guess", secrets.token_hex(32))
    said = run_study(QUICK, tmp_path, environment=around.known | {"RAY_AUTH_TOKEN_PATH": token})
    assert said.code == 1, said
    assert said.err.startswith("error: Ray") and said.err.count("\n") == 1, said.err
    assert not any(key in said.out + said.err for key in ("Traceback", *around.keys))
    assert not list(tmp_path.rglob("records.db")), "something was begun"
