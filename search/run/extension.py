"""Going on with a study whose file has changed.

More seeds, more rounds, other resources and a wider space are just an edited file. Refused is what would make
old and new records incomparable: a search's earlier proposals must be points of the new space, and a seed
belongs to the search or to the confirmation, not to both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from search.errors import UserError
from search.store.ledger import Row
from search.study.schema import Study, numbered
from search.study.space import Distribution, Numbers, exists, fixed, order, resolve, stored
from search.study.trial import Configuration
from trainer import Seed

WAY_OUT = "give the study a new name, or run it with --fresh"
SPACE, BASE, AGAIN, CRASHED = "space", "base", "again", "crashed"


def check_extension(study: Study, before: Row | None, rows: Iterable[Row]) -> None:
    """Raise UserError if a study cannot go on by this file. `before`: its definition when it last ran."""
    if before is not None and bool(before.get("space")) != bool(study.space):
        kinds = ("a search, the file now has no space", "a list, the file now has a space")
        raise UserError(f"study {study.name}: was begun as {kinds[not before.get('space')]}; {WAY_OUT}")
    used: dict[bool, set[Seed]] = {False: set(), True: set()}
    for row in rows:
        used[row["confirmation"]].add(Seed(row["init_seed"], row["data_seed"]))
    fresh = set(numbered(study.confirm.seeds)) if study.confirm else set()
    if both := fresh & used[False]:
        raise UserError(
            f"study {study.name}: confirm.seeds: {min(both)} was a seed of the search, which chose by it; "
            "name seeds that have not been trained"
        )
    if used[True] and (both := used[True].intersection(s for seeds in study.rounds() for s in seeds)):
        raise UserError(f"study {study.name}: seeds: {min(both)} was used to confirm; {WAY_OUT}")


def open_search(
    study: Study,
    storage: str | BaseStorage,
    directions: Sequence[str],
    distribute: Callable[[Distribution], Any],
) -> optuna.Study:
    """A search's Optuna study, begun or gone on with; in a new one, with all that was proposed, if the space
    is another. Raises UserError if a proposal is no point of it.
    """
    space = {path: d.model_dump(mode="json") for path, d in study.space.items()}
    base = Configuration(study.spec(), study.base_recipe()).key
    names = set(optuna.get_all_study_names(storage))
    found = None
    for n in count(1):
        name = study.name if n == 1 else f"{study.name}~{n}"
        newer = optuna.load_study(study_name=name, storage=storage) if name in names else None
        if newer is None or (found and SPACE not in newer.user_attrs):  # a copy that was cut off
            break
        found = newer
    if found and found.user_attrs.get(BASE, base) != base:
        raise UserError(f"study {study.name}: model or recipe: not what it was begun with; {WAY_OUT}")
    same = found and [d.name.lower() for d in found.directions] == list(directions)
    if found and same and found.user_attrs.get(SPACE, space) == space:
        begun = found
    else:
        carried = _carried(found, study, distribute) if found else []
        if newer is not None:
            optuna.delete_study(study_name=name, storage=storage)
        begun = optuna.create_study(
            storage=storage, study_name=name, directions=directions, load_if_exists=found is None
        )
        begun.add_trials(carried)
    begun.set_user_attr(BASE, base)
    begun.set_user_attr(SPACE, space)  # last: it says that the copy is whole
    if found and found is not begun:
        for trial in found.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            found.tell(trial.number, state=TrialState.FAIL)  # it is open in the copy
    return begun


def _carried(
    found: optuna.Study, study: Study, distribute: Callable[[Distribution], Any]
) -> list[FrozenTrial]:
    """What was proposed, as trials of the new space; what was never drawn to its end is left behind."""
    before = found.user_attrs.get(SPACE, {})
    old = {path: Distribution.model_validate(d, by_name=True) for path, d in before.items()}
    base, trials = fixed(study.spec(), study.base_recipe()), []
    objectives = study.sampler.objectives_of(study.space)
    proposed = found.get_trials(deepcopy=False)
    again = {t.user_attrs.get(AGAIN) for t in proposed}
    for trial in proposed:
        try:
            spec, recipe = study.configuration(resolve(old, trial.params, base))
        except ValueError:
            continue
        numbers = _numbers(study, fixed(spec, recipe))
        values = None
        if trial.state == TrialState.COMPLETE:
            known = {"grok_rate": trial.values[0], "params": float(spec.params)}
            values = [known[name] for name in objectives]
        distributions = {path: distribute(study.space[path]) for path in numbers}
        state = trial.state
        if trial.user_attrs.get(CRASHED):  # to be proposed again, unless it has been
            if trial.number in again:
                continue
            state = TrialState.RUNNING
        facts: dict[str, Any] = {"state": state, "values": values}
        trials.append(create_trial(params=numbers, distributions=distributions, **facts))
    return trials


def _numbers(study: Study, value: Callable[[str], Any]) -> Numbers:
    """A configuration's values as numbers of the study's space. Raises UserError if it is no point of it."""
    space = study.space
    numbers: Numbers = {}
    base = fixed(study.spec(), study.base_recipe())
    for path in order(space):
        if not exists(space, path, numbers):
            continue
        field = space[path]
        number = value(path) - value(field.after) if field.after else value(path)
        if not _has(field, number):
            raise _no_point(study, path, value(path))
        numbers[path] = stored(number)
    values = resolve(space, numbers, base)
    for path in {*space, *_fields(study)}:
        if values.get(path, base(path)) != value(path):
            raise _no_point(study, path, value(path))
    return numbers


def _fields(study: Study) -> list[str]:
    parts = {"model": study.spec().as_dict(), "recipe": study.base_recipe().as_dict()}
    return [f"{part}.{name}" for part, fields in parts.items() for name in fields]


def _has(field: Distribution, number: Any) -> bool:
    if field.values() or field.choice is not None:
        return field.has(number)
    low, high = field.ends()
    return isinstance(number, int | float) and math.isfinite(number) and low <= number <= high


def _no_point(study: Study, path: str, value: Any) -> UserError:
    return UserError(
        f"study {study.name}: space: an earlier proposal had {path} {value!r}, which this space has not; "
        + WAY_OUT
    )


def take_up_crashed(found: optuna.Study) -> None:
    """Open the proposals again whose trials failed for good in an earlier run."""
    trials = found.get_trials(deepcopy=False)
    again = {t.user_attrs.get(AGAIN) for t in trials}
    for t in trials:
        if t.user_attrs.get(CRASHED) and t.number not in again:
            facts = {"state": TrialState.RUNNING, "user_attrs": {AGAIN: t.number}}
            found.add_trial(create_trial(params=t.params, distributions=t.distributions, **facts))


def close_crashed(found: optuna.Study) -> None:
    """Mark proposals whose trials failed for good, so that none stays open."""
    for trial in found.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        optuna.trial.Trial(found, trial._trial_id).set_user_attr(CRASHED, True)
        found.tell(trial.number, state=TrialState.FAIL)
