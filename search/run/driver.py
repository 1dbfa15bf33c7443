"""One run of one study: a loop over what becomes of its workers.

The driver keeps plan, ledger, MLflow and display in step. Where workers run is the executor's business
(search/run/executor.py).
"""

import logging
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from mlflow import MlflowClient

from search.analysis.projection import Projection
from search.run.executor import Event, Executor, Finished, Reported, Restarted
from search.run.late import LOST, LateResults
from search.run.metrics import Values
from search.run.planner import Planner, plan
from search.run.progress import Display, Progress
from search.run.recorder import Recorder
from search.run.sync import projection_of
from search.run.tally import OPEN, TrialReport
from search.run.workers import Workers, WorkerState
from search.store.depot import Depot
from search.store.record import SeedRecord
from search.store.results import ERROR, Damaged
from search.store.running import EVERY_S, write_progress
from search.store.study_records import StudyRecords
from search.study.schema import Study
from search.study.trial import TRIAL_FILE, Trial
from search.tracking.outbox import Outbox
from search.tracking.tracker import Tracker
from search.tracking.tracking import FINISHED, KILLED, file_of
from trainer import Outcome

PATIENCE_S = 600.0
"""Seconds to wait for a database that is away."""
DRAIN_S, DRAIN_AWAY_S = 3_600.0, 60.0
"""Seconds that the end of a study waits for MLflow: in all, and while it is away."""
STOPPING_S = 10.0
"""The same at the end of a run that was stopped."""
POLL_S = 0.2
"""Seconds without events after which the driver looks at lease, deadline and display."""
LATE = "its worker ended before it began"
INTERRUPTED = "interrupted"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a run: Ctrl-C, a service's or a machine's end, a closed terminal."""

log = logging.getLogger(__name__)


@dataclass
class Ended:
    """The end of a run of a study."""

    interrupted: bool = False
    why: str = ""
    """The reason why it was stopped."""
    trials: int = 0
    """Number of trials that were started."""
    failed_trials: dict[str, str] = field(default_factory=dict)
    """Error of each failed trial and its file, by trial key."""
    rows: list[SeedRecord] = field(default_factory=list)
    """The study's seeds as they are recorded at the end."""
    unwritten: int = 0
    """Pending MLflow writes."""
    seed_steps_per_s: float = 0.0
    """Of the whole run, compilation left out."""
    compile_s: float = 0.0


class Driver:
    """One run of one study, whose lease must be held (search/store/lease.py). Made by `open`."""

    def __init__(
        self,
        study: Study,
        records: StudyRecords,
        display: Display,
        planner: Planner,
        projection: Projection,
        outbox: Outbox,
        max_hours: float | None = None,
    ):
        self.study, self.records, self.display = study, records, display
        self.home, self.lease = records.home, records.lease
        self.planner, self.recorder = planner, Recorder(records)
        self.projection, self.outbox = projection, outbox
        self.deadline = None if max_hours is None else time.monotonic() + 3_600 * max_hours
        self.ended = Ended()
        self.workers = Workers(study, self.home, planner, self._begin)
        self.progress = Progress(planner, self.workers)
        self.progress_due = 0.0
        self.late = LateResults(self.recorder.has_results)
        self.remarks: set[str] = set()
        """Lines that workers had to say."""

    @classmethod
    @contextmanager
    def open(
        cls,
        study: Study,
        records: StudyRecords,
        client: MlflowClient,
        display: Display,
        max_hours: float | None = None,
    ) -> Iterator[Self]:
        """Recover what an earlier run left, plan the rest and yield the run's driver. Raises UserError."""
        # MLflow's own retries would create a run twice whose answer came late; the outbox looks first
        os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
        with ExitStack() as undo:
            verify = records.lease.verify
            tracker = Tracker(client, records.home, study, verify)
            undo.enter_context(tracker.watching())  # before the outbox: one thread at a time uses the tracker
            file = file_of(client.tracking_uri)
            name = f"MLflow ({file})" if file else "MLflow"
            outbox = Outbox(lambda: client.search_experiments(max_results=1), verify, name=name)
            undo.callback(outbox.close)
            records.censor_orphaned()
            Recorder(records).recover(records.list_seeds())
            projection = projection_of(records, tracker, outbox)
            projection.note_stale(records.list_seeds())
            planner = plan(study, records)
            records.database.patience_s = PATIENCE_S
            yield cls(study, records, display, planner, projection, outbox, max_hours)

    # ---- the loop

    def run(self, executor: Executor) -> Ended:
        """Train until nothing is left or the run is stopped, and write the end to ledger and MLflow."""
        with _signals(self.stop):
            if not self.planner.is_done:
                with executor:
                    if not executor.is_parallel:
                        self.workers.wait_s = 0.0  # no other worker trains while one waits
                    try:
                        self._loop(executor)
                    except KeyboardInterrupt:
                        self.stop(INTERRUPTED)
            self.close()
        return self.ended

    def _loop(self, executor: Executor) -> None:
        while not (self.is_done or self.ended.why):
            for event in executor.poll(POLL_S):
                self._handle(event)
            self._record_late()
            self._start_what_fits(executor)
            self._check_end()
            self._show(executor)
        if self.ended.why:
            self.display.say(f"stopping ({self.ended.why}): what trains is being saved")

    @property
    def is_done(self) -> bool:
        """True if nothing is left to train and no worker runs."""
        return self.planner.is_done and not self.workers

    def _handle(self, event: Event) -> None:
        match event:
            case Reported(worker, report):
                self.on_report(self.workers[worker], report)
            case Restarted(worker, preempted):
                self.workers.note_restart(worker, preempted)
            case Finished(worker, failure):
                self._on_worker_finished(worker, failure)

    def _start_what_fits(self, executor: Executor) -> None:
        """Start workers while the executor has room and there is something for them to train."""
        capacity = executor.capacity()
        if capacity.concurrent:  # with no room at all, what is running is not planned anew
            self.planner.capacity = capacity
        while len(self.workers) < capacity.concurrent and (trial := self.planner.next()):
            self.workers.add(trial)
            executor.start(trial.key, self._config(trial, capacity.on_gpu))

    def _check_end(self) -> None:
        """Stop if somebody asked for it, or the time is over. Raises Superseded."""
        self.lease.verify()
        if self.lease.why:
            self.stop(self.lease.why)
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.stop("time limit")

    def _show(self, executor: Executor) -> None:
        executor.export(self.measures)
        if self.display.due():
            self.display.show(self.progress.snapshot())
        if time.monotonic() > self.progress_due:
            self.progress_due = time.monotonic() + EVERY_S
            write_progress(self.records, self.progress.as_record(self.records.owner))

    def stop(self, why: str = INTERRUPTED) -> None:
        """End the loop after the event at hand."""
        self.ended.why = self.ended.why or why

    # ---- trials and events

    def _config(self, trial: Trial, on_gpu: bool) -> dict[str, Any]:
        """Return the arguments of a worker that begins with a trial, in a place on a GPU or not."""
        depot = {"depot": self.home.depot.uri} if isinstance(self.home.depot, Depot) else {}
        folder = str(self.records.trial_folder(trial.key))
        return {"folder": folder, "driver": self.records.owner, "on_gpu": on_gpu, **depot}

    def _begin(self, trial: Trial, worker: WorkerState) -> None:
        self.records.claim(trial)
        self.ended.trials += 1
        folder = self.records.trial_folder(trial.key)
        trial.write(folder, self.records.owner)
        self.home.depot.put(folder / TRIAL_FILE)
        for configuration in trial.configurations:
            self.projection.note_training(configuration)

    def on_report(self, worker: WorkerState, report: dict[str, Any]) -> None:
        """Take a worker's progress report, record the trials that have ended, and assign more."""
        is_compiling = report["phase"] == "compiling"
        worker.starts, worker.due = worker.starts + is_compiling, float("inf")
        reports = {key: TrialReport(**facts) for key, facts in report.pop("tallies", {}).items()}
        for line in set(report.pop("remarks", ())) - self.remarks:
            self.remarks.add(line)
            log.warning("%s", line)
        self.progress.take(worker, report, reports.values())
        for key in [key for key in worker.open if key in reports]:
            worker.unseen.discard(key)
            self.planner.update_progress(worker.open[key], reports[key])
        self.ended.seed_steps_per_s = self.progress.overall_rate
        self.ended.compile_s = max(self.ended.compile_s, report.get("compile_s", 0.0))
        for key in report.get("ended", []):
            trial = worker.open.pop(key)
            self._record(trial, self.recorder.has_results(trial))
        if not is_compiling:
            self.workers.assign_more(worker)
        self.workers.refresh(worker)

    def _on_worker_finished(self, key: str, failure: str | None) -> None:
        """Record what a worker left. Trials that it has not seen go back to the plan."""
        worker = self.workers.remove(key)
        for trial in worker.open.values():
            has_results = self.recorder.has_results(trial)
            if trial.key in worker.unseen and trial is not worker.first and not has_results:
                self.records.censor([trial], LATE)
                self.records.delete_unstarted(trial)
                self.planner.requeue(trial)
            elif failure is None or has_results:
                self._record(trial, has_results)
            else:
                self._fail(trial, failure)
        self.workers.refresh()

    def _record(self, trial: Trial, has_results: bool) -> None:
        """Record a trial that has ended, or wait for its results."""
        if not has_results:
            self.late.add(trial)
            return
        try:
            self.recorder.record(trial, self.recorder.parts(trial))
        except Damaged as damaged:
            self.ended.failed_trials[trial.key] = str(damaged)
            self.recorder.set_aside(trial.key, str(damaged))
            self.records.censor([trial], str(damaged))
        self._finish_trial(trial)

    def _record_late(self) -> None:
        """Record the trials whose results can be seen by now, and fail those whose results are lost."""
        for trial, has_results in self.late.look():
            if has_results:
                self._record(trial, has_results)
            else:
                self._fail(trial, LOST)
            self.workers.refresh()

    def _fail(self, trial: Trial, failure: str) -> None:
        """Record a trial as failed, with the error that its worker left or the reason given."""
        error = self.records.trial_folder(trial.key) / ERROR
        self.home.depot.get(error)
        reason = error.read_text(encoding="utf-8").partition("\n")[0] if error.exists() else failure
        self.ended.failed_trials[trial.key] = f"{reason} ({error})" if error.exists() else reason
        self.records.censor([trial], reason, self.progress.steps())
        self._finish_trial(trial)

    def _finish_trial(self, trial: Trial) -> None:
        rows = self.records.list_seeds(trial=trial.key)
        self.progress.ended.update(r["outcome"] for r in rows)
        counts = Counter(r["configuration"] for r in rows)
        for configuration in trial.configurations:
            self.projection.note_ended(configuration, counts[configuration.key])
        for configuration in self.planner.complete_trial(trial, rows):
            self.projection.note(configuration, FINISHED)

    # ---- the end

    def close(self) -> None:
        """Write the run's end: whatever still counts as running was interrupted."""
        is_done = self.is_done
        self.ended.interrupted = not is_done
        why = self.ended.why = "" if is_done else self.ended.why or INTERRUPTED
        in_flight = [] if is_done else self.planner.in_flight
        self.records.censor(list(self.planner.running.values()), why, self.progress.steps())
        for configuration in in_flight:
            self.projection.note(configuration, KILLED)
        if is_done:
            self.projection.note_study()
        longest = (DRAIN_S, DRAIN_AWAY_S) if is_done else (STOPPING_S, STOPPING_S)
        self.ended.unwritten = self.outbox.drain(*longest, self._show_drain)
        self.outbox.close()
        self.ended.rows = self.records.list_seeds()
        if not (self.ended.interrupted or self.ended.failed_trials):
            shutil.rmtree(self.records.trial_folder(""), ignore_errors=True)

    def _show_drain(self, remaining: int) -> bool:
        """Show that MLflow is being written. Returns True if somebody asked to end now."""
        if self.display.due():
            is_evidence = self.is_done and remaining == 1
            text = "the study's table and pictures" if is_evidence else f"{remaining} left"
            self.display.say(f"writing to MLflow: {text}")
        return self.is_done and self.lease.why is not None

    def measures(self) -> Values:
        """Return what Prometheus is shown, by the names in search/run/metrics.py."""
        states = self.progress.states()
        waiting = len(self.workers.waiting)
        return {
            "seeds_ended": {o: n for o, n in self.progress.ended.items() if o not in OPEN},
            "seeds_open": {
                "running": states[Outcome.RUNNING],
                "waiting": states[Outcome.QUEUED],
                "planned": self.planner.queued_seeds,
            },
            "seed_steps_per_s": self.progress.rate,
            "workers": {"training": len(self.workers) - waiting, "waiting": waiting},
            "trials_failed": len(self.ended.failed_trials),
            "outbox_jobs": len(self.outbox.jobs),
            "mlflow_away": self.outbox.away,
            "reports": self.progress.reports,
            "driver_cpu_s": time.process_time(),
        }


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let signals that end a run call `stop`, the second time raise KeyboardInterrupt; more change nothing.

    In the main thread alone. A SIGHUP that is ignored (nohup) stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    if before[signal.SIGHUP] == signal.SIG_IGN:
        del before[signal.SIGHUP]
    arrived = count(1)

    def on_signal(number: int, frame: Any) -> None:
        match next(arrived):
            case 1:
                stop()
            case 2:
                raise KeyboardInterrupt

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
