"""Simulate busy slots and cores, with the planner that studies use and seeds whose ends are made up.

    python lab/scripts/idle.py [--cores 2] [--repetitions 20] [--json FILE]

A seed of 57p ends where such seeds were measured to end (lab/2026-11-20-seeds-where-they-count).
*Before*: a round waits for the one before it, a trial for a worker of its own, and whoever has begun runs to
its end. *After*: as it is. A worker takes START_S to begin. With `tile` an evaluation costs a bank all of its
slots, with `alive` only those that are alive.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from search.run.tally import TrialReport

from search.kinds.proposals import Proposals
from search.run.packing import Capacity
from search.run.planner import Planner
from search.store.home import Home
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from search.study.file import parse_study
from search.study.trial import Trial
from trainer import Outcome, Seed

SEED_S = 1_000 / 8_738
"""Seconds for 1,000 steps of a seed on one core: 17,476 seed-steps/s were measured on two."""
START_S = 10.0
"""A process that imports Ray and torch, and programs from the cache."""
GROKS = 3 / 128
ENDS = {Outcome.GIVEN_UP: 0.81, Outcome.FAILED: 0.19}
GIVEN_UP_AT = {23: 0.6, 29: 0.3, 45: 0.1}
"""Thousands of steps: the rule's first checkpoints, in shares that save the 45 % that it was measured to."""
GROKKED_AT, HOLD, BUDGET = (45, 48, 50), 10, 60

HEAD = "name: made-up\nmodel: 57p\n"
STUDIES = {
    "until one grokked (studies/57p.yaml)": HEAD + "seeds: {first: 777, count: 16}\n"
    "until: {grokked: 1, max_seeds: 256}\n",
    "until one of each of 8 recipes grokked": HEAD + "seeds: {first: 1, count: 16}\n"
    "until: {grokked: 1, max_seeds: 64}\n"
    f"configurations: [{', '.join(f'{{recipe: {{lr: 0.0{n}}}}}' for n in range(1, 9))}]\n",
    "a sweep of 128 seeds": HEAD + "seeds: {first: 1, count: 128}\n",
    "a search of 48 proposals, 8 seeds each": HEAD + "seeds: {first: 1, count: 8}\n"
    "space: {recipe.lr: {float: [0.001, 0.1]}}\nsampler: {name: random, configurations: 48}\n",
}


@cache
def end_of(key: str, seed: Seed, world: int) -> tuple[Outcome, int, int | None]:
    """Return a seed's outcome, its end in thousands of steps, and when it groks."""
    chance = random.Random(f"{key} {seed} {world}")
    if chance.random() < GROKS:
        grok = chance.choice(GROKKED_AT)
        return Outcome.GROKKED, grok + HOLD, grok
    outcome = chance.choices(list(ENDS), list(ENDS.values()))[0]
    if outcome == Outcome.FAILED:
        return outcome, BUDGET, None
    return outcome, chance.choices(list(GIVEN_UP_AT), list(GIVEN_UP_AT.values()))[0], None


class Before(Planner):
    """As it was planned before: nothing is known of a seed until its trial has ended."""

    _is_last = False  # type: ignore[assignment]

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.policies.remove(self.sweep)

    def _cancel_satisfied(self) -> None:
        pass


@dataclass
class Worker:
    """A bank: its trials, and how far each of their seeds is; unit: thousands of steps."""

    first: Trial
    trials: list[Trial]
    steps: dict[tuple[str, int], int] = field(default_factory=Counter)
    cut: set[tuple[str, int]] = field(default_factory=set)
    live: list[tuple[Trial, int]] = field(default_factory=list)


class World:
    """One run of a study. `run` returns wall time, and the shares of slots and of cores that were busy."""

    def __init__(self, text: str, cores: int, after: bool, alive: bool, number: int, folder: Path):
        self.study, home = parse_study(text, "made up"), Home(folder)
        home.create()
        records = StudyRecords(Ledger(home), self.study.name)
        proposals = Proposals(self.study, records) if self.study.space else None
        self.planner = (Planner if after else Before)(self.study, [], proposals)
        self.planner.capacity = Capacity(cores)
        self.cores, self.after, self.alive, self.number = cores, after, alive, number
        self.events: list[tuple[float, int, Worker]] = []
        self.slots_s = self.cores_s = 0.0
        self.slots = self.seeds = 0

    def run(self) -> dict[str, float]:
        now, count = 0.0, 0
        while True:
            while len(self.events) < self.cores and isinstance(trial := self.planner.next(), Trial):
                self.slots = max(self.slots, trial.slots)
                worker = Worker(trial, [trial])
                count += 1
                self._train(worker, now + START_S, count)
            if not self.events:
                break
            now, _, worker = heapq.heappop(self.events)
            count += 1
            self._judge(worker)
            self._train(worker, now, count)
        offered = self.cores * now
        return {"wall_s": now, "slots": self.slots_s / offered / self.slots, "cores": self.cores_s / offered,
                "seeds": self.seeds}  # fmt: skip

    def _train(self, worker: Worker, now: float, count: int) -> None:
        """To the next evaluation; a worker without a live seed ends."""
        pairs = ((t, i) for t in worker.trials for i in range(len(t.work)))
        waiting = [(t, i) for t, i in pairs if not self._is_over(worker, t, i)]
        worker.live = waiting[: worker.first.slots]
        if worker.live:
            seconds = SEED_S * (len(worker.live) if self.alive else worker.first.slots)
            self.slots_s += len(worker.live) * seconds
            self.cores_s += seconds
            heapq.heappush(self.events, (now + seconds, count, worker))

    def _is_over(self, worker: Worker, trial: Trial, i: int) -> bool:
        configuration, seed = trial.work[i]
        end = end_of(configuration.key, seed, self.number)[1]
        return worker.steps[trial.key, i] >= end or (trial.key, i) in worker.cut

    def _judge(self, worker: Worker) -> None:
        """An evaluation: what it says, what is recorded, what is not needed any more and what follows."""
        for trial, i in worker.live:
            worker.steps[trial.key, i] += 1
        for trial in worker.trials if self.after else ():
            heard = [self._heard(worker, trial, i) for i in range(len(trial.work))]
            self.planner.update_progress(trial, TrialReport.of(heard))
        for trial in list(worker.trials):
            self._cut(worker, trial)
            if all(self._is_over(worker, trial, i) for i in range(len(trial.work))):
                worker.trials.remove(trial)
                self._tell(worker, trial)
        while self.after and self.planner.study_run.open_seeds(worker.trials) < worker.first.slots:
            if not isinstance(trial := self.planner.next(worker.first), Trial):
                return
            worker.trials.append(trial)

    def _heard(self, worker: Worker, trial: Trial, i: int) -> dict[str, Any]:
        configuration, seed = trial.work[i]
        outcome, _, grok = end_of(configuration.key, seed, self.number)
        has_grokked = grok is not None and worker.steps[trial.key, i] >= grok
        over = self._is_over(worker, trial, i)
        return {"configuration": configuration.key, "outcome": outcome if over else Outcome.RUNNING,
                "grok_step": grok if has_grokked else None, "seed": (seed.init_seed, seed.data_seed),
                "step": 0, "budget": 0, "best_exact": 0.0}  # fmt: skip

    def _cut(self, worker: Worker, trial: Trial) -> None:
        """End the seeds of configurations that have enough, as a worker does."""
        for i, (configuration, _) in enumerate(trial.work):
            enough = self.after and self.planner.study_run.has_enough(configuration)
            if enough and not (self._is_over(worker, trial, i) or self._heard(worker, trial, i)["grok_step"]):
                worker.cut.add((trial.key, i))

    def _tell(self, worker: Worker, trial: Trial) -> None:
        rows = []
        for i, (c, seed) in enumerate(trial.work):
            outcome, _, grok = end_of(c.key, seed, self.number)
            outcome = Outcome.CENSORED if (trial.key, i) in worker.cut else outcome
            if worker.steps[trial.key, i]:
                rows.append({"configuration": c.key, "init_seed": seed.init_seed, "data_seed": seed.data_seed,
                             "trial": trial.key, "confirmation": False, "outcome": outcome,
                             "best_token": 0.5, "grok_step": grok and 1_000 * grok})  # fmt: skip
        self.seeds += len(rows)
        self.planner.complete_trial(trial, rows)


def compare(name: str, cores: int, alive: bool, repetitions: int) -> dict[str, Any]:
    """Means over as many worlds, before and after."""
    summary: dict[str, Any] = {"study": name, "cost": "alive" if alive else "tile"}
    for after in (False, True):
        runs = []
        for number in range(repetitions):
            with tempfile.TemporaryDirectory() as folder:
                runs.append(World(STUDIES[name], cores, after, alive, number, Path(folder)).run())
        means = {k: fmean(r[k] for r in runs) for k in ("wall_s", "slots", "cores", "seeds")}
        summary["after" if after else "before"] = {k: round(v, 3) for k, v in means.items()}
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = [compare(n, args.cores, alive, args.repetitions) for alive in (False, True) for n in STUDIES]
    for row in rows:
        print(f"{row['study']}, {row['cost']}")
        for when in ("before", "after"):
            r = row[when]
            busy = f"slots {r['slots']:.0%} and cores {r['cores']:.0%} busy"
            print(f"  {when:6} {r['wall_s']:8.0f} s, {r['seeds']:.0f} seeds begun, {busy}")
    if args.json:
        about = {"cores": args.cores, "repetitions": args.repetitions, "rows": rows}
        args.json.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
