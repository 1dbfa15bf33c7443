"""How far a study is, and what a running study shows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from search.run.tally import TrialReport
from search.stats.counting import COUNTED
from search.study.trial import Configuration, Trial
from trainer import Outcome

Row = dict[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """One moment of a run. Rates are seed-steps/s; times are seconds."""

    running: int
    grokked: int
    failed: int
    best_exact: float
    seed_steps_per_s: float
    seconds_left: float | None
    compiling: bool
    elapsed_s: float
    holding: dict[str, int] = field(default_factory=dict)
    """Seeds that are all that is waited for, since enough have grokked: how many steps they are to hold."""


class Progress:
    """Progress of a study's running trials, out of the reports of their workers."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.trials: dict[str, Row] = {}
        self.running: dict[str, Trial] = {}
        self.worker_of: dict[str, str] = {}
        """Of each running trial, the first trial of its worker: they share one bank and its speed."""
        self.ended: Counter[str] = Counter()
        self.best_exact = 0.0
        self.reports = 0
        """Of workers."""
        self.seed_steps: dict[str, int] = {}
        self.trained_from, self.trained_to = float("inf"), 0.0

    @property
    def overall_rate(self) -> float:
        """Seed-steps/s from the first step of the first trial to the last report of the last."""
        span = self.trained_to - self.trained_from
        return sum(self.seed_steps.values()) / span if span > 0 else 0.0

    @property
    def rate(self) -> float:
        """Seed-steps/s of all workers, as they last said."""
        rates = {self.worker_of[key]: t["seed_steps_per_s"] for key, t in self.trials.items()}
        return sum(rates.values())

    def started(self, trial: Trial, worker: str | None = None) -> None:
        """Note that a trial starts. worker: the key of its worker's first trial, if that is another one."""
        self.worker_of[trial.key] = worker or trial.key
        speed = (t["seed_steps_per_s"] for key, t in self.trials.items() if self.worker_of[key] == worker)
        budgets = sum(configuration.recipe.steps for configuration, _ in trial.work)
        self.trials[trial.key] = {
            "phase": "starting",
            "tally": TrialReport({Outcome.QUEUED: len(trial.work)}, budgets),
            "seed_steps_per_s": next(speed, 0.0),
        }
        self.running[trial.key] = trial

    def report(self, trial: Trial, report: Row) -> None:
        """Take a worker's report of a trial."""
        latest = self.trials[trial.key] = self.trials[trial.key] | report
        if report["phase"] == "training":
            self.trained_to = time.monotonic()
            self.trained_from = min(self.trained_from, self.trained_to - report["train_s"])
            self.seed_steps[self.worker_of[trial.key]] = report["seed_steps"]
        self.best_exact = max(self.best_exact, latest["tally"].best_exact)

    def finished(self, trial: Trial, outcomes: list[str]) -> None:
        self.trials.pop(trial.key, None)
        self.running.pop(trial.key, None)
        self.ended.update(outcomes)

    def states(self) -> Counter[str]:
        """How many seeds of running trials are in each state."""
        found: Counter[str] = Counter()
        for t in self.trials.values():
            found.update(t["tally"].states)
        return found

    def steps(self) -> dict[tuple[str, int, int], int]:
        """How far each seed of a running trial is, by configuration key and seed."""
        return {
            (c.key, seed.init_seed, seed.data_seed): step
            for key, t in self.trials.items()
            for (c, seed), step in zip(self.running[key].work, t["tally"].each_step(), strict=False)
        }

    def snapshot(
        self, queued_seed_steps: int = 0, has_enough: Callable[[Configuration], bool] = lambda c: False
    ) -> Snapshot:
        """`queued_seed_steps`: budgets of the seeds that are planned and not yet started. `has_enough`: if
        no more seeds of a configuration are needed.

        What is left is counted in budgets, so the time left is the most it may take: a seed that groks or is
        given up ends earlier, and counts no more from then on.
        """
        tallies: list[TrialReport] = [t["tally"] for t in self.trials.values()]
        states = self.states()
        left = queued_seed_steps + sum(tally.left for tally in tallies)
        rate = self.rate or self.overall_rate
        failed = sum(states[o] + self.ended[o] for o in COUNTED if o != Outcome.GROKKED)
        return Snapshot(
            running=states[Outcome.RUNNING],
            grokked=sum(sum(t.grokked.values()) for t in tallies) + self.ended[Outcome.GROKKED],
            failed=failed,
            best_exact=self.best_exact,
            seed_steps_per_s=rate,
            seconds_left=left / rate if rate else None,
            compiling=any(t["phase"] in ("starting", "compiling") for t in self.trials.values()),
            elapsed_s=time.monotonic() - self.start,
            holding=self._holding(has_enough),
        )

    def _holding(self, has_enough: Callable[[Configuration], bool]) -> dict[str, int]:
        """The seeds that have grokked and train on, if nothing else of the search does."""
        found: dict[str, int] = {}
        for key, t in self.trials.items():
            known = {c.key: c for c in self.running[key].configurations}
            tally: TrialReport = t["tally"]
            if self.running[key].confirmation:
                continue
            if tally.states.get(Outcome.RUNNING, 0) > len(tally.holding):
                return {}
            if not all(has_enough(known[configuration]) for configuration, _ in tally.holding):
                return {}
            found |= {seed: known[configuration].recipe.hold for configuration, seed in tally.holding}
        return found


# What is shown of it: a live line in a terminal, a plain one every few seconds elsewhere

PLAIN_EVERY_S, LIVE_EVERY_S = 5.0, 0.25


class Display:
    """Show snapshots; use as a context manager."""

    def __init__(self, console: Console):
        self.console = console
        self.live = Live(console=console, refresh_per_second=4) if console.is_terminal else None
        self.shown = 0.0

    def __enter__(self) -> Display:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def due(self) -> bool:
        """Whether enough time has passed for another snapshot."""
        return time.monotonic() - self.shown >= (LIVE_EVERY_S if self.live else PLAIN_EVERY_S)

    def show(self, snapshot: Snapshot) -> None:
        self.shown = time.monotonic()
        cells = _cells(snapshot)
        if self.live:
            table = Table(box=None, pad_edge=False)
            for name in cells:
                table.add_column(name, justify="right", style="bold")
            table.add_row(*cells.values())
            self.live.update(table)
        else:
            self.console.print("  ".join(f"{name} {value}" for name, value in cells.items()), soft_wrap=True)

    def say(self, line: str) -> None:
        """Show a line in place of a snapshot."""
        self.shown = time.monotonic()
        if self.live:
            self.live.update(line)
        else:
            self.console.print(line, soft_wrap=True)

    def say_if_due(self, line: str) -> None:
        """Show a line in place of a snapshot, if enough time has passed since the last one."""
        if self.due():
            self.say(line)


def _cells(s: Snapshot) -> dict[str, str]:
    waiting = "compiling" if s.compiling else "starting"
    speed = f"{s.seed_steps_per_s:,.0f}" if s.seed_steps_per_s else waiting
    seeds = [f"seed {name} to hold for {steps:,} steps" for name, steps in s.holding.items()]
    return {
        "elapsed": duration(s.elapsed_s),
        "running": str(s.running),
        "grokked": str(s.grokked),
        "failed": str(s.failed),
        "best exact match": f"{s.best_exact:.4f}",
        "seed-steps/s": speed,
        "time left": duration(s.seconds_left) if s.seconds_left is not None else "?",
        **({"waits for": ", ".join(seeds)} if seeds else {}),
    }


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, without leading zeros: 1:02:03, 4:05, 0:07."""
    whole = int(seconds + 0.5)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
