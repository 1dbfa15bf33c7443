"""The desk: a Ray actor where workers leave their reports and the driver its replies.

A worker's call lasts until the driver has replied. The desk knows the newest start of each worker's process and turns
those before away. It has nothing that cannot be said again: if its process dies, Ray starts it anew and repeats the
calls.

A module of its own, without torch, which would take seconds to start and memory.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress

Ticket = tuple[str, int, int]
"""A report's name: its worker, the start of the worker's process, its number."""


class Desk:
    """Passes bytes between workers and driver without looking at them."""

    def __init__(self) -> None:
        self.attempts: defaultdict[str, int] = defaultdict(lambda: -1)
        self.reports: dict[Ticket, bytes] = {}
        """Reports that the driver has not taken."""
        self.has_reports = asyncio.Event()
        self.calls: dict[Ticket, asyncio.Future[bytes | None]] = {}
        """Calls of workers that wait for a reply."""

    async def enter(self, worker: str) -> int:
        """Begin to work. Returns how often this worker has begun before; calls of earlier starts end."""
        self.attempts[worker] += 1
        for ticket in [t for t in self.calls if t[0] == worker]:
            self.calls.pop(ticket).cancel()
        return self.attempts[worker]

    async def exchange(self, ticket: Ticket, report: bytes) -> bytes | None:
        """Leave a report and wait for the reply; None if another start of the worker's process has begun."""
        worker, attempt, _ = ticket
        if attempt < self.attempts[worker]:
            return None
        self.attempts[worker] = attempt  # a desk that was started again learns it here

        self.reports[ticket] = report
        self.has_reports.set()
        reply = self.calls[ticket] = asyncio.get_running_loop().create_future()
        try:
            return await reply
        except asyncio.CancelledError:  # by `enter`
            return None

    async def collect(self, timeout_s: float) -> list[bytes]:
        """Return the reports since the last call, after at most `timeout_s` seconds."""
        if not self.has_reports.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self.has_reports.wait(), timeout_s)

        reports, self.reports = list(self.reports.values()), {}
        self.has_reports.clear()
        return reports

    async def reply(self, replies: Mapping[Ticket, bytes]) -> None:
        """Send replies to the workers that wait for them."""
        for ticket, reply in replies.items():
            call = self.calls.pop(ticket, None)  # none if the worker is gone, or the desk was started again
            if call is not None and not call.done():
                call.set_result(reply)
