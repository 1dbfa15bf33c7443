"""Optuna's side of a search: configurations that are proposed, and told a finite objective each."""

from __future__ import annotations

from collections import deque
from typing import Any

import optuna
from optuna.trial import TrialState

from search.errors import UserError
from search.home import Home
from search.ledger import Row, is_final
from search.plan import Configuration
from search.space import Distribution
from search.study import Study
from trainer import Outcome


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
