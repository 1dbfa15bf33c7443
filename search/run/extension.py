"""Going on with a study whose file has changed.

More seeds, more rounds, other resources and a wider space are just an edited file. A file is refused
that would make old and new records incomparable: a search's earlier proposals must be points of the new space,
and a seed belongs to the search or to the confirmation, not to both.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from search.errors import UserError
from search.stats.counting import Row, seed_of
from search.store.study_records import StudyRecords
from search.study.file import with_earlier_defaults
from search.study.proposer import proposer_keys
from search.study.sampler import Sampler
from search.study.schema import Study
from search.study.space import Distribution, Numbers, fixed, order, stored
from search.study.trial import Configuration
from trainer import Seed

WAY_OUT = "give the study a new name, or run it with --fresh"


def as_begun(study: Study, definition: Mapping[str, Any] | None) -> Study:
    """Return a study with the draw of spared seeds and the objectives as they were when it began.

    What the file says goes first.

    definition: as it was recorded when it last ran; None if it never did.
    """
    if definition is None:
        return study
    recorded = with_earlier_defaults(definition)
    changes: dict[str, Any] = {}
    if study.stop.spare is None:
        changes["stop"] = study.stop.model_copy(update={"spare": recorded["stop"]["spare"]})
    if study.space and study.sampler.objectives is None:
        sampler = Sampler.model_validate(recorded.get("sampler") or {})
        changes["sampler"] = study.sampler.model_copy(update={"objectives": sampler.objectives})
    return study.model_copy(update=changes)


def extended(study: Study, records: StudyRecords, rows: Iterable[Row]) -> Study:
    """Return a study as it goes on from its records. Raise UserError if it cannot. rows: its seeds."""
    definition = records.get_definition()
    study = as_begun(study, definition)
    check_extension(study, definition, rows)
    return study


def check_extension(study: Study, before: Row | None, rows: Iterable[Row]) -> None:
    """Raise UserError if a study cannot go on by this file. `before`: its definition when it last ran."""
    if before is not None and bool(before.get("space")) != bool(study.space):
        kinds = ("a search, the file now has no space", "a list, the file now has a space")
        raise UserError(f"study {study.name}: was begun as {kinds[not before.get('space')]}; {WAY_OUT}")
    for key in proposer_keys():
        if before is not None and bool(before.get(key)) != (study.proposer_key == key):
            how = "with" if before.get(key) else "without"
            raise UserError(f"study {study.name}: {key}: was begun {how} it; {WAY_OUT}")
    start = study.start and study.start.model_dump(mode="json")
    if before is not None and (begun := with_earlier_defaults(before).get("start")) != start:
        raise _changed(study, "start", _short(begun), _short(start))
    used: dict[bool, set[Seed]] = {False: set(), True: set()}
    for row in rows:
        used[row["confirmation"]].add(seed_of(row))
    fresh = set(study.confirm_seeds)
    if both := fresh & used[False]:
        raise UserError(
            f"study {study.name}: confirm.seeds: {min(both)} was a seed of the search, which chose by it; "
            "name seeds that have not been trained"
        )
    if used[True] and (both := used[True].intersection(s for seeds in study.rounds for s in seeds)):
        raise UserError(f"study {study.name}: seeds: {min(both)} was used to confirm; {WAY_OUT}")


def _short(values: Any) -> str:
    """Return a section's values that are not empty, in few words."""
    plain = {key: value for key, value in (values or {}).items() if value not in (None, [], {}, False)}
    return ", ".join(f"{key} {value}" for key, value in plain.items())[:200] or "nothing"


def numbers_of(study: Study, configuration: Configuration, drawn: Mapping[str, Any]) -> Numbers:
    """Return an earlier proposal's configuration as numbers of the study's space.

    Numbers that were drawn come before those of the values, which may be rounded. If a field's `after` has changed,
    what was drawn means another value: then all numbers are taken from the values. Raises UserError if it is no point
    of the space, or differs from the base in what is not searched.
    """
    if configuration.spec.family != study.base_spec.family:
        raise _changed(study, "model.family", configuration.spec.family, study.base_spec.family)
    try:
        return _numbers(study, configuration, drawn, keep=True)
    except UserError:
        with suppress(UserError):  # `after` may have changed what a number means
            return _numbers(study, configuration, drawn, keep=False)
        raise


def _numbers(study: Study, configuration: Configuration, drawn: Mapping[str, Any], keep: bool) -> Numbers:
    """Return the numbers; keep: prefer those drawn to those of the values, which may be rounded."""
    space, value = study.space, fixed(configuration.spec, configuration.recipe)
    numbers: Numbers = {}
    for path in order(space):
        if keep and path in drawn and _has_number(space[path], drawn[path]):
            numbers[path] = drawn[path]
            continue
        after = space[path].after
        if value(path) is None or (after and value(after) is None):
            raise _changed(study, path, "none", "a number")
        number = value(path) - value(after) if after else value(path)
        if not space[path].has(number):
            raise _no_point(study, path, drawn.get(path, value(path)))
        numbers[path] = stored(number)
    try:
        resolved = fixed(*study.configuration(study.resolved(numbers)))
    except ValueError as error:
        raise UserError(f"study {study.name}: with what it was begun with: {error}; {WAY_OUT}") from None
    for path in dict.fromkeys([*space, *_fields(study)]):
        if resolved(path) != value(path):
            if path in drawn:
                raise _no_point(study, path, drawn[path])
            raise _changed(study, path, value(path), resolved(path))
    return numbers


def _has_number(field: Distribution, number: Any) -> bool:
    """True if a number that was drawn, from this space or another, is one of the field's."""
    try:
        return field.has(field.decoded(number))
    except ValueError:
        return False


def _fields(study: Study) -> list[str]:
    parts = {"model": study.base_spec.as_dict(), "recipe": study.base_recipe.as_dict()}
    return [f"{part}.{name}" for part, fields in parts.items() for name in fields]


def _no_point(study: Study, path: str, value: Any) -> UserError:
    return UserError(
        f"study {study.name}: space: an earlier proposal had {path} {value}, which this space has not; " + WAY_OUT
    )


def _changed(study: Study, path: str, before: Any, now: Any) -> UserError:
    begun, file = (json.dumps(value) if isinstance(value, bool) else value for value in (before, now))
    return UserError(f"study {study.name}: {path}: begun with {begun}, the file has {file}; {WAY_OUT}")
