"""Optuna's side of a search: it proposes configurations and is told their objectives.

The ledger is the authority: a proposal is written there before anything of it trains, as the numbers that
were drawn (by the key paths of their fields, search/study/space.py) and the configuration that they make.
Optuna's study is in memory, made anew by each driver from proposals and rows.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from model import Spec
from search.kinds.earlier import numbers_of
from search.kinds.samplers import attributes_of, distribution_of, sampler_of, suggest
from search.run.allocation import objective
from search.stats.counting import group_by
from search.stats.record import SeedRecord
from search.store.home import sqlite_url
from search.store.study_records import StudyRecords, Values
from search.study.kind import names_of
from search.study.sampler import PARAMS, section_of
from search.study.schema import Study
from search.study.space import Numbers, numbers_by
from search.study.trial import Configuration
from search.study.warm import known_trials
from trainer import Outcome, Recipe

KEY = "configuration"
"""The attribute of Optuna's trials that has the key of their configuration."""


class Proposals:
    """The proposals of one search.

    A proposal's number is that of its row in the ledger. Its Optuna trial stands behind those that the sampler knew.
    """

    def __init__(
        self,
        study: Study,
        records: StudyRecords,
        make: Callable[[Spec, Recipe], Configuration] = Configuration,
    ):
        """Begin a search, or resume it. Raises UserError if the study is not the one that was begun.

        make: makes a configuration, with the θ that it starts from, if any.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study = study
        self.records = records
        self.make = make
        self.space = study.kind.space
        self.sampler = section_of(study)
        self.planned = study.planned
        self.objectives = self.sampler.directions
        self._proposed: dict[str, Configuration] = {}
        self._open: dict[str, list[int]] = {}
        """Numbers of the trials that Optuna has not been told of, by their configurations' keys."""
        self._drawn = 0

        earlier = records.list_proposals()
        self.optuna = optuna.create_study(directions=list(self.objectives.values()), sampler=sampler_of(study))
        warm = self.sampler.warm_start
        self._known = known_trials(warm, self.space, self.objectives) if warm else []
        for n, (numbers, values) in enumerate(self._known):
            attributes = attributes_of(self.optuna.sampler, n)
            self.optuna.add_trial(self._trial(numbers, values=values, system_attrs=attributes))
        self._rebuild(earlier)

    @property
    def exhausted(self) -> bool:
        """True if no proposal is left to be made."""
        return not self.remaining

    @property
    def remaining(self) -> int:
        """Number of proposals that are left to be made."""
        return max(0, self.planned - self._drawn)

    def proposed(self) -> list[Configuration]:
        """Return all configurations that were proposed, each once, in order."""
        return list(self._proposed.values())

    def ask(self) -> Configuration | None:
        """Return the next proposal, or None when the study's number of configurations is reached."""
        while not self.exhausted:
            trial = self.optuna.ask()
            numbers = numbers_by(self.space, partial(suggest, trial))
            configuration = self._configuration(numbers)
            # Before anything of it trains: a driver that stops here draws it no second time.
            self.records.create_proposal(trial.number - len(self._known), configuration, numbers)
            self._drawn += 1
            if configuration is None:
                self.optuna.tell(trial, state=TrialState.FAIL)
                continue

            trial.set_user_attr(KEY, configuration.key)
            self._proposed.setdefault(configuration.key, configuration)
            # Several proposals may come to one configuration, whose outcomes answer all of them.
            self._open.setdefault(configuration.key, []).append(trial.number)
            return configuration
        return None

    def tell(self, configuration: Configuration, rows: Sequence[SeedRecord]) -> None:
        """Tell Optuna of a configuration's seeds, which have ended."""
        values = self._values(configuration, rows)
        for number in self._open.pop(configuration.key, ()):
            self.optuna.tell(number, values)

    def trials(self) -> list[FrozenTrial]:
        """Return every proposal as it is now, in a list of its own."""
        return self.optuna.get_trials(deepcopy=False)[len(self._known) :]

    def _configuration(self, numbers: Numbers) -> Configuration | None:
        """Return None for an impossible combination of possible values."""
        try:
            return self.make(*self.study.configuration(self.study.resolved(numbers)))
        except ValueError:
            return None

    def _values(self, configuration: Configuration, rows: Sequence[SeedRecord]) -> list[float]:
        sought = self.sampler.sought
        values = {
            sought: objective(rows, configuration.recipe, sought),
            PARAMS: float(configuration.spec.params),
        }
        return [values[name] for name in self.objectives]

    def _rebuild(self, earlier: Sequence[Values]) -> None:
        """Add a trial for each earlier proposal: complete, still to be trained, or impossible."""
        if not earlier:
            return
        configurations = self.records.list_configurations()
        searched = (row for row in self.records.list_seeds() if not row.confirmation)
        rows = group_by(searched, "configuration")
        complete = len(self._known)
        for proposal in earlier:
            key, numbers = proposal["configuration"], proposal["numbers"]
            if key is None:
                trial = self._impossible(numbers)
                self._drawn += bool(trial.params)
                self.optuna.add_trial(trial)
                continue

            configuration = self._proposed.setdefault(key, configurations[key])
            ended = {row.seed for row in rows.get(key, ()) if row.is_final}
            facts: dict[str, Any] = {"state": TrialState.RUNNING}
            is_trained = ended.issuperset(self.study.first_seeds)  # as the file has them now
            if is_trained:
                values = self._values(configuration, rows[key])
                facts = {"values": values, "system_attrs": attributes_of(self.optuna.sampler, complete)}
            else:
                self._open.setdefault(key, []).append(proposal["number"] + len(self._known))

            numbers = numbers_of(self.study, configuration, numbers)
            self.optuna.add_trial(self._trial(numbers, user_attrs={KEY: key}, **facts))
            complete += is_trained
            self._drawn += 1

    def _impossible(self, numbers: Numbers) -> FrozenTrial:
        """Return a failed trial of impossible numbers; an empty one, not counted, if the space has them no more."""
        try:
            self.study.resolved(numbers)
            return self._trial(numbers, state=TrialState.FAIL)
        except (KeyError, ValueError):
            return create_trial(state=TrialState.FAIL)

    def _trial(self, numbers: Numbers, **facts: Any) -> FrozenTrial:
        """Return a trial of Optuna's. Raises ValueError, or KeyError, for numbers outside the space."""
        distributions = {path: distribution_of(self.space[path]) for path in numbers}
        return create_trial(params=numbers, distributions=distributions, **facts)


def write_study(study: Study, records: StudyRecords, file: Path) -> int:
    """Write a search as a study of Optuna's, into a new SQLite file. Return the number of its proposals.

    A trial has its configuration's name, the number of its seeds, and how many of them grokked.
    """
    proposals = Proposals(study, records)
    names = names_of(study, proposals.proposed())
    rows = group_by(records.list_seeds(), "configuration")

    directions = list(proposals.objectives.values())
    copy = optuna.create_study(storage=sqlite_url(file), study_name=study.name, directions=directions)
    with warnings.catch_warnings(action="ignore"):  # Optuna calls it experimental
        copy.set_metric_names(list(proposals.objectives))

    for trial in proposals.trials():
        key = trial.user_attrs.get(KEY)
        if key:
            outcomes = Counter(row.outcome for row in rows.get(key, ()))
            trial.set_user_attr("name", names[key])
            trial.set_user_attr("seeds", outcomes.total())
            trial.set_user_attr("grokked", outcomes[Outcome.GROKKED])
        copy.add_trial(trial)
    return len(copy.trials)
