"""What to train next: the plan of a study as a source of trials that is told what became of them.

A seed sweep has one configuration; a search asks Optuna for more. Either way a configuration gets its first
round of seeds, and a sweep goes on in rounds while too few grokked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from search.home import Home
from search.ledger import Row, is_final
from search.plan import Configuration, Fits, Trial, pack
from search.proposals import Proposals
from search.study import Study
from trainer import Outcome, Seed

DONE = "DONE"
Done = str


class Planner:
    """Trials of one study, in order. `rows` is what the ledger has: final pairs are not trained again."""

    def __init__(self, study: Study, rows: list[Row], home: Home):
        self.study = study
        self.fits = Fits()  # the driver sets it before it asks for the first trial
        self.outcomes = {(r["configuration"], Seed(r["init_seed"], r["data_seed"])): r for r in rows}
        self.unpacked: deque[tuple[str, list[Seed]]] = deque()  # rounds, which `fits` says how to cut
        self.queue: deque[Trial] = deque()
        self.running: dict[str, Trial] = {}
        self.rounds: dict[str, Iterator[list[Seed]]] = {}
        self.open: dict[str, Configuration] = {}
        self.ended_before: list[Configuration] = []  # had nothing left to train when they were begun
        self.proposals = Proposals(study, home) if study.space else None
        for spec, recipe in () if self.proposals else study.listed():
            self._begin(Configuration(spec, recipe))

    def next(self) -> Trial | Done | None:
        """The next trial to start, None while the running ones decide, or DONE."""
        while not self._pack():
            if self.proposals and not self.enough and len(self.open) < self.fits.concurrent:
                configuration = self.proposals.ask()
                if configuration is not None:
                    if configuration.key not in self.open:  # a repeated proposal shares the result
                        self._begin(configuration)
                    continue
            return None if self.running else DONE
        trial = self.queue.popleft()
        self.running[trial.key] = trial
        return trial

    def tell(self, trial: Trial, rows: list[Row]) -> list[Configuration]:
        """Take a trial's outcomes. Returns the configurations that have ended with it."""
        self.running.pop(trial.key, None)
        for r in rows:
            self.outcomes[r["configuration"], Seed(r["init_seed"], r["data_seed"])] = r
        key = trial.configuration.key
        if any(t.configuration.key == key for t in (*self.queue, *self.running.values())):
            return []
        return [] if self._next_round(key) else self._end(key)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to train."""
        asking = self.proposals is not None and not (self.proposals.exhausted or self.enough)
        return not (self.unpacked or self.queue or self.running or asking)

    @property
    def queued_steps(self) -> int:
        """The budgets of all seeds that are planned and in no trial yet that runs; unit: seed-steps."""
        trials = sum(t.configuration.recipe.steps * len(t.seeds) for t in self.queue)
        rounds = ((self.open[key].recipe, set(seeds) - self._ended(key)) for key, seeds in self.unpacked)
        return trials + sum(recipe.steps * len(seeds) for recipe, seeds in rounds)

    @property
    def grokked(self) -> int:
        return sum(r["outcome"] == Outcome.GROKKED for r in self.outcomes.values())

    @property
    def enough(self) -> bool:
        wanted = self.study.until.grokked
        return wanted is not None and self.grokked >= wanted

    def _has_enough(self, key: str) -> bool:
        """A search ends as a whole; of a list, each configuration by itself."""
        if self.proposals:
            return self.enough
        grokked = sum(r["outcome"] == Outcome.GROKKED for r in self.rows_of(key))
        return self.study.until.grokked is not None and grokked >= self.study.until.grokked

    def rows_of(self, key: str) -> list[Row]:
        return [r for (configuration, _), r in self.outcomes.items() if configuration == key]

    def _begin(self, configuration: Configuration) -> None:
        self.open[configuration.key] = configuration
        self.rounds[configuration.key] = self.study.rounds()
        if not self._next_round(configuration.key, first=True):
            self.ended_before += self._end(configuration.key)

    def _next_round(self, key: str, first: bool = False) -> bool:
        """Queue the next round that has something left to train. False if there is none or need be none."""
        for seeds in self.rounds[key]:
            if not first and self._has_enough(key):
                return False
            first = False
            if not self._ended(key).issuperset(seeds):
                self.unpacked.append((key, seeds))
                return True
        return False

    def _pack(self) -> bool:
        """Cut the rounds that wait into trials. False if none is queued."""
        while self.unpacked:
            key, seeds = self.unpacked.popleft()
            self.queue.extend(pack(self.study, self.open[key], seeds, self.fits, self._ended(key)))
        return bool(self.queue)

    def _ended(self, key: str) -> set[Seed]:
        """A configuration's seeds that need no more training."""
        return {Seed(r["init_seed"], r["data_seed"]) for r in self.rows_of(key) if is_final(r)}

    def _end(self, key: str) -> list[Configuration]:
        configuration = self.open.pop(key)
        if self.proposals:
            self.proposals.tell(configuration, self.rows_of(key))
        return [configuration]
