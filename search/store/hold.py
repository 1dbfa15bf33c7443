"""Holding a study while it is run or deleted, so that nobody else does either."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from search.errors import Failure
from search.store.ledger import Ledger, Row

RENEW_S = 5.0


class Hold:
    """A study that is held. A thread of its own renews the leases, whatever the others wait for.

    `why`: what the study is to be let go for, if it is: asked to stop, or taken over.
    """

    def __init__(self, ledger: Ledger, study: str):
        self.ledger, self.study = ledger, study
        self.why: str | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._renew, name="hold", daemon=True)
        self.thread.start()

    def check(self) -> None:
        """Raise Failure if somebody asked to stop, or took the study over."""
        if self.why:
            raise Failure(f"study {self.study}: {self.why}; the same command again completes what was begun")

    def end(self) -> None:
        self.ended.set()
        self.thread.join()

    def _renew(self) -> None:
        while not self.ended.wait(RENEW_S):
            with contextlib.suppress(Failure):  # it may come back before the lease ends
                self.why = self.ledger.renew(self.study) or self.why


@contextlib.contextmanager
def held(ledger: Ledger, study: str, definition: Row | None, tracking_uri: str | None) -> Iterator[Hold]:
    """Be a study's one driver. Raises UserError if another one is."""
    ledger.hold(study, definition, tracking_uri)
    hold = Hold(ledger, study)
    try:
        yield hold
    finally:
        hold.end()
        with contextlib.suppress(Failure):  # the hold ends by itself
            ledger.release(study)
