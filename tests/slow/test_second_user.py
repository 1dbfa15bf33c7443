"""A run on a machine with a second user, for real: folders, ports, what workers import, and secrets. `make test-full`.

The second user is there from before the run starts until after it has ended. The environment has a canary in
every variable that adder-search or a service of its reads.
"""

import contextlib
import json
import os
import secrets
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.commands import COMMAND
from tests.processes import short_folder
from tests.reference import QUICK, running_study, states
from tests.second_user import as_second_user, need_second_user, start_as_second_user

pytestmark = [pytest.mark.end_to_end, pytest.mark.full]
LONG = QUICK | {"recipe": QUICK["recipe"] | {"steps": 400}}
CANARY = f"canary-{secrets.token_hex(8)}"
SECRET = (
    "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "MLFLOW_AUTH_ADMIN_PASSWORD",
    "MLFLOW_FLASK_SERVER_SECRET_KEY", "PGPASSWORD", "PGSSLPASSWORD", "PGUSER", "RAY_AUTH_TOKEN", "RAY_REDIS_PASSWORD",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY",
    "AZURE_STORAGE_CONNECTION_STRING", "AZURE_CLIENT_SECRET", "GOOGLE_APPLICATION_CREDENTIALS", "DATABRICKS_TOKEN",
    "DATABRICKS_HOST", "HF_TOKEN", "WANDB_API_KEY", "HTTPS_PROXY",
)  # fmt: skip
PLACES = ("/tmp", "/var/tmp", "/dev/shm")


def with_canary(since, *folders):
    """Files written since then that have a canary in them."""
    walks = (os.walk(place) for place in (*PLACES, *folders))
    files = {Path(at, name) for walk in walks for at, _, names in walk for name in names}
    found = []
    for file in files:
        with contextlib.suppress(OSError):  # gone meanwhile
            is_new = file.is_file() and not file.is_symlink() and file.stat().st_mtime >= since
            found += [str(file)] if is_new and CANARY.encode() in file.read_bytes() else []
    return found


def listening(pids):
    """Ports on which processes listen, and at which address."""
    open_ = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.pid in pids]
    return {c.laddr.port: c.laddr.ip for c in open_}


@pytest.fixture(scope="module", params=["022", "000"])
def seen(request, tmp_path_factory):
    """A run under a umask, and what was seen of it while it trained."""
    need_second_user()
    folder, since = tmp_path_factory.mktemp("run"), time.time()
    seen = SimpleNamespace(folder=folder, ports={}, answers={}, lines=[], files=[])
    folder.chmod(0o755)
    with short_folder() as temporary:
        temporary.chmod(0o1777)
        environment = dict.fromkeys(SECRET, CANARY)
        if request.param == "000":
            del environment["RAY_AUTH_TOKEN"]  # Ray makes a token where it finds none
        environment |= {"HOME": folder / "me", "TMPDIR": temporary, "RAY_TMPDIR": temporary}
        (folder / "me").mkdir()
        trace, end = temporary / "trace", temporary / "end"
        intruder = start_as_second_user("plant", str(temporary), "graphlib.py", str(trace), str(end))
        program = ("sh", "-c", f'umask {request.param}; unset PYTEST_CURRENT_TEST; exec "$@"', "sh", COMMAND)
        with running_study(LONG, folder, environment=environment, program=program) as command:
            command.wait_for(lambda: states(folder / "home"), "nothing was trained")
            pids = [command.process.pid, *command.descendants()]
            seen.ports = listening(pids)
            seen.answers = as_second_user("knock", list(seen.ports))
            seen.lines = [psutil.Process(pid).cmdline() for pid in pids if psutil.pid_exists(pid)]
            seen.files = with_canary(since, folder)
            seen.said = command.wait()
        seen.files += with_canary(since, folder)
        end.touch()
        out, err = intruder.communicate(timeout=120)
        seen.ran, seen.left = trace.exists(), {*temporary.iterdir()} - {trace, end}
    assert intruder.returncode == 0, err
    seen.entered = json.loads(out)
    return seen


def test_it_is_done_and_nothing_is_left(seen):
    assert (seen.said.code, seen.said.err) == (0, "")
    assert not seen.left


def test_no_folder_of_it_can_be_entered_and_no_code_put_there(seen):
    assert seen.entered == [] and not seen.ran


def test_it_listens_on_loopback_and_lets_nobody_in(seen):
    """Metrics are read by anyone on this machine, and that Ray is healthy: SECURITY.md lists both."""
    assert set(seen.ports.values()) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"} and len(seen.ports) > 4
    assert {answer for answers in seen.answers.values() for answer in answers} <= {"metrics"}


def test_no_secret_is_printed_or_kept(seen):
    assert seen.files == []
    assert CANARY not in seen.said.out + seen.said.err and not [x for x in seen.lines if CANARY in str(x)]


def test_nothing_is_left_in_the_users_folder(seen):
    """Ray would make a token there that all users may read; MLflow would note an identity for what it reports,
    except in a test.
    """
    assert not (seen.folder / "me" / ".ray").exists()
    assert not list((seen.folder / "me").rglob("telemetry*"))
