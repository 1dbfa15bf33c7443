"""What to train next: the plan of a study as a source of trials that is told what became of them.

A seed sweep has one configuration; a search asks Optuna for more. Either way a configuration gets its first
round of seeds, and a sweep goes on in rounds while too few grokked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import optuna
from optuna.trial import TrialState

from search.errors import UserError
from search.home import Home
from search.ledger import Row, is_final
from search.plan import Configuration, Fits, Trial, pack
from search.study import Distribution, Study
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


class Proposals:
    """Optuna's side of a search: configurations asked for, and told a finite objective each."""

    def __init__(self, study: Study, home: Home):
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers: dict[str, Any] = {
            "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
            "random": optuna.samplers.RandomSampler,
        }
        self.study = study
        self.optuna = optuna.create_study(
            storage=home.records_url,
            study_name=study.name,
            direction="maximize",
            load_if_exists=True,
        )
        # A resumed search goes on: with the first run's generator it would propose the same again.
        drawn = len(self.optuna.get_trials(deepcopy=False))
        self.optuna.sampler = samplers[study.sampler.name](study.sampler.seed + drawn)
        # A driver that died left its proposals RUNNING: they are taken up again, in order.
        running = self.optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        self.orphans = deque(running)
        self.numbers: dict[str, list[int]] = {}

    @property
    def exhausted(self) -> bool:
        """Whether no proposal is left to be made or taken up again."""
        return not self.orphans and len(self.optuna.trials) >= self.study.sampler.configurations

    def ask(self) -> Configuration | None:
        """The next proposal, or None when the study's number of configurations is reached."""
        while (drawn := self._draw()) is not None:
            number, values = drawn
            try:
                configuration = self._configuration(values)
            except ValueError:  # an impossible combination of possible values
                self.optuna.tell(number, state=TrialState.FAIL)
                continue
            self.numbers.setdefault(configuration.key, []).append(number)
            return configuration
        return None

    def _draw(self) -> tuple[int, dict[str, Any]] | None:
        """Number and values of an orphan or else of a new Optuna trial, None when there are enough."""
        if self.orphans:
            orphan = self.orphans.popleft()
            return orphan.number, orphan.params
        if self.exhausted:
            return None
        trial = self.optuna.ask()
        try:
            return trial.number, {path: _suggest(trial, path, d) for path, d in self.study.space.items()}
        except ValueError as error:  # Optuna keeps the choices that a study began with
            self.optuna.tell(trial.number, state=TrialState.FAIL)
            raise UserError(
                f"study {self.study.name}: space: not the one it was begun with ({error}); give it a new name"
            ) from None

    def _configuration(self, values: dict[str, Any]) -> Configuration:
        if values.keys() != self.study.space.keys():  # its driver died while it was being drawn
            raise ValueError("incomplete")
        return Configuration(*self.study.configuration(values))

    def tell(self, configuration: Configuration, rows: list[Row]) -> None:
        """Report a configuration's rows. With a seed still to be trained it stays open for the next run."""
        numbers = self.numbers.pop(configuration.key, [])
        for number in numbers if all(map(is_final, rows)) else ():
            self.optuna.tell(number, objective(rows))


def objective(rows: list[Row]) -> float:
    """A shrunk grok rate, finite for any rows: (k + t) / (n + 2).

    k of n counted seeds grokked; the mean of a uniform prior's posterior would have 1 for t. t is the
    seeds' mean best token accuracy (0 to 1): at rates of a few per cent nearly every configuration has
    k = 0, and how far its seeds got breaks the tie, by less than one seed's worth.
    """
    counted = [r for r in rows if is_final(r)]
    grokked = sum(r["outcome"] == Outcome.GROKKED for r in counted)
    tokens = [min(r["best_token"] or 0.0, 0.999) for r in counted]
    return (grokked + sum(tokens) / max(len(tokens), 1)) / (len(counted) + 2)


def _suggest(trial: optuna.Trial, path: str, distribution: Distribution) -> Any:
    if distribution.choice is not None:
        return trial.suggest_categorical(path, distribution.choice)
    if distribution.int_ is not None:
        low, high = distribution.int_
        return trial.suggest_int(path, low, high, step=distribution.step or 1, log=distribution.log)
    assert distribution.float_ is not None
    return trial.suggest_float(path, *distribution.float_, log=distribution.log)
