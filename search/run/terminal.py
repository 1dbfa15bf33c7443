"""The place of a command's output: a terminal, a cell of a notebook, or a file."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

STOPPING = "stopping: what trains is being saved, and the same cell goes on with it"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a run: Ctrl-C, a service's or a machine's end, a closed terminal."""


def is_cell() -> bool:
    """True if this process is a command in a notebook's cell: `!adder-search run 57p`.

    A cell has a terminal, but keeps each line that is drawn over. A kernel names its backend of matplotlib to every
    process that it starts; a command that is called within the kernel itself has no cell.
    """
    is_started_by_kernel = "inline" in os.environ.get("MPLBACKEND", "") and "ipykernel" not in sys.modules
    return is_started_by_kernel and sys.stdout.isatty()


def is_live(console: Console) -> bool:
    """True if a console can draw over its lines. FORCE_COLOR makes rich believe so of any file."""
    return console.file.isatty() and console.is_terminal and not console.is_dumb_terminal and not is_cell()


def leave_cell() -> None:
    """In a notebook's cell, go on in a child process, in a session of its own; this process waits for it.

    An interrupted kernel kills its command after half a second. A run needs longer to save its seeds, so this process
    only waits, and passes on the first signal that ends it.
    """
    if not is_cell():
        return

    sys.stdout.flush()  # or both processes would write what is in the buffers
    sys.stderr.flush()
    child = os.fork()
    if not child:
        os.setsid()  # the kernel's signals to its command's group do not reach it
        return

    def stop(number: int, frame: FrameType | None) -> None:
        for ending in ENDING:
            signal.signal(ending, signal.SIG_IGN)
        os.kill(child, signal.SIGINT)
        print(STOPPING, flush=True)

    for ending in ENDING:
        signal.signal(ending, stop)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)  # below 0 for a child that a signal ended
    sys.exit(max(1, code) if code else 0)
