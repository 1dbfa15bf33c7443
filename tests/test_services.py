"""The services that other tests run studies through, each by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode

import psycopg
import pytest

from tests import services
from tests.processes import LOOPBACK, OURS, wait_until
from tests.services import mlflow_server, postgres, ray_cluster

pytestmark = pytest.mark.timeout(200)
WHERE = "import os, ray; ray.init(logging_level='ERROR', log_to_driver=False)\n"
SCATTER = (
    WHERE
    + """
@ray.remote(num_cpus=1, max_retries=0)
def node():
    return ray.get_runtime_context().get_node_id()
@ray.remote(num_gpus=0.25, num_cpus=0)
def gpu():
    return os.environ["CUDA_VISIBLE_DEVICES"]
print(len(set(ray.get([node.remote() for _ in range(2)]))), *set(ray.get([gpu.remote() for _ in range(2)])))
"""
)


@pytest.fixture(scope="module")
def database():
    with postgres() as server:
        yield server


def connect(database, passfile, name="optuna"):
    where = {"host": LOOPBACK, "port": database.port, "user": database.USER, "dbname": name}
    return psycopg.connect(**where, passfile=str(passfile), connect_timeout=10)


def test_postgres_has_the_databases_for_who_knows_the_password(database, tmp_path):
    for name in database.DATABASES:
        with connect(database, database.passfile, name) as connection:
            assert connection.execute("select current_database()").fetchone() == (name,)
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        connect(database, tmp_path / "none")
    wrong = tmp_path / "wrong"
    services._write_secret(wrong, database.passfile.read_text().replace(database.password, "guess"))
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        connect(database, wrong)
    assert database.passfile.stat().st_mode & 0o777 == 0o600
    assert database.password not in database.url("optuna")


def test_postgres_keeps_what_it_has_and_loses_its_connections(database):
    with connect(database, database.passfile) as connection:
        connection.execute("create table kept as select 42 as answer")
        connection.commit()
        database.restart()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    with connect(database, database.passfile) as connection:
        assert connection.execute("select answer from kept").fetchone() == (42,)


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


@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_mlflow_answers_who_knows_the_password(store, database):
    with mlflow_server(database if store == "postgres" else None) as server:
        page = f"{server.uri}/api/2.0/mlflow/experiments/get?experiment_id=0"
        assert status(page) == 401
        assert status(page, server.USER, "guess") == 401
        assert status(page, server.USER, server.password) == 200
        artifacts = f"{server.uri}/api/2.0/mlflow-artifacts/artifacts"
        assert (status(artifacts), status(artifacts, server.USER, server.password)) == (401, 200)
        if store == "sqlite":
            server.stop()
            assert not server.is_healthy()
            server.start()
            assert status(page, server.USER, server.password) == 200
        process = server.process
    assert not process.processes()


def test_a_ray_cluster_has_its_nodes_and_survives_the_loss_of_one():
    with ray_cluster(workers=2, cpus=1, gpus=1) as cluster:
        cpus = {node["name"]: node["has"].get("CPU", 0) for node in cluster.known()}
        assert cpus == {"head": 0, "node-0": 1, "node-1": 1}
        environment = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        command = [sys.executable, "-I", "-c", SCATTER]
        said = subprocess.run(
            command, env=environment | cluster.environment(), capture_output=True, text=True, timeout=60
        )
        assert said.stdout.split() == ["2", "0"], said.stderr

        cluster.nodes[0].kill()
        assert not cluster.nodes[0].process.processes()
        wait_until(lambda: cluster.alive() == {"head", "node-1"}, "the dead node still counts", 30)
        cluster.wait_for(cluster.add())
        assert cluster.alive() == {"head", "node-1", "node-2"}
    assert not any(node.process.processes() for node in (cluster.head, *cluster.nodes))


def test_what_is_missing_is_a_reason_to_skip_or_a_failure(monkeypatch):
    monkeypatch.setattr(services, "_postgres_programs", lambda: None)
    monkeypatch.delenv(services.REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql"):
        services.need_services()
    monkeypatch.setenv(services.REQUIRED, "required")
    with pytest.raises(pytest.fail.Exception, match="apt-get install postgresql"):
        services.need_services()
