"""Going on with a study whose file has changed.

More seeds, more rounds, other resources and a wider space are just an edited file. Refused is what would make
old and new records incomparable: a search's earlier proposals must be points of the new space, and a seed
belongs to the search or to the confirmation, not to both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from search.errors import UserError
from search.store.ledger import Row
from search.study.schema import Study, numbered
from search.study.space import Distribution, Numbers, exists, fixed, order, resolve, stored
from search.study.trial import Configuration
from trainer import Seed

WAY_OUT = "give the study a new name, or run it with --fresh"


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


def numbers_of(study: Study, configuration: Configuration, drawn: Mapping[str, Any]) -> Numbers:
    """A configuration as numbers of the study's space: those that were drawn, where they still say the same.

    Raises UserError if it is no point of the space, or differs from the base in what is not searched.
    """
    base = fixed(study.spec(), study.base_recipe())
    if configuration.spec.family != study.spec().family:
        raise _another_base(study)
    value = fixed(configuration.spec, configuration.recipe)
    numbers: Numbers = {}
    for path in order(study.space):
        if exists(study.space, path, numbers):
            numbers[path] = _number(study, path, value, drawn.get(path))
    values = resolve(study.space, numbers, base)
    for path in dict.fromkeys([*study.space, *_fields(study)]):
        if values.get(path, base(path)) != value(path):
            raise _no_point(study, path, value(path)) if path in drawn else _another_base(study)
    return numbers


def _number(study: Study, path: str, value: Callable[[str], Any], drawn: Any) -> Any:
    """A field's number: the drawn one keeps what a subtraction of floats would round."""
    field, wanted = study.space[path], value(path)
    start = value(field.after) if field.after else None
    if drawn is not None and _says(field, drawn, start, wanted):
        return drawn
    number = wanted if start is None else wanted - start
    if not _has(field, number):
        raise _no_point(study, path, wanted)
    return stored(number)


def _says(field: Distribution, drawn: Any, start: Any, wanted: Any) -> bool:
    """Whether a number that was drawn, from this space or another, is one of the field's with that value."""
    try:
        number = field.decoded(drawn)
    except ValueError:
        return False
    return _has(field, number) and wanted == (number if start is None else number + start)


def _has(field: Distribution, number: Any) -> bool:
    if field.values() or field.choice is not None:
        return field.has(number)
    low, high = field.ends()
    return isinstance(number, int | float) and math.isfinite(number) and low <= number <= high


def _fields(study: Study) -> list[str]:
    parts = {"model": study.spec().as_dict(), "recipe": study.base_recipe().as_dict()}
    return [f"{part}.{name}" for part, fields in parts.items() for name in fields]


def _no_point(study: Study, path: str, value: Any) -> UserError:
    return UserError(
        f"study {study.name}: space: an earlier proposal had {path} {value!r}, which this space has not; "
        + WAY_OUT
    )


def _another_base(study: Study) -> UserError:
    return UserError(f"study {study.name}: model or recipe: not what it was begun with; {WAY_OUT}")
