"""What runs inside a Ray trial: one bank, from its saved state to its last seed.

The driver leaves trial.json in the trial's folder; the worker keeps the trial's state there and leaves its
parts for the driver to record (search/store/part.py). While the bank trains the driver may order other trials
into it: they take the slots that have fallen free.
"""

from __future__ import annotations

import json
import logging
import platform
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from model.tied import Tied, project
from search.store.part import ERROR, LOCK, STATE, Orders, Part, has_parts, write_parts
from search.study.trial import TRIAL_FILE, Configuration, Trial
from trainer import RULE, Bank, Outcome, Result
from trainer.checkpoint import code_version
from trainer.folding import FoldingBank

LOCK_WAIT_S = 60.0  # for a worker whose driver or node has died, and which has not noticed yet
OPEN = (Outcome.QUEUED, Outcome.RUNNING)


def train(config: dict[str, Any]) -> None:
    """Ray Tune's trainable. `config["folder"]`: where its first trial is described."""
    from ray import tune  # the worker's process; `run_trial` itself needs no Ray

    folder = Path(config["folder"])
    for place in _folders(folder):
        (place / ERROR).unlink(missing_ok=True)  # of an earlier attempt
    try:
        for progress in run_trial(folder):
            tune.report(progress)
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        for place in _folders(folder):
            (place / ERROR).write_text(f"{type(error).__name__}: {first}\n\n{traceback.format_exc()}")
        raise


def run_trial(folder: Path) -> Iterator[dict[str, Any]]:
    """Train a trial, and what is ordered after it, yielding a report after each evaluation.

    The last one is `done`; it is no more the last if trials were ordered meanwhile.
    """
    chain = _Chain(folder)
    try:
        if not chain.take():  # it died between its results and its end
            return
        yield {"payload": json.dumps({"phase": "compiling"})}
        chain.begin()
        evaluations = 0
        while True:
            alive = chain.bank.advance()
            evaluations += alive
            rows = chain.rows()
            ended = chain.finish(rows)
            if alive and evaluations % chain.save_every == 0:
                chain.save()
            report = {"phase": "training" if alive else "done", "seeds": list(rows.values()), "ended": ended}
            yield {"payload": json.dumps(report | _speed(chain.bank))}
            if not chain.follow() and not alive:
                return
    finally:
        chain.release()


@dataclass
class _Chain:
    """Trials that share a bank: the first one, and those that were ordered after it.

    `folder` is the first one's, where the orders are; each trial has its own state and parts, so that it
    can go on without the others.
    """

    folder: Path
    trials: dict[Path, Trial] = field(default_factory=dict)
    """Those that have not ended, by their folders."""
    numbers: dict[Path, range] = field(default_factory=dict)
    """Which of the bank's pairs are theirs; of trials that have ended, too."""
    locks: dict[Path, FileLock] = field(default_factory=dict)
    bank: Bank | FoldingBank = field(init=False)

    def take(self) -> list[Path]:
        """Have what is ordered and was not known; the results of some may be there already."""
        new = [f for f in _folders(self.folder) if f not in self.numbers and f not in self.trials]
        new = [f for f in new if not has_parts(f) and (f / TRIAL_FILE).exists()]
        for folder in new:
            self.locks[folder] = FileLock(folder / LOCK, timeout=LOCK_WAIT_S)
            self.locks[folder].acquire()
            self.trials[folder] = Trial.read(folder)
        return new

    def begin(self) -> None:
        """Make the bank: with what is ordered, from where it was saved."""
        first, *others = self.trials.items()
        folder, trial = first
        torch.set_num_threads(trial.resources.cpu)
        self.save_every = trial.resources.save_every
        begun = trial.work[0][0].begun
        make = Bank if begun == trial.spec else partial(FoldingBank, begun)
        self.bank = make(
            trial.spec,
            trial.pairs,
            slots=trial.slots,
            device="cuda" if torch.cuda.is_available() and trial.resources.gpu != 0 else "cpu",
            compiled=trial.resources.compiled,
            hopeless=RULE if trial.stop.hopeless else None,
        )
        self._know(folder, range(len(trial.pairs)))
        for folder, trial in others:
            self._know(folder, self.bank.add(trial.pairs))
        self._end_enough()

    def follow(self) -> bool:
        """Do as is ordered now. Whether there is more to train for it."""
        new = self.take()
        for folder in new:
            self._know(folder, self.bank.add(self.trials[folder].pairs))
        self._end_enough()
        return bool(new)

    def _know(self, folder: Path, numbers: range) -> None:
        self.numbers[folder] = numbers
        self.bank.load(folder / STATE, numbers)

    def _end_enough(self) -> None:
        """Of configurations that have enough, only grokked seeds go on: to see whether they hold."""
        enough = set(Orders.read(self.folder).enough)
        searching = [(f, t) for f, t in self.trials.items() if enough and not t.confirmation]
        work = [(n, c) for f, t in searching for n, (c, _) in zip(self.numbers[f], t.work, strict=True)]
        over = [n for n, c in work if c.key in enough and self.bank.result(n).grok_step is None]
        if over:
            self.bank.end(over)

    def rows(self) -> dict[int, dict[str, Any]]:
        """How far the seeds are of trials that have not ended: trial, seed, outcome, step, measures."""
        newest = self.bank.newest()
        return {
            n: newest[n] | {"trial": t.key, "configuration": c.key, "seed": [s.init_seed, s.data_seed]}
            for f, t in self.trials.items()
            for n, (c, s) in zip(self.numbers[f], t.work, strict=True)
        }

    def finish(self, rows: dict[int, dict[str, Any]]) -> list[str]:
        """Leave the parts of trials of which every seed has ended. Returns their keys."""
        ended = [f for f in self.trials if not any(rows[n]["outcome"] in OPEN for n in self.numbers[f])]
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
            self.locks.pop(folder).release()
            keys.append(trial.key)
        return keys

    def save(self) -> None:
        """A disk that is full for a while costs a state, not the trial: the one before is still there."""
        for folder in self.trials:
            try:
                self.bank.save(folder / STATE, self.numbers[folder])
            except OSError as error:
                logging.getLogger(__name__).warning("%s: state not saved (%s)", folder, error.strerror)

    def release(self) -> None:
        for lock in self.locks.values():
            lock.release()


def _folders(first: Path) -> list[Path]:
    """Of the trials that a worker is to have, as far as they exist. `first`: that of its first one."""
    folders = [first if key == first.name else first.with_name(key) for key in Orders.read(first).trials]
    return [f for f in folders if f.exists()]


def _speed(bank: Bank | FoldingBank) -> dict[str, float]:
    return {
        "seed_steps_per_s": bank.seed_steps_per_s,
        "seed_steps": bank.seed_steps,
        "train_s": bank.train_s,
        "compile_s": bank.programs.compile_s,
    }


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
        "engine": type(bank.programs).__name__.lower(),
        "compiled": trial.resources.compiled,
    }


def parts_of(trial: Trial, bank: Bank | FoldingBank, results: Sequence[Result]) -> list[Part]:
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
    return [Part(own.part(c), results, about) for c, results in found.items()]


def of(configuration: Configuration, result: Result) -> Result:
    """A bank's result as the configuration's: of a tied spec whose base was trained, θ's numbers."""
    spec = configuration.spec
    if configuration.trained == spec or not isinstance(spec, Tied):
        return result
    return replace(result, theta_P=project(spec.ties, result.theta_P[None])[0])
