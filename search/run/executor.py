"""Executors: where workers run. The driver starts workers and polls what becomes of them, and knows no more.

A worker is known by the key of its first trial. It is started again where it was when its process dies, as
often as the study allows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from search.errors import Failure
from search.run.metrics import Values
from search.run.packing import Capacity

DIED = "its process died"


class ExecutorDied(Failure):
    """What runs the workers has died, and they with it."""


@dataclass(frozen=True)
class Reported:
    """A worker's progress report (search/run/worker.py)."""

    worker: str
    report: dict[str, Any]


@dataclass(frozen=True)
class Restarted:
    """A worker's process has died and is started again. preempted: its node was taken away after notice."""

    worker: str
    preempted: bool = False


@dataclass(frozen=True)
class Finished:
    """A worker has ended: by itself, with results in its trials' folders, or for the reason given."""

    worker: str
    failure: str | None = None


Event = Reported | Restarted | Finished


class Executor(Protocol):
    """Starts workers and says what becomes of them. A context manager: on exit no worker runs any more."""

    is_parallel: bool
    """True if workers train side by side, so that one may wait for work while others train."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def capacity(self) -> Capacity:
        """Return how many workers fit now; 0 while a cluster has no room.

        Raises UserError if there was never room for one, ExecutorDied if there is none any more.
        """

    def start(self, key: str, config: Mapping[str, Any]) -> None:
        """Start a worker whose first trial has this key, with the arguments of `worker.train`."""

    def poll(self, timeout_s: float) -> Sequence[Event]:
        """Return the events since the last call, after at most so many seconds. Raises what broke the executor."""

    def export(self, values: Callable[[], Values]) -> None:
        """Hand what a monitor shows of the study to it, if there is one and it is time."""
