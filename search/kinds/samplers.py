"""Optuna's samplers, three of them changed to fit banks, whose results come late.

Each driver makes Optuna's study anew (search/kinds/proposals.py). So a sampler reads its state off the earlier
trials: NSGA-II's generations, the place in QMC's sequence, the points of a grid that are used.
"""

import random
import warnings
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, NSGAIISampler, QMCSampler, RandomSampler, TPESampler
from optuna.samplers.nsgaii import BLXAlphaCrossover
from optuna.trial import FrozenTrial, TrialState

from search.study.sampler import section_of
from search.study.schema import Study
from search.study.space import Distribution, Numbers, Space, points, stored


def sampler_of(study: Study) -> BaseSampler:
    """Return Optuna's sampler for a search. Tuned with lab/scripts/sampling.py."""
    section = section_of(study)
    name, seed = section.name, section.seed
    space = study.kind.space
    varied = {}
    for path, field in space.items():
        distribution = distribution_of(field)
        if not distribution.single():
            varied[path] = distribution

    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
        if name == "tpe":
            is_conditional = any(field.when for field in space.values())
            return _TPE(seed, multivariate=True, group=is_conditional)  # of a group all fields have numbers
        if name == "nsga2":
            # Small generations: with Optuna's 50 most searches here would end in the first, which is chance.
            population = min(max(4, study.planned // 15), 50)
            crossover = BLXAlphaCrossover()
            return NSGAII(seed, population_size=population, crossover=crossover)
        if name == "qmc":
            return _Sequence(varied, seed)
        if name == "random":
            return _Random(seed)
        return _Grid(varied, space, seed)


def attributes_of(sampler: BaseSampler, complete: int) -> dict[str, Any]:
    """Return the attributes that a sampler gives a proposal. complete: how many were completed before it."""
    return sampler.attributes(complete // sampler.population_size) if isinstance(sampler, NSGAII) else {}


class _ByNumber(BaseSampler):
    """A sampler whose generators begin anew with each proposal, from the search's seed and the proposal's number.

    So a resumed search draws what an undisturbed one would have drawn, as far as results do not matter.
    """

    def __init__(self, seed: int, **options: Any):
        super().__init__(seed=seed, **options)
        self._seed = seed

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        # TPE and NSGA-II draw their first trials from a random sampler of their own.
        samplers: list[Any] = [self, getattr(self, "_random_sampler", self)]
        for sampler in samplers:
            sampler._rng.rng.seed([self._seed, trial.number])
        super().before_trial(study, trial)


class _Random(_ByNumber, RandomSampler):
    pass


class _TPE(_ByNumber, TPESampler):
    pass


class NSGAII(_ByNumber, NSGAIISampler):
    """NSGA-II for proposals that are told out of order.

    A generation begins when the one before has been told often enough. What is still in training then is told
    later and would be nobody's parent: so parents are the best of all that has been told.
    """

    def select_parent(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return self._elite_population_selection_strategy(study, complete)

    def attributes(self, generation: int) -> dict[str, Any]:
        """Return what the sampler notes of a trial of a generation."""
        return {self._get_generation_key(): generation}


class _Sequence(QMCSampler):
    """Sobol's sequence over the whole space. Optuna's own takes the space from what was proposed first."""

    def __init__(self, distributions: dict[str, BaseDistribution], seed: int):
        super().__init__(scramble=True, seed=seed)
        self._distributions = distributions

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._distributions

    def _find_sample_id(self, study: optuna.Study, search_space: dict[str, BaseDistribution]) -> int:
        """Return the place in the sequence: the number of the trial that is being drawn."""
        # Optuna's own counts in attributes of its study, which one that is made anew lacks.
        return len(study.get_trials(deepcopy=False)) - 1


class _Grid(BaseSampler):
    """Every point once, in an order that spreads what is proposed first.

    Optuna's own grid knows the used points by attributes that it gave the trials, which those made anew lack.
    """

    def __init__(self, distributions: dict[str, BaseDistribution], space: Space, seed: int):
        self._distributions = distributions
        self._points = points(space)
        random.Random(seed).shuffle(self._points)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._distributions

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Numbers:
        used = {frozenset(earlier.params.items()) for earlier in study.get_trials(deepcopy=False)}
        return next(point for point in self._points if frozenset(point.items()) not in used)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise AssertionError(f"{param_name} is no part of the grid's point")


def distribution_of(field: Distribution) -> BaseDistribution:
    if field.is_choice:
        return CategoricalDistribution([stored(value) for value in field.values()])
    low, high = field.ends()
    if field.int_:
        return IntDistribution(low, high, log=field.log, step=int(field.step or 1))
    return FloatDistribution(low, high, log=field.log, step=field.step)


def suggest(trial: optuna.Trial, path: str, field: Distribution) -> Any:
    """Return Optuna's number for a field as a plain one: samplers let some of NumPy's through."""
    distribution = distribution_of(field)
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(path, distribution.choices)
    if field.int_:
        return int(trial.suggest_int(path, **distribution._asdict()))
    return float(trial.suggest_float(path, **distribution._asdict()))
