"""Optuna's side of a search: configurations that are proposed, and told finite objectives.

Optuna's database keeps the numbers that were sampled, under the key paths of their fields (search/space.py).
"""

from __future__ import annotations

import math
import random
import warnings
from collections import deque
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, NSGAIISampler, QMCSampler, RandomSampler, TPESampler
from optuna.samplers.nsgaii import BLXAlphaCrossover
from optuna.trial import FrozenTrial, TrialState

from search.run.extension import CRASHED, close_crashed, open_search, take_up_crashed
from search.store.home import Home
from search.store.ledger import Row, is_final
from search.study.schema import Study
from search.study.space import Distribution, Numbers, Space, draw, fixed, points, resolve, stored
from search.study.trial import Configuration
from trainer import Outcome, Recipe

DIRECTIONS = {"grok_rate": "maximize", "params": "minimize"}
TOKENS = 1_000
"""The weight of token accuracy against that of the grok step."""


class Proposals:
    """Optuna's side of a search: configurations asked for, and told finite objectives."""

    def __init__(self, study: Study, home: Home):
        """Begin a search, or go on with it. Raises UserError if it is not the one that was begun."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study = study
        self.base = fixed(study.spec(), study.base_recipe())
        self.planned = study.sampler.planned(study.space)
        self.objectives = study.sampler.objectives_of(study.space)
        wanted = [DIRECTIONS[name] for name in self.objectives]
        self.optuna = open_search(study, storage_of(home), wanted, distribution_of)
        # A resumed search goes on: with the first run's generator it would propose the same again.
        self.optuna.sampler = sampler_of(study, len(self._trials()))
        # A driver that died left its proposals RUNNING: they are taken up again, in order.
        self.orphans = deque(self._trials(TrialState.RUNNING))
        self.numbers: dict[str, list[int]] = {}

    @property
    def exhausted(self) -> bool:
        """Whether no proposal is left to be made or taken up again."""
        if self.orphans or self._unknown():
            return False
        return sum(map(self._is_whole, self._trials())) >= self.planned

    def ask(self) -> Configuration | None:
        """The next proposal, or None when the study's number of configurations is reached."""
        while (drawn := self._draw()) is not None:
            number, numbers = drawn
            try:
                configuration = self._configuration(numbers)
            except ValueError:  # an impossible combination of possible values, or never drawn to its end
                self.optuna.tell(number, state=TrialState.FAIL)
                continue
            self.numbers.setdefault(configuration.key, []).append(number)
            return configuration
        return None

    def told(self) -> list[Configuration]:
        """The configurations that earlier runs told Optuna of, in the order in which they were proposed."""
        return list(dict.fromkeys(self._configuration(t.params) for t in self._trials(TrialState.COMPLETE)))

    def tell(self, configuration: Configuration, rows: Sequence[Row]) -> None:
        """Report a configuration's rows. With a seed still to be trained it stays open."""
        values = {
            "grok_rate": objective(rows, configuration.recipe),
            "params": float(configuration.spec.params),
        }
        if not all(map(is_final, rows)):
            return
        for number in self.numbers.get(configuration.key, ()):
            told = [values[name] for name in self.objectives]
            self.optuna.tell(number, told, skip_if_finished=True)  # told before the database went away
        self.numbers.pop(configuration.key, None)

    def give_up(self) -> None:
        """What is still open at a search's end has failed for good: the next run proposes it again."""
        close_crashed(self.optuna)

    def _draw(self) -> tuple[int, Numbers] | None:
        """Number and values of an orphan or else of a new Optuna trial, None when there are enough."""
        if not self.orphans:
            take_up_crashed(self.optuna)
            self.orphans.extend(self._unknown())
        if self.orphans:
            orphan = self.orphans.popleft()
            return orphan.number, orphan.params
        if self.exhausted:
            return None
        trial = self.optuna.ask()
        return trial.number, draw(
            self.study.space, lambda path: _suggest(trial, path, self.study.space[path])
        )

    def _configuration(self, numbers: Numbers) -> Configuration:
        """Raises ValueError for numbers that make none."""
        return Configuration(*self.study.configuration(resolve(self.study.space, numbers, self.base)))

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.optuna.get_trials(deepcopy=False, states=states or None)

    def _unknown(self) -> list[FrozenTrial]:
        """Open trials that were cut off, by a database that went away, before they were known here."""
        mine = {n for numbers in self.numbers.values() for n in numbers}
        return [t for t in self._trials(TrialState.RUNNING) if t.number not in mine]

    def _is_whole(self, trial: FrozenTrial) -> bool:
        """Whether a trial counts: its driver did not die while it was being drawn."""
        if trial.state != TrialState.FAIL or trial.user_attrs.get(CRASHED):
            return trial.state != TrialState.FAIL  # what crashed is proposed again, and counts then
        try:
            return bool(resolve(self.study.space, trial.params, self.base))
        except ValueError:
            return False


def objective(rows: Sequence[Row], recipe: Recipe) -> float:
    """A shrunk grok rate, finite for any rows: (k + t) / (n + 2), the posterior's mean under Beta(t, 2 - t).

    k of n counted seeds grokked. Of as many seeds, whoever has more grokked is ahead, whatever t is, for
    0 <= t < 1. At a few per cent nearly every configuration has k = 0, so t breaks ties: first the mean of
    the seeds' best token accuracy, and then, by less than a thousandth of that, the median grok step.
    """
    counted = [r for r in rows if is_final(r)]
    grokked = [r for r in counted if r["outcome"] == Outcome.GROKKED]
    token = fmean(_number(r["best_token"]) for r in counted) if counted else 0.0
    early = 1 - median(r["grok_step"] for r in grokked) / recipe.steps if grokked else 0.0
    t = (TOKENS * min(token, 1.0) + early) / (TOKENS + 2)
    return (len(grokked) + t) / (len(counted) + 2)


def _number(found: float | None) -> float:
    """A seed that diverged before it was evaluated got nowhere."""
    return found if found is not None and math.isfinite(found) else 0.0


def storage_of(home: Home) -> Any:
    """Optuna's storage; connections of a server that was away are noticed before they are used."""
    if isinstance(home.records_url, str) and not home.records_url.startswith("sqlite"):
        return optuna.storages.RDBStorage(home.records_url, engine_kwargs={"pool_pre_ping": True})
    return home.records_url


def sampler_of(study: Study, drawn: int) -> BaseSampler:
    """Optuna's sampler for a search that has had so many proposals. Tuned with benchmarks/sampling.py."""
    name, seed, space = study.sampler.name, study.sampler.seed, study.space
    distributions = {path: distribution_of(d) for path, d in space.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        if name == "tpe":
            conditions = any(d.when for d in space.values())
            return TPESampler(seed=seed + drawn, multivariate=True, group=conditions)
        if name == "nsga2":
            # Small generations: with Optuna's 50 most searches here would end in the first, which is chance.
            population = min(max(4, study.sampler.planned(space) // 15), 50)
            crossover = BLXAlphaCrossover()
            return _Generations(seed=seed + drawn, population_size=population, crossover=crossover)
        if name == "qmc":
            return _Sequence(distributions, seed)
        return RandomSampler(seed=seed + drawn) if name == "random" else _Grid(distributions, space, seed)


class _Generations(NSGAIISampler):
    """NSGA-II for proposals that are told out of order.

    A generation begins when the one before has been told often enough; what is still in training then is
    told later and would be nobody's parent. So parents are chosen of all that has been told.
    """

    def select_parent(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        told = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return self._elite_population_selection_strategy(study, told)


class _Sequence(QMCSampler):
    """Sobol's sequence over the whole space; a field that does not exist leaves its coordinate unused.

    Optuna's own takes the space from what was proposed first, by chance without some conditional fields.
    """

    def __init__(self, distributions: dict[str, BaseDistribution], seed: int):
        super().__init__(scramble=True, seed=seed)
        self._distributions = {path: d for path, d in distributions.items() if not d.single()}

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._distributions


class _Grid(BaseSampler):
    """Every point once, in an order that spreads what is proposed first.

    Optuna's own knows no conditions: it would propose points twice that differ only in what does not exist.
    """

    def __init__(self, distributions: dict[str, BaseDistribution], space: Space, seed: int):
        self._distributions = {path: d for path, d in distributions.items() if not d.single()}
        self._points = points(space)
        random.Random(seed).shuffle(self._points)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Numbers:
        taken = {frozenset(t.params.items()) for t in study.get_trials(deepcopy=False)}
        return next(p for p in self._points if frozenset(p.items()) not in taken)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise AssertionError(f"{param_name} is no part of the grid's point")


def distribution_of(field: Distribution) -> BaseDistribution:
    """A searched field as Optuna knows it."""
    if field.choice is not None:
        return CategoricalDistribution([stored(value) for value in field.choice])
    low, high = field.ends()
    if field.int_:
        return IntDistribution(low, high, log=field.log, step=int(field.step or 1))
    return FloatDistribution(low, high, log=field.log, step=field.step)


def _suggest(trial: optuna.Trial, path: str, field: Distribution) -> Any:
    """Optuna's number for a field, a plain one: samplers let some of NumPy's through."""
    distribution = distribution_of(field)
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(path, distribution.choices)
    if field.int_:
        return int(trial.suggest_int(path, **distribution._asdict()))
    return float(trial.suggest_float(path, **distribution._asdict()))
