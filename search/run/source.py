"""The study that a user named: a dict, a name or a file. None of them takes another's place without a word."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.errors import UserError, reraise_as
from search.store.home import typed

if TYPE_CHECKING:
    from search.store.home import Home
    from search.store.study_records import StudyRecords
    from search.study.schema import Study
    from search.study.written import Changes

STREAMS = ("-", "/dev/stdin", "/dev/fd/", "/proc/")
"""Beginnings of what is no file of the user's, though it may lead to one."""
Say = Callable[[str], object]
"""Is told a line."""


def is_name(source: str) -> bool:
    """True if `source` is a study's name rather than a path: one word without the suffix of a study file."""
    from search.study import schema

    return schema.is_name(source) and Path(source).suffix not in (".yaml", ".yml")


def is_file(source: str) -> bool:
    """True if `source` is the path of a file that a later command can read again."""
    return not is_name(source) and not source.startswith(STREAMS) and Path(source).is_file()


def records_of(home: Home, study: str) -> StudyRecords:
    from search.store.ledger import Ledger
    from search.store.study_records import StudyRecords

    return StudyRecords(Ledger(home), study)


def read_study(source: str, home: Home, say: Say, changes: Changes) -> Study:
    """Return the study of a file; of a name the one that is recorded in this home, else the shipped one, else a file.

    say: is told what else has that name, and what the study changes in one that it extends. changes: what a command
    sets in it. Raises UserError.
    """
    from search.study.file import Reader, load_study, recorded_study, shipped_studies, shipped_study

    reader = Reader(changes, partial(_recorded_definition, home), say)

    path = Path(source)
    if path.parent == home.logs and path.is_file():  # what --detach left: no limits of a user's file are its own
        with reraise_as(source):
            return recorded_study(path.read_text("utf-8"), source, changes)
    if not is_name(source):
        return load_study(source, reader)

    records = records_of(home, source) if home.exists() else None
    recorded = records.get_recorded_study() if records else None
    is_shipped = source in shipped_studies()
    if not (recorded or is_shipped):
        return load_study(source, reader)

    others = []
    if recorded and is_shipped and shipped_study(source).model_dump() != recorded.model_dump():
        others.append("the study that comes with the package is another: give it a home of its own with --home")
    if path.exists():
        kind = "folder" if path.is_dir() else "file"
        others.append(f"the {kind} of that name is {typed(f'./{source}')}")
    if others:
        taken = "your recorded study of that name" if recorded else "the study that comes with the package"
        say(f"{source}: {taken}; {'; '.join(others)}")

    # What is recorded wins: a study goes on as it was begun, whatever a newer version of the package has.
    if records and recorded and changes:  # what is set is laid over the file's values, before they are checked
        return recorded_study(json.dumps(records.get_definition()), source, changes)
    return recorded or shipped_study(source, reader)


def _recorded_definition(home: Home, study: str) -> dict[str, Any] | None:
    """Return the recorded plain values of a study, or None where a home has none of that name."""
    from search.study.file import without_unused_keys

    if not (is_name(study) and home.exists()):
        return None
    definition = records_of(home, study).get_definition()
    return without_unused_keys(definition) if definition else None


def changes_of(sets: Mapping[str, Any], env: Mapping[str, str]) -> Changes:
    """Return what a caller changes in a study: values by key path, and what names stand for. Raises UserError."""
    from search.study.written import Changes

    for option, values in (("set", sets), ("env", env)):
        if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
            raise UserError(f"{option}: must be a dict with names for keys, got {values!r:.80}")

    with reraise_as("set", (TypeError, ValueError)):
        texts = [f"{path}={json.dumps(value, default=_plain)}" for path, value in sets.items()]
    stand_for = [f"{name}={value}" for name, value in env.items()]
    return Changes(tuple(texts), tuple(stand_for))


def given_study(given: Any, home: Home, say: Say, changes: Changes) -> tuple[Study, str]:
    """Return the study that a caller gave in any form, and what to call it in messages. Raises UserError.

    given: a dict as a study file has it, a Study, or the name or path of a file, which `read_study` reads.
    changes: what is set in it.
    """
    from search.study.file import Reader, recorded_study
    from search.study.schema import Study
    from trainer.files.paths import expanded

    if isinstance(given, Study):
        changed = recorded_study(given.model_dump_json(by_alias=True), given.name, changes) if changes else given
        return changed, changed.name

    if isinstance(given, Mapping):
        source = str(given.get("name", "the study"))
        with reraise_as(source, (TypeError, ValueError)):
            text = json.dumps(given, default=_plain)
        reader = Reader(changes, partial(_recorded_definition, home), say)
        return reader.study(text, source, Path()), source

    if not isinstance(given, str | Path):
        forms = "a dict, a Study, or the name or path of a study file"
        raise UserError(f"a study is {forms}, got {type(given).__name__}")
    with reraise_as():
        source = expanded(str(given))
    return read_study(source, home, say, changes), source


def _plain(value: Any) -> Any:
    """Return what stands in a study file for a value of Python's: of a spec, a recipe, a path, a number of numpy's."""
    for method in ("as_dict", "tolist", "__fspath__"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"{value!r:.80} is no plain value")


def study_name(source: str, home: Home) -> str:
    """Return the name of a recorded study: `source` itself, unless that is a file and no study's name."""
    from search.store.ledger import open_ledger
    from search.study.file import name_in

    if not Path(source).is_file():
        return source
    if is_name(source) and source in open_ledger(home).list_studies():  # a file may be called as a study is
        return source
    return name_in(source)  # the rest of it may need what only `run` is given


def remark_on_others(study: Study, home: Home) -> str:
    """Return a line if a home has records by the study's name, and all of configurations that it does not list."""
    from search.study.trial import Configuration

    if study.kind.proposes or study.start or not home.exists():
        return ""

    records = records_of(home, study.name)
    recorded = records.list_configurations().keys()
    asked = [Configuration(*listed).key for listed in study.listed]
    if not recorded or not recorded.isdisjoint(asked):
        return ""

    count = len(records.list_seeds())
    return (
        f"{study.name}: the {count:,} recorded seeds of that name are all of other configurations, and stay; "
        "--fresh begins a study of its own"
    )
