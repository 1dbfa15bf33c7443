"""The outbox: what is to be written to MLflow, done in order by a thread of its own.

Tracking must not stop training. While the server is away the outbox waits and its jobs with it; whatever is
not done when a run ends is still in the trials' folders and unpublished in the ledger, and the next run does
it. Jobs look up before they create, so that one that was cut off can be done again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from search.errors import masked

LONGEST = 1_000
"""Jobs that wait; of more, those that may be left out are."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
TRIES = 3
"""Of a job that fails while the server answers."""

log = logging.getLogger(__name__)


@dataclass
class Outbox:
    """`answers`: raises if the server is away."""

    answers: Callable[[], Any]
    jobs: deque[Callable[[], Any]] = field(default_factory=deque)
    last_done: float = field(default_factory=time.monotonic)
    away: bool = False
    """Whether the server did not answer when it was last asked."""

    def __post_init__(self) -> None:
        self.change, self.closed = threading.Condition(), False
        self.thread = threading.Thread(target=self._work, name="outbox", daemon=True)
        self.thread.start()

    def put(self, call: Callable[..., Any], *args: Any, optional: bool = False) -> None:
        """Have `call(*args)` done after what was put before. What is optional is left out of a long queue."""
        with self.change:
            if not (optional and len(self.jobs) >= LONGEST):
                self.jobs.append(lambda: call(*args))
                self.change.notify()

    def drain(self, longest_s: float, away_s: float, tick: Callable[[int], Any] = lambda left: None) -> int:
        """Wait until all is done, at most `longest_s`, and `away_s` for a server that is away.

        Returns what is left. `tick` gets that number a few times a second, and ends the wait by True.
        """
        start = self.last_done = time.monotonic()
        while (left := len(self.jobs)) and self.thread.is_alive():
            now = time.monotonic()
            if now - start > longest_s or (self.away and now - self.last_done > away_s) or tick(left):
                break
            with self.change:
                self.change.wait(0.2)
        return left

    def close(self) -> None:
        """End the thread after the job that it is doing."""
        with self.change:
            self.closed = True
            self.change.notify()
        self.thread.join(timeout=LONGEST_PAUSE_S)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            self._see_through(job)
            with self.change:
                self.jobs.popleft()
                self.last_done = time.monotonic()
                self.change.notify_all()

    def _next(self) -> Callable[[], Any] | None:
        with self.change:
            while not (self.jobs or self.closed):
                self.change.wait()
            return None if self.closed else self.jobs[0]

    def _see_through(self, job: Callable[[], Any]) -> None:
        """Do a job, however long the server is away; what fails while it answers is tried so often."""
        tries, pause = 0, FIRST_PAUSE_S
        while not self.closed and (error := _failure(job)) is not None:
            if (silent := _failure(self.answers)) is not None:
                if not self.away:
                    log.warning("MLflow is away (%s); training goes on, it is written later", silent)
                self.away = True
                self._sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            elif (tries := tries + 1) < TRIES:
                self._sleep(FIRST_PAUSE_S)
            else:
                log.warning("MLflow: %s", error)
                return
        if self.away and not self.closed:
            log.warning("MLflow is back")
            self.away = False

    def _sleep(self, seconds: float) -> None:
        """Wait, unless the outbox is closed meanwhile."""
        until = time.monotonic() + seconds
        with self.change:
            while not self.closed and (left := until - time.monotonic()) > 0:
                self.change.wait(left)


def _failure(call: Callable[[], Any]) -> str | None:
    """What a call raises, in one line: a server, a disk, an object store, anything may be behind it."""
    try:
        call()
    except Exception as error:
        return masked(" ".join(str(error).split()))[:200] or type(error).__name__
    return None
