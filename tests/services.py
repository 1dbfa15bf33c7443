"""PostgreSQL, MLflow with passwords and a Ray cluster as processes on loopback: real ones, for one test.

Each is a context manager. It keeps everything in a temporary folder, listens on ports that were free, waits
until it answers and ends exactly the processes that it started.
"""

import contextlib
import functools
import json
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import LOOPBACK, OURS, Service, free_port, is_healthy, short_folder

REQUIRED = "ADDER_SEARCH_SERVICES"
"""Set to `required`, a program that is missing is a failure and no reason to skip."""


# ---- PostgreSQL


@functools.cache
def _postgres_programs():
    """The folder with initdb and postgres, which a distribution may keep off PATH."""
    folders = [Path(found).resolve().parent for name in ("initdb", "postgres") if (found := shutil.which(name))]
    if config := shutil.which("pg_config"):
        folders.append(Path(subprocess.check_output([config, "--bindir"], text=True).strip()))
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((f for f in folders if (f / "initdb").is_file() and (f / "postgres").is_file()), None)


def missing():
    """What is not installed that the services need; empty if all is there."""
    if not sys.platform.startswith("linux"):
        return "finds processes in Linux's /proc"
    if not _postgres_programs():
        return "PostgreSQL's server programs are not installed (apt-get install postgresql)"
    if os.geteuid() == 0 and not _postgres_user():
        return "PostgreSQL does not run as root, and there is no user postgres"
    return ""


def need_services():
    """Skip with the reason, or fail where services are required."""
    if reason := missing():
        (pytest.fail if os.environ.get(REQUIRED) == "required" else pytest.skip)(reason)


def _postgres_user():
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres")
    return None


class Postgres:
    """A cluster of its own with the user `adder` and the databases `mlflow`, `mlflow_auth`, `optuna`."""

    USER = "adder"
    DATABASES = ("mlflow", "mlflow_auth", "optuna")

    def __init__(self, folder):
        programs = _postgres_programs()
        assert programs
        self.folder, self.programs, self.data = folder, programs, folder / "data"
        self.port, self.password = free_port(), secrets.token_urlsafe(16)
        self.passfile = folder / "passfile"
        self.process = None
        self._as = {"cwd": folder}
        if os.geteuid() == 0 and (user := _postgres_user()):
            folder.chmod(0o711)
            self._as |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._create()

    def _create(self):
        self.data.mkdir(mode=0o700)
        write_secret(self.passfile, f"{LOOPBACK}:{self.port}:*:{self.USER}:{self.password}\n")
        secret = self.folder / "initial"
        write_secret(secret, self.password)
        for path in (self.data, secret):
            os.chown(path, self._as.get("user", -1), self._as.get("group", -1))
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        self._run(["initdb", "-D", self.data, "-U", self.USER, f"--pwfile={secret}", *options])
        secret.unlink()
        databases = "".join(f"CREATE DATABASE {name};\n" for name in self.DATABASES)
        self._run(["postgres", "--single", "-D", self.data, "postgres"], databases)

    def _run(self, words, said=""):
        command = [self.programs / words[0], *words[1:]]
        done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=60, **self._as)
        assert done.returncode == 0, done.stderr

    def url(self, database):
        """Without the password, which libpq finds in the file that PGPASSFILE names."""
        return f"postgresql+psycopg://{self.USER}@{LOOPBACK}:{self.port}/{database}"

    def environment(self):
        return {"PGPASSFILE": str(self.passfile)}

    def start(self):
        """Start the server and wait until it answers."""
        settings = {"listen_addresses": LOOPBACK, "port": self.port, "unix_socket_directories": ""}
        settings |= {"fsync": "off", "shared_buffers": "16MB", "max_connections": 200}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [self.programs / "postgres", "-D", self.data, *options]
        self.process = Service(command, self.folder / "postgres.log", {}, **self._as)
        ready = [self.programs / "pg_isready", "-q", "-h", LOOPBACK, "-p", str(self.port)]
        self.process.wait_for(lambda: subprocess.run(ready, timeout=20).returncode == 0)

    def stop(self):
        """End the server at once, with its connections (PostgreSQL's fast shutdown)."""
        if self.process:
            self.process.end(signal.SIGINT)
        self.process = None


def write_secret(path, text):
    """A file that its owner alone may read."""
    path.touch(mode=0o600)
    path.write_text(text)


@contextlib.contextmanager
def started(kind, **options):
    """A service in a folder of its own, started and in the end stopped."""
    with short_folder() as place:
        service = kind(place, **options)
        try:
            service.start()
            yield service
        finally:
            service.stop()


def postgres():
    """A throw-away PostgreSQL that is running."""
    need_services()
    return started(Postgres)


# ---- MLflow


class MlflowServer:
    """An MLflow server with basic authentication that keeps artifacts in its folder."""

    USER = "admin"

    def __init__(self, folder, database):
        self.folder, self.database, self.port = folder, database, free_port()
        self.password, self.uri = secrets.token_urlsafe(16), f"http://{LOOPBACK}:{self.port}"
        self.process = None
        users = database.url("mlflow_auth") if database else f"sqlite:///{folder}/users.db"
        (folder / "auth.ini").write_text(
            f"[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = {users}\n"
            f"admin_username = {self.USER}\n"
            "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
        )
        self._secrets = {
            "MLFLOW_AUTH_ADMIN_PASSWORD": self.password,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_urlsafe(16),
        }

    def environment(self):
        """What a client needs."""
        return {
            "MLFLOW_TRACKING_URI": self.uri,
            "MLFLOW_TRACKING_USERNAME": self.USER,
            "MLFLOW_TRACKING_PASSWORD": self.password,
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "100",  # seconds; a busy machine's server may take more than our 10
        }

    def start(self):
        """Start the server and wait until it answers."""
        store = self.database.url("mlflow") if self.database else f"sqlite:///{self.folder}/mlflow.db"
        command = [sys.executable, "-I", "-m", "mlflow", "server", "--app-name", "basic-auth"]
        command += ["--host", LOOPBACK, "--port", self.port, "--workers", "1"]
        command += ["--backend-store-uri", store, "--artifacts-destination", self.folder / "artifacts"]
        command += ["--allowed-hosts", f"{LOOPBACK}:{self.port}", "--cors-allowed-origins", self.uri]
        environment = {
            "MLFLOW_AUTH_CONFIG_PATH": self.folder / "auth.ini",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # processes for nothing
            **self._secrets,
            **(self.database.environment() if self.database else {}),
        }
        self.process = Service(command, self.folder / "mlflow.log", environment, cwd=self.folder)
        self.process.wait_for(lambda: is_healthy(self.uri))

    def stop(self):
        """End the server; what it stored stays."""
        if self.process:
            self.process.end(signal.SIGTERM, timeout=10)
        self.process = None


def mlflow_server(database=None):
    """An MLflow server that is running, on SQLite in its folder or on a PostgreSQL's databases."""
    return started(MlflowServer, database=database)


# ---- Ray


ASK = """
import json, sys
from ray._raylet import GcsClient
nodes = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10).values()
found = [{"name": n.node_name, "id": n.node_id.hex(), "alive": n.state == 0, "has": dict(n.resources_total),
          "metrics": n.metrics_export_port} for n in nodes]
print(json.dumps(found))
"""


class RayNode(Service):
    """One node of a cluster: a raylet and the workers that it starts."""

    name = ""

    def end(self, *given, **more):
        """SIGKILL to all of it. It stands still first, as a machine that goes: a raylet tells of no worker's death."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        super().end(*given, **more)

    def __init__(self, *given, **more):
        self.given = given, more
        super().__init__(*given, **more)

    def start_again_if_late(self):
        """Ray gives a node 30 s to start, which a busy machine may not have."""
        if self.process.poll() is not None and "timed out during startup" in self.said():
            self.end()
            super().__init__(*self.given[0], **self.given[1])


class RayCluster:
    """A head without CPUs and workers with so many CPUs and declared GPUs each, on one machine, with tokens.

    settings: of Ray, as its environment names them. grows_to: nodes that an autoscaler starts at most. machine: where
    the head is.
    """

    def __init__(
        self, folder, workers = 2, cpus = 1, gpus = 0,
        settings = None, grows_to = 0, machine = None,
    ):  # fmt: skip
        self.workers, self.shares, self.settings = workers, (cpus, gpus), dict(settings or {})
        self.grows_to = grows_to
        self.folder, self.port, self.machine = folder, free_port(), machine
        self.address = f"{machine.address if machine else LOOPBACK}:{self.port}"
        self.token = folder / "token"
        write_secret(self.token, secrets.token_hex(32))
        self.head = None
        self.nodes = []

    def environment(self):
        """What a driver needs."""
        return {"RAY_ADDRESS": self.address, **self._authentication()}

    def _authentication(self):
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}

    def _system(self):
        """A dead node is noticed after 5 s, where Ray takes 15."""
        niceness = {n: v for n, v in os.environ.items() if n == "RAY_worker_niceness"}
        return {**self._authentication(), "RAY_health_check_period_ms": "1000", **niceness, **self.settings}

    def start(self):
        """Start the head, then the nodes, and wait until it knows them."""
        options = ["--head", "--port", self.port]
        options += ["--num-cpus", "0", "--num-gpus", "0", "--include-dashboard", "false"]
        if self.grows_to:
            options += ["--autoscaling-config", self._autoscaler()]
        self.head = self._start("head", options, self.machine)
        self.wait_for(self.head)
        for _ in range(self.workers):
            self.add(*self.shares)
        self.wait_for(self.head, *self.nodes)

    def _autoscaler(self):
        """Write what Ray's fake autoscaler needs, which starts nodes as processes when they are asked for."""
        self.settings |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
        types = {"ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}}
        types["worker"] = {"resources": {"CPU": self.shares[0]}, "node_config": {}, "max_workers": self.grows_to}
        commands = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
        provider = {"type": "fake_multinode", "gcs_address": self.address}
        provider |= dict.fromkeys(("disable_node_updaters", "disable_launch_config_check"), True)
        config = {
            "cluster_name": "fake",
            "provider": provider,
            "max_workers": self.grows_to,
            "available_node_types": types,
            "head_node_type": "ray.head.default",
            "idle_timeout_minutes": 60,
            "upscaling_speed": 1.0,
            "cluster_synced_files": [],
            **{name: {} for name in ("auth", "docker", "file_mounts")},
            **{f"{name}_commands": [] for name in commands},
        }
        (path := self.folder / "autoscaler.json").write_text(json.dumps(config))
        return path

    def add(
        self, cpus = 1, gpus = 0, kind = "", environment = None,
        machine = None, hidden = None,
    ):  # fmt: skip
        """Start one more node, and do not wait for it. GPUs and a kind of accelerator are only declared.

        machine: where it is, with only a network in common with the others. hidden: a folder that is empty there.
        """
        name = f"node-{len(self.nodes)}"
        options = ["--address", self.address, "--num-cpus", cpus, "--num-gpus", gpus]
        options += ["--resources", json.dumps({f"accelerator_type:{kind}": 1})] if kind else []
        self.nodes.append(self._start(name, options, machine, hidden, environment))
        return self.nodes[-1]

    def drain(self, node, seconds):
        """Tell Ray that a node will be taken away, as who lends machines does, so long before."""
        (number,) = (its["id"] for its in self.known() if its["name"] == node.name)
        words = ["drain-node", "--address", self.address, "--node-id", number]
        words += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "taken away"]
        words += ["--deadline-remaining-seconds", seconds]
        self._run("-m", "ray.scripts.scripts", *words).check_returncode()

    def _start(
        self, name, options, machine = None, hidden = None,
        environment = None,
    ):  # fmt: skip
        before = (machine.apart(self.folder, hidden) if hidden else machine.inside) if machine else []
        command = [sys.executable, "-I", "-m", "ray.scripts.scripts", "start", "--block", "--node-name", name]
        command += ["--temp-dir", self.folder / name]  # else two that start at once take one socket
        command += ["--node-ip-address", machine.address if machine else LOOPBACK, "--object-store-memory", "100000000"]
        command += ["--disable-usage-stats", "--include-log-monitor", "false", *options]
        log = self.folder / f"{name}.log"
        known = self._system() | dict(environment or {})
        node = RayNode([*before, *command], log, known, cwd=self.folder)
        node.name = name
        return node

    def known(self):
        """The nodes that the head knows: `name`, `id`, `alive`, what it `has` by Ray's names of resources,
        and the port of its `metrics`.
        """
        asked = self._run("-c", ASK, self.address)
        return json.loads(asked.stdout) if asked.returncode == 0 else []

    def _run(self, *words):
        """Run Python as someone who has the cluster's token."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(OURS)} | self._authentication()
        command = [*(self.machine.inside if self.machine else []), sys.executable, "-I", *map(str, words)]
        return subprocess.run(command, env=own, capture_output=True, text=True, timeout=60)

    def alive(self):
        """The names of the nodes that the head takes to be there."""
        return {node["name"] for node in self.known() if node["alive"]}

    def wait_for(self, *nodes):
        """Until the head knows these."""
        wanted = {node.name for node in nodes}

        def are_there():
            are_alive = wanted <= self.alive()
            for node in nodes:
                node.start_again_if_late()  # after the question, which takes seconds: who waits sees an end at once
            return are_alive

        nodes[-1].wait_for(are_there)

    def stop(self):
        for node in [*self.nodes, *([self.head] if self.head else [])]:
            node.end()


def ray_cluster(**options):
    """A running cluster: options are those of `RayCluster`."""
    return started(RayCluster, **options)
