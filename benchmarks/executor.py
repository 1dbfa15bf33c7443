"""An executor without Ray: the workers run in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from search.run import worker
from search.run.executor import DIED, Event, Finished, Reported, Restarted
from search.run.metrics import Values
from search.run.packing import Capacity


class InProcessExecutor:
    """Trains in this process, one worker after the other.

    max_failures: how often a worker that raises is started again.
    """

    is_parallel = False

    def __init__(self, max_failures: int = 0, capacity: Capacity | None = None):
        self.max_failures, self._capacity = max_failures, capacity or Capacity(1)
        self._waiting: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._reports: Iterator[dict[str, Any]] | None = None
        self._failures = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reports is not None:
            self._reports.close()  # type: ignore[attr-defined]  # what it has locked is free again

    def capacity(self) -> Capacity:
        return self._capacity

    def start(self, key: str, config: Mapping[str, Any]) -> None:
        self._waiting.append((key, config))

    def poll(self, timeout_s: float) -> Sequence[Event]:
        """Train until the first worker reports, or ends."""
        if not self._waiting:
            return []
        key, config = self._waiting[0]
        if self._reports is None:
            self._reports = worker.train_reporting(config)
        try:
            return [Reported(key, next(self._reports))]
        except StopIteration:
            return [self._finish()]
        except Exception:
            self._reports, self._failures = None, self._failures + 1
            return [self._finish(DIED) if self._failures > self.max_failures else Restarted(key)]

    def _finish(self, failure: str | None = None) -> Finished:
        key, _ = self._waiting.popleft()
        self._reports, self._failures = None, 0
        return Finished(key, failure)

    def export(self, values: Callable[[], Values]) -> None:
        """Nobody looks."""
