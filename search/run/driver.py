"""One run of one study: a loop over what becomes of its workers.

The driver keeps plan, ledger, mirrors and display in step. Where workers run is the executor's business
(search/run/executor.py).
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from search.run.executor import DIED, Event, Executor, Finished, Restarted
from search.run.messages import NewBank, Order, Reply, Report
from search.run.mirror import Shown, mirrors
from search.run.planner import Planner, plan
from search.run.progress import Display, Progress
from search.run.prometheus import Values
from search.run.study_run import PlannedPair
from search.run.terminal import ENDING
from search.run.verification import verify_best
from search.run.workers import COMPILING, TRAINING, WAITING, Workers, WorkerState
from search.stats.record import ENOUGH, UNMEASURED, SeedRecord
from search.store.ended_seed import TrainedBy
from search.store.progress_file import EVERY_S, write_progress
from search.store.study_records import StudyRecords
from search.study.schema import Study
from search.study.trial import Configuration
from trainer import Outcome

PATIENCE_S = 600.0
"""Seconds to wait for a database that is away."""
DRAIN_S, DRAIN_AWAY_S = 3_600.0, 60.0
"""Seconds that the end of a study waits for its mirrors: in all, and while they are away."""
STOPPING_S = 10.0
"""Seconds that the end of a run waits for them that was stopped: what is left, the next run or `sync` writes."""
POLL_S = 0.2
"""Seconds without events after which the driver looks at lease, deadline and display."""
INTERRUPTED = "interrupted"
CANNOT_BEGIN = "no worker can begin"

log = logging.getLogger(__name__)


@dataclass
class Ended:
    """The end of a run of a study."""

    interrupted: bool = False
    why: str = ""
    """The reason why it was stopped."""
    signalled: bool = False
    """True if a signal asked for the end, of a study that had ended by then too."""
    begun: int = 0
    """How often a pair was handed to a worker."""
    failed: dict[str, str] = field(default_factory=dict)
    """What failed for good, and the error with its file."""
    rows: list[SeedRecord] = field(default_factory=list)
    """The study's seeds as they are recorded at the end."""
    unwritten: int = 0
    """Writes that mirrors still have to do."""
    seed_steps_per_s: float = 0.0
    """Speed of the whole run, compilation left out."""
    compile_s: float = 0.0

    @property
    def was_stopped(self) -> bool:
        """True if somebody, or its time, ended it before the study's end, and not a failure."""
        return self.interrupted and self.why != CANNOT_BEGIN


class Driver:
    """One run of one study, whose lease must be held (search/store/lease.py). Made by `open`."""

    def __init__(
        self,
        study: Study,
        records: StudyRecords,
        display: Display,
        planner: Planner,
        shown: Sequence[Shown] = (),
        max_hours: float | None = None,
    ):
        self.study = study
        self.records = records
        self.display = display
        self.home = records.home
        self.lease = records.lease
        self.planner = planner
        self.shown = shown
        self.deadline = None if max_hours is None else time.monotonic() + 3_600 * max_hours
        self.ended = Ended()
        self.workers = Workers(study, planner)
        self.progress = Progress(planner, self.workers)
        self.progress_due = 0.0
        self.lost_starts = 0
        """Workers in a row that were given up before they had reported at all."""
        self.remarks: set[str] = set()
        """Workers' warnings that were printed."""
        self.has_grokked = any(state[Outcome.GROKKED] for state in planner.study_run.ended.values())
        self.tell: Callable[..., object] = lambda **event: None
        """Is told of the first seed that groks, as a notifier is (search/run/notify.py)."""
        self.announced: set[str] = set()
        """Keys of configurations that are shown as running."""

    @classmethod
    @contextmanager
    def open(
        cls,
        study: Study,
        records: StudyRecords,
        display: Display,
        max_hours: float | None = None,
    ) -> Iterator[Self]:
        """Plan what is not recorded yet and yield the run's driver. Raises UserError."""
        with ExitStack() as opened:
            records.censor_orphaned()
            records.forget_plan()
            shown = [opened.enter_context(mirror.show(study, records)) for mirror in mirrors()]
            planner = plan(study, records)
            records.database.patience_s = PATIENCE_S
            yield cls(study, records, display, planner, shown, max_hours)

    # ---- the loop

    def run(self, executor: Executor) -> Ended:
        """Train until nothing is left or the run is stopped, and write the end to ledger and mirrors."""
        with _signals(self.interrupt):
            if not self.is_done:
                with executor:
                    try:
                        self._loop(executor)
                    except KeyboardInterrupt:  # a second signal came before the loop had ended
                        self.interrupt()

            self.close()
        return self.ended

    def _loop(self, executor: Executor) -> None:
        while not (self.is_done or self.ended.why):
            for event in executor.poll(POLL_S):
                self._handle(event, executor)
            self._start_workers(executor)
            self._reply(executor)
            self._check_end()
            self._show(executor)

        if self.ended.why:
            self.display.say(f"stopping ({self.ended.why}): what was saved last goes on with the next run")

    @property
    def is_done(self) -> bool:
        """True if nothing is left to train."""
        return self.planner.is_done

    def _handle(self, event: Event, executor: Executor) -> None:
        match event:
            case Report():
                self._on_report(event, executor)
            case Restarted(name, reason, preempted):
                self._free_pairs(name, "" if preempted else reason)
                self.workers.close(name)
            case Finished(name, failure):
                self._on_finished(name, failure)

    def _start_workers(self, executor: Executor) -> None:
        """Start workers while the executor has room and there are pairs that nobody is there for."""
        capacity = executor.capacity()
        if capacity.concurrent:  # with no room at all, what is running is not planned anew
            self.planner.capacity = capacity

        # Idle workers take the pairs that wait before anybody new does.
        while len(self.workers) < capacity.concurrent and self.planner.lacks_workers(len(self.workers.idle)):
            executor.start(self.workers.add(), capacity.on_gpu)

    def _reply(self, executor: Executor) -> None:
        """Reply to the workers that wait, as far as there is a reply for them."""
        for worker in self.workers:
            if worker.waits and (reply := self._reply_to(worker)):
                assert worker.report
                worker.reply = reply  # kept, as the report may come again
                executor.reply(worker.report, reply)

    def _check_end(self) -> None:
        """Stop if somebody asked for it, or the time is over. Raises Superseded."""
        self.lease.verify()
        if self.lease.why:
            self.stop(self.lease.why)
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.stop("time limit")

    def _show(self, executor: Executor) -> None:
        """Show how far the run is: to Prometheus, on the screen, to `status`, in mirrors. Each has its own pace."""
        executor.export(self.measures)

        if self.display.due():
            self.display.show(self.progress.snapshot())

        if time.monotonic() > self.progress_due:
            self.progress_due = time.monotonic() + EVERY_S
            write_progress(self.records, self.progress.as_record(self.records.owner))

        for mirror in self.shown:
            mirror.note_curves(lambda: dict.fromkeys(pair.configuration for pair in self.planner.training))

    def stop(self, why: str) -> None:
        """End the loop after the event at hand. The first reason stays."""
        self.ended.why = self.ended.why or why

    def interrupt(self) -> None:
        """End the loop, or the wait for mirrors, as a signal asks."""
        self.ended.signalled = True
        self.stop(INTERRUPTED)

    # ---- reports and replies

    def _on_report(self, report: Report, executor: Executor) -> None:
        """Record a worker's report. The worker waits for its reply meanwhile."""
        if self.workers.is_late(report):
            executor.reply(report, Reply(is_end=True))
            return

        before = self.workers[report.worker]
        if self.workers.is_repeated(report):
            if before.reply:
                executor.reply(report, before.reply)
            return

        if report.attempt > before.attempt:  # its process was started again, and the executor has not said so yet
            self._free_pairs(report.worker, DIED)
        worker = self.workers.accept(report)
        self.lost_starts = 0
        self._say(report.remarks)
        self.progress.take(report)
        if report.failure:
            self._free_pairs(worker.name, report.failure, self._traceback(report))
            return

        # The ledger first: the plan counts what is recorded, and the worker has its reply only after that.
        self._record(worker, report)
        self._tell_first_grok(report)
        self.planner.update(worker.name, report.steps, report.perfect)
        if report.steps:
            worker.phase = TRAINING

        self.ended.seed_steps_per_s = self.progress.overall_rate
        self.ended.compile_s = max(self.ended.compile_s, report.speed.compile_s)

    def _reply_to(self, worker: WorkerState) -> Reply | None:
        """Return the reply to a worker; None if it is to wait."""
        assert worker.report
        if worker.report.failure:
            return Reply(is_end=True)

        pairs = self.planner.take(worker.name, self.workers.may_switch(worker))
        bank = self.planner.banks.get(worker.name)
        if bank is None or not bank.pairs:
            return self.workers.idle_reply(worker)

        new_bank = None
        worker.phase = TRAINING
        if bank is not worker.bank:
            new_bank = NewBank(bank.kind.program[0], bank.slots, self.study.resources)
            worker.bank = bank
            worker.phase = COMPILING

        report_after_s, save_after_s = self.workers.pace()
        enough = self.planner.needless(worker.name)
        return Reply(self._orders(pairs), new_bank, enough, report_after_s, save_after_s)

    def _orders(self, pairs: Mapping[int, PlannedPair]) -> list[Order]:
        """Claim pairs in the ledger, and return the orders to train them. pairs: by number."""
        if not pairs:
            return []

        work = [(pair.configuration, pair.seed, pair.confirmation) for pair in pairs.values()]
        states = self.records.claim(work)
        self.ended.begun += len(pairs)

        orders = []
        for number, pair in pairs.items():
            self._announce(pair.configuration)
            orders.append(Order(number, self.planner.pair_of(pair), states.get(pair.key)))
        return orders

    def _announce(self, configuration: Configuration) -> None:
        """Show a configuration as running, unless it is shown so."""
        if configuration.key not in self.announced:
            self.announced.add(configuration.key)
            for mirror in self.shown:
                mirror.note_training(configuration)

    def _record(self, worker: WorkerState, report: Report) -> None:
        """Record the ended pairs and saved states of a report, as far as its worker has those pairs."""
        bank = self.planner.banks.get(worker.name)
        held = bank.pairs if bank else {}
        ended = {number: seed for number, seed in report.ended.items() if number in held}
        states = {held[number].key: state for number, state in report.states.items() if number in held}
        if not (ended or states):
            return

        seeds = [(held[number], seed) for number, seed in ended.items()]
        results, cut_at = {}, {}
        for pair, seed in seeds:
            if seed.outcome == Outcome.CENSORED:
                cut_at[pair.key] = seed.measured["steps"]
            else:
                results[pair.key] = seed
        trained_by = TrainedBy(report.speed.seed_steps_per_s, report.environment)
        self.records.record(results, trained_by, cut_at, states)
        self.progress.ended.update(seed.outcome for _, seed in seeds)

        # Of a pair that was cut before its first step the ledger keeps no row, so the plan gets none.
        rows = [_row_of(pair, trained_by.columns(seed)) for pair, seed in seeds if cut_at.get(pair.key) != 0]
        pairs = self.planner.end(worker.name, ended)
        self._complete(pairs, rows, [pair for pair in pairs if pair.key in cut_at])

    def _tell_first_grok(self, report: Report) -> None:
        """Tell of the study's first seed that groks, if this report has it."""
        has_ended_grokked = any(seed.outcome == Outcome.GROKKED for seed in report.ended.values())
        if (report.perfect or has_ended_grokked) and not self.has_grokked:
            self.has_grokked = True
            self.tell(event="first seed grokked", study=self.study.name)

    def _complete(
        self, pairs: Sequence[PlannedPair], rows: Sequence[SeedRecord], cut: Sequence[PlannedPair] = ()
    ) -> None:
        """Take ended pairs into the plan, and show their configurations. Arguments: as of `Planner.complete`."""
        complete = self.planner.complete(pairs, rows, cut)

        for configuration in dict.fromkeys(pair.configuration for pair in pairs):  # in the order of the report
            rows_so_far = self.planner.study_run.states[configuration.key].rows.values()
            for mirror in self.shown:
                mirror.note_counts(configuration, rows_so_far)

        for configuration in complete:
            self.announced.discard(configuration.key)
            self._note(configuration, is_done=True)

    def _note(self, configuration: Configuration, is_done: bool) -> None:
        for mirror in self.shown:
            mirror.note_configuration(configuration, is_done)

    def _free_pairs(self, worker: str, failure: str, traceback: Path | None = None) -> None:
        """Take a worker's pairs back, and abandon those that failed too often.

        failure: empty if it did not fail. traceback: the file that has it, which is named where the run ends.
        """
        abandoned = self.planner.give_back(worker, bool(failure))
        if abandoned:
            seeds = f"seed {abandoned[0].seed}" if len(abandoned) == 1 else f"{len(abandoned):,} seeds"
            self.ended.failed[f"{worker} ({seeds})"] = f"{failure} ({traceback})" if traceback else failure
            self.records.censor({pair.key: pair.step for pair in abandoned}, failure)

        # Without any too: its pairs may have been needless, and the last that their configurations waited for.
        ended = {"outcome": Outcome.CENSORED.value, "reason": failure}
        rows = [_row_of(pair, UNMEASURED | ended | {"steps": pair.step}) for pair in abandoned]
        self._complete(abandoned, rows)

    def _on_finished(self, name: str, failure: str | None) -> None:
        """Take back the pairs of an ended worker. Stop the run after several workers in a row that never began."""
        worker = self.workers.states.pop(name)
        self._free_pairs(name, failure or "")
        if failure and worker.report is None and worker.attempt == 0:
            self.lost_starts += 1
            if self.lost_starts > self.study.faults.max_failures:
                self.ended.failed[name] = f"it could not begin: {failure}"
                self.stop(CANNOT_BEGIN)

    def _traceback(self, report: Report) -> Path:
        """Return the file that the traceback of a worker's error is written to."""
        file = self.home.logs / f"{self.study.name}-{report.worker}-{report.attempt}.txt"
        with suppress(OSError):  # of a full disk, say: the line on the error is shown all the same
            self.home.logs.mkdir(exist_ok=True)
            file.write_text(report.traceback, encoding="utf-8")
        return file

    def _say(self, remarks: Iterable[str]) -> None:
        """Print the warnings of workers that were not printed yet: most workers have the same."""
        for line in remarks:
            if line not in self.remarks:
                self.remarks.add(line)
                log.warning("%s", line)

    # ---- the end

    def close(self) -> None:
        """Write the run's end: seeds that still count as running were interrupted, or there was enough."""
        is_done = self.is_done
        self.ended.interrupted = not is_done
        # A stop that came with the last report stopped nothing.
        self.ended.why = "" if is_done else self.ended.why or INTERRUPTED

        # The ledger first: mirrors are written from it.
        self.records.censor_running(self.ended.why or ENOUGH, self.progress.steps())
        if is_done and self.study.until.grokked:
            self._cut_off()
        if not is_done:
            for configuration in self.planner.in_flight:
                self._note(configuration, is_done=False)
        for mirror in self.shown:
            self._drain(mirror)
        if is_done:  # a stop that came since then ended the wait alone
            self.ended.why = ""

        # Last of all, as nothing is chosen by the problems that verify (docs/statistics.md).
        if is_done and self.study.kind.is_compared:
            verify_best(self.records)
        self.ended.rows = self.records.list_seeds()

    def _cut_off(self) -> None:
        """Write that seeds which earlier runs left do not go on, where there is enough."""
        steps = self.planner.needless_rows(self.records.list_seeds())
        if steps:
            self.records.censor(steps, ENOUGH)
        for key in {configuration for configuration, _, _ in steps}:
            self._note(self.planner.study_run.states[key].configuration, is_done=True)

    def _drain(self, mirror: Shown) -> None:
        """Wait for what a mirror has still to write, as long as is worth it."""
        if self.is_done:
            mirror.note_study()
        longest_s, away_s = (DRAIN_S, DRAIN_AWAY_S) if self.is_done else (STOPPING_S, STOPPING_S)
        self.ended.unwritten += mirror.drain(longest_s, away_s, partial(self._show_drain, mirror))
        mirror.close()

    def _show_drain(self, mirror: Shown, remaining: int) -> bool:
        """Show that a mirror is being written. Returns True if somebody asked to end now."""
        if self.display.due():
            is_evidence = self.is_done and remaining == 1
            text = "the study's table and pictures" if is_evidence else f"{remaining} left"
            self.display.say(f"writing to {mirror.name}: {text}")
        return self.is_done and bool(self.lease.why or self.ended.why)

    def measures(self) -> Values:
        """Return what Prometheus is shown, by the names in search/run/prometheus.py."""
        states = self.progress.states()
        waiting = sum(worker.phase == WAITING for worker in self.workers)

        return {
            "seeds_ended": dict(self.progress.ended),
            "seeds_open": {
                "running": states[Outcome.RUNNING],
                "waiting": states[Outcome.QUEUED],
                "planned": self.planner.queued_seeds,
            },
            "seed_steps_per_s": self.progress.rate,
            "workers": {"training": len(self.workers) - waiting, "waiting": waiting},
            "workers_failed": len(self.ended.failed),
            "outbox_jobs": sum(mirror.pending for mirror in self.shown),
            "mlflow_away": any(mirror.away for mirror in self.shown),
            "reports": self.progress.reports,
            "driver_cpu_s": time.process_time(),
        }


def _row_of(pair: PlannedPair, columns: Mapping[str, Any]) -> SeedRecord:
    """Return the record of an ended pair as a plan keeps it, without what it was trained in. columns: the ledger's."""
    key, init_seed, data_seed = pair.key
    return SeedRecord(
        configuration=key,
        init_seed=init_seed,
        data_seed=data_seed,
        confirmation=pair.confirmation,
        **{**columns, "environment": None},
    )


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Let signals that end a run call `stop`, the second time raise KeyboardInterrupt; more change nothing.

    In the main thread alone. A SIGHUP that is ignored (nohup) stays so.
    """
    if threading.current_thread() is not threading.main_thread():  # Python sets handlers in that one alone
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
                raise KeyboardInterrupt  # the loop may wait for a database or a mirror

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
