"""Progress of a running study, and the display of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from search.run.planner import Planner
from search.run.tally import TrialReport
from search.stats.counting import COUNTED
from search.study.trial import Trial
from trainer import Outcome

if TYPE_CHECKING:  # torch comes with it, which a plan does without
    from search.run.workers import Workers, WorkerState


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
    """Steps that grokked seeds are to hold, if there is enough and nothing else trains."""


class Progress:
    """Progress of a run: what has ended is counted here, what runs is read off the plan and the workers."""

    def __init__(self, planner: Planner, workers: Workers):
        self.planner, self.workers = planner, workers
        self.start = time.monotonic()
        self.ended: Counter[str] = Counter()
        """Seeds of recorded trials, by outcome."""
        self.best_exact = 0.0
        self.reports = 0
        self.seed_steps: dict[str, int] = {}
        """Trained by each worker, by its key."""
        self.trained_from, self.trained_to = float("inf"), 0.0

    def take(self, worker: WorkerState, report: Mapping[str, Any], trials: Iterable[TrialReport]) -> None:
        """Take a worker's report, and what it says of its trials."""
        self.reports += 1
        worker.phase = report["phase"]
        worker.seed_steps_per_s = report.get("seed_steps_per_s", 0.0)
        self.best_exact = max([self.best_exact, *(t.best_exact for t in trials)])
        if worker.phase == "training":
            self.trained_to = time.monotonic()
            self.trained_from = min(self.trained_from, self.trained_to - report["train_s"])
            self.seed_steps[worker.first.key] = report["seed_steps"]

    @property
    def overall_rate(self) -> float:
        """Seed-steps/s from the first step of the first trial to the last report of the last."""
        span = self.trained_to - self.trained_from
        return sum(self.seed_steps.values()) / span if span > 0 else 0.0

    @property
    def rate(self) -> float:
        """Seed-steps/s of all workers that have a trial, by their last reports."""
        return sum(worker.seed_steps_per_s for worker in self.workers if worker.open)

    def _running(self) -> Iterator[tuple[Trial, TrialReport]]:
        for trial in self.planner.running.values():
            yield trial, self.planner.run.report_of(trial)

    def states(self) -> Counter[str]:
        """Return the number of seeds of running trials in each state."""
        return sum((Counter(report.states) for _, report in self._running()), Counter())

    def steps(self) -> dict[tuple[str, int, int], int]:
        """Return the last reported step of each seed of a running trial, by configuration key and seed."""
        return {
            (c.key, seed.init_seed, seed.data_seed): step
            for trial, report in self._running()
            for (c, seed), step in zip(trial.work, report.each_step(), strict=False)
        }

    def snapshot(self) -> Snapshot:
        """Return how far the run is.

        The remaining work is counted in budgets, so the time left is the most it may take: a seed that groks or
        is given up ends earlier.
        """
        reports, states = [report for _, report in self._running()], self.states()
        remaining = self.planner.queued_steps + sum(report.left for report in reports)
        rate = self.rate or self.overall_rate
        return Snapshot(
            running=states[Outcome.RUNNING],
            grokked=sum(sum(r.grokked.values()) for r in reports) + self.ended[Outcome.GROKKED],
            failed=sum(states[o] + self.ended[o] for o in COUNTED if o != Outcome.GROKKED),
            best_exact=self.best_exact,
            seed_steps_per_s=rate,
            seconds_left=remaining / rate if rate else None,
            compiling=any(w.open and w.phase in ("starting", "compiling") for w in self.workers),
            elapsed_s=time.monotonic() - self.start,
            holding=self._holding(),
        )

    def _holding(self) -> dict[str, int]:
        """Return the grokked seeds that train on, with steps to hold, if nothing else of the search does."""
        holding: dict[str, int] = {}
        for trial, report in self._running():
            if trial.confirmation:
                continue
            by_key = {c.key: c for c in trial.configurations}
            if report.states.get(Outcome.RUNNING, 0) > len(report.holding):
                return {}
            if not all(self.planner.run.has_enough(by_key[key]) for key, _ in report.holding):
                return {}
            holding |= {seed: by_key[key].recipe.hold for key, seed in report.holding}
        return holding


# ---- the display: a live line in a terminal, a plain one every few seconds elsewhere

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
        """True if enough time has passed for another snapshot."""
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
    """Return hours, minutes and seconds without leading zeros: 1:02:03, 4:05, 0:07."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
