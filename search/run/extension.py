"""Checks of a changed file by which a study is to go on.

More seeds, more rounds, other resources and a wider space are just an edited file. A file that would make old and new
records incomparable is refused: a search's earlier proposals must be points of the new space, and a seed belongs to
the search or to the confirmation, not to both.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from search.errors import UserError
from search.stats.record import SeedRecord
from search.study.kind import kinds
from search.study.schema import Study
from search.study.start import digest_of
from trainer import Seed

WAY_OUT = "give the study a new name, or run it with --fresh"


def check_extension(study: Study, before: Mapping[str, Any] | None, rows: Iterable[SeedRecord]) -> None:
    """Raise UserError if a study cannot go on by this file. before: its last run's definition. rows: its seeds."""
    if before is not None:
        _check_definition(study, before)

    used: dict[bool, set[Seed]] = {False: set(), True: set()}
    for row in rows:
        used[row.confirmation].add(row.seed)

    if both := used[False].intersection(study.confirm_seeds):
        raise UserError(
            f"study {study.name}: confirm.seeds: {min(both)} was a seed of the search, which chose by it; "
            "name seeds that have not been trained"
        )
    if both := used[True].intersection(chain.from_iterable(study.rounds)):
        raise UserError(f"study {study.name}: seeds: {min(both)} was used to confirm; {WAY_OUT}")


def _check_definition(study: Study, before: Mapping[str, Any]) -> None:
    """Raise UserError for a study of another kind than the recorded one, or with another start."""
    for kind in kinds():
        was = any(before.get(key) for key in kind.asked_by)
        if kind.proposes and was != isinstance(study.kind, kind):
            raise UserError(f"study {study.name}: {kind.changed(was)}; {WAY_OUT}")

    study.kind.check_begun(before)
    begun = before.get("start")
    start = study.start and study.start.model_dump(mode="json")
    if begun != start:
        raise begun_otherwise(study, "start", _short(begun), _short(start))

    known = _warm_trials(before)
    now = _warm_trials(study.model_dump(mode="json"))
    if known != now:
        raise begun_otherwise(study, "sampler.warm_start", _named(known), _named(now))


def _named(trials: list[Any]) -> str:
    """Return how many trials there are, with a digest, since others may be as many."""
    return f"{len(trials)} trials ({digest_of(trials)})" if trials else "none"


def _warm_trials(definition: Mapping[str, Any]) -> list[Any]:
    """Return the trials that a definition's sampler knows before it proposes."""
    warm = (definition.get("sampler") or {}).get("warm_start") or {}
    return warm.get("trials") or []


def _short(values: Any) -> str:
    """Return a section's values that are not empty, in few words."""
    words = [f"{key} {value}" for key, value in (values or {}).items() if value not in (None, [], {}, False)]
    return ", ".join(words)[:200] or "nothing"


def begun_otherwise(study: Study, path: str, before: Any, now: Any) -> UserError:
    """Return the error for a file that has another value at a key path than the study began with."""
    # As YAML has them: true, not True.
    begun, file = (json.dumps(value) if isinstance(value, bool) else value for value in (before, now))
    return UserError(f"study {study.name}: {path}: begun with {begun}, the file has {file}; {WAY_OUT}")
