"""The MLflow UI as a child process that leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def serve(command: list[str], folder: Path) -> int:
    """Run a server until it ends or this process is told to; its children end with it. Its exit code."""
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # nine processes for nothing
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    server = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    try:
        return server.wait()
    except KeyboardInterrupt:
        return 0
    finally:  # MLflow's process does not pass signals on: its whole group is told
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(server.pid, number)
            with suppress(subprocess.TimeoutExpired):
                server.wait(timeout=5)
