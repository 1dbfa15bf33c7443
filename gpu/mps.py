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

from gpu.driver import MPS_PIPES, gpus, visible_with

PROGRAM, LOGS, FOLDER = "nvidia-cuda-mps-control", "CUDA_MPS_LOG_DIRECTORY", "mps"
SYSTEM = "/tmp/nvidia-mps"
"""Where CUDA looks for a daemon by itself."""
START_S, CLIENTS_S, END_S = 30.0, 5, 15.0
"""Seconds that a daemon has to start, that its clients have to end by themselves, and that it has to end."""

log = logging.getLogger(__name__)


def is_running() -> bool:
    """True if a daemon runs that this run did not start."""
    return Path(os.environ.get(MPS_PIPES) or SYSTEM, "control").exists()


def is_available() -> bool:
    """True if a daemon runs, or this run can start one."""
    return is_running() or shutil.which(PROGRAM) is not None


def without(share: float, why: str = "", is_auto: bool = False) -> str:
    """Return a line on banks with shares of a GPU without MPS. why: the reason why there is none."""
    if is_auto:
        return f"gpu: auto without MPS ({why}): no banks side by side on a GPU"
    banks, reason = int(1 / share), f" ({why})" if why else ""
    turns = f"{banks} banks take turns on the GPU, at 1/{banks} of its speed together"
    return f"gpu: {share:g} without MPS{reason}: {turns} ({PROGRAM} on the PATH would start it; or set gpu: 1)"


@contextmanager
def own_mps(session: Path, share: float, is_auto: bool = False) -> Iterator[dict[str, str]]:
    """Run a daemon for workers with a `share` of a GPU in a session's folder, if they need one and it can be had.

    Yield the variables by which workers reach it; none where there is none. A line is logged that says which.
    is_auto: the share was not asked for, and without a daemon it is another.
    """
    is_needed = 0 < share < 1 and not is_running()
    if not (is_needed and shutil.which(PROGRAM) and gpus()[0]):
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
    """Start a daemon that reads its folders in `variables`. Return why it is of no use, or nothing."""
    output = Path(variables[LOGS], "said")  # a pipe would stay open in the daemon
    try:
        with output.open("w+", encoding="utf-8") as said:
            subprocess.run(
                [PROGRAM, "-d"], env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                timeout=START_S, check=True, start_new_session=True,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it did not start in {START_S:.0f} s"
    except (OSError, subprocess.CalledProcessError) as error:
        first = output.read_text(errors="replace", encoding="utf-8").strip().partition("\n")[0]
        return first or str(error)

    # A daemon may start and serve none of the GPUs, or some only.
    visible, why = visible_with(variables)
    found, here = len(visible), len(gpus()[0])
    if not why and found != here:
        why = f"{found} of {here} GPUs by it"
    return why


def end(folder: Path) -> None:
    """End the daemon of a folder, if one runs there; it ends even if this process is killed meanwhile."""
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
