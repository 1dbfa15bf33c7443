"""Ray and a driver: Tune places trials, asks for the next and says what became of them.

Tune asks a searcher for trials and tells it their results; ours is a thin face of the driver. Tune's own
saved state is never read back: after any kind of death the ledger says what is left, and a trial finds its
bank's state at the same path.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.air.execution._internal import RayActorManager
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.search import Searcher

from search.errors import Failure, UserError
from search.run import worker
from search.run.driver import Driver, Ended
from search.run.metrics import Metrics
from search.run.packing import Capacity, placement
from search.study.trial import Trial

SAVE_TUNE_STATE_S = 3600  # nobody reads it
ASK_S, LOOK_S = 5.0, 0.5
"""How often it is asked what nodes there are; and while there is none."""
MOST_WORKERS = 100_000
"""More than any cluster has: how many there are is said by `Room`."""
BLIND_S = 10.0  # a driver that did not look for so long cannot say that a trial was silent
LATE = "timed out during startup"
OUT_OF_MEMORY = "OutOfMemoryError"
QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": str(SAVE_TUNE_STATE_S),
    "TUNE_WARN_THRESHOLD_S": "60",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


class Room:
    """What a study has room for, asked again now and then: nodes come and go."""

    def __init__(self, driver: Driver):
        self.driver, self.asked = driver, float("-inf")
        self.share: dict[str, float] = {}
        self.fits = Capacity(0)

    def wait(self) -> bool:
        """Wait until a cluster has room for a trial. False: the run was stopped meanwhile.

        Raises UserError where none can come.
        """
        try:
            while not self.look():
                self.driver.tick()
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            return False
        return True

    def look(self) -> bool:
        """Whether there is room now. A trial's share is decided when there is some for the first time."""
        if time.monotonic() - self.asked > ASK_S or not self.fits.concurrent:
            self.asked = time.monotonic()
            self._ask()
        return self.fits.concurrent > 0

    def _ask(self) -> None:
        resources = self.driver.study.resources
        try:
            share, fits = placement(resources, *nodes())
        except UserError as nothing:
            if not os.environ.get("RAY_ADDRESS"):
                raise
            self.fits = Capacity(0, self.fits.on_gpu)
            if self.driver.display.due():
                self.driver.display.say(f"waiting for a node that has room ({nothing})")
            return
        self.share = self.share or share
        self.fits = self.driver.planner.capacity = fits


def nodes() -> list[dict[str, float]]:
    """What each node of the cluster has that is there to stay."""
    leaving = ray._private.state.state.get_draining_nodes()
    return [n["Resources"] for n in ray.nodes() if n["Alive"] and n["NodeID"] not in leaving]


class PlanSearcher(Searcher):
    """Tune's view of a driver."""

    def __init__(self, driver: Driver, watch: Watch, room: Room):
        super().__init__()
        self.driver, self.watch, self.room = driver, watch, room
        self.trials: dict[str, Trial] = {}

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """How many are at work is for `suggest` to say: nodes come and go."""
        return True

    def suggest(self, trial_id: str) -> Any:
        self.room.look()
        if len(self.trials) >= self.room.fits.concurrent:
            self.driver.tick()
            return None
        trial = self.driver.start_next()
        if not isinstance(trial, Trial):
            return Searcher.FINISHED if self.driver.is_done else None
        self.trials[trial_id] = trial
        return self.driver.config(trial)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        with self.watch.kept():
            self.driver.reported(self.trials[trial_id], json.loads(result["payload"]))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        failure = self.watch.why(trial_id) if error else None
        with self.watch.kept():
            self.driver.finished(self.trials.pop(trial_id), failure)

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its searcher when it starts: without the driver, whose state is the ledger."""
        return {**self.__dict__, "driver": None, "watch": None, "room": None, "trials": {}}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the ledger is the state."""


class Watch(tune.Callback):
    """Lets the driver look up while no trial reports, and kills trials that are silent too long."""

    def __init__(self, driver: Driver):
        self.driver: Driver | None = driver
        self.stall_s = driver.study.faults.stall_s
        self.heard: dict[str, float] = {}
        self.running: dict[str, TuneTrial] = {}
        self.stalled: set[str] = set()
        self.looked = time.monotonic()
        self.broken: Exception | None = None
        self.metrics: Metrics | None = Metrics(driver.study.name)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """What the driver raises is raised at Tune's next step: Tune would take it for the trial's own."""
        try:
            yield
        except Exception as error:
            self.broken = self.broken or error

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.broken:
            raise self.broken
        if self.driver:
            self.driver.tick()
            self.show()
        now = time.monotonic()
        if now - self.looked > BLIND_S:
            self.heard = dict.fromkeys(self.heard, now)
        self.looked = now
        for trial_id, heard in self.heard.items():
            if now - heard > self.stall_s:
                self._kill(trial_id)

    def show(self) -> None:
        """Show Prometheus how far the study is, when that is due."""
        if self.driver and self.metrics and self.metrics.due():
            self.metrics.show(self.driver.measures())

    def on_trial_start(self, iteration: int, trials: list[Any], trial: TuneTrial, **info: Any) -> None:
        self.running[trial.trial_id], self.heard[trial.trial_id] = trial, time.monotonic()
        self.stalled.discard(trial.trial_id)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: TuneTrial, result: Any, **info: Any
    ) -> None:
        self.heard[trial.trial_id] = time.monotonic()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: TuneTrial, **info: Any) -> None:
        self._forget(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: TuneTrial, **info: Any) -> None:
        self._forget(trial)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: TuneTrial, **info: Any) -> None:
        self.heard.pop(trial.trial_id, None)  # until it starts again
        self.stalled.discard(trial.trial_id)
        if self.driver:
            with self.kept():
                first, error = Path(trial.config["folder"]).name, trial.get_pickled_error()
                self.driver.lost(first, bool(getattr(error, "preempted", False)))

    def why(self, trial_id: str) -> str:
        """What killed a trial's process, as far as is known here."""
        if trial_id in self.stalled:
            return f"stalled: nothing was heard of it for {self.stall_s} s"
        trial = self.running.get(trial_id)
        error = trial.get_pickled_error() if trial else None
        if OUT_OF_MEMORY in str(error):
            return "out of memory: Ray ended its process"
        return "its process died"

    def _kill(self, trial_id: str) -> None:
        """Tune learns of it as of any process that died, and starts the trial again or gives it up."""
        actor = self.running[trial_id].temporary_state.ray_actor
        if actor is not None:
            self.stalled.add(trial_id)
            self.heard[trial_id] = time.monotonic()  # so long it has to die
            ray.kill(actor)

    def _forget(self, trial: TuneTrial) -> None:
        for known in (self.heard, self.running):
            known.pop(trial.trial_id, None)

    def __getstate__(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"driver": None, "heard": {}, "running": {}, "stalled": set(), "broken": None}
        empty["metrics"] = None
        return {**self.__dict__, **empty}


def run(driver: Driver) -> Ended:
    """Run the driver's study to its end, or until it is stopped. Raises Failure if Ray does not start."""
    if driver.planner.is_done:
        driver.is_done = True
        driver.close()
        return driver.ended
    os.environ.update(QUIET)
    with _ray():
        signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        before = signal.getsignal(signal.SIGINT)
        try:
            _tune(driver)
        finally:
            signal.signal(signal.SIGINT, before)  # Tune leaves its own behind, which stops nothing any more
        driver.close()
    return driver.ended


@contextlib.contextmanager
def _ray() -> Iterator[None]:
    """A Ray of our own on this machine, or the cluster at RAY_ADDRESS."""
    # Workers import the installed packages: without a working directory of its own, Ray would put the
    # directory that the command was called from in front of them. A home may come from elsewhere.
    with tempfile.TemporaryDirectory(prefix="adder-search-") as empty:
        _start(empty)
        try:
            yield
        finally:
            ray.shutdown()


def _start(working_dir: str) -> None:
    """Start Ray, or reach its cluster. Raises Failure."""
    cluster = os.environ.get("RAY_ADDRESS")
    try:
        if cluster and ":" in cluster and "://" not in cluster:
            _reach(cluster)
        _init(
            address=cluster or "local",
            include_dashboard=None if cluster else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"working_dir": working_dir, "env_vars": QUIET},
        )
    except (Exception, SystemExit) as error:  # whatever is wrong with a cluster, or with this machine
        first = str(error).strip().partition("\n")[0]
        raise Failure(f"Ray{f' at {cluster}' if cluster else ''}: {first or type(error).__name__}") from None


def _init(**options: Any) -> None:
    """ray.init, a second time if the machine was too busy to start Ray in the 30 s that Ray gives it."""
    try:
        ray.init(**options)
    except Exception as error:
        if LATE not in str(error):
            raise
        ray.init(**options)  # the processes of the first time end with this one


def _reach(cluster: str) -> None:
    """Raise at once what is wrong with an address or a token: ray.init tries for most of a minute, writes to
    stderr meanwhile, and may exit.
    """
    token = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if token and not Path(token).is_file():  # Ray would exit without a word
        raise FileNotFoundError(f"there is no token at {token} (RAY_AUTH_TOKEN_PATH)")
    host, _, port = cluster.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10):
        pass
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # Ray's C++ writes there whatever the log level
    try:
        GcsClient(address=cluster).get_all_node_info(timeout=10)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def _retry_after_out_of_memory() -> None:
    """Have Tune start a trial again that Ray's memory monitor ended: its error, of a kind that Tune knows."""
    failed = RayActorManager._actor_task_failed
    if hasattr(failed, "__wrapped__"):
        return

    @functools.wraps(failed)
    def known(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, ray.exceptions.OutOfMemoryError):
            exception = ray.exceptions.RayActorError(error_msg=f"{OUT_OF_MEMORY}: {exception}")
        failed(self, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = known


def _tune(driver: Driver) -> None:
    _retry_after_out_of_memory()
    study, home, room = driver.study, driver.home, Room(driver)
    if not room.wait():
        return
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    watch = Watch(driver)
    tune.Tuner(
        tune.with_resources(worker.train, room.share),
        tune_config=tune.TuneConfig(
            search_alg=PlanSearcher(driver, watch, room), num_samples=-1, max_concurrent_trials=MOST_WORKERS
        ),
        run_config=tune.RunConfig(
            name=f"{study.name}-{time.strftime('%Y%m%d-%H%M%S')}",
            storage_path=str(home.ray),
            verbose=0,
            callbacks=[watch],
            failure_config=tune.FailureConfig(max_failures=study.faults.max_failures),
        ),
    ).fit()
