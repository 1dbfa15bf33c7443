"""A worker: banks, one after another, each from its saved state to its last seed.

The driver leaves trial.json in the trial's folder. The worker keeps the trial's state there and leaves its
results for the driver to record (search/store/results.py). Where they see no folder in common, the files go
through a depot (search/store/depot.py) and the worker has a folder of its own. While a bank trains, the driver
may assign other trials: those of its program take the slots that have fallen free, others get a bank of their
own after it.
"""

import json
import logging
import os
import platform
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from model.tied import Tied, project
from search.errors import Failure
from search.run.packing import can_follow
from search.run.tally import OPEN, TrialReport
from search.stats.counting import group_by
from search.store.depot import Depot, Shared
from search.store.results import (
    ERROR,
    LOCK,
    PARTS,
    STATE,
    ConfigurationResults,
    WorkerAssignment,
    assignment_path,
    write_parts,
)
from search.study.trial import TRIAL_FILE, Configuration, Trial
from trainer import FUTILITY_RULE, Bank, Outcome, Result
from trainer.bank.futility import FutilityRule
from trainer.checkpoints.checkpoint import code_version
from trainer.curvature.pool import has_kernel
from trainer.engine.build import denormals
from trainer.engine.cuda.driver import is_declared

LOOK_S = 5.0
"""Seconds between checks that a worker's trials still belong to its driver."""
LOCK_WAIT_S = 60.0  # a worker whose driver or node has died may not have noticed yet


def train(config: Mapping[str, Any]) -> None:
    """Train a worker's trials as Ray Tune's trainable."""
    from ray import tune  # the worker's process; `run_trial` itself needs no Ray

    with _ending_when_superseded(Path(config["folder"]), config["driver"], config.get("depot")):
        for report in train_reporting(config):
            tune.report({"payload": json.dumps(report)})


@contextmanager
def _ending_when_superseded(folder: Path, driver: str, depot: str | None) -> Iterator[None]:
    """End this process, and with it its locks, once a trial that it was given belongs to another driver.

    A paused driver never answers a report. With a depot no folder is shared.
    """
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_S):
            for place in _assigned(folder, Shared()):
                with suppress(OSError, ValueError):  # a trial that is done is removed
                    if Trial.read_driver(place) not in (driver, ""):
                        os._exit(1)

    if depot is None:
        threading.Thread(target=look, name="superseded", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def train_reporting(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Train a worker's trials and yield its reports. Before it raises it leaves the error in their folders.

    `config["folder"]`: where its first trial is described. `config["depot"]`: URI of the depot, if any.
    `config["driver"]`: the name of the driver that it belongs to. `config["on_gpu"]`: true if its place is on a GPU.
    """
    with _local_folder(Path(config["folder"]), config.get("depot")) as (folder, depot):
        for place in _assigned(folder, depot):
            (place / ERROR).unlink(missing_ok=True)  # of an earlier attempt
            depot.remove(place / ERROR)
        try:
            yield from run_trial(folder, depot, config.get("on_gpu", False))
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            for place in filter(Path.exists, _assigned(folder, depot)):
                (place / ERROR).write_text(
                    f"{type(error).__name__}: {first}\n\n{traceback.format_exc()}", encoding="utf-8"
                )
                depot.put(place / ERROR)
            raise


@contextmanager
def _local_folder(folder: Path, uri: str | None) -> Iterator[tuple[Path, Shared]]:
    """Yield the worker's folder of its first trial, and what its files go through."""
    if uri is None:
        yield folder, Shared()
        return
    with tempfile.TemporaryDirectory(prefix="adder-search-") as root:
        yield Path(root, *folder.parts[-2:]), Depot(Path(root), uri)


def run_trial(folder: Path, depot: Shared | None = None, on_gpu: bool = False) -> Iterator[dict[str, Any]]:
    """Train a trial and those assigned after it. Yield a report at the start and after evaluations.

    The final report has phase "done". If the driver assigned more trials meanwhile, training goes on. A waiting
    worker repeats "done" as a heartbeat.
    """
    session, remarks = WorkerSession(folder, depot or Shared(), on_gpu), Remarks()
    logging.getLogger("trainer").addHandler(remarks)
    try:
        if not session.load_assigned():  # it died between its results and its end
            return
        yield {"phase": "compiling"}
        session.run_next()
        begun = {"phase": "training", "tallies": session.reports(session.rows()), "ended": []}
        yield begun | session.speed() | remarks.take()
        while True:
            alive = session.bank.advance()
            rows = session.rows()
            ended = session.write_results(rows)
            if alive:
                session.save_states()
            if ended or not alive or session.has_news(rows):
                phase = "training" if alive else "done"
                report = {"phase": phase, "tallies": session.reports(rows), "ended": ended}
                yield report | session.speed() | remarks.take()
            if not (session.run_next() or alive or session.wait()):
                return
    finally:
        logging.getLogger("trainer").removeHandler(remarks)
        session.release()


class Remarks(logging.Handler):
    """What the trainer warns of. Nobody sees what a worker prints: its reports bring it to the driver."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def take(self) -> dict[str, list[str]]:
        """Return the lines since the last call as a part of a report."""
        lines, self.lines = self.lines, []
        return {"remarks": lines} if lines else {}


def bank_of(trial: Trial, device: str, futility: FutilityRule | None) -> Bank:
    """Return a bank of a trial's pairs before their first step. It computes in as many threads as the trial has."""
    torch.set_num_threads(trial.resources.threads)
    return Bank(
        trial.spec,
        trial.pairs,
        slots=trial.slots,
        device=device,
        compiled=trial.resources.compiled,
        futility=futility,
    )


@dataclass
class WorkerSession:
    """The trials of one worker: the first one, and those assigned after it.

    `folder` is the first one's, beside which the assignment is. Each trial has its own state and results, so
    that it can go on without the others.
    """

    folder: Path
    depot: Shared
    on_gpu: bool = False
    assignment: WorkerAssignment = field(init=False)
    """As it was read last."""
    trials: dict[Path, Trial] = field(default_factory=dict)
    """Trials that have not ended, by their folders. The next bank is made of the first that waits."""
    numbers: dict[Path, range] = field(default_factory=dict)
    """Numbers of trials' pairs in the bank: none of a trial that has ended."""
    locks: dict[Path, FileLock] = field(default_factory=dict)
    bank: Bank = field(init=False)
    trial: Trial = field(init=False)
    """The trial that the bank was made of."""
    evaluations: int = 0
    last_report: tuple[float, int, int] = (0.0, 0, 0)
    """When it was, and how many seeds had grokked and slots were free."""
    earlier: dict[str, float] = field(default_factory=dict)
    """`speed` of the banks before this one."""

    @property
    def training(self) -> dict[Path, Trial]:
        """Trials with seeds in the bank that have not ended."""
        return {f: t for f, t in self.trials.items() if f in self.numbers}

    def load_assigned(self) -> list[Path]:
        """Load newly assigned trials, skipping those whose results exist. Returns their folders."""
        self.assignment = _read_assignment(self.folder, self.depot)
        folders = _folders(self.folder, self.assignment)
        new = [f for f in folders if f not in self.numbers and f not in self.trials]
        new = [f for f in new if self.depot.get(f / TRIAL_FILE) and not self.depot.has_folder(f / PARTS)]
        for folder in new:
            self.locks[folder] = FileLock(folder / LOCK, timeout=LOCK_WAIT_S)
            try:
                self.locks[folder].acquire()
            except Timeout:
                why = f"another worker has had this trial for {LOCK_WAIT_S:.0f} s: it hangs, or is paused"
                raise TimeoutError(why) from None
            self.trials[folder] = Trial.read(folder)
        return new

    def run_next(self) -> bool:
        """Do as is assigned now. Returns True if there is more to train for it."""
        self.load_assigned()
        waiting = [f for f in self.trials if f not in self.numbers]
        begins = bool(waiting) and len(waiting) == len(self.trials)
        if begins:
            self._make_bank(waiting.pop(0))
        fitting = [f for f in waiting if can_follow(self.trials[f], self.trial)]
        for folder in fitting:
            self._restore(folder, self.bank.add(self.trials[folder].pairs))
        self._end_satisfied()
        return begins or bool(fitting)

    def _make_bank(self, folder: Path) -> None:
        """Make a bank of a trial, from where it was saved. The one before has no seed left."""
        trial = self.trial = self.trials[folder]
        if hasattr(self, "bank"):
            self.earlier = self.speed()
        on_gpu = self.on_gpu and is_declared()
        rule = FUTILITY_RULE if trial.stop.hopeless else None
        self.bank = bank_of(trial, "cuda" if on_gpu else "cpu", rule)
        self.evaluations = 0
        self.numbers.clear()
        self._restore(folder, range(len(trial.pairs)))

    def wait(self) -> bool:
        """Without work: look for more while the assignment says so. Returns False if there will be none.

        The time may change meanwhile: a worker that waits is told when nothing is left.
        """
        since = time.monotonic()
        while time.monotonic() - since < self.assignment.wait_s:
            if self.run_next():
                return True
            time.sleep(self.depot.poll_interval_s)
        return _read_assignment(self.folder, self.depot).wait_s > 0

    def _restore(self, folder: Path, numbers: range) -> None:
        self.numbers[folder] = numbers
        if self.depot.retains_results:  # else its predecessor may be whole where it is torn
            self.depot.get(folder / STATE)
        self.bank.load(folder / STATE, numbers)

    def _end_satisfied(self) -> None:
        """End the seeds of configurations that have enough. Grokked ones go on, to see if they hold."""
        enough = set(self.assignment.enough)
        trials = {f: t for f, t in self.training.items() if enough and not t.confirmation}
        work = [(n, c) for f, t in trials.items() for n, (c, _) in zip(self.numbers[f], t.work, strict=True)]
        ended = [n for n, c in work if c.key in enough and self.bank.result(n).grok_step is None]
        if ended:
            self.bank.end(ended)

    def rows(self) -> dict[int, dict[str, Any]]:
        """Return how far the seeds of training trials are, by number: trial, and TrialReport's facts."""
        newest = self.bank.newest()
        return {
            n: newest[n]
            | {"trial": t.key, "configuration": c.key, "seed": (s.init_seed, s.data_seed)}
            | {"budget": c.recipe.steps}
            for f, t in self.training.items()
            for n, (c, s) in zip(self.numbers[f], t.work, strict=True)
        }

    def reports(self, rows: dict[int, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return each trial's TrialReport as a dict, by its key."""
        by_trial = group_by(rows.values(), "trial").items()
        return {key: vars(TrialReport.of(part)) for key, part in by_trial}  # asdict would copy all

    def has_news(self, rows: dict[int, dict[str, Any]]) -> bool:
        """True if it is time to report: one of many workers does so seldom, but for winners and free slots."""
        grokked = sum(row["grok_step"] is not None for row in rows.values())
        free = self.trial.slots - sum(row["outcome"] in OPEN for row in rows.values())
        reported_s, grokked_before, free_before = self.last_report
        due = time.monotonic() - reported_s >= self.assignment.apart_s
        if due or grokked != grokked_before or free - free_before > self.trial.slots // 8:
            self.last_report = time.monotonic(), grokked, free
            return True
        return False

    def write_results(self, rows: dict[int, dict[str, Any]]) -> list[str]:
        """Write the results of trials whose seeds have all ended. Returns their keys."""
        ended = []
        for folder in list(self.training):
            if any(rows[n]["outcome"] in OPEN for n in self.numbers[folder]):
                continue
            trial = self.trials.pop(folder)
            results = [self.bank.result(n) for n in self.numbers[folder]]
            cut = {
                (c.key, s.init_seed, s.data_seed): r.steps
                for (c, s), r in zip(trial.work, results, strict=True)
                if r.outcome == Outcome.CENSORED
            }
            write_parts(folder, results_of(trial, self.bank, results), cut)
            self.depot.put_folder(folder / PARTS)
            self.locks.pop(folder).release()
            ended.append((folder, trial.key))
        for folder, _ in ended:  # when no number of `rows` is wanted any more
            self._remove(folder)
        return [key for _, key in ended]

    def _remove(self, folder: Path) -> None:
        """Remove a trial's pairs from the bank, whose records would grow for ever. Later numbers fall."""
        gone = self.numbers[folder]
        self.bank.remove(gone)
        later = {f: r for f, r in self.numbers.items() if r.start >= gone.stop}
        self.numbers |= {f: range(r.start - len(gone), r.stop - len(gone)) for f, r in later.items()}
        self.numbers[folder] = range(0)

    def save_states(self) -> None:
        """Save the trials' states when it is time. On a full disk the states before them stay."""
        self.evaluations += 1
        if self.evaluations % self.trial.resources.save_every:
            return
        for folder in self.training:
            try:
                self.bank.save(folder / STATE, self.numbers[folder])
                self.depot.put(folder / STATE, patient=False)
            except (OSError, Failure) as error:
                reason = getattr(error, "strerror", error)
                logging.getLogger(__name__).warning("%s: state not saved (%s)", folder, reason)

    def speed(self) -> dict[str, float]:
        """Return the bank's speed, and the sums over all banks of this worker."""
        bank, earlier = self.bank, self.earlier
        return {
            "seed_steps_per_s": bank.seed_steps_per_s,
            "seed_steps": earlier.get("seed_steps", 0) + bank.seed_steps,
            "train_s": earlier.get("train_s", 0.0) + bank.train_s,
            "compile_s": earlier.get("compile_s", 0.0) + bank.programs.compile_s,
        }

    def release(self) -> None:
        for lock in self.locks.values():
            lock.release()


def _read_assignment(first: Path, depot: Shared) -> WorkerAssignment:
    """Return the assignment of the worker whose first trial has this folder; the last one of a depot that is away."""
    with suppress(Failure):
        depot.get(assignment_path(first), patient=False)
    return WorkerAssignment.read(first)


def _folders(first: Path, assignment: WorkerAssignment) -> list[Path]:
    """Return the folders of the assigned trials. `first`: that of the worker's first one."""
    return [first if key == first.name else first.with_name(key) for key in assignment.trials]


def _assigned(first: Path, depot: Shared) -> list[Path]:
    return _folders(first, _read_assignment(first, depot))


def environment_of(trial: Trial, bank: Bank) -> dict[str, Any]:
    """Return what a θ depends on beside configuration and seed."""
    return {
        "code": code_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "device": platform.machine(),
        "threads": trial.resources.threads,
        "slots": trial.slots,
        "engine": bank.programs.name,
        "denormals": denormals(),
        "finish": "engine" if has_kernel(trial.spec) else "torch",
        "compiled": trial.resources.compiled,
        **bank.programs.about,
    }


def results_of(trial: Trial, bank: Bank, results: Sequence[Result]) -> list[ConfigurationResults]:
    """Return each configuration's results: every seed's best θ, its curve, and its outcome.

    Seeds that were ended from outside are left out: they have no outcome.
    """
    about = {
        "environment": environment_of(trial, bank),
        "seed_steps_per_s": bank.seed_steps_per_s,
        "compile_s": bank.programs.compile_s,
    }
    ended = [p for p in zip(trial.work, results, strict=True) if p[1].outcome != Outcome.CENSORED]
    trained = replace(trial, work=tuple(work for work, _ in ended))
    return [
        ConfigurationResults(
            trained.part(c), [in_configuration_space(c, r) for (own, _), r in ended if own == c], about
        )
        for c in trained.configurations
    ]


def in_configuration_space(configuration: Configuration, result: Result) -> Result:
    """Return a bank's result with θ in the configuration's own numbers, where the base of a tied spec was trained."""
    spec = configuration.spec
    if configuration.trained == spec or not isinstance(spec, Tied):
        return result
    return replace(result, theta_P=project(spec.ties, result.theta_P[None])[0])
