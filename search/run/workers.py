"""The running workers as their driver knows them: which of their reports count, and when they report next.

Only the newest start of a worker's process counts. The sender of a late report, from an earlier start, is told to end.
A report that comes twice changes nothing and has the same reply again.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from search.run.messages import Reply, Report, Speed
from search.run.planner import Planner, WorkerBank
from search.study.schema import Study

WAIT_S = 20.0
"""Seconds after which a worker that waits for pairs is asked to say that it is still there."""
FEW, REPORTS_PER_S = 8, 20.0
"""Number of workers that may report each evaluation; more share this many reports per second."""
STATES_PER_S = 500.0
"""Saved states per second of all workers together, at most."""
SPARED_S = 5.0
"""Seconds that a worker waits for pairs where others may want its room: about as long as another takes to start."""
BEGIN_S = 60.0
"""Seconds after which a worker that has not begun lacks room that others have."""
STARTING, COMPILING, TRAINING, WAITING = "starting", "compiling", "training", "waiting"


@dataclass
class WorkerState:
    """One running worker."""

    name: str
    attempt: int = 0
    """The start of its process that counts."""
    closed: int = -1
    """Starts up to this one are known to be over."""
    report: Report | None = None
    """The newest report; it waits for a reply while `reply` is None."""
    asked: float = 0.0
    """Time when the report came."""
    reply: Reply | None = None
    bank: WorkerBank | None = None
    """The bank that its process has."""
    due: float = float("inf")
    """Time when a worker that was started, or started again, should have begun."""
    phase: str = STARTING
    speed: Speed = field(default_factory=Speed)

    @property
    def waits(self) -> bool:
        """True if its report has no reply yet."""
        return self.report is not None and self.reply is None


class Workers:
    """The workers of a run, by name."""

    def __init__(self, study: Study, planner: Planner):
        self.planner = planner
        self.started = 0
        self.wait_s = min(WAIT_S, study.faults.stall_s / 3)
        self.states: dict[str, WorkerState] = {}

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[WorkerState]:
        return iter(list(self.states.values()))

    def __getitem__(self, name: str) -> WorkerState:
        return self.states[name]

    def add(self) -> str:
        """Note that a worker is started. Returns its name."""
        self.started += 1
        name = f"worker-{self.started}"
        self.states[name] = WorkerState(name, due=time.monotonic() + BEGIN_S)
        return name

    @property
    def idle(self) -> list[WorkerState]:
        """Workers that have no pairs."""
        busy = {name for name, bank in self.planner.banks.items() if bank.pairs}
        return [worker for worker in self if worker.name not in busy]

    # ---- reports

    def is_late(self, report: Report) -> bool:
        """True for a report that does not count: of an ended worker, or of an earlier start of its process."""
        worker = self.states.get(report.worker)
        return worker is None or report.attempt < worker.attempt or report.attempt <= worker.closed

    def is_repeated(self, report: Report) -> bool:
        before = self.states[report.worker].report
        return before is not None and (report.attempt, report.number) <= (before.attempt, before.number)

    def accept(self, report: Report) -> WorkerState:
        """Note a report, which waits for a reply from now on."""
        worker = self.states[report.worker]
        if report.attempt > worker.attempt:
            worker.bank = None  # a new process has none

        worker.attempt = report.attempt
        worker.speed = report.speed
        worker.report = report
        worker.reply = None
        worker.asked = time.monotonic()
        worker.due = float("inf")
        return worker

    def close(self, name: str) -> None:
        """Note that a worker's process is gone, and is started again."""
        worker = self.states[name]
        worker.closed = worker.attempt
        worker.bank = None
        worker.due = 0.0  # late at once: others leave it room
        worker.report = None
        worker.phase = STARTING

    # ---- replies

    def may_switch(self, worker: WorkerState) -> bool:
        """True if a worker may have a bank of another kind.

        On a GPU its process keeps what the one before took. It may not either while another worker lacks room.
        """
        return worker.bank is None or not (self.planner.capacity.on_gpu or self._lacks_room(worker))

    def _lacks_room(self, worker: WorkerState) -> bool:
        return any(time.monotonic() > other.due for other in self if other is not worker)

    def idle_reply(self, worker: WorkerState) -> Reply | None:
        """Return the reply to a worker for which there are no pairs: to end, or to report again; None: not yet."""
        if self.planner.is_done or self.planner.waiting or self._lacks_room(worker):
            return Reply(is_end=True)

        # It may get pairs yet: a worker that fails gives its own back, and results may ask for more.
        waited_s = time.monotonic() - worker.asked
        if self.planner.capacity.is_shared and waited_s > SPARED_S:
            return Reply(is_end=True)  # another driver of the cluster would wait for the end of this study
        worker.phase = WAITING
        return Reply() if waited_s > self.wait_s else None

    def pace(self) -> tuple[float, float]:
        """Return the seconds after which a worker reports without news, and between its saved states."""
        apart_s = len(self) / REPORTS_PER_S if len(self) > FEW else 0.0
        states = sum(len(bank.pairs) for bank in self.planner.banks.values())
        return min(apart_s, self.wait_s), states / STATES_PER_S
