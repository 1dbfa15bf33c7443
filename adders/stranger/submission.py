"""A stranger's submission, a .py file, judged from outside: the child that runs it, its limits, its answers."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.errors import Failure, printable

if TYPE_CHECKING:
    from model import Verification

MEMORY = 8 << 30  # bytes that each process can address: torch maps two or three
MOST = 1 << 20  # bytes of answers
CHUNK = 1 << 16
NUMBER = re.compile(r"-?[0-9]{1,20}")
"""What is read as a number: a submission can write to the pipe itself, and Python refuses numbers that are too long."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
"""All of the child's environment: none of this one's secrets."""


def run_submission(path: Path, minutes: float) -> tuple[Verification, list[str], str]:
    """Run a submission on AdderBoard's 10,010 additions, in a child process (child.py).

    Returns the result, what the child could not be kept from on this machine, and how it was run, in words. Raises
    Failure, saying why in one line, where the file fails, ends, or takes more than its minutes.
    """
    from adders.stranger import child
    from model import Verification
    from model.adderboard import official_pairs

    pairs = official_pairs()
    seconds = max(1, round(60 * minutes))
    gib = MEMORY >> 30
    lines = _lines_of(Path(child.__file__), path.resolve(), pairs, seconds)
    if len(lines) < 2:
        raise Failure(f"{path}: ended before it had a model: by its own doing, or for more than {gib} GiB")
    open_ways, first, *answers = lines
    if first.startswith("!"):
        raise Failure(f"{path}: build_model() failed: {printable(first[2:])}")
    if len(answers) < len(pairs):
        raise Failure(f"{path}: ended after {len(answers):,} of {len(pairs):,} additions, or wrote what is no answer")
    wrong: list[tuple[int, int, Any]] = []
    # what it writes behind its answers counts for nothing
    for (a, b), word in zip(pairs, answers, strict=False):
        decoded = int(word) if NUMBER.fullmatch(word) else None
        if decoded != a + b:
            wrong.append((a, b, decoded))
    params = int(first) if NUMBER.fullmatch(first) else -1
    result = Verification(params, len(pairs) - len(wrong), len(pairs), wrong)
    not_kept_from = [way for way in open_ways.split(",") if way]
    if not_kept_from:
        how = f"this machine could not keep it from: {', '.join(not_kept_from)}"
    else:
        how = f"run without network, with files to read only, in {gib} GiB a process; its code was not judged"
    return result, not_kept_from, how


def _lines_of(program: Path, path: Path, pairs: list[tuple[int, int]], seconds: int) -> list[str]:
    """Return the lines that the child writes until it ends. Raises Failure when it takes longer, or writes too much."""
    # a pipe of its own, as libraries print to stdout and stderr
    reading, writing = os.pipe()
    # -I: neither the user's folder nor PYTHONPATH is searched for modules
    words = [sys.executable, "-I", str(program), str(path), str(writing), str(MEMORY), str(seconds)]
    # pairs lie in a file: a pipe that the child does not read would block this process
    with tempfile.TemporaryFile() as asked:
        asked.write("".join(f"{a} {b}\n" for a, b in pairs).encode())
        asked.seek(0)
        child = subprocess.Popen(
            words, env=ENVIRONMENT, cwd=path.parent, pass_fds=[writing], start_new_session=True,
            stdin=asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    # else reading would never end
    os.close(writing)
    try:
        return _read(reading, path, seconds)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            # its children too: they cannot leave its group
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _read(reading: int, path: Path, seconds: int) -> list[str]:
    """Return all lines of a pipe. Raises Failure where they take longer, or are more than answers."""
    text = b""
    end = time.monotonic() + seconds
    while True:
        remaining = max(0.0, end - time.monotonic())
        ready, _, _ = select.select([reading], [], [], remaining)
        if not ready:
            # two lines come before the answers
            count = max(0, text.count(b"\n") - 2)
            raise Failure(f"{path.name}: {count:,} additions in {seconds:,} s; --minutes allows more")
        more = os.read(reading, CHUNK)
        if not more:
            return text.decode(errors="replace").split("\n")[:-1]
        text += more
        if len(text) > MOST:
            raise Failure(f"{path.name}: writes more than its answers")
