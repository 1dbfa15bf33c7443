"""Proposals of a search that were told, carried from one home's Optuna study into another's.

A merged search must not propose again what its sources have tried.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from itertools import count, takewhile

import optuna
import sqlalchemy as sa
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from search.errors import Failure, UserError
from search.extension import AGAIN, BASE, SPACE, open_search
from search.holdings import name_of_home
from search.home import Home
from search.plan import Configuration
from search.proposals import DIRECTIONS, distribution_of, storage_of
from search.study import Study


@contextlib.contextmanager
def _answered(home: Home) -> Iterator[None]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    except (OptunaError, SQLAlchemyError, RuntimeError, ValueError) as error:
        line = " ".join(str(getattr(error, "orig", None) or error).split())[:200]
        raise Failure(f"{home.database_name}: proposals: {line}") from None


def names_in(home: Home, study: str) -> list[str]:
    """The Optuna studies of a study: NAME, and NAME~2 and so on where its space was changed."""
    if not has_proposals(home):
        return []
    with _answered(home):
        known = set(optuna.get_all_study_names(storage_of(home)))
    names = (study if n == 1 else f"{study}~{n}" for n in count(1))
    return list(takewhile(known.__contains__, names))


def has_proposals(home: Home) -> bool:
    """Whether Optuna has its tables in a home. To ask itself would make them."""
    with _answered(home):
        engine = sa.create_engine(home.records_url)
        try:
            return sa.inspect(engine).has_table("studies")
        finally:
            engine.dispose()


def proposals_in(home: Home, study: str) -> dict[str, int]:
    """How many proposals each Optuna study of a study has."""
    names, storage = names_in(home, study), storage_of(home)
    with _answered(home):
        return {name: len(optuna.load_study(study_name=name, storage=storage).trials) for name in names}


def delete_proposals(home: Home, study: str) -> None:
    # the last one first: what is left of a deletion that was cut off is still found by its name
    for name in reversed(names_in(home, study)):
        with _answered(home):
            optuna.delete_study(study_name=name, storage=storage_of(home))


def newest(home: Home, study: str) -> optuna.Study | None:
    """The Optuna study that a search goes on with; a copy that was cut off does not count."""
    found = None
    for name in names_in(home, study):
        with _answered(home):
            newer = optuna.load_study(study_name=name, storage=storage_of(home))
            if found is not None and SPACE not in newer.user_attrs:
                break
            found = newer
    return found


def to_carry(
    study: Study, source: Home, found: optuna.Study, target: optuna.Study | None
) -> list[FrozenTrial]:
    """The proposals that a source was told of, as trials of the target's study.

    Raises UserError if the two do not search the same: other space, other base, other objectives.
    """
    space = {path: d.model_dump(mode="json") for path, d in study.space.items()}
    asked = {SPACE: space, BASE: Configuration(study.spec(), study.base_recipe()).key}
    mine = asked | (target.user_attrs if target else {})
    directions = [DIRECTIONS[name] for name in study.sampler.objectives_of(study.space)]
    mine["objectives"] = [d.name.lower() for d in target.directions] if target else directions
    its = found.user_attrs | {"objectives": [d.name.lower() for d in found.directions]}
    for name, what in ((SPACE, "space"), (BASE, "model and recipe"), ("objectives", "objectives")):
        if its.get(name, mine[name]) != mine[name]:
            raise UserError(
                f"study {study.name}: {what}: not the same search in {name_of_home(source)}; run it once in "
                "both with one file, whose space has all their proposals, or merge elsewhere with --home"
            )
    with _answered(source):
        told = found.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return [_copy(study, t) for t in told if t.params.keys() <= study.space.keys()]


def _copy(study: Study, trial: FrozenTrial) -> FrozenTrial:
    return create_trial(
        state=TrialState.COMPLETE,
        values=trial.values,
        params=trial.params,
        distributions={path: distribution_of(study.space[path]) for path in trial.params},
        user_attrs={k: v for k, v in trial.user_attrs.items() if k != AGAIN},  # a number of the other study
    )


def missing_of(told: list[FrozenTrial], there: list[FrozenTrial]) -> list[FrozenTrial]:
    """Those of `told` that are not there; what was proposed twice is to be there twice."""
    left = Counter(_point(t) for t in there if t.state == TrialState.COMPLETE)
    found = []
    for trial in told:
        if left[_point(trial)] > 0:
            left[_point(trial)] -= 1
        else:
            found.append(trial)
    return found


def _point(trial: FrozenTrial) -> str:
    return json.dumps(trial.params, sort_keys=True)


def carry(study: Study, home: Home, trials: list[FrozenTrial]) -> None:
    """Add proposals to a home's search, which is begun if it is not there."""
    directions = [DIRECTIONS[name] for name in study.sampler.objectives_of(study.space)]
    with _answered(home):
        found = newest(home, study.name) or open_search(study, storage_of(home), directions, distribution_of)
        found.add_trials(trials)
