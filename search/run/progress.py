"""Progress of a running study, and the display of it."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from search.run.planner import Planner
from search.run.snapshot import Snapshot, bar, describe
from search.run.tally import TrialReport
from search.run.workers import Workers, WorkerState
from search.stats.counting import COUNTED
from search.stats.intervals import mid_p
from search.study.naming import Names
from search.study.trial import Trial
from search.terminal import is_cell, is_live
from trainer import Outcome

MOST_STEPS = 2_000
"""Seeds in training up to which each one's step is kept for `status`."""


def shares_left(ended: Mapping[int, int], training: Mapping[int, int]) -> list[float]:
    """Return the share of its budget that a seed still trains after each percentage of it, from 0 to 100.

    ended, training: seeds by the percentage at which they ended, or have come to. By Kaplan and Meier's curve:
    seeds that end early are known first, and those that train on are at risk as far as they have come.
    """
    survival, at_risk = [1.0], sum(ended.values()) + sum(training.values())
    for percentage in range(101):
        deaths = ended.get(percentage, 0)
        survival.append(survival[-1] * (1 - deaths / at_risk) if at_risk else survival[-1])
        at_risk -= deaths + training.get(percentage, 0)
    sums = [sum(survival[i + 1 : 101]) / 100 for i in range(101)]
    return [total / survival[i + 1] if survival[i + 1] else 0.0 for i, total in enumerate(sums)]


class Progress:
    """Progress of a run: what has ended is counted here, what runs is read off the plan and the workers."""

    def __init__(self, planner: Planner, workers: Workers):
        self.planner, self.workers, self.names = planner, workers, Names(planner.study)
        self.start, self.began = time.monotonic(), time.time()
        self.source = ""
        """The study's file, or its name: what `run` was given."""
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
            yield trial, self.planner.study_run.report_of(trial)

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
        """Return how far the study is."""
        states, run = self.states(), self.planner.study_run
        reports = [report for _, report in self._running()]
        ended = sum(run.ended.values(), Counter({o: states[o] for o in COUNTED}))
        study, count = self.planner.study, ended.total()
        searched = [s for s in run.states.values() if False not in s.pending.values()]
        open_seeds = sum(len(state.pending) for state in run.states.values())
        rate, remaining = self.rate or self.overall_rate, self.seed_steps_left()
        return Snapshot(
            configurations=(sum(s.key in run.ended for s in searched), max(study.planned, len(run.states))),
            seeds=(count, max(study.planned_seeds, count + open_seeds - sum(states[o] for o in COUNTED))),
            running=states[Outcome.RUNNING],
            waiting=states[Outcome.QUEUED],
            grokked=sum(c[Outcome.GROKKED] for c in run.ended.values()) + sum(sum(r.grokked.values()) for r in reports),
            not_grokked=count - ended[Outcome.GROKKED],
            best=self._best(),
            best_exact=self.best_exact,
            seed_steps_per_s=rate,
            seconds_left=remaining / rate if rate else None,
            compiling=any(w.open and w.phase == "compiling" for w in self.workers),
            elapsed_s=time.monotonic() - self.start,
            is_open=bool(study.until.grokked or study.allocation or study.proposer or study.confirm),
            confirming=sum(True in s.pending.values() for s in run.states.values()),
            holding=self._holding(),
        )

    def seed_steps_left(self) -> float:
        """Return the steps that all seeds still train, those of configurations that are not proposed yet included.

        Rules and successes end seeds before their budgets as they did in this study so far (`shares_left`).
        """
        run, study = self.planner.study_run, self.planner.study
        reports = [report for _, report in self._running()]
        training, spent = Counter[int](), Counter(run.spent)
        for report in reports:
            training.update(dict(report.training))
            spent.update(dict(report.spent))
        left = shares_left(spent, training)
        budget = run.longest
        open_steps = sum(budget * count * left[percentage] for percentage, count in training.items())
        unseen = sum(report.left for report in reports if not report.training)
        begun = sum(len(s.pending) + sum(map(s.is_final, s.rows)) for s in run.states.values())
        unplanned = 0 if run.enough or study.until.grokked else max(0, study.planned_seeds - begun) * budget
        return open_steps + (unseen + self.planner.queued_steps + unplanned) * left[0]

    def _best(self) -> str:
        """Return name and counts of the configuration whose grok rate's interval begins highest."""
        run = self.planner.study_run
        counts = {key: (c[Outcome.GROKKED], c.total()) for key, c in run.ended.items() if c[Outcome.GROKKED]}
        if len(run.states) < 2 or not counts:
            return ""
        key = max(counts, key=lambda key: (mid_p(*counts[key])[0], key))
        name = self.names[run.states[key].configuration] if key in run.states else key
        return "{}: {} of {}".format(name, *counts[key])

    def as_record(self, owner: str) -> dict[str, Any]:
        """Return what `status` says of the run while it goes on, as JSON has it (search/store/running.py)."""
        snapshot, steps = self.snapshot(), self.steps()
        progress = Counter[tuple[str, int]]()
        for _, report in self._running():
            for key, (count, step, _) in report.progress.items():
                progress[key, step] += count
        return {
            "owner": owner,
            "source": self.source,
            "began": self.began,
            "written": time.time(),
            **asdict(snapshot),
            "training": [[key, step, count] for (key, step), count in progress.items() if count],
            "steps": [[*key, step] for key, step in steps.items()] if len(steps) <= MOST_STEPS else [],
        }

    def _holding(self) -> dict[str, int]:
        """Return the grokked seeds that train on, with steps to hold, if nothing else of the search does."""
        holding: dict[str, int] = {}
        for trial, report in self._running():
            if trial.confirmation:
                continue
            by_key = {c.key: c for c in trial.configurations}
            if report.states.get(Outcome.RUNNING, 0) > len(report.holding):
                return {}
            if not all(self.planner.study_run.has_enough(by_key[key]) for key, _ in report.holding):
                return {}
            holding |= {seed: by_key[key].recipe.hold for key, seed in report.holding}
        return holding


# ---- the display: a live line in a terminal, a plain one every few seconds elsewhere

PLAIN_EVERY_S, LIVE_EVERY_S = (5.0, 60.0), 0.25
"""A plain line comes after a tenth of the time so far, between these two: a log of hours stays short."""


class Display:
    """Show snapshots; use as a context manager."""

    def __init__(self, console: Console):
        self.console = console
        self.live = Live(console=console, refresh_per_second=4) if is_live(console) else None
        self.began, self.shown = time.monotonic(), 0.0

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def due(self) -> bool:
        """True if enough time has passed for another snapshot."""
        now, (least, most) = time.monotonic(), PLAIN_EVERY_S
        every = LIVE_EVERY_S if self.live else min(max(least, (now - self.began) / 10), most)
        return now - self.shown >= every

    def show(self, snapshot: Snapshot) -> None:
        line = ("\n" if self.live else ". ").join(describe(snapshot))
        self.say(f"{bar(snapshot)} {line}" if is_cell() else line)

    def say(self, line: str) -> None:
        self.shown = time.monotonic()
        if self.live:
            self.live.update(Text(line))
        else:
            self.console.print(Text(line), soft_wrap=True)

    def say_if_due(self, line: str) -> None:
        """Show a line in place of a snapshot, if enough time has passed since the last one."""
        if self.due():
            self.say(line)
