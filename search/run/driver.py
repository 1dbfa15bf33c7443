"""One run of one study: keeps the planner, the ledger, MLflow's outbox and the display in step.

It knows nothing of Ray: search/run/engine.py has Tune ask it for trials and tell it of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from mlflow import MlflowClient

from search.analysis.publish import log_evidence
from search.compress.pictures import log_descents
from search.compress.study import StudyDescent
from search.errors import UserError
from search.run.metrics import Values
from search.run.packing import interrupted
from search.run.planner import Planner
from search.run.progress import Display, Progress
from search.run.proposals import Proposals
from search.run.recorder import Recorder
from search.run.tally import OPEN, TrialReport
from search.store.depot import Depot
from search.store.home import Home
from search.store.lease import StudyLease
from search.store.ledger import is_final
from search.store.results import ERROR, PARTS, Damaged, WorkerAssignment, assignment_path
from search.study.schema import Study
from search.study.trial import TRIAL_FILE, Trial
from search.tracking.artifacts import KEPT, ArtifactCache
from search.tracking.optuna_mirror import Mirror
from search.tracking.outbox import Outbox
from search.tracking.starts import configurations, maker
from search.tracking.tracker import Tracker
from search.tracking.tracking import answered
from search.tracking.views import write_views
from trainer import Outcome

PATIENCE_S = 600.0
"""How long a database that is away is waited for."""
DRAIN_S, DRAIN_AWAY_S = 3_600.0, 60.0
"""How long the end of a study waits for MLflow: in all, and while it is away."""
STOPPING_S = 10.0
"""The same for the end of a run that was stopped."""
LATE = "its worker ended before it began"
WAIT_S = 20.0
"""How often a worker that waits for work says so."""
FEW, REPORTS_PER_S = 8, 20.0
"""Workers that report each evaluation; of more, reports that are wanted in a second of all together."""
BEGIN_S = 60.0
"""A worker that has not begun after so long waits for room that others have."""


@dataclass
class Ended:
    """How a run of a study ended."""

    interrupted: bool = False
    why: str = ""
    """What stopped it."""
    trials: int = 0
    """Trials that were started."""
    failed_trials: dict[str, str] = field(default_factory=dict)
    """What each failed trial's error says and where it is, by trial key."""
    unpublished: int = 0
    seed_steps_per_s: float = 0.0
    """Of the whole run, compilation left out."""
    compile_s: float = 0.0


@dataclass
class Chain:
    """Trials of one worker: the one that it was started with, and those that followed."""

    first: Trial
    last: Trial
    """Whose program its bank has, or will have next."""
    open: dict[str, Trial]
    """Those that have not ended, by their keys."""
    unseen: set[str] = field(default_factory=set)
    """Those that were ordered and of which no report has spoken yet."""
    starts: int = 0
    waits: bool = False
    """Whether it is to wait for work, having none."""
    due: float = float("inf")
    """By when a worker is to have begun that was started, or started again."""
    orders: WorkerAssignment | None = None


class Driver:
    """One run of one study, which must be held (search/store/lease.py)."""

    def __init__(
        self,
        study: Study,
        home: Home,
        hold: StudyLease,
        client: MlflowClient,
        display: Display,
        max_hours: float | None = None,
    ):
        ledger = hold.ledger
        self.study, self.home, self.hold, self.ledger, self.display = study, home, hold, ledger, display
        self.deadline = None if max_hours is None else time.monotonic() + 3_600 * max_hours
        # MLflow's own retries would create a run twice whose answer came late; the outbox looks first
        os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
        self._check_store(client)
        self.tracker = Tracker(client, home, study)
        self.outbox = Outbox(lambda: client.search_experiments(max_results=1))
        round_ = study.compress.proposals * len(study.first_seeds()) if study.compress else 0
        self.shelf = ArtifactCache(client, ledger, study.name, max(KEPT, 2 * round_))
        share = study.sampler.share if study.space else None
        self.recorder = Recorder(study.name, home, ledger, self.tracker, self.outbox, self.shelf, share)
        self.ended = Ended()
        self.progress = Progress()
        self.is_done = False
        self.chains: dict[str, Chain] = {}
        """By the keys of their first trials."""
        self.wait_s = min(WAIT_S, study.faults.stall_s / 3)
        ledger.censor_orphaned(study.name)
        recovered = self.recorder.recover()
        rows = ledger.list_seeds(study.name)
        listed = [] if study.proposes else configurations(study, ledger)
        self.proposals = Proposals(study, ledger, maker(study, ledger)) if study.space else None
        self.mirror = Mirror(home, study.name, self.proposals.objectives) if self.proposals else None
        source = self.proposals or (StudyDescent(study, ledger, self.shelf) if study.compress else None)
        unfinished = interrupted(study, rows, home, listed)
        self.planner = Planner(study, rows, source, unfinished, listed)
        with answered(study.name):
            open_runs = self.tracker.unconcluded()
        self.unconcluded = open_runs.keys() | recovered
        for key in open_runs.keys() - self.planner.run.states.keys():  # the file asks for it no more
            self.outbox.put(client.set_terminated, open_runs[key], "KILLED")
        self.outbox.put(self.tracker.asked)
        self.outbox.put(write_views, client, study, self.tracker.experiment)
        self.conclude_earlier()
        ledger.database.patience_s = PATIENCE_S

    def _check_store(self, client: MlflowClient) -> None:
        """Raise UserError where MLflow knows nothing of a study that it is to have records of."""
        published = any(r["published"] for r in self.ledger.list_seeds(self.study.name))
        with answered(self.study.name):
            if published and client.get_experiment_by_name(self.study.name) is None:
                raise UserError(
                    f"study {self.study.name}: this MLflow store has none of its records; name the store "
                    "that has them (MLFLOW_TRACKING_URI, tracking_uri), or run it with --fresh"
                )

    def start_next(self) -> Trial | None:
        """Claim and write the next trial for a worker of its own, if there is one."""
        trial = self.planner.next()
        self.conclude_earlier()
        if trial is not None:
            chain = self.chains[trial.key] = Chain(trial, trial, {}, due=time.monotonic() + BEGIN_S)
            self._start(trial, chain)
            self._order(self.chains[trial.key])
        self.is_done = trial is None and self.planner.is_done
        self.tick()
        return trial

    def config(self, trial: Trial) -> dict[str, Any]:
        """What a worker of its own is told of a trial."""
        found = {"folder": str(self.home.trial(self.study.name, trial.key))}
        return found | ({"depot": self.home.depot.uri} if isinstance(self.home.depot, Depot) else {})

    def _start(self, trial: Trial, chain: Chain) -> None:
        self.ledger.claim(trial)
        self.ended.trials += 1
        folder = self.home.trial(self.study.name, trial.key)
        trial.write(folder)
        self.home.depot.put(folder / TRIAL_FILE)
        chain.open[trial.key] = chain.last = trial
        chain.unseen.add(trial.key)
        self.progress.started(trial, chain.first.key)
        for configuration in trial.configurations:
            self.outbox.put(self.tracker.reopen, configuration)
        self._show_proposals()

    def reported(self, first: Trial, report: dict[str, Any]) -> None:
        """Take the progress report of the worker that was started with this trial."""
        chain = self.chains[first.key]
        self.progress.reports += 1
        chain.starts, chain.due = chain.starts + (report["phase"] == "compiling"), float("inf")
        tallies = {key: TrialReport(**found) for key, found in report.pop("tallies", {}).items()}
        for trial in list(chain.open.values()):
            its = report
            if mine := tallies.get(trial.key):
                chain.unseen.discard(trial.key)
                self.planner.update_progress(trial, mine)
                its = report | {"tally": mine}
            self.progress.report(trial, its)
        self.ended.seed_steps_per_s = self.progress.overall_rate
        self.ended.compile_s = max(self.ended.compile_s, report.get("compile_s", 0.0))
        for key in report.get("ended", []):
            self._ended(chain.open.pop(key))
        if report["phase"] != "compiling":
            self._feed(chain)
        self._order_again(chain)
        self.tick()

    def _feed(self, chain: Chain) -> None:
        """Have trials follow in a worker: of its program in the slots that are free, of others when it has
        nothing else, where a bank costs no compilation. With none to be had, now, it waits.

        Not in one whose process has died before: how often it may is counted for all of its trials together.
        """
        chain.waits = False
        while chain.starts < 2 and self.planner.run.open_seeds(chain.open.values()) < chain.last.slots:
            trial = self.planner.next(chain.last)
            goes_on = not (chain.open or self.planner.capacity.on_gpu or self._is_room_wanted())
            if not trial and goes_on:
                trial = self.planner.next()
                chain.waits = trial is None
            if not trial:
                return
            self._start(trial, chain)

    def _order_again(self, *chains: Chain) -> None:
        """Leave word for some workers, and for those for whom something may have changed.

        Who waits gets work, as far as there is some; and all are to know what has enough.
        """
        waiting = [chain for chain in self.chains.values() if chain.waits]
        for chain in waiting:
            self._feed(chain)
            if chain.waits:
                break
        is_shared = self.study.until.grokked is not None
        for chain in self.chains.values() if is_shared else (*chains, *waiting):
            self._order(chain)

    def _is_room_wanted(self) -> bool:
        """Whether a worker that was to begin finds no room: then others end that have nothing left to do."""
        now = time.monotonic()
        return any(now > chain.due for chain in self.chains.values())

    def lost(self, first: str, preempted: bool = False) -> None:
        """The process of a worker has died, by the key of its first trial; it is started again.

        preempted: its node was taken away, after notice; that says nothing of what it did.
        """
        self.chains[first].due = 0.0
        self.chains[first].starts -= preempted
        for chain in self.chains.values():
            if chain.waits:
                self._feed(chain)
                self._order(chain)

    def _order(self, chain: Chain) -> None:
        """Leave word for a worker, if there is something new."""
        searched = (t for t in chain.open.values() if self.study.until.grokked and not t.confirmation)
        enough = {c.key for t in searched for c in t.configurations if self.planner.run.has_enough(c)}
        many = 1 << len(self.chains).bit_length()  # else each worker more would be new orders for all
        apart_s = many / REPORTS_PER_S if len(self.chains) > FEW else 0.0
        times = (self.wait_s if chain.waits else 0.0, min(apart_s, self.wait_s))
        orders = WorkerAssignment(tuple(chain.open), tuple(sorted(enough)), *times)
        if orders != chain.orders:
            folder = self.home.trial(self.study.name, chain.first.key)
            orders.write(folder)
            self.home.depot.put(assignment_path(folder))
            chain.orders = orders

    def finished(self, first: Trial, failure: str | None) -> None:
        """A worker has ended: by itself, with results in its trials' folders, or for the reason given."""
        chain = self.chains.pop(first.key)
        for key, trial in chain.open.items():
            has_ended = self.home.depot.get_folder(self.home.trial(self.study.name, key) / PARTS)
            if key in chain.unseen and trial is not first and not has_ended:  # it came too late
                self.progress.finished(trial, [])
                self.ledger.censor([trial], LATE)
                self.ledger.delete_unstarted(trial)
                self.planner.requeue(trial)
            elif failure is None or has_ended:
                self._ended(trial)
            else:
                self._failed(trial, failure)
        orders = assignment_path(self.home.trial(self.study.name, first.key))
        orders.unlink(missing_ok=True)
        self.home.depot.remove(orders)
        self._order_again()

    def _ended(self, trial: Trial) -> None:
        try:
            self.recorder.record(trial, self.recorder.parts(trial))
        except Damaged as damaged:
            self.ended.failed_trials[trial.key] = str(damaged)
            self.recorder.set_aside(trial.key, str(damaged))
        self._tell(trial)

    def _failed(self, trial: Trial, failure: str) -> None:
        error = self.home.trial(self.study.name, trial.key) / ERROR
        self.home.depot.get(error)
        reason = error.read_text().partition("\n")[0] if error.exists() else failure
        self.ended.failed_trials[trial.key] = f"{reason} ({error})" if error.exists() else reason
        self.ledger.censor([trial], reason, self.progress.steps())
        self._tell(trial)

    def _tell(self, trial: Trial) -> None:
        rows = self.ledger.list_seeds(self.study.name, trial=trial.key)
        self.progress.finished(trial, [r["outcome"] for r in rows])
        for configuration in self.planner.complete_trial(trial, rows):
            self.recorder.conclude(configuration)
        self._show_proposals()

    def conclude_earlier(self) -> None:
        """Conclude configurations that an earlier run trained to their end and died before concluding."""
        while self.planner.complete_before:
            configuration = self.planner.complete_before.pop()
            if configuration.key in self.unconcluded:
                self.recorder.conclude(configuration)

    def _show_proposals(self, running: bool = True) -> None:
        """Have Optuna's mirror follow the search."""
        if self.proposals and self.mirror:
            self.outbox.put(self.mirror.update, self.proposals.trials(), running, optional=running)

    def stop(self, why: str) -> None:
        """End the run as Ctrl-C does."""
        if not self.ended.why:
            self.ended.why = why
            signal.raise_signal(signal.SIGINT)  # in this thread, and at once

    def close(self) -> None:
        """After Tune has stopped: whatever still counts as running was interrupted."""
        self.ended.interrupted = not self.is_done
        why = self.ended.why = (self.ended.why or "interrupted") if self.ended.interrupted else ""
        open_ = [] if self.is_done else self.planner.in_flight
        self.ledger.censor(list(self.planner.running.values()), why, self.progress.steps())
        self._show_proposals(running=False)
        for configuration in open_:
            self.recorder.conclude(configuration, "KILLED")
        if self.is_done:
            as_a_whole = log_descents if self.study.compress else log_evidence
            self.outbox.put(as_a_whole, self.ledger, self.tracker, self.shelf)
        longest = (DRAIN_S, DRAIN_AWAY_S) if self.is_done else (STOPPING_S, STOPPING_S)
        left = self.outbox.drain(*longest, self._waiting)
        self.outbox.close()
        self.shelf.close()
        rows = self.ledger.list_seeds(self.study.name)
        self.ended.unpublished = sum(is_final(r) and not r["published"] for r in rows)
        if not (left or self.ended.interrupted or self.ended.failed_trials or self.ended.unpublished):
            shutil.rmtree(self.home.trial(self.study.name, ""), ignore_errors=True)

    def measures(self) -> Values:
        """What is shown of it to Prometheus, by the names in search/run/metrics.py."""
        open_ = self.progress.states()
        waiting = sum(chain.waits for chain in self.chains.values())
        return {
            "seeds_ended": {o: n for o, n in self.progress.ended.items() if o not in OPEN},
            "seeds_open": {
                "running": open_[Outcome.RUNNING],
                "waiting": open_[Outcome.QUEUED],
                "planned": self.planner.queued_seeds,
            },
            "seed_steps_per_s": self.progress.rate,
            "workers": {"training": len(self.chains) - waiting, "waiting": waiting},
            "trials_failed": len(self.ended.failed_trials),
            "outbox_jobs": len(self.outbox.jobs),
            "mlflow_away": self.outbox.away,
            "reports": self.progress.reports,
            "driver_cpu_s": time.process_time(),
        }

    def tick(self) -> None:
        """Look whether the run is to end, and show how far it is when that is due."""
        if self.hold.why:
            self.stop(self.hold.why)
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.stop("time limit")
        if self.display.due():
            needless = self.planner.run.has_enough
            self.display.show(self.progress.snapshot(self.planner.queued_steps, needless))

    def _waiting(self, left: int) -> bool:
        """While the run ends: whoever looks is told why. True: it was asked to end now."""
        if self.display.due():
            evidence = self.is_done and left == 1
            what = "the study's table and pictures" if evidence else f"{left} left"
            self.display.say(f"writing to MLflow: {what}")
        return self.is_done and self.hold.why is not None
