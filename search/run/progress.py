"""How far a study is: what the display shows, and a configuration's metrics by training step."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from search.store.stats import step_metrics
from search.study.trial import Configuration, Trial
from trainer import Outcome

SeedKey = tuple[int, int]
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


@dataclass
class Curves:
    """The evaluations of one configuration's watched seeds, until all of them have passed them."""

    waiting: set[SeedKey]
    newest: dict[SeedKey, Row] = field(default_factory=dict)
    by_step: dict[int, dict[SeedKey, Row]] = field(default_factory=lambda: defaultdict(dict))
    given: int = 0
    """The last step whose metrics were given out; a trial that was started again passes it again."""

    def take(self, step: int) -> dict[str, float]:
        """A step's metrics; seeds that ended before it count with their last evaluation."""
        at_step = self.by_step.pop(step)
        return step_metrics(step, [at_step.get(key, self.newest[key]) for key in self.waiting])


class Progress:
    """Fed with the workers' reports; asked for snapshots and for metrics that are complete.

    A bank trains some of its seeds from the start and others when a slot falls free, so that of a whole round
    the first step would be complete only when the last seed has begun. Metrics over steps are therefore those
    of `watched` seeds (`Study.watched`), which begin at the start: a step's metrics come soon after it was
    trained and are of the same seeds at every step.
    """

    def __init__(self, watched: list[SeedKey]):
        self.watched = watched
        self.start = time.monotonic()
        self.trials: dict[str, Row] = {}
        self.budgets: dict[str, list[int]] = {}
        self.curves: dict[str, Curves] = {}
        self.ended: Counter[str] = Counter()
        self.best_exact = 0.0
        self.seed_steps: dict[str, int] = {}
        self.trained_from, self.trained_to = float("inf"), 0.0

    @property
    def overall_rate(self) -> float:
        """Seed-steps/s from the first step of the first trial to the last report of the last."""
        span = self.trained_to - self.trained_from
        return sum(self.seed_steps.values()) / span if span > 0 else 0.0

    def started(self, trial: Trial) -> None:
        waiting = {"outcome": Outcome.QUEUED, "step": 0, "grok_step": None}
        self.trials[trial.key] = {
            "phase": "starting",
            "seeds": [waiting] * len(trial.work),
            "seed_steps_per_s": 0.0,
        }
        self.budgets[trial.key] = [c.recipe.steps for c, _ in trial.work]

    def report(self, trial: Trial, report: Row) -> list[tuple[Configuration, int, dict[str, float]]]:
        """Take a worker's report. Returns the steps of configurations whose metrics are now complete."""
        self.trials[trial.key] = self.trials[trial.key] | report
        seeds = report.get("seeds", [])
        if report["phase"] == "training":
            self.trained_to = time.monotonic()
            self.trained_from = min(self.trained_from, self.trained_to - report["train_s"])
            self.seed_steps[trial.key] = report["seed_steps"]
        self.best_exact = max([self.best_exact, *(s["best_exact"] for s in seeds)])
        if report["phase"] != "training" or trial.confirmation:
            return []
        mine: dict[str, list[Row]] = defaultdict(list)
        for row in seeds:
            mine[row["configuration"]].append(row)
        found = ((c, self._complete(c, mine[c.key])) for c in trial.configurations)
        return [(c, step, metrics) for c, steps in found for step, metrics in steps]

    def finished(self, trial: Trial, outcomes: list[str]) -> None:
        self.trials.pop(trial.key, None)
        self.ended.update(outcomes)

    def steps(self) -> dict[tuple[str, int, int], int]:
        """How far each seed of a running trial is, by configuration key and seed."""
        rows = [s for t in self.trials.values() for s in t["seeds"] if "seed" in s]
        return {(s["configuration"], s["seed"][0], s["seed"][1]): s["step"] for s in rows}

    def _complete(self, configuration: Configuration, seeds: list[Row]) -> list[tuple[int, dict[str, float]]]:
        """A step's metrics are complete when every watched seed is past it or has ended."""
        curves = self.curves.setdefault(configuration.key, Curves(set(self.watched)))
        for row in seeds:
            key = (row["seed"][0], row["seed"][1])
            if key in curves.waiting and row["step"]:
                curves.newest[key] = row
                if row["step"] > curves.given:
                    curves.by_step[row["step"]][key] = row
        if len(curves.newest) < len(curves.waiting):
            return []
        live = [r["step"] for r in curves.newest.values() if r["outcome"] == Outcome.RUNNING]
        passed = min(live, default=max(curves.by_step, default=0))
        ready = sorted(step for step in curves.by_step if step <= passed)
        curves.given = max([curves.given, *ready])
        rate = sum(t["seed_steps_per_s"] for t in self.trials.values())
        return [(step, curves.take(step) | {"seed_steps_per_s": rate}) for step in ready]

    def snapshot(self, queued_seed_steps: int = 0) -> Snapshot:
        """`queued_seed_steps`: the budget of seeds that are planned and not yet started.

        What is left is counted in budgets, so the time left is the most it may take: a seed that groks or is
        given up ends earlier, and counts no more from then on.
        """
        seeds = [s for t in self.trials.values() for s in t["seeds"]]
        states = Counter(s["outcome"] for s in seeds)
        unended = (Outcome.QUEUED, Outcome.RUNNING)
        left = queued_seed_steps + sum(
            budget - seed["step"]
            for key, t in self.trials.items()
            for budget, seed in zip(self.budgets[key], t["seeds"], strict=True)
            if seed["outcome"] in unended
        )
        rate = sum(t["seed_steps_per_s"] for t in self.trials.values()) or self.overall_rate
        failed = sum(states[o] + self.ended[o] for o in (Outcome.FAILED, Outcome.DIVERGED, Outcome.GIVEN_UP))
        return Snapshot(
            running=states[Outcome.RUNNING],
            grokked=sum(s["grok_step"] is not None for s in seeds) + self.ended[Outcome.GROKKED],
            failed=failed,
            best_exact=self.best_exact,
            seed_steps_per_s=rate,
            seconds_left=left / rate if rate else None,
            compiling=any(t["phase"] in ("starting", "compiling") for t in self.trials.values()),
            elapsed_s=time.monotonic() - self.start,
        )
