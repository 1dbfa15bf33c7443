"""The outbox: what is to be written to MLflow, done in order by a thread of its own.

Tracking must not stop training. While the server is away the outbox waits and its jobs with it. What is not
done when a run ends is still in the ledger, and the next run or `adder-search sync` writes it. Jobs look up before they
create, so that one that was cut off can be done again.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from search.errors import one_line
from search.store.lease import Superseded

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
TRIES = 3
"""Attempts at a job that fails while the server answers."""

log = logging.getLogger(__name__)


@dataclass
class Outbox:
    """Jobs for MLflow, and the thread that does them.

    `answers`: a call that raises if the server is away. `verify`: one that raises Superseded once another driver
    has the study: then nothing more is done.
    """

    answers: Callable[[], Any]
    verify: Callable[[], Any] = lambda: None
    jobs: dict[Hashable, Callable[[], Any]] = field(default_factory=dict)
    """By what they write, in order."""
    name: str = "MLflow"
    """The store's name in messages."""
    last_done: float = field(default_factory=time.monotonic)
    away: bool = False
    """True if the server did not answer when it was last asked."""
    failed: int = 0
    """Jobs that were given up."""

    def __post_init__(self) -> None:
        self.change, self.closed = threading.Condition(), False
        self.thread = threading.Thread(target=self._work, name="outbox", daemon=True)
        self.thread.start()

    def put(self, call: Callable[..., Any], *args: Any, key: Hashable = None) -> None:
        """Have a job done after those that wait. One with the same key is dropped: what that writes is out of date."""
        key = key or object()
        with self.change:
            self.jobs.pop(key, None)  # its place is no longer its turn: others may have come between
            self.jobs[key] = lambda: call(*args)
            self.change.notify()

    def drain(self, longest_s: float, away_s: float, tick: Callable[[int], Any] = lambda count: None) -> int:
        """Wait until all is done, at most `longest_s`, and `away_s` for a server that is away.

        Returns the number of jobs that remain, or were given up. `tick` gets the number of those that remain a few
        times a second, and ends the wait by True.
        """
        start = self.last_done = time.monotonic()
        while (remaining := len(self.jobs)) and self.thread.is_alive():
            now = time.monotonic()
            is_away = self.away and now - self.last_done > away_s
            if now - start > longest_s or is_away or tick(remaining):
                break
            with self.change:
                self.change.wait(0.2)
        return remaining + self.failed

    def close(self) -> None:
        """End the thread after the job that it is doing."""
        with self.change:
            self.closed = True
            self.change.notify()
        self.thread.join(timeout=LONGEST_PAUSE_S)

    def _work(self) -> None:
        while (due := self._next()) is not None:
            key, job = due
            try:
                self._do(job)
            except Superseded:
                with self.change:
                    self.closed = True
                return
            with self.change:
                if self.jobs[key] is job:
                    del self.jobs[key]
                self.last_done = time.monotonic()
                self.change.notify_all()

    def _next(self) -> tuple[Hashable, Callable[[], Any]] | None:
        with self.change:
            self.change.wait_for(lambda: self.jobs or self.closed)
            return None if self.closed else next(iter(self.jobs.items()))

    def _do(self, job: Callable[[], Any]) -> None:
        """Do a job, however long the server is away; try one that fails while it answers TRIES times.

        That of a database (search/store/database.py) does not fit: only attempts that the server answers are counted.
        """
        attempts, pause = 0, FIRST_PAUSE_S
        self.verify()
        while not self.closed and (error := _error_of(job)) is not None:
            if (silence := _error_of(self.answers)) is not None:
                if not self.away:
                    log.warning("%s is away (%s); training goes on, it is written later", self.name, silence)
                self.away = True
                self._sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            self._note_answer()
            if (attempts := attempts + 1) == TRIES:
                log.warning("%s: %s", self.name, error)
                self.failed += 1
                return
            self._sleep(FIRST_PAUSE_S)
        if not self.closed:
            self._note_answer()

    def _note_answer(self) -> None:
        if self.away:
            log.warning("%s is back", self.name)
        self.away = False

    def _sleep(self, seconds: float) -> None:
        """Wait, unless the outbox is closed meanwhile."""
        with self.change:
            self.change.wait_for(lambda: self.closed, seconds)


def _error_of(call: Callable[[], Any]) -> str | None:
    """Return what a call raises, in one line: a server, a disk, an object store, anything may be behind it."""
    try:
        call()
    except Superseded:
        raise
    except Exception as error:
        return one_line(error)
    return None
