"""Several minimisations at once, to the same bits as alone (lab/2026-11-26-gpu/finishing.py has the time).

Each has a thread of its own. Once all of them wait for a gradient, one pass of `expand` makes them all: for a few
seeds it takes as long as for one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.curvature.pool import Pool, slopes

Slope = Callable[[Pool, Tensor], tuple[float, Tensor]]
"""`Pool.slope`, or what gives the same."""


class Request(NamedTuple):
    """A thread's wait for a gradient."""

    pool: Pool
    theta_P: Tensor
    answer: Future[tuple[float, Tensor]]


class Meeting:
    """Gradients for so many threads, which end one by one."""

    def __init__(self, threads: int):
        self.threads, self.requests, self.is_over = threads, list[Request](), False
        self.lock = threading.Lock()

    def slope(self, pool: Pool, theta_P: Tensor) -> tuple[float, Tensor]:
        """Return `Pool.slope`. Wait until every thread asks or has ended. Raise CancelledError once it is over."""
        if self.is_over:
            raise CancelledError
        request = Request(pool, theta_P, Future())
        with self.lock:
            self.requests.append(request)
            self._answer()
        return request.answer.result()

    def leave(self) -> None:
        """End a thread: the others wait for it no more."""
        with self.lock:
            self.threads -= 1
            self._answer()

    def _answer(self) -> None:
        """Answer all requests if no thread is without one."""
        if len(self.requests) < self.threads:
            return
        requests, self.requests = self.requests, []
        while requests:
            spec = requests[0].pool.spec
            alike = [r for r in requests if r.pool.spec == spec]
            requests = [r for r in requests if r.pool.spec != spec]
            try:
                results = slopes([r.pool for r in alike], torch.stack([r.theta_P for r in alike]))
            except Exception as error:
                for r in alike:
                    r.answer.set_exception(error)
                continue
            for r, result in zip(alike, results, strict=True):
                r.answer.set_result(result)


def together(jobs: Sequence[Callable[[Slope], Tensor]]) -> list[Tensor]:
    """Return what each job makes, which asks for gradients by what it is given. Raise what one of them raises."""
    if len(jobs) == 1:
        return [jobs[0](Pool.slope)]
    meeting = Meeting(len(jobs))

    def run(job: Callable[[Slope], Tensor]) -> Tensor:
        try:
            return job(lambda pool, theta_P: (meeting.slope if pool.kernel else Pool.slope)(pool, theta_P))
        finally:
            meeting.leave()

    with ThreadPoolExecutor(len(jobs)) as threads:
        try:
            return list(threads.map(run, jobs))
        except BaseException:
            meeting.is_over = True
            raise
