"""The mirror of a search: an Optuna study that optuna-dashboard can open. Written, and never read to decide.

What is proposed and told is in the ledger; search/run/proposals.py makes Optuna's study of it, in memory. The
mirror follows that, and is written anew where it does not fit; so it may be deleted at any time.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from search.errors import Failure
from search.store.database import LOCK_WAIT_S
from search.store.home import Home

if TYPE_CHECKING:  # a study that is a list needs no Optuna
    import optuna
    from optuna.trial import FrozenTrial


class Mirror:
    """One search's. For one thread at a time.

    `objectives`: each with its direction, minimize or maximize, in the order of a trial's values.
    """

    def __init__(self, home: Home, study: str, objectives: Mapping[str, str]):
        self.home, self.study, self.objectives = home, study, dict(objectives)
        self._storage: Any = None

    def update(self, trials: Sequence[FrozenTrial], running: bool = True) -> None:
        """Make the mirror equal to a search's trials. `running`: whether a driver trains what is open.

        If none does, open trials are shown as waiting. Raises Failure, and may be called again then.
        """
        try:
            self._update([_as_shown(t, running) for t in trials])
        except Exception as error:  # a file, a server, tables of another version: anything may be behind it
            self._storage = None  # what it remembers may be of a study that was deleted meanwhile
            raise _failure(self.study, error) from error

    def _update(self, wanted: Sequence[FrozenTrial]) -> None:
        import optuna

        found = self._open()
        there = found.get_trials(deepcopy=False)
        same = [d.name.lower() for d in found.directions] == list(self.objectives.values())
        if not same or len(there) > len(wanted) or not all(map(_continues, wanted, there)):
            optuna.delete_study(study_name=self.study, storage=self._storage)
            found, there = self._open(), []
        for mine, its in zip(wanted, there, strict=False):
            if mine.state != its.state:
                self._storage.set_trial_state_values(its._trial_id, mine.state, mine.values)
        found.add_trials(wanted[len(there) :])

    def _open(self) -> optuna.Study:
        """The mirror, begun if it is not there."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if self._storage is not None:
            with suppress(KeyError):
                return optuna.load_study(study_name=self.study, storage=self._storage)
        # a fresh one: the storage remembers trials, and SQLite gives a deleted study's number to the next
        self._storage = optuna.storages.get_storage(_storage_of(self.home))
        with warnings.catch_warnings(), suppress(optuna.exceptions.DuplicatedStudyError):
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            directions = list(self.objectives.values())
            made = optuna.create_study(study_name=self.study, storage=self._storage, directions=directions)
            made.set_metric_names(list(self.objectives))
        return optuna.load_study(study_name=self.study, storage=self._storage)


def _storage_of(home: Home) -> optuna.storages.RDBStorage:
    """Connections of a server that was away are noticed before they are used."""
    import optuna

    waits: dict[str, Any] = {"connect_args": {"timeout": LOCK_WAIT_S}}
    options = waits if home.has_own_database else {"pool_pre_ping": True}
    return optuna.storages.RDBStorage(home.optuna_url, engine_kwargs=options)


def _as_shown(trial: FrozenTrial, running: bool) -> FrozenTrial:
    """A trial that is open is waiting while nobody trains it."""
    from optuna.trial import TrialState

    if running or trial.state != TrialState.RUNNING:
        return trial
    shown = copy.copy(trial)
    shown.state = TrialState.WAITING
    return shown


def _continues(mine: FrozenTrial, its: FrozenTrial) -> bool:
    """Whether a trial is the mirror's, as it was then or as it is now."""
    facts = ("params", "distributions", "user_attrs")
    if any(getattr(mine, name) != getattr(its, name) for name in facts):
        return False
    return not its.state.is_finished() or (mine.state, mine.values) == (its.state, its.values)


def delete_mirror(home: Home, study: str) -> None:
    """Delete a search's mirror, if it has one. Raises Failure if that cannot be done."""
    if home.has_own_database and not home.optuna_db.exists():
        return
    try:
        engine = sa.create_engine(home.optuna_url)
        try:  # to ask Optuna would make its tables
            found = sa.inspect(engine).has_table("studies")
        finally:
            engine.dispose()
    except SQLAlchemyError as error:
        raise _failure(study, error) from None
    if not found:
        return
    import optuna

    try:
        with suppress(KeyError):
            optuna.delete_study(study_name=study, storage=_storage_of(home))
    except (optuna.exceptions.OptunaError, SQLAlchemyError, RuntimeError) as error:
        raise _failure(study, error) from None


def _failure(study: str, error: Exception) -> Failure:
    line = " ".join(str(getattr(error, "orig", None) or error).split())[:200]
    return Failure(f"Optuna's mirror of {study}: {line}")
