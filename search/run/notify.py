"""Telling somebody that a study's first seed has grokked, or that it has ended: by a command, or a webhook.

Whatever becomes of it, the run goes on: a notifier has its own thread and a bounded time, and a failure is one line.
"""

import json
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import InvalidURL
from queue import SimpleQueue
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from search.errors import one_line

LONGEST_S = 10.0
"""Seconds that a notification may take, and that the end of a run waits for the last one."""
WEBHOOK = ("http://", "https://")

log = logging.getLogger(__name__)


@contextmanager
def telling(target: str) -> Iterator[Callable[..., object]]:
    """Yield a function that tells a target of an event, its values by name; of no target, one that does nothing.

    target: a shell command, which reads an event as JSON, or a webhook's URL. The block ends when all is told, or
    LONGEST_S later.
    """
    events = SimpleQueue[Mapping[str, Any] | None]()
    if not target:
        yield lambda **event: None
        return
    thread = threading.Thread(target=_tell_all, args=(target, events), name="notify", daemon=True)
    thread.start()
    try:
        yield lambda **event: events.put(event)
    finally:
        events.put(None)
        thread.join(LONGEST_S + 1)


def _tell_all(target: str, events: SimpleQueue[Mapping[str, Any] | None]) -> None:
    """Tell a target of events, one after another, until there is None."""
    tell = post if target.startswith(WEBHOOK) else call
    while (event := events.get()) is not None:
        try:
            tell(target, json.dumps(event).encode())
        except subprocess.TimeoutExpired:
            log.warning("--notify: has not ended in %.0f s, and was killed", LONGEST_S)
        except Exception as error:  # whatever it is, the run goes on
            log.warning("--notify: %s", one_line(error))


def post(url: str, body: bytes) -> None:
    """Send JSON to a webhook. Raises OSError where it is not taken, without its address, which may have a secret."""
    request = Request(url, body, {"Content-Type": "application/json"})
    try:
        urlopen(request, timeout=LONGEST_S).close()
    except InvalidURL:  # its words have a part of the address too
        raise OSError("the webhook is no address") from None
    except URLError as error:
        raise OSError(f"the webhook did not take it: {error.reason}") from None


def call(command: str, body: bytes) -> None:
    """Give JSON to a shell command as its standard input. Raises OSError, or TimeoutExpired: then it is killed."""
    process = subprocess.Popen(
        command, shell=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        _, said = process.communicate(body, LONGEST_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):  # the whole group: a shell may wait for what it started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        last = said.decode(errors="replace").strip().rpartition("\n")[2][:200]
        raise OSError(f"ended with {process.returncode}" + (f": {last}" if last else ""))
