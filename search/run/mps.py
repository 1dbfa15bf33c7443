"""NVIDIA's MPS, by which the banks of several processes train side by side on a GPU. Without it they take turns.

A run whose workers have shares of a GPU starts a control daemon of its own where none runs, in its session's folder,
which no other user can enter, and ends it with the session.
"""

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.engine.cuda.driver import MPS_PIPES, gpus, visible_with

PROGRAM, LOGS, FOLDER = "nvidia-cuda-mps-control", "CUDA_MPS_LOG_DIRECTORY", "mps"
SYSTEM = "/tmp/nvidia-mps"
"""Where CUDA looks for a daemon by itself."""
START_S, CLIENTS_S, END_S = 30.0, 5, 15.0
"""Seconds in which a daemon starts, in which clients end before it ends them, and in which all that is done."""

log = logging.getLogger(__name__)


def is_running() -> bool:
    """True if a daemon runs that this run did not start."""
    return Path(os.environ.get(MPS_PIPES) or SYSTEM, "control").exists()


def is_available() -> bool:
    """True if a daemon runs, or this run can start one."""
    return is_running() or shutil.which(PROGRAM) is not None


def without(share: float, why: str = "", is_auto: bool = False) -> str:
    """Return what becomes of banks with shares of a GPU without MPS."""
    if is_auto:
        return f"gpu: auto without MPS ({why}): no banks side by side on a GPU"
    count = int(1 / share)
    return (
        f"gpu: {share:g} without MPS{why and f' ({why})'}: {count} banks take turns on the GPU, at 1/{count} of its "
        f"speed together ({PROGRAM} on the PATH would start it; or set gpu: 1)"
    )


@contextmanager
def own_mps(session: Path, share: float, is_auto: bool = False) -> Iterator[dict[str, str]]:
    """Run a daemon for workers with such a share of a GPU, in a session's folder, where one is wanted and can be had.

    Yield the variables by which workers reach it; none where there is none. One line says which.
    is_auto: the share was not asked for, and without a daemon it is another.
    """
    if not 0 < share < 1 or is_running() or not shutil.which(PROGRAM) or not gpus()[0]:
        yield {}
        return
    folder = session / FOLDER
    folder.mkdir(mode=0o700)
    variables = dict.fromkeys((MPS_PIPES, LOGS), str(folder))
    try:
        if why := _start(variables):
            end(folder)
            log.warning("%s", without(share, why, is_auto))
        else:
            log.warning("gpu: %g: %d banks side by side on a GPU, by an MPS of this run", share, int(1 / share))
        yield {} if why else variables
    finally:
        end(folder)


def _start(variables: dict[str, str]) -> str:
    """Start a daemon. Return why it is of no use, if it is none."""
    try:
        with Path(variables[LOGS], "said").open("w+", encoding="utf-8") as said:  # a pipe would stay open in the daemon
            subprocess.run(
                [PROGRAM, "-d"], env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                timeout=START_S, check=True, start_new_session=True,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it did not start in {START_S:.0f} s"
    except (OSError, subprocess.CalledProcessError) as error:
        first = Path(variables[LOGS], "said").read_text(errors="replace", encoding="utf-8").strip().partition("\n")[0]
        return first or str(error)
    visible, why = visible_with(variables)
    return why or ("" if len(visible) == len(gpus()[0]) else f"{len(visible)} of {len(gpus()[0])} GPUs by it")


def end(folder: Path) -> None:
    """End the daemon of a folder, if one runs there. It ends too if this process is killed meanwhile."""
    with suppress(OSError, subprocess.TimeoutExpired):
        if not folder.is_dir():
            return
        client = subprocess.Popen(
            [PROGRAM], env=os.environ | {MPS_PIPES: str(folder)}, stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert client.stdin
        client.stdin.write(f"quit -t {CLIENTS_S}\n".encode())
        client.stdin.close()
        client.wait(END_S)
