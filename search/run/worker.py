"""What runs inside a Ray trial: banks, one after another, each from its saved state to its last seed.

The driver leaves trial.json in the trial's folder; the worker keeps the trial's state there and leaves its
parts for the driver to record (search/store/results.py). Where they see no folder in common these go through a
depot (search/store/depot.py), and the worker has a folder of its own. While a bank trains the driver may
order other trials: those of its program take the slots that have fallen free, others get a bank of their own
after it.
"""

from __future__ import annotations

import json
import logging
import platform
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

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
from trainer.bank.folding import FoldingBank
from trainer.checkpoints.checkpoint import code_version

LOCK_WAIT_S = 60.0  # for a worker whose driver or node has died, and which has not noticed yet


def train(config: dict[str, Any]) -> None:
    """Ray Tune's trainable. `config["folder"]`: where its first trial is described."""
    from ray import tune  # the worker's process; `run_trial` itself needs no Ray

    with _own(Path(config["folder"]), config.get("depot")) as (folder, depot):
        for place in _named(folder, _orders(folder, depot)):
            (place / ERROR).unlink(missing_ok=True)  # of an earlier attempt
            depot.remove(place / ERROR)
        try:
            for progress in run_trial(folder, depot):
                tune.report(progress)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            for place in filter(Path.exists, _named(folder, _orders(folder, depot))):
                (place / ERROR).write_text(f"{type(error).__name__}: {first}\n\n{traceback.format_exc()}")
                depot.put(place / ERROR)
            raise


@contextmanager
def _own(folder: Path, uri: str | None) -> Iterator[tuple[Path, Shared]]:
    """Where a worker has the trial whose folder the driver names, and what its files go through."""
    if uri is None:
        yield folder, Shared()
        return
    with tempfile.TemporaryDirectory(prefix="adder-search-") as root:
        yield Path(root, *folder.parts[-2:]), Depot(Path(root), uri)


def run_trial(folder: Path, depot: Shared | None = None) -> Iterator[dict[str, Any]]:
    """Train a trial, and what is ordered after it, yielding a report after each evaluation, or less often.

    The last one is `done`; it is no more the last if trials were ordered meanwhile. Who is to wait for more
    says it again now and then.
    """
    chain = _Chain(folder, depot or Shared())
    try:
        if not chain.take():  # it died between its results and its end
            return
        yield {"payload": json.dumps({"phase": "compiling"})}
        chain.follow()
        while True:
            alive = chain.bank.advance()
            rows = chain.rows()
            ended = chain.finish(rows)
            if alive:
                chain.save_at_times()
            if ended or not alive or chain.has_news(rows):
                phase = "training" if alive else "done"
                report = {"phase": phase, "tallies": chain.tallies(rows), "ended": ended}
                yield {"payload": json.dumps(report | chain.speed())}
            if not (chain.follow() or alive or chain.wait()):
                return
    finally:
        chain.release()


@dataclass
class _Chain:
    """Trials of one worker: the first one, and those that were ordered after it.

    `folder` is the first one's, where the orders are; each trial has its own state and parts, so that it
    can go on without the others.
    """

    folder: Path
    depot: Shared
    orders: WorkerAssignment = field(init=False)
    """As they were found when it looked last."""
    trials: dict[Path, Trial] = field(default_factory=dict)
    """Those that have not ended, by their folders; of the first that waits, the next bank is made."""
    numbers: dict[Path, range] = field(default_factory=dict)
    """Which of the bank's pairs are theirs; of trials that have ended, too."""
    locks: dict[Path, FileLock] = field(default_factory=dict)
    bank: Bank | FoldingBank = field(init=False)
    trial: Trial = field(init=False)
    """Of which the bank was made."""
    evaluations: int = 0
    said: tuple[float, int, int] = (0.0, 0, 0)
    """When it reported, and what: seeds that had grokked, slots that were free."""
    before: dict[str, float] = field(default_factory=dict)
    """What the banks came to that were trained before this one."""

    def take(self) -> list[Path]:
        """Have what is ordered and was not known; the results of some may be there already."""
        self.orders = _orders(self.folder, self.depot)
        ordered = _named(self.folder, self.orders)
        new = [f for f in ordered if f not in self.numbers and f not in self.trials]
        new = [f for f in new if self.depot.get(f / TRIAL_FILE) and not self.depot.has_folder(f / PARTS)]
        for folder in new:
            self.locks[folder] = FileLock(folder / LOCK, timeout=LOCK_WAIT_S)
            self.locks[folder].acquire()
            self.trials[folder] = Trial.read(folder)
        return new

    def follow(self) -> bool:
        """Do as is ordered now. Whether there is more to train for it."""
        self.take()
        waiting = [f for f in self.trials if f not in self.numbers]
        begins = bool(waiting) and len(waiting) == len(self.trials)
        if begins:
            self._begin(waiting.pop(0))
        fitting = [f for f in waiting if can_follow(self.trials[f], self.trial)]
        for folder in fitting:
            self._know(folder, self.bank.add(self.trials[folder].pairs))
        self._end_enough()
        return begins or bool(fitting)

    def _begin(self, folder: Path) -> None:
        """Make a bank of a trial, from where it was saved; the one before has no seed left."""
        trial = self.trial = self.trials[folder]
        if hasattr(self, "bank"):
            self.before = self.speed()
        torch.set_num_threads(trial.resources.cpu)
        begun = trial.work[0][0].initial_spec
        make = Bank if begun == trial.spec else partial(FoldingBank, begun)
        self.bank = make(
            trial.spec,
            trial.pairs,
            slots=trial.slots,
            device="cuda" if torch.cuda.is_available() and trial.resources.gpu != 0 else "cpu",
            compiled=trial.resources.compiled,
            futility=FUTILITY_RULE if trial.stop.hopeless else None,
        )
        self.evaluations = 0
        self.numbers.clear()
        self._know(folder, range(len(trial.pairs)))

    def wait(self) -> bool:
        """Without work: look for orders, as long as is ordered. False if there will be none.

        How long may change meanwhile: who waits is told when nothing is left.
        """
        since = time.monotonic()
        while time.monotonic() - since < self.orders.wait_s:
            if self.follow():
                return True
            time.sleep(self.depot.look_s)
        return _orders(self.folder, self.depot).wait_s > 0

    def _know(self, folder: Path, numbers: range) -> None:
        self.numbers[folder] = numbers
        if self.depot.keeps:  # else its predecessor may be whole where it is torn
            self.depot.get(folder / STATE)
        self.bank.load(folder / STATE, numbers)

    def _end_enough(self) -> None:
        """Of configurations that have enough, only grokked seeds go on: to see whether they hold."""
        enough = set(self.orders.enough)
        mine = [(f, t) for f, t in self.trials.items() if f in self.numbers]
        searching = [(f, t) for f, t in mine if enough and not t.confirmation]
        work = [(n, c) for f, t in searching for n, (c, _) in zip(self.numbers[f], t.work, strict=True)]
        over = [n for n, c in work if c.key in enough and self.bank.result(n).grok_step is None]
        if over:
            self.bank.end(over)

    def rows(self) -> dict[int, dict[str, Any]]:
        """How far the seeds are of trials that have not ended: trial, what Tally wants to know, measures."""
        newest = self.bank.newest()
        return {
            n: newest[n]
            | {"trial": t.key, "configuration": c.key, "seed": (s.init_seed, s.data_seed)}
            | {"budget": c.recipe.steps}
            for f, t in self.trials.items()
            if f in self.numbers
            for n, (c, s) in zip(self.numbers[f], t.work, strict=True)
        }

    def tallies(self, rows: dict[int, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """What is said of them, by their trials' keys."""
        of = group_by(rows.values(), "trial")
        return {key: vars(TrialReport.of(mine)) for key, mine in of.items()}  # asdict would copy all

    def has_news(self, rows: dict[int, dict[str, Any]]) -> bool:
        """Whether to report: one of many workers does so seldom, but for grokked seeds and free slots."""
        grokked = sum(row["grok_step"] is not None for row in rows.values())
        free = self.trial.slots - sum(row["outcome"] in OPEN for row in rows.values())
        due = time.monotonic() - self.said[0] >= self.orders.apart_s
        if due or grokked != self.said[1] or free - self.said[2] > self.trial.slots // 8:
            self.said = time.monotonic(), grokked, free
            return True
        return False

    def finish(self, rows: dict[int, dict[str, Any]]) -> list[str]:
        """Leave the parts of trials of which every seed has ended. Returns their keys."""
        mine = [f for f in self.trials if f in self.numbers]
        ended = [f for f in mine if not any(rows[n]["outcome"] in OPEN for n in self.numbers[f])]
        keys = []
        for folder in ended:
            trial = self.trials.pop(folder)
            results = [self.bank.result(n) for n in self.numbers[folder]]
            pairs = list(zip(trial.work, results, strict=True))
            cut = {
                (c.key, s.init_seed, s.data_seed): r.steps
                for (c, s), r in pairs
                if r.outcome == Outcome.CENSORED
            }
            write_parts(folder, parts_of(trial, self.bank, results), cut)
            self.depot.put_folder(folder / PARTS)
            self.locks.pop(folder).release()
            keys.append(trial.key)
        return keys

    def save_at_times(self) -> None:
        """A disk that is full for a while costs a state, not the trial: the one before is still there."""
        self.evaluations += 1
        if self.evaluations % self.trial.resources.save_every:
            return
        for folder in self.trials.keys() & self.numbers.keys():
            try:
                self.bank.save(folder / STATE, self.numbers[folder])
                self.depot.put(folder / STATE, patient=False)
            except (OSError, Failure) as error:
                said = getattr(error, "strerror", error)
                logging.getLogger(__name__).warning("%s: state not saved (%s)", folder, said)

    def speed(self) -> dict[str, float]:
        """Of the bank, and what all banks of this worker came to."""
        bank, before = self.bank, self.before
        return {
            "seed_steps_per_s": bank.seed_steps_per_s,
            "seed_steps": before.get("seed_steps", 0) + bank.seed_steps,
            "train_s": before.get("train_s", 0.0) + bank.train_s,
            "compile_s": before.get("compile_s", 0.0) + bank.programs.compile_s,
        }

    def release(self) -> None:
        for lock in self.locks.values():
            lock.release()


def _orders(first: Path, depot: Shared) -> WorkerAssignment:
    """What is ordered of the worker whose first trial has this folder; of a store that is away, what was."""
    with suppress(Failure):
        depot.get(assignment_path(first), patient=False)
    return WorkerAssignment.read(first)


def _named(first: Path, orders: WorkerAssignment) -> list[Path]:
    """The folders of the trials that are ordered. `first`: that of the worker's first one."""
    return [first if key == first.name else first.with_name(key) for key in orders.trials]


def environment_of(trial: Trial, bank: Bank | FoldingBank) -> dict[str, Any]:
    """What a θ depends on beside configuration and seed."""
    return {
        "code": code_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name() if bank.device == "cuda" else platform.machine(),
        "threads": trial.resources.cpu,
        "slots": trial.slots,
        "engine": bank.programs.name,
        "compiled": trial.resources.compiled,
    }


def parts_of(trial: Trial, bank: Bank | FoldingBank, results: Sequence[Result]) -> list[ConfigurationResults]:
    """A part for each configuration: every seed's best θ, its curve, and what became of it.

    Seeds that were ended from outside are in none: they have not become anything.
    """
    about = {
        "environment": environment_of(trial, bank),
        "seed_steps_per_s": bank.seed_steps_per_s,
        "compile_s": bank.programs.compile_s,
        "cache_misses": bank.programs.cache_misses,
    }
    pairs = [p for p in zip(trial.work, results, strict=True) if p[1].outcome != Outcome.CENSORED]
    own = replace(trial, work=tuple(work for work, _ in pairs))
    found = {c: [of(c, r) for (mine, _), r in pairs if mine == c] for c in own.configurations}
    return [ConfigurationResults(own.part(c), results, about) for c, results in found.items()]


def of(configuration: Configuration, result: Result) -> Result:
    """A bank's result as the configuration's: of a tied spec whose base was trained, θ's numbers."""
    spec = configuration.spec
    if configuration.trained == spec or not isinstance(spec, Tied):
        return result
    return replace(result, theta_P=project(spec.ties, result.theta_P[None])[0])
