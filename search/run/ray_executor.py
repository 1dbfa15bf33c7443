"""Workers in Ray Tune, on this machine or on the cluster at RAY_ADDRESS.

Tune places workers, watches their processes and starts them again. It runs in a thread of its own and asks a searcher
for trials; each trial is a worker. Reports and replies go past it, by the desk (search/run/desk.py). Tune's saved state
is never read: after any kind of death the ledger says what is left.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
import queue
import shlex
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import ray
from ray import tune
from ray.autoscaler.sdk import request_resources
from ray.exceptions import RayTaskError
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from model.doors import first_line
from search.errors import Failure, UserError
from search.run.desk import Desk, Ticket
from search.run.executor import DIED, Event, ExecutorDied, Finished, Restarted
from search.run.messages import Reply, Report
from search.run.packing import (
    Amounts,
    Capacity,
    cluster_address,
    local_resources,
    placement,
    placement_of,
    share_of,
)
from search.run.prometheus import Metrics, Values
from search.run.ray_private import (
    OUT_OF_MEMORY,
    check_cluster,
    dead_process,
    error_of,
    leaving_signals,
    nodes,
    retry_after_out_of_memory,
    shield,
    shut_down,
    withhold_secrets,
)
from search.run.ray_session import private_session
from search.store.lease import LEASE_S
from search.study.schema import Study
from trainer.engine.accelerators import MISSING, NEEDED, accelerator

REFRESH_S, REFRESH_EMPTY_S = 5.0, 0.5
"""Seconds between two looks at the nodes of a cluster: normally, and while it has no room."""
ANSWER_S = 1.5 * LEASE_S
"""Seconds after which a worker without a reply ends: its driver is gone, or has lost the study."""
DESK_STARTS = 10
"""How often the desk's process is started again."""
MOST_WORKERS = 100_000
"""More than any cluster has: the driver counts them, by `RayExecutor.capacity`."""
BLIND_S = 10.0
"""A driver that has not looked for so long cannot say that a worker was silent."""
WORKING_DIR = "local:///usr"
"""Where workers start, and look for modules first: on every machine, root's alone, and without any. By default Ray
puts the folder there that the command was called from, and copies others to where any user may write."""
SLOW_START_S = 30.0
"""Seconds after which a user hears that Ray is still starting: when it gives up, it ends this process itself."""
LATE_START = "timed out during startup"
QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",  # no tables of trials: the driver has a display of its own
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # a worker without a GPU keeps its CUDA_VISIBLE_DEVICES
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no result.json and progress.csv, which nobody reads
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # results go past Tune, so it is told no metric
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # seconds between states that nobody reads
    "TUNE_WARN_THRESHOLD_S": "60",  # seconds of a step of Tune's after which it warns; by default half a second
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # workers stay in WORKING_DIR
}
"""Variables of Ray and Tune, of the driver and its workers."""

log = logging.getLogger(__name__)


def train(config: Mapping[str, Any], desk: Any) -> None:
    """Work as Ray Tune's trainable.

    config: the worker's name, and whether its place is on a GPU. desk: the actor.
    """
    from search.run import worker  # the worker's process: with it comes torch

    name = config["worker"]
    attempt = ray.get(desk.enter.remote(name))
    generator = worker.work(name, attempt, config["on_gpu"])
    report = next(generator)
    # It ends when the driver says so, does not answer in time, or has gone with the desk.
    with suppress(StopIteration, ray.exceptions.GetTimeoutError, ray.exceptions.ActorDiedError):
        while True:
            call = desk.exchange.remote(_ticket(report), pickle.dumps(report))
            answer = ray.get(call, timeout=ANSWER_S)
            if answer is None:  # a newer start of this worker is at the desk
                break

            try:
                reply = pickle.loads(answer)
            except Exception as error:  # it is reported, as what goes wrong at work
                lacks = f"{platform.node()} cannot read its work ({first_line(error)})"
                report = generator.throw(Failure(f"{lacks}: a study's packages must be installed on every node"))
            else:
                report = generator.send(reply)

    # Tune prints a line about a trial that completes without any result.
    tune.report({"reports": report.number + 1})


def _ticket(report: Report) -> Ticket:
    return report.worker, report.attempt, report.number


class RayExecutor:
    """Workers as Ray Tune's trials.

    storage: folder for Tune's files. say: shows a line while the cluster has no room. Entering starts Ray or reaches
    its cluster; raises Failure.
    """

    def __init__(self, study: Study, storage: Path, say: Callable[[str], None]):
        self.study = study
        self.storage = storage
        self.say = say
        self.metrics = Metrics(study.name)
        self.share: Amounts = {}
        """What Ray reserves for a worker, decided when there is room for the first time."""
        self.side_by_side = False
        """True if workers with shares of a GPU train side by side there."""
        self._capacity = Capacity(0)
        self._refreshed = float("-inf")
        self._working = 0
        """Workers that were started and have not ended."""
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        """Events that Tune's thread leaves for the driver's."""
        self._closing = threading.Event()
        self._starting: deque[Mapping[str, Any]] = deque()
        self._watchdog = StallWatchdog(study.faults.stall_s, self._events)
        self._thread: threading.Thread | None = None
        self._desk: Any = None
        self._collecting: Any = None
        """A call of the desk that has not returned yet."""
        self._error: Exception | None = None
        self._has_died = False
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        os.environ.update(QUIET)
        with ExitStack() as undo:  # what was begun is undone if the rest fails
            folder: Path | None = None
            variables: Mapping[str, str] = {}
            if not cluster_address():
                folder, token = undo.enter_context(private_session())
                shield(token)
                gpus = accelerator()
                share, _ = placement_of(self.study, local_resources(), side_by_side=bool(gpus.sharing()))
                is_auto = self.study.resources.gpu == "auto"
                given = undo.enter_context(gpus.side_by_side(folder.parent, share["GPU"], is_auto))
                self.side_by_side = given is not None
                variables = given or {}

            undo.callback(shut_down)  # also of a Ray that has started halfway
            start_ray(folder, variables)
            undo.callback(self._request, {}, 0)  # the autoscaler keeps what was asked for until it hears otherwise

            # The desk is on the driver's node, and takes no core from the workers.
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            actor = ray.remote(num_cpus=0, max_restarts=DESK_STARTS, max_task_retries=-1)(Desk)
            self._desk = actor.options(scheduling_strategy=here, max_concurrency=MOST_WORKERS).remote()
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        try:
            # A thread whose Ray has died may wait for ever.
            if self._thread is not None and not self._has_died:
                self._thread.join()
        finally:
            self._undo.close()

    def capacity(self) -> Capacity:
        refresh_s = REFRESH_S if self._capacity.concurrent else REFRESH_EMPTY_S
        if time.monotonic() - self._refreshed > refresh_s:
            self._refresh()
            self._refreshed = time.monotonic()
        return self._capacity

    def _refresh(self) -> None:
        """Look at the nodes: how many workers have room now?"""
        found = nodes()
        resources = self.study.resources
        try:
            if self.share:  # which workers have from then on, whatever would be fastest on nodes that came since
                decided = resources.model_copy(update={"gpu": self.share["GPU"]})
                share, self._capacity = placement(decided, *found)
            else:
                share, self._capacity = placement_of(self.study, *found, side_by_side=self.side_by_side)
        except UserError as no_room:
            if not cluster_address():
                if self.share or not found:  # there was room once: this machine does not shrink
                    raise self._died("node") from None
                raise
            self._capacity = Capacity(0, self._capacity.gpu)
            self.say(f"waiting for a node that has room ({no_room})")
            self._request(self.share or share_of(resources), 1)
            return

        if not self.share and accelerator() is MISSING and any(node.get("GPU") for node in found):
            log.warning("gpu: auto: no GPU is used, which needs %s", NEEDED)
        self._capacity = replace(self._capacity, is_shared=bool(cluster_address()))
        self.share = self.share or share
        self._request(self.share, self._working + 1)  # room for one more: the next worker need not wait

    def _request(self, share: Amounts, workers: int) -> None:
        """Ask a cluster's autoscaler for room for so many workers."""
        if not cluster_address():
            return

        bundle = {name: amount for name, amount in share.items() if amount}
        # Only a hint: where nobody hears it the run says what it waits for.
        with suppress(Exception):
            request_resources(bundles=[bundle] * workers)

    def start(self, worker: str, on_gpu: bool) -> None:
        self._starting.append({"worker": worker, "on_gpu": on_gpu})
        self._working += 1
        if self._thread is None:  # not before the first worker: until then the share is not known
            self._thread = threading.Thread(target=self._run_tune, name="tune", daemon=True)
            self._thread.start()

    def poll(self, timeout_s: float) -> Sequence[Event]:
        if process := dead_process():
            raise self._died(process)
        reports = self._collect(timeout_s)
        self._watchdog.look()  # after the reports: a driver that was busy finds them at the desk

        events: list[Event] = []
        # Before the reports: the driver hears of a death before it hears from the next start.
        with suppress(queue.Empty):
            while True:
                events.append(self._events.get_nowait())

        self._working -= sum(isinstance(event, Finished) for event in events)
        if self._error is not None:
            raise self._error
        return [*events, *reports]

    def _collect(self, timeout_s: float) -> list[Report]:
        """Return the reports that are at the desk."""
        if self._desk is None:
            return []

        # A call that has not returned is waited for again: another one would share the reports with it.
        self._collecting = self._collecting or self._desk.collect.remote(timeout_s)
        returned, _ = ray.wait([self._collecting], timeout=timeout_s + 1.0)
        if not returned:
            return []

        reports = [pickle.loads(data) for data in ray.get(self._collecting)]
        self._collecting = None
        for report in reports:
            self._watchdog.hear(report.worker)
        return reports

    def reply(self, report: Report, reply: Reply) -> None:
        self._watchdog.expect(report.worker)
        self._desk.reply.remote({_ticket(report): pickle.dumps(reply)})

    def _died(self, part: str) -> ExecutorDied:
        self._has_died = True
        return ExecutorDied(f"Ray's {part} on this machine has died (killed, or out of memory?)")

    def export(self, values: Callable[[], Values]) -> None:
        if self.metrics.due():
            self.metrics.show(values())

    def _run_tune(self) -> None:
        retry_after_out_of_memory()
        withhold_secrets()
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)

        searcher = QueueSearcher(self._starting, self._watchdog, self._closing, self._events)
        try:
            trainable = tune.with_resources(tune.with_parameters(train, desk=self._desk), self.share)
            tune.Tuner(
                trainable,
                tune_config=tune.TuneConfig(search_alg=searcher, num_samples=-1, max_concurrent_trials=MOST_WORKERS),
                run_config=tune.RunConfig(
                    name=f"{self.study.name}-{time.strftime('%Y%m%d-%H%M%S')}",
                    storage_path=str(self.storage),
                    verbose=0,
                    callbacks=[self._watchdog],
                    stop=StopWhen(self._closing),
                    failure_config=tune.FailureConfig(max_failures=self.study.faults.max_failures),
                ),
            ).fit()
        except Exception as error:  # `poll` raises it in the driver's thread
            self._error = error


class QueueSearcher(Searcher):
    """Hands Tune the workers that wait to be started, and passes on how they end."""

    def __init__(
        self,
        starting: deque[Mapping[str, Any]],
        watchdog: StallWatchdog,
        closing: threading.Event,
        events: queue.SimpleQueue[Event],
    ):
        super().__init__()
        self.starting = starting
        self.watchdog = watchdog
        self.closing = closing
        self.events = events
        self.workers: dict[str, str] = {}

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Let the driver decide how many are at work."""
        return True

    def suggest(self, trial_id: str) -> Any:
        if self.closing.is_set():
            return Searcher.FINISHED
        if not self.starting:
            return None
        config = self.starting.popleft()
        self.workers[trial_id] = config["worker"]
        return dict(config)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        worker = self.workers.pop(trial_id)
        self.events.put(Finished(worker, self.watchdog.reason(worker) if error else None))

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its searcher when it starts, and never reads it here."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the ledger is the state."""


class StopWhen(tune.Stopper):
    """Ends Tune, and its trials, once an event is set."""

    def __init__(self, event: threading.Event):
        self.event: threading.Event | None = event

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.event is not None and self.event.is_set()

    def __getstate__(self) -> dict[str, Any]:
        return {"event": None}  # Tune pickles it too, and an event has a lock


class StallWatchdog(tune.Callback):
    """Kills workers that are silent for `stall_s` seconds after a reply, and notes why a process died.

    Tune's thread calls the methods that begin with `on_`, the driver's thread the others.
    """

    def __init__(self, stall_s: float, events: queue.SimpleQueue[Event]):
        self.stall_s = stall_s
        self.events = events
        self.expected: dict[str, float] = {}
        """Workers that are to report, with the time since when."""
        self.running: dict[str, TuneTrial] = {}
        self.stalled: set[str] = set()
        self.looked = time.monotonic()

    def expect(self, worker: str) -> None:
        """Note that a worker has its reply."""
        self.expected[worker] = time.monotonic()

    def hear(self, worker: str) -> None:
        """Note that a worker has reported, and waits now."""
        self.expected.pop(worker, None)

    def look(self) -> None:
        """Kill the workers that are silent."""
        now = time.monotonic()
        if now - self.looked > BLIND_S:  # this driver was paused, and heard nobody
            self.expected = dict.fromkeys(self.expected, now)
        self.looked = now

        for worker, since in list(self.expected.items()):
            if now - since > self.stall_s:
                self._kill(worker)

    def on_trial_start(self, iteration: int, trials: list[Any], trial: TuneTrial, **info: Any) -> None:
        worker = trial.config["worker"]
        self.running[worker] = trial
        self.stalled.discard(worker)
        self.expect(worker)  # its first report

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: TuneTrial, **info: Any) -> None:
        self.hear(trial.config["worker"])

    on_trial_error = on_trial_complete

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: TuneTrial, **info: Any) -> None:
        worker = trial.config["worker"]
        self.running[worker] = trial  # which may have ended before it started
        self.hear(worker)  # until it starts again
        preempted = bool(getattr(error_of(trial), "preempted", False))
        self.events.put(Restarted(worker, self.reason(worker), preempted))

    def reason(self, worker: str) -> str:
        """Return what killed a worker's process, as far as is known here."""
        if worker in self.stalled:
            return f"stalled: nothing was heard of it for {self.stall_s} s"
        trial = self.running.get(worker)
        error = error_of(trial) if trial else None
        if isinstance(error, RayTaskError):  # raised before it could work, by what its node lacks
            return first_line(error.cause)
        return "out of memory: Ray ended its process" if OUT_OF_MEMORY in str(error) else DIED

    def _kill(self, worker: str) -> None:
        """Kill a process: Tune starts its worker again or gives it up, as after any death."""
        actor = self.running[worker].temporary_state.ray_actor
        if actor is not None:
            self.stalled.add(worker)
            self.expect(worker)  # it has as long to die
            ray.kill(actor)

    def __getstate__(self) -> dict[str, Any]:
        return {}


def start_ray(folder: Path | None, variables: Mapping[str, str]) -> None:
    """Start Ray with its session in `folder`, or reach the cluster where that is None. Raises Failure.

    variables: environment of the workers.
    """
    cluster = cluster_address()
    environment: dict[str, Any] = {"working_dir": WORKING_DIR, "env_vars": {**QUIET, **variables}}
    options: dict[str, Any] = {"address": cluster}
    if not cluster:
        own = local_resources()
        options = {"address": "local", "num_cpus": int(own["CPU"]), "num_gpus": int(own["GPU"])}
        options |= {"include_dashboard": False, "_temp_dir": str(folder)}
        # Ray gives this path to a shell as it is: a space in it would keep every worker from starting. The nodes of a
        # cluster have Pythons of their own.
        environment["py_executable"] = shlex.quote(sys.executable)

    late = "Ray has not started in %.0f s; if it gives up, its own words follow, and the same command tries again"
    slow = threading.Timer(SLOW_START_S, log.warning, (late, SLOW_START_S))
    slow.daemon = True
    slow.start()

    try:
        if cluster and ":" in cluster and "://" not in cluster:
            check_cluster(cluster)
        with leaving_signals():
            init_ray(log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment, **options)
    except (Exception, SystemExit) as error:  # whatever is wrong with a cluster, or with this machine
        where = f"Ray at {cluster}" if cluster else "Ray"
        first = str(error).strip().partition("\n")[0]
        raise Failure(f"{where}: {first or type(error).__name__}") from None
    finally:
        slow.cancel()


def init_ray(**options: Any) -> None:
    """Call ray.init, a second time if the machine was too busy to start Ray in the 30 s that Ray gives it."""
    try:
        ray.init(**options)
    except Exception as error:
        if LATE_START not in str(error):
            raise
        ray.init(**options)  # the processes of the first time end with this one
