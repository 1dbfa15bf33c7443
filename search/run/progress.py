"""Progress of a running study, and the display of it."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from search.run.messages import Report
from search.run.planner import Planner
from search.run.snapshot import Snapshot, bar, describe
from search.run.study_run import PlannedPair
from search.run.terminal import is_cell, is_live
from search.run.workers import COMPILING, TRAINING, Workers
from search.stats.intervals import mid_p
from search.stats.record import SeedKey
from search.study.schema import Study
from trainer import Outcome

MOST_STEPS = 2_000
"""Seeds in training up to which each one's step is kept for `status`."""


def shares_left(ended: Mapping[int, int], training: Mapping[int, int]) -> list[float]:
    """Return the share of its budget that a seed still trains after each percentage of it, from 0 to 100.

    ended, training: seeds by the percentage at which they ended, or have come to. By Kaplan and Meier's curve, since
    a mean of ended seeds would be too short: those that end early are known first.
    """
    survival = [1.0]  # share of seeds that come to each percentage; one entry more, for those that pass the last
    at_risk = sum(ended.values()) + sum(training.values())
    for percentage in range(101):
        deaths = ended.get(percentage, 0)
        survival.append(survival[-1] * (1 - deaths / at_risk) if at_risk else survival[-1])
        at_risk -= deaths + training.get(percentage, 0)

    shares = []
    for i in range(101):
        left = sum(survival[i + 1 : 101]) / 100
        shares.append(left / survival[i + 1] if survival[i + 1] else 0.0)
    return shares


class Progress:
    """Progress of a run, read off the plan and the workers."""

    def __init__(self, planner: Planner, workers: Workers):
        self.planner = planner
        self.workers = workers
        self.start = time.monotonic()
        self.began = time.time()
        self.source = ""
        """The study's file, or its name: what `run` was given."""
        self.ended: Counter[str] = Counter()
        """Seeds that have ended in this run, by outcome."""
        self.best_exact = 0.0
        self.reports = 0
        self.seed_steps: dict[str, int] = {}
        """Trained by each worker, by its name."""
        self.trained_from = float("inf")
        self.trained_to = 0.0

    def take(self, report: Report) -> None:
        """Take a worker's report."""
        self.reports += 1
        self.best_exact = max(self.best_exact, report.best_exact)
        if report.steps or report.ended:
            self.trained_to = time.monotonic()
            self.trained_from = min(self.trained_from, self.trained_to - report.speed.train_s)
            self.seed_steps[report.worker] = report.speed.seed_steps

    @property
    def overall_rate(self) -> float:
        """Seed-steps/s from the first step of the first worker to the last report of the last."""
        span = self.trained_to - self.trained_from
        return sum(self.seed_steps.values()) / span if span > 0 else 0.0

    @property
    def rate(self) -> float:
        """Seed-steps/s of all workers that train, by their last reports."""
        return sum(worker.speed.seed_steps_per_s for worker in self.workers if worker.phase == TRAINING)

    def _running(self) -> Iterator[PlannedPair]:
        """Yield the pairs that have a slot: a bank takes them in its order."""
        for worker in self.workers:
            bank = self.planner.banks.get(worker.name)
            if bank and worker.phase == TRAINING:
                yield from islice(bank.pairs.values(), bank.slots)

    def states(self) -> Counter[str]:
        """Return the number of pairs that train, and of those that wait in a bank or for the first one."""
        running = sum(1 for _ in self._running())
        waiting = len(self.planner.training) - running
        if self.workers and not (running or waiting):
            waiting = self.planner.queued_seeds  # for their processes to start
        return Counter({Outcome.RUNNING: running, Outcome.QUEUED: waiting})

    def steps(self) -> dict[SeedKey, int]:
        """Return the last reported step of each pair that a worker has."""
        return {pair.key: pair.step for pair in self.planner.training if pair.step}

    def snapshot(self) -> Snapshot:
        """Return how far the study is."""
        study = self.planner.study
        run = self.planner.study_run
        states = self.states()
        ended = sum(run.ended.values(), Counter[str]())
        count = ended.total()
        open_seeds = sum(len(state.pending) for state in run.states.values())

        # The search of a configuration has ended if some of its seeds have, and none of them is pending.
        is_searched = [state.key in run.ended and False not in state.pending.values() for state in run.states.values()]
        rate = self.rate or self.overall_rate
        return Snapshot(
            configurations=(sum(is_searched), max(study.planned, len(is_searched))),
            seeds=(count, max(study.kind.planned_seeds, count + open_seeds)),
            running=states[Outcome.RUNNING],
            waiting=states[Outcome.QUEUED],
            grokked=ended[Outcome.GROKKED] + sum(pair.has_grokked for pair in self.planner.training),
            not_grokked=count - ended[Outcome.GROKKED],
            best=self._best(),
            best_exact=self.best_exact,
            seed_steps_per_s=rate,
            seconds_left=self.seed_steps_left() / rate if rate else None,
            compiling=any(worker.phase == COMPILING for worker in self.workers),
            elapsed_s=time.monotonic() - self.start,
            is_open=bool(study.until.grokked or study.allocation or study.kind.round_size or study.confirm),
            confirming=sum(True in state.pending.values() for state in run.states.values()),
        )

    def seed_steps_left(self) -> float:
        """Return the steps that all seeds still train, those of configurations that are not proposed yet included.

        Rules and successes end seeds before their budgets as they did in this study so far (`shares_left`).
        """
        run, study = self.planner.study_run, self.planner.study
        training: Counter[int] = Counter()
        for pair in self.planner.training:
            percentage = 100 * pair.step // pair.configuration.recipe.steps
            training[min(100, percentage)] += 1  # a seed of several stages may train beyond its last one's budget
        left = shares_left(run.spent, training)
        open_steps = sum(run.longest * count * left[percentage] for percentage, count in training.items())

        unplanned = 0
        if not study.until.grokked:  # else nobody knows how many are planned
            pending = sum(len(state.pending) for state in run.states.values())
            final = sum(row.is_final for state in run.states.values() for row in state.rows.values())
            begun = pending + final
            unplanned = max(0, study.kind.planned_seeds - begun) * run.longest
        return open_steps + (self.planner.queued_steps + unplanned) * left[0]

    def _best(self) -> str:
        """Return name and counts of the configuration whose grok rate's interval begins highest.

        By the interval: by the rate, one seed of one would lead. Seeds that grok end first, so those that wait count
        too; those that confirm do not, as they are not to be added to those that chose.
        """
        run = self.planner.study_run
        best = (-1.0, "", "")
        for key, outcomes in run.searched.items():
            grokked, seeds = outcomes[Outcome.GROKKED], outcomes.total()
            if key in run.states:
                seeds += sum(not confirms for confirms in run.states[key].pending.values())
            if grokked:
                low, _ = mid_p(grokked, seeds)
                best = max(best, (low, key, f"{grokked:,} of {seeds:,}"))
        low, key, counts = best
        if len(run.states) < 2 or not key:
            return ""

        state = run.states.get(key)  # there is none if the file has the configuration no more
        name = self.planner.study.kind.name_of(state.configuration) if state else key
        return f"{name}: {counts}"

    def as_record(self, owner: str) -> dict[str, Any]:
        """Return what `status` says of the run while it goes on, as JSON has it (search/store/progress_file.py)."""
        steps = self.steps()
        training = Counter((pair.configuration.key, pair.step) for pair in self._running())
        return {
            "owner": owner,
            "source": self.source,
            "began": self.began,
            "written": time.time(),
            **asdict(self.snapshot()),
            "training": [[key, step, count] for (key, step), count in training.items()],
            "steps": [[*key, step] for key, step in steps.items()] if len(steps) <= MOST_STEPS else [],
        }


# ---- the display: a live line in a terminal, a plain one every few seconds elsewhere

PLAIN_EVERY_S, LIVE_EVERY_S = (5.0, 60.0), 0.25
"""A plain line comes after a tenth of the time so far, between these two: a log of hours stays short."""


class Display:
    """Show snapshots; use as a context manager. transient: on a terminal, take away at the end what was shown."""

    def __init__(self, console: Console, transient: bool = False):
        self.console = console
        self.live = Live(console=console, refresh_per_second=4, transient=transient) if is_live(console) else None
        self.began = time.monotonic()
        self.shown = 0.0

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def begin(self, study: Study) -> None:
        """Say what is going to be trained."""
        self.console.print(f"[bold]{study.name}[/]  {escape(study.about)}")
        if study.kind.goal:
            self.console.print(Text(f"sought: {study.kind.goal}"))
        for name, text in study.kind.warnings():
            self.console.print(Text(f"{name}: {text}"), soft_wrap=True)

    def end(self, snapshot: Snapshot) -> None:
        """Leave the end of a run to its summary."""

    def due(self) -> bool:
        """True if enough time has passed for another snapshot."""
        now = time.monotonic()
        least, most = PLAIN_EVERY_S
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
