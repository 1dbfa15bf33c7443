"""PostgreSQL and an MLflow server with authentication, as processes on loopback: a study on them without Ray,
strangers at their doors. With Ray nodes: test_cluster.py.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from base64 import b64encode
from types import SimpleNamespace

import psycopg
import pytest

from tests import services
from tests.commands import call
from tests.processes import LOOPBACK
from tests.reference import check_whole, environment, expected, rows_of, write_study
from tests.services import mlflow_server, postgres
from tests.test_driver import GRID, QUICK, RECIPE

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "here")


@pytest.fixture(scope="module")
def around():
    """The services, the environment that a driver needs (`known`), and the secrets in it (`keys`)."""
    with postgres() as database, mlflow_server() as mlflow:
        known = database.environment() | mlflow.environment()
        known["ADDER_SEARCH_DATABASE"] = database.url("optuna")
        keys = (database.password, mlflow.password)
        yield SimpleNamespace(database=database, mlflow=mlflow, known=known, keys=keys)
    assert not mlflow.process


def test_a_search_on_servers_has_its_records_there(around, here):
    """Of two configurations in one trial, whose parts have one path in two runs; no secret in any file."""
    home, together = here / "home", GRID | {"resources": QUICK["resources"]}
    with environment(around.known):
        said = call("run", write_study(here, together), "--home", home)
        assert said.exit_code == 0, said.output
        assert len({r["trial"] for r in rows_of(home, "grid")}) == 1
        plain = {k: v for k, v in GRID.items() if k not in ("space", "sampler")}
        one, other = (expected(plain | {"recipe": RECIPE | {"lr": lr}}) for lr in (0.01, 0.02))
        check_whole(home, GRID, here, one | other)
    assert not [f for f in home.rglob("*") if f.suffix == ".db"]
    texts = [said.output, *(f.read_bytes().decode("latin-1") for f in home.rglob("*") if f.is_file())]
    assert not [text for text in texts if any(key in text for key in around.keys)], "a secret was kept"


# ---- strangers

SHUT = {
    "no password for MLflow": ({"MLFLOW_TRACKING_USERNAME": "", "MLFLOW_TRACKING_PASSWORD": ""}, 1, "MLflow"),
    "another password for MLflow": ({"MLFLOW_TRACKING_PASSWORD": "guess"}, 1, "MLflow"),
    "a host that MLflow does not know": ({"MLFLOW_TRACKING_URI": "http://localhost:{port}"}, 1, "MLflow"),
    "no password for PostgreSQL": ({"PGPASSFILE": "nowhere"}, 1, "no password supplied"),
    "a password in the URL": (
        {"ADDER_SEARCH_DATABASE": "postgresql+psycopg://adder:{secret}@127.0.0.1/optuna"}, 2, "PGPASSFILE"
    ),
}  # fmt: skip
STRANGER = "http://elsewhere.example"


@pytest.mark.parametrize("case", SHUT)
def test_a_run_without_the_key_is_one_line(case, around, here):
    changes, code, word = SHUT[case]
    given = {k: v.format(port=around.mlflow.port, secret=around.keys[0]) for k, v in changes.items()}
    file = write_study(here, QUICK)
    with environment(around.known | given):
        said = call("run", file, "--home", "home")
    assert said.exit_code == code, said.output
    assert said.stderr.startswith("error: ") and said.stderr.count("\n") == 1 and word in said.stderr
    assert not any(key in said.output for key in around.keys)
    assert not list(here.rglob("trial.json")), "something was begun"


def status(url, user="", password="", method="GET", **headers):
    """The HTTP status of a page."""
    if user:
        headers["Authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers, method=method), timeout=20
        ) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_mlflow_refuses_who_has_no_password_and_what_comes_from_elsewhere(around):
    server = around.mlflow
    who = (server.USER, server.password)
    page = f"{server.uri}/api/2.0/mlflow/experiments/get?experiment_id=0"
    artifacts = f"{server.uri}/api/2.0/mlflow-artifacts/artifacts"
    assert (status(page), status(page, server.USER, "guess"), status(page, *who)) == (401, 401, 200)
    assert (status(artifacts), status(artifacts, *who)) == (401, 200)
    assert status(page, *who, Host="elsewhere.example") == 403
    assert status(page, *who, Host=f"elsewhere.example:{server.port}") == 403
    assert status(page, Host="elsewhere.example") in (401, 403)
    post = f"{server.uri}/api/2.0/mlflow/experiments/create"
    assert status(post, *who, method="POST", Origin=STRANGER) == 403


def connect(database, passfile, name="optuna"):
    where = {"host": LOOPBACK, "port": database.port, "user": database.USER, "dbname": name}
    return psycopg.connect(**where, passfile=str(passfile), connect_timeout=10)


def test_postgres_has_the_databases_for_who_knows_the_password(around, tmp_path):
    database = around.database
    for name in database.DATABASES:
        with connect(database, database.passfile, name) as connection:
            assert connection.execute("select current_database()").fetchone() == (name,)
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        connect(database, tmp_path / "none")
    wrong = tmp_path / "wrong"
    services.write_secret(wrong, database.passfile.read_text().replace(database.password, "guess"))
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        connect(database, wrong)
    assert database.passfile.stat().st_mode & 0o777 == 0o600
    assert database.password not in database.url("optuna")


# ---- PostgreSQL by itself: what the tests of faults rely on


def test_postgres_keeps_what_it_has_and_loses_its_connections(around):
    database = around.database
    with connect(database, database.passfile) as connection:
        connection.execute("create table kept as select 42 as answer")
        connection.commit()
        database.restart()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    with connect(database, database.passfile) as connection:
        assert connection.execute("select answer from kept").fetchone() == (42,)


def test_what_is_missing_is_a_reason_to_skip_or_a_failure(monkeypatch):
    monkeypatch.setattr(services, "_postgres_programs", lambda: None)
    monkeypatch.delenv(services.REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql"):
        services.need_services()
    monkeypatch.setenv(services.REQUIRED, "required")
    with pytest.raises(pytest.fail.Exception, match="apt-get install postgresql"):
        services.need_services()
