"""The running workers as their driver knows them, and which trials are assigned to them.

A worker is started with one trial. Others follow in its bank while it trains: the driver rewrites the file of
its assignment, which the worker reads between evaluations.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from search.run.planner import Planner
from search.store.home import Home
from search.store.results import WorkerAssignment, assignment_path
from search.study.schema import Study
from search.study.trial import Trial

WAIT_S = 20.0
"""Seconds after which a worker that waits for work says so again."""
FEW, REPORTS_PER_S = 8, 20.0
"""Number of workers that report each evaluation; of more, reports a second of all together."""
BEGIN_S = 60.0
"""Seconds after which a worker that has not begun lacks room that others have."""


@dataclass
class WorkerState:
    """One running worker."""

    first: Trial
    last: Trial
    """The trial whose program its bank has, or will have next."""
    open: dict[str, Trial] = field(default_factory=dict)
    """Trials that have not ended, by key."""
    unseen: set[str] = field(default_factory=set)
    """Keys of trials that no report has named yet."""
    starts: int = 0
    is_waiting: bool = False
    """True if it has no work and is to wait for some."""
    due: float = float("inf")
    """When a worker that was started, or started again, should have begun."""
    assignment: WorkerAssignment | None = None
    phase: str = "starting"
    seed_steps_per_s: float = 0.0


class Workers:
    """The workers of a run. begin: claims a trial and writes it for the worker that gets it.

    wait_s: how long a worker without work waits until it says so; 0: it ends.
    """

    def __init__(self, study: Study, home: Home, planner: Planner, begin: Callable[[Trial, WorkerState], None]):
        self.study, self.home, self.planner, self._begin = study, home, planner, begin
        self.wait_s = min(WAIT_S, study.faults.stall_s / 3)
        self.states: dict[str, WorkerState] = {}
        """By the keys of their first trials."""

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[WorkerState]:
        return iter(list(self.states.values()))

    def __getitem__(self, key: str) -> WorkerState:
        return self.states[key]

    @property
    def waiting(self) -> list[WorkerState]:
        return [worker for worker in self if worker.is_waiting]

    def add(self, trial: Trial) -> None:
        worker = self.states[trial.key] = WorkerState(trial, trial, due=time.monotonic() + BEGIN_S)
        self.begin(trial, worker)
        self._send_assignment(worker)

    def begin(self, trial: Trial, worker: WorkerState) -> None:
        self._begin(trial, worker)
        worker.open[trial.key] = worker.last = trial
        worker.unseen.add(trial.key)

    def remove(self, key: str) -> WorkerState:
        worker = self.states.pop(key)
        assignment = assignment_path(self.home.trial(self.study.name, key))
        assignment.unlink(missing_ok=True)
        self.home.depot.remove(assignment)
        return worker

    def assign_more(self, worker: WorkerState) -> None:
        """Assign further trials to a worker, or have it wait for some.

        Trials of its program go into its free slots. A trial of another program goes to an idle worker, where a
        bank costs no compilation. A worker whose process has died before gets none: the number of its failures
        is limited for all of its trials together.
        """
        worker.is_waiting = False
        run = self.planner.study_run
        while worker.starts < 2 and run.open_seeds(worker.open.values()) < worker.last.slots:
            trial = self.planner.next(worker.last)
            is_room_wanted = any(time.monotonic() > other.due for other in self)  # by one that was started
            may_switch = not (worker.open or self.planner.capacity.on_gpu or is_room_wanted)
            if trial is None and may_switch:
                trial = self.planner.next()
                worker.is_waiting = trial is None and not self.planner.is_done
            if trial is None:
                return
            self.begin(trial, worker)

    def refresh(self, *changed: WorkerState) -> None:
        """Give waiting workers what work there is, then rewrite the assignments that may have changed."""
        waiting = self.waiting
        for worker in waiting:
            self.assign_more(worker)
            if worker.is_waiting:
                break
        shares_enough = self.study.until.grokked is not None
        for worker in self if shares_enough else (*changed, *waiting):
            self._send_assignment(worker)

    def note_restart(self, key: str, preempted: bool) -> None:
        """Note that a worker's process has died and is started again. preempted: it was not its own failure."""
        self[key].due = 0.0  # late at once, so that the others leave it room
        self[key].starts -= preempted
        for worker in self.waiting:
            self.assign_more(worker)
            self._send_assignment(worker)

    def _send_assignment(self, worker: WorkerState) -> None:
        """Write a worker's assignment if it has changed."""
        searching = (t for t in worker.open.values() if self.study.until.grokked and not t.confirmation)
        enough = {c.key for t in searching for c in t.configurations if self.planner.study_run.has_enough(c)}
        rounded = 1 << len(self).bit_length()  # else each worker more would change the assignments of all
        apart_s = rounded / REPORTS_PER_S if len(self) > FEW else 0.0
        times = (self.wait_s if worker.is_waiting else 0.0, min(apart_s, self.wait_s))
        assignment = WorkerAssignment(tuple(worker.open), tuple(sorted(enough)), *times)
        if assignment != worker.assignment:
            folder = self.home.trial(self.study.name, worker.first.key)
            assignment.write(folder)
            self.home.depot.put(assignment_path(folder))
            worker.assignment = assignment
