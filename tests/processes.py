"""Processes that tests start and end, with all that those start. Needs Linux's /proc."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MARK = "ADDER_SEARCH_TEST_MARK"
OURS = ("ADDER_SEARCH_", "MLFLOW_", "RAY_", "PG")
"""How the names of environment variables begin that would lead a service elsewhere."""
LOOPBACK = "127.0.0.1"
PATIENCE_S = 900.0
"""Until what does not come is a failure: long, since a machine can be busy."""


def free_port():
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def listening(answer):
    """A server on this machine: its address. answer: takes a request's handler, and returns the status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(answer(self))
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{LOOPBACK}:{server.server_port}"
        server.shutdown()


def is_healthy(address):
    """True if an MLflow server answers."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def wait_until(there, what):
    """What `there` returns once that is true. Fails with `what` if it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := there()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def marked(mark, session=None):
    """Processes that have a mark in their environment, or are of a session, and have not ended."""
    wanted, there = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, its = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
            carries = int(its) == session or wanted in (entry / "environ").read_bytes().split(b"\0")
            if carries and state != "Z":
                there.append(int(entry.name))
    return there


class Process:
    """A process and all that it starts: known by their session, or where they left it by a mark in their
    environment (Ray's agents write their titles over theirs)."""

    def __init__(self, command, environment, stdout, stderr=subprocess.STDOUT, **options):
        self.mark, self.has_ended = uuid.uuid4().hex, False
        self.process = subprocess.Popen(
            [*map(str, command)],
            env={name: str(value) for name, value in environment.items()} | {MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            **options,
        )

    def wait_for(self, there, what="it"):
        """Until it is there. Fails with what the process said if that ends first."""

        def ended_or_there():
            ended = self.process.poll() is not None
            return "there" if there() else "ended" if ended else ""

        assert wait_until(ended_or_there, what) == "there", self.said()

    def processes(self):
        """Those of its processes that are still there."""
        return [] if self.has_ended else marked(self.mark, self.process.pid)

    def end(self, gently=None, timeout=20):
        """Send a signal and wait for the end; then SIGKILL to whatever is left of it."""
        if gently and self.process.poll() is None:
            self.process.send_signal(gently)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout)
        deadline = time.monotonic() + timeout
        while left := self.processes():
            assert time.monotonic() < deadline, f"still there after SIGKILL: {left}"
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        self.process.wait(timeout)
        self.has_ended = True


class Service(Process):
    """One that writes a log, and has nothing of this process's environment that would lead it elsewhere."""

    def __init__(self, command, log, environment, **options):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
        self.log = log
        with log.open("ab") as output:
            super().__init__(command, {**inherited, **environment}, output, **options)

    def said(self):
        """The end of its log."""
        return self.log.read_text(errors="replace")[-4_000:]


@contextlib.contextmanager
def short_folder():
    """A short path: Ray's sockets lie below it, and a socket's path has at most 107 characters."""
    path = Path(tempfile.mkdtemp(prefix="as-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
