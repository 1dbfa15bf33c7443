"""At a terminal no command is silent for long. `make test-full`."""

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from tests import CERTIFICATES, needs_compiler
from tests.commands import COMMAND, own_environment

pytestmark = [pytest.mark.end_to_end, pytest.mark.full]

SILENT_S, BARE_S = 10.0, 60.0
IMPORTS_S = 4.0
"""Of `import torch, mlflow` on a quiet machine: a busy one may be silent for longer, as it is slower."""
INVISIBLE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\s")
BAR = "━".encode()


def silences(folder, *words):
    """How long a command's screen stayed as it was, at most: as a whole, and without a bar. Its exit code."""
    begun = last = bare = time.monotonic()
    longest = longest_bare = 0.0
    child, screen = pty.fork()
    if not child:
        os.chdir(folder)
        os.execve(COMMAND, [COMMAND, *map(str, words)], own_environment() | {"TERM": "xterm-256color"})
    shown = b""
    while True:
        if screen not in select.select([screen], [], [], 600)[0]:
            pytest.fail(f"silent since {time.monotonic() - begun:.0f} s")
        try:
            read = os.read(screen, 1 << 16)
        except OSError:  # the terminal's other end is closed
            break
        text, now = INVISIBLE.sub(b"", read), time.monotonic()
        if text and text != shown:
            longest, last, shown = max(longest, now - last), now, text
        if BAR in text:
            longest_bare, bare = max(longest_bare, now - bare), now
    now = time.monotonic()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return max(longest, now - last), max(longest_bare, now - bare), code


@pytest.fixture
def slowness():
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch, mlflow"], check=True)
    return max(1.0, (time.monotonic() - start) / IMPORTS_S)


@needs_compiler
@pytest.mark.parametrize(
    "words",
    [
        ("diagnose", CERTIFICATES / "170p"),
        ("prove", CERTIFICATES / "133p"),
        ("explain", CERTIFICATES / "57p", CERTIFICATES / "6p", "-o", "page.html"),
        ("rerun", CERTIFICATES / "57p"),
        ("finish", CERTIFICATES / "57p", "-o", "finished", "--method", "margin", "--turns", 1),
        ("compress", CERTIFICATES / "14p", "-o", "small", "--max-hours", 0.03),
    ],
    ids=lambda words: words[0],
)
def test_something_is_said_within_ten_seconds_and_a_bar_within_sixty(words, slowness, tmp_path):
    silent, bare, code = silences(tmp_path, *words)
    assert code == 0
    assert silent < SILENT_S * slowness and bare < BARE_S * slowness
