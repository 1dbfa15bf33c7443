"""Executors: where workers run. The driver starts workers, polls what they report, and replies.

A worker is known by its name. It is started again where it was when its process dies, as often as the study allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from search.errors import Failure
from search.run.messages import Reply, Report
from search.run.packing import Capacity
from search.run.prometheus import Values

DIED = "its process died"


class ExecutorDied(Failure):
    """What runs the workers has died, and they with it."""


@dataclass(frozen=True)
class Restarted:
    """A worker's process has died, and is started again. preempted: its node was taken away after notice."""

    worker: str
    reason: str = DIED
    preempted: bool = False


@dataclass(frozen=True)
class Finished:
    """A worker has ended: by itself, or for the reason given."""

    worker: str
    failure: str | None = None


Event = Report | Restarted | Finished


class Executor(Protocol):
    """Starts workers and says what becomes of them. A context manager: on exit no worker runs any more."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def capacity(self) -> Capacity:
        """Return how many workers fit now; 0 while a cluster has no room.

        Raises UserError if there was never room for one, ExecutorDied if there is none any more.
        """

    def start(self, worker: str, on_gpu: bool) -> None:
        """Start a worker (`worker.work`) of this name, in a place on a GPU or not."""

    def poll(self, timeout_s: float) -> Sequence[Event]:
        """Return the events since the last call, after at most so many seconds. Raises what broke the executor."""

    def reply(self, report: Report, reply: Reply) -> None:
        """Send the reply to a report: its worker goes on."""

    def export(self, values: Callable[[], Values]) -> None:
        """Hand what a monitor shows of the study to it, if there is one and it is time."""


class LocalExecutor:
    """Workers in this process, which take turns: one trains at a time. It needs no Ray.

    capacity: how many there are.
    """

    def __init__(self, capacity: Capacity | None = None):
        self._capacity = capacity or Capacity(1)
        self.workers: dict[str, Generator[Report, Reply, None]] = {}
        self.turns: deque[tuple[str, Reply | None]] = deque()
        """Workers that may go on, with the reply that they were sent; None: they begin."""
        self._threads = 0
        """Torch's threads in this process, of which each worker sets its own number."""

    def __enter__(self) -> Self:
        import torch

        self._threads = torch.get_num_threads()
        return self

    def __exit__(self, *_: object) -> None:
        import torch

        for worker in self.workers.values():
            worker.close()
        torch.set_num_threads(self._threads)  # as the caller's own process had them

    def capacity(self) -> Capacity:
        return self._capacity

    def start(self, worker: str, on_gpu: bool, attempt: int = 0) -> None:
        from search.run.worker import work

        self.workers[worker] = work(worker, attempt, on_gpu)
        self.turns.append((worker, None))

    def reply(self, report: Report, reply: Reply) -> None:
        self.turns.append((report.worker, reply))

    def poll(self, timeout_s: float) -> Sequence[Event]:
        """Let the worker whose turn it is train until it reports, or ends."""
        if not self.turns:
            return []

        worker, reply = self.turns.popleft()
        try:
            generator = self.workers[worker]
            return [next(generator) if reply is None else generator.send(reply)]
        except StopIteration:
            del self.workers[worker]
            return [Finished(worker)]

    def export(self, values: Callable[[], Values]) -> None:
        """Nobody looks."""
