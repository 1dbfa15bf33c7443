"""The mirror of a search: an Optuna study that optuna-dashboard can open. Written, and never read to decide.

The ledger has what was proposed and told, and search/run/proposals.py makes Optuna's study of it in memory. The
mirror follows that study, and is written anew where it does not fit, so it may be deleted at any time.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from search.errors import Failure
from search.store.database import LOCK_WAIT_S
from search.store.home import Home
from search.store.study_records import StudyRecords

if TYPE_CHECKING:  # a study that is a list needs no Optuna
    import optuna
    from optuna.trial import FrozenTrial


class Mirror:
    """One search's mirror. For one thread at a time.

    `objectives`: each with its direction, minimize or maximize, in the order of a trial's values.
    """

    def __init__(self, records: StudyRecords, objectives: Mapping[str, str]):
        self.home, self.study, self.objectives = records.home, records.study, dict(objectives)
        self._storage: Any = None
        """Optuna's storage, which remembers trials; a new one after an error, and after a deletion."""

    def update(self, trials: Sequence[FrozenTrial], running: bool = True) -> None:
        """Make the mirror equal to a search's trials. `running`: True if a driver trains those that are open.

        If none does, they are shown as waiting. Raises Failure, and may be called again then.
        """
        import optuna

        wanted = [_as_shown(trial, running) for trial in trials]
        try:
            study = self._open()
            existing = study.get_trials(deepcopy=False)
            same = [d.name.lower() for d in study.directions] == list(self.objectives.values())
            if not same or len(existing) > len(wanted) or not all(map(_continues, wanted, existing)):
                optuna.delete_study(study_name=self.study, storage=self._storage)
                self._storage = None  # SQLite gives a deleted study's number to the next
                study, existing = self._open(), []
            for trial, mirrored in zip(wanted, existing, strict=False):
                if trial.state != mirrored.state:
                    self._storage.set_trial_state_values(mirrored._trial_id, trial.state, trial.values)
            study.add_trials(wanted[len(existing) :])
        except Exception as error:  # a file, a server, tables of another version: anything may be behind it
            self._storage = None
            raise _failure(self.study, error) from error

    def _open(self) -> optuna.Study:
        """Open the mirror, or create it."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if self._storage is None:
            self._storage = optuna.storages.get_storage(_storage_of(self.home))
        with suppress(KeyError):
            return optuna.load_study(study_name=self.study, storage=self._storage)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            directions = list(self.objectives.values())
            study = optuna.create_study(study_name=self.study, storage=self._storage, directions=directions)
            study.set_metric_names(list(self.objectives))
        return study


def delete_mirror(records: StudyRecords) -> None:
    """Delete a search's mirror, if it has one. Raises Failure if that cannot be done."""
    home, study = records.home, records.study
    if home.has_own_database and not home.optuna_db.exists():
        return
    try:
        engine = sa.create_engine(home.optuna_url)
        try:  # to ask Optuna would make its tables
            has_mirrors = sa.inspect(engine).has_table("studies")
        finally:
            engine.dispose()
        if has_mirrors:
            import optuna

            with suppress(KeyError):
                optuna.delete_study(study_name=study, storage=_storage_of(home))
    except Exception as error:
        raise _failure(study, error) from None


def _storage_of(home: Home) -> optuna.storages.RDBStorage:
    """Open Optuna's storage. Connections of a server that was away are noticed before they are used."""
    import optuna

    waits: dict[str, Any] = {"connect_args": {"timeout": LOCK_WAIT_S}}
    options = waits if home.has_own_database else {"pool_pre_ping": True}
    return optuna.storages.RDBStorage(home.optuna_url, engine_kwargs=options)


def _as_shown(trial: FrozenTrial, running: bool) -> FrozenTrial:
    """Return a trial, shown as waiting if it is open and nobody trains it."""
    from optuna.trial import TrialState

    if running or trial.state != TrialState.RUNNING:
        return trial
    shown = copy.copy(trial)
    shown.state = TrialState.WAITING
    return shown


def _continues(trial: FrozenTrial, mirrored: FrozenTrial) -> bool:
    """True if a trial is the mirrored one, as it was then or as it is now."""
    facts = ("params", "distributions", "user_attrs")
    if any(getattr(trial, name) != getattr(mirrored, name) for name in facts):
        return False
    return not mirrored.state.is_finished() or (trial.state, trial.values) == (
        mirrored.state,
        mirrored.values,
    )


def _failure(study: str, error: Exception) -> Failure:
    line = " ".join(str(getattr(error, "orig", None) or error).split())[:200]
    return Failure(f"Optuna's mirror of {study}: {line}")
