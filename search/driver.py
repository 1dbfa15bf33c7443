"""Running a study: Ray Tune places its trials, the planner says which, the ledger and MLflow are told.

Tune asks a searcher for trials and tells it their results; ours is a thin face of the planner. Tune's
own saved state is never read back: after any kind of death the ledger says what is left, and a trial
finds its bank's state at the same path.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from typing import Any

import ray
from mlflow import MlflowClient
from ray import tune
from ray.tune.search import Searcher

from search import worker
from search.display import Display
from search.evidence import log_evidence
from search.home import Home
from search.ledger import Ledger, is_final
from search.plan import Configuration, Trial, placement
from search.planner import DONE, Planner, interrupted
from search.progress import Progress
from search.study import Study
from search.tracking import FINISHED, Tracker
from trainer import Seed

RENEW_S = 20.0
SAVE_TUNE_STATE_S = 3600  # nobody reads it
QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": str(SAVE_TUNE_STATE_S),
    "TUNE_WARN_THRESHOLD_S": "60",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


@dataclass
class Ended:
    """How a run of a study ended."""

    interrupted: bool = False
    trials: int = 0
    """Trials that were started."""
    failed_trials: dict[str, str] = field(default_factory=dict)
    """What each failed trial's error says and where it is, by trial key."""
    unpublished: int = 0
    seed_steps_per_s: float = 0.0
    """Of the whole run, compilation left out."""
    compile_s: float = 0.0


class Driver:
    """One run of one study: keeps planner, ledger, tracker and display in step."""

    def __init__(self, study: Study, home: Home, ledger: Ledger, client: MlflowClient, display: Display):
        self.study, self.home, self.ledger, self.display = study, home, ledger, display
        self.tracker = Tracker(client, home, study)
        self.ended = Ended()
        self.progress = Progress([(s.init_seed, s.data_seed) for s in study.watched()])
        self.renewed = time.monotonic()
        self.is_done = False
        self.recovered: set[str] = set()
        self.recover()
        rows = ledger.rows(study.name)
        self.planner = Planner(study, rows, home, interrupted(study, rows, home))
        self.tracker.asked()
        self.unconcluded = self.tracker.unconcluded() | self.recovered
        self.conclude_earlier()

    def recover(self) -> None:
        """Record what trials of an earlier run left behind, then publish what MLflow has not got."""
        rows = self.ledger.rows(self.study.name)
        for key in sorted({r["trial"] for r in rows if not r["published"]}):
            folder = self.home.trial(self.study.name, key)
            if worker.has_results(folder):
                trial = Trial.read(folder)
                self.recovered |= {c.key for c in trial.configurations}
                self.record(trial)

    def start_next(self) -> Trial | str | None:
        """The next trial, claimed and written for its worker; or None, or DONE."""
        trial = self.planner.next()
        self.conclude_earlier()
        if isinstance(trial, Trial):
            self.ledger.claim(trial)
            self.ended.trials += 1
            trial.write(self.home.trial(self.study.name, trial.key))
            self.progress.started(trial)
            for configuration in trial.configurations:
                self._tell_mlflow(self.tracker.reopen, configuration)
        self.is_done = trial == DONE
        self.tick()
        return trial

    def reported(self, trial: Trial, report: dict[str, Any]) -> None:
        """Take a worker's progress report."""
        for configuration, step, metrics in self.progress.report(trial, report):
            self._tell_mlflow(self.tracker.progress, configuration, step, metrics)
        self.ended.seed_steps_per_s = self.progress.overall_rate
        self.ended.compile_s = max(self.ended.compile_s, report.get("compile_s", 0.0))
        self.tick()

    def finished(self, trial: Trial, failed: bool) -> None:
        """A trial has ended: by itself, with its results in its folder, or with an error."""
        if failed:
            error = self.home.trial(self.study.name, trial.key) / worker.ERROR
            reason = error.read_text().partition("\n")[0] if error.exists() else "its process died"
            self.ended.failed_trials[trial.key] = f"{reason} ({error})" if error.exists() else reason
            self.ledger.censor([trial], reason, self.progress.steps())
        else:
            self.record(trial)
        rows = [r for r in self.ledger.rows(self.study.name) if r["trial"] == trial.key]
        self.progress.finished(trial, [r["outcome"] for r in rows])
        for configuration in self.planner.tell(trial, rows):
            self.conclude(configuration)

    def record(self, trial: Trial) -> None:
        """Write a trial's results to the ledger, then to MLflow; its folder goes when both have them."""
        folder = self.home.trial(self.study.name, trial.key)
        parts = worker.read_results(folder)
        assert parts, folder
        for part in parts:
            about = part.about
            self.ledger.record(part.trial, part.results, about["seed_steps_per_s"], about["environment"])
            rows = self.ledger.rows(self.study.name, part.configuration.key)
            self._tell_mlflow(self.tracker.counts, part.configuration, rows)
        if all(self._tell_mlflow(self.tracker.trial, trial.key, part) for part in parts):
            self.ledger.publish(trial)
            shutil.rmtree(folder, ignore_errors=True)

    def conclude(self, configuration: Configuration, status: str = FINISHED) -> None:
        """Write a configuration's summary, picture, best checkpoint and child runs."""
        decoded: dict[Seed, int] = {}
        rows = self.ledger.rows(self.study.name, configuration.key)
        if self._tell_mlflow(lambda: decoded.update(self.tracker.summary(configuration, rows))):
            self._tell_mlflow(self.tracker.end, configuration, status)
        for seed, correct in decoded.items():
            key = (configuration.key, seed.init_seed, seed.data_seed)
            self.ledger.record_verification(self.study.name, key, correct)
        self.tick()

    def conclude_earlier(self) -> None:
        """Conclude configurations that an earlier run trained to their end and died before concluding."""
        while self.planner.ended_before:
            configuration = self.planner.ended_before.pop()
            if configuration.key in self.unconcluded:
                self.conclude(configuration)

    def close(self) -> None:
        """After Tune has stopped: whatever still counts as running was interrupted."""
        self.ended.interrupted = not self.is_done
        open_ = [] if self.is_done else self.planner.in_flight
        self.ledger.censor(list(self.planner.running.values()), "interrupted", self.progress.steps())
        for configuration in open_:
            self.conclude(configuration, "KILLED")
        if self.is_done and (self.ended.trials or self.recovered):
            self._tell_mlflow(log_evidence, self.tracker)
        rows = self.ledger.rows(self.study.name)
        self.ended.unpublished = sum(is_final(r) and not r["published"] for r in rows)
        if not (self.ended.interrupted or self.ended.failed_trials or self.ended.unpublished):
            shutil.rmtree(self.home.trial(self.study.name, ""), ignore_errors=True)

    def tick(self) -> None:
        """Renew the leases and the display when they are due."""
        now = time.monotonic()
        if now - self.renewed > RENEW_S:
            self.ledger.renew()
            self.renewed = now
        if self.display.due():
            self.display.show(self.progress.snapshot(self.planner.queued_steps))

    def _tell_mlflow(self, call: Any, *args: Any) -> bool:
        """Tracking must not stop training: what MLflow did not take is published by the next run."""
        try:
            call(*args)
        except Exception as error:  # a server, a disk, an object store: anything may be behind it
            logging.getLogger(__name__).warning("MLflow: %s", error)
            return False
        return True


class PlanSearcher(Searcher):
    """Tune's view of a driver."""

    def __init__(self, driver: Driver):
        super().__init__()
        self.driver = driver
        self.trials: dict[str, Trial] = {}

    def suggest(self, trial_id: str) -> Any:
        trial = self.driver.start_next()
        if not isinstance(trial, Trial):
            return Searcher.FINISHED if trial == DONE else None
        self.trials[trial_id] = trial
        return {"folder": str(self.driver.home.trial(trial.study, trial.key))}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.driver.reported(self.trials[trial_id], json.loads(result["payload"]))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.driver.finished(self.trials.pop(trial_id), error)

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its searcher when it starts: without the driver, whose state is the ledger."""
        return {**self.__dict__, "driver": None, "trials": {}}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the state."""


class Heartbeat(tune.Callback):
    """Lets the driver renew its leases and its display while no trial reports."""

    def __init__(self, driver: Driver):
        self.driver: Driver | None = driver

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.driver:
            self.driver.tick()

    def __getstate__(self) -> dict[str, Any]:
        return {"driver": None}


def run(driver: Driver) -> Ended:
    """Run the driver's study to its end, or until it is interrupted."""
    study, home = driver.study, driver.home
    if driver.planner.is_done:
        driver.is_done = True
        driver.close()
        return driver.ended
    os.environ.update(QUIET)
    # Workers import the installed packages: without a working directory of its own, Ray would put the
    # directory that the command was called from in front of them.
    empty = home.ray / "working-dir"
    empty.mkdir(parents=True, exist_ok=True)
    environment = {**QUIET, "TORCHINDUCTOR_CACHE_DIR": str(home.cache)}
    ray.init(
        address=os.environ.get("RAY_ADDRESS") or "local",
        include_dashboard=None if os.environ.get("RAY_ADDRESS") else False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"working_dir": str(empty), "env_vars": environment},
    )
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        share, fits = placement(study.resources, ray.cluster_resources())
        driver.planner.fits = fits
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        tune.Tuner(
            tune.with_resources(worker.train, share),
            tune_config=tune.TuneConfig(
                search_alg=PlanSearcher(driver), num_samples=-1, max_concurrent_trials=fits.concurrent
            ),
            run_config=tune.RunConfig(
                name=f"{study.name}-{time.strftime('%Y%m%d-%H%M%S')}",
                storage_path=str(home.ray),
                verbose=0,
                callbacks=[Heartbeat(driver)],
                failure_config=tune.FailureConfig(max_failures=1),
            ),
        ).fit()
        driver.close()
    finally:
        ray.shutdown()
    return driver.ended
