"""Trials that have ended and whose results cannot be seen yet: a shared folder may show them late."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from search.study.trial import Trial

FIRST_S, LONGEST_S = 0.2, 10.0
"""Seconds between two looks: at first, and at most."""
NOTICE_S, LOST_S = 5.0, 600.0
"""Seconds after which it is said that results are late, and after which they are taken for lost."""
LOST = f"its results were not to be seen for {LOST_S / 60:.0f} minutes"

log = logging.getLogger(__name__)


@dataclass
class _Wait:
    trial: Trial
    since: float
    pause_s: float
    due: float = 0.0


class LateResults:
    """Waits for results while others are recorded. is_there: looks for those of a trial."""

    def __init__(self, is_there: Callable[[Trial], bool]):
        self.is_there = is_there
        self.waits: dict[str, _Wait] = {}
        self.is_said = False

    def __bool__(self) -> bool:
        return bool(self.waits)

    def add(self, trial: Trial) -> None:
        self.waits[trial.key] = _Wait(trial, time.monotonic(), FIRST_S)

    def look(self) -> Iterator[tuple[Trial, bool]]:
        """Yield the trials whose wait has ended: with True if results are there, with False if they are lost."""
        for wait in list(self.waits.values()):
            now = time.monotonic()
            if now < wait.due:
                continue
            wait.due, wait.pause_s = now + wait.pause_s, min(2 * wait.pause_s, LONGEST_S)
            if (is_there := self.is_there(wait.trial)) or now - wait.since > LOST_S:
                del self.waits[wait.trial.key]
                yield wait.trial, is_there
            elif now - wait.since > NOTICE_S and not self.is_said:
                self.is_said = True
                log.warning(
                    "study %s: results of a trial that has ended cannot be seen yet; is the home's folder shared with "
                    "its node? The run goes on, and looks again", wait.trial.study,
                )  # fmt: skip
