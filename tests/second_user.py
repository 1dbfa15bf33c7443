"""Another Unix user of this machine, for real: what such a one can enter, write and reach.

The functions below run as that user, in a process that has loaded what it needs and then given up being root.
"""

import http.client
import importlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests import ROOT

NOBODY = 65534


def need_second_user():
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")


def start_as_second_user(function, *values):
    """Start a function of this module as another user; it prints what it returns as JSON."""
    command = [sys.executable, "-m", "tests.second_user", function, *map(json.dumps, values)]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def as_second_user(function, *values):
    """Return what a function of this module returns when another user calls it."""
    with start_as_second_user(function, *values) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out)


# ---- as that user


def plant(folder, module, trace, end):
    """Put a module that writes `trace` wherever it can be put below a folder, until the file `end` is there.

    Returns the folders below in which something can be written or read.
    """
    code, entered = f"open({trace!r}, 'a').write('run')\n", set()
    while not Path(end).exists():
        for place, _, _ in os.walk(folder):
            if place == folder:
                continue
            entered |= {place} if os.access(place, os.R_OK) or os.access(place, os.W_OK) else set()
            try:
                Path(place, module).write_text(code)
            except OSError:
                continue
        time.sleep(0.01)
    return sorted(entered)


def knock(ports):
    """Return what each port of this machine lets somebody without a token do."""
    return {str(port): _http(port) + _grpc(port) for port in ports}


def fetch(requests):
    """Return the HTTP status of each request: address, body or None, headers."""
    statuses = []
    for address, body, headers in requests:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, data, {"Content-Type": "application/json", **headers})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                statuses.append(answer.status)
        except urllib.error.HTTPError as error:
            statuses.append(error.code)
    return statuses


PATHS = ("/", "/metrics", "/api/version", "/api/jobs/", "/api/job_agent/jobs/", "/logs", "/api/v0/logs/file")


def _http(port):
    """Return the paths that are answered, with what the answer is."""
    answers = []
    for path in PATHS:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                is_metrics = answer.read(7) == b"# HELP "
                answers.append("metrics" if is_metrics else f"GET {path}")
        except urllib.error.HTTPError as error:
            answers += [] if error.code in (401, 403, 404) else [f"GET {path}: {error.code}"]
        except (OSError, http.client.HTTPException):  # it speaks no HTTP
            return []
    return sorted(set(answers))


CALLS = {
    "JobInfoGcsService": ("GetAllJobInfo", "AddJob"),
    "InternalKVGcsService": ("InternalKVKeys", "InternalKVGet", "InternalKVPut"),
    "NodeInfoGcsService": ("GetAllNodeInfo", "DrainNode"),
    "ActorInfoGcsService": ("CreateActor", "KillActorViaGcs"),
    "CoreWorkerService": ("PushTask", "KillActor", "Exit", "GetCoreWorkerStats", "GetObjectStatus"),
    "NodeManagerService": ("RequestWorkerLease", "ShutdownRaylet", "GetNodeStats"),
    "ObjectManagerService": ("Push", "Pull"),
    "ReporterService": ("GetTraceback", "CpuProfiling"),
    "LogService": ("ListLogs", "StreamLog"),
    "RuntimeEnvService": ("GetOrCreateRuntimeEnv",),
}
"""Calls of Ray's, by service: each takes an empty message."""
REFUSED = ("UNAUTHENTICATED", "UNIMPLEMENTED", "UNAVAILABLE")


def _grpc(port):
    import grpc

    answers = []
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for service, names in CALLS.items():
            for name in names:
                try:
                    channel.unary_unary(f"/ray.rpc.{service}/{name}")(b"", timeout=5)
                    answers.append(name)
                except grpc.RpcError as error:
                    answers += [] if error.code().name in REFUSED else [f"{name}: {error.code().name}"]
    return answers


def _main(function, *values):
    with socket.socket() as free:  # loads what a connection needs, from where only root can read
        free.bind(("127.0.0.1", 0))
        knock([free.getsockname()[1]])
    importlib.import_module("encodings.idna")
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    print(json.dumps(globals()[function](*map(json.loads, values))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
