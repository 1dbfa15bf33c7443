"""Trials of another search that a sampler knows before it proposes: out of Optuna's database, or a CSV file.

They are read with the study file and recorded in it, so that a run that goes on needs no file. A trial is a mapping
with the names of Optuna's own table: `params_NAME`, `value` or `values_0`, `values_1`. A field's number is the one
that a sampler draws: with `after` it is the distance.
"""

import csv
import json
import math
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from pydantic import Field

from model.fields import did_you_mean
from model.files import read_limited
from search.study.described import counted, describe, shown
from search.study.space import Distribution, Numbers, Space, Strict, error_at, numbers_by, stored

KEY = "sampler.warm_start"
DATABASES = (".db", ".sqlite", ".sqlite3")
MOST_TRIALS = 1_000
LARGEST_CSV, LARGEST_DATABASE = 1 << 20, 50_000_000
BOOKKEEPING = re.compile(r"|number|state|duration|datetime_\w+|(user|system)_attrs_.*|Unnamed: 0")
"""Columns of Optuna's own table that say nothing of a trial's point and values."""
MISSING = (None, "")
Known = tuple[Numbers, list[float]]
"""A trial's numbers, and its values in the order of the objectives."""


class WarmStart(Strict):
    """Trials of another search that the sampler knows; the path of their file is enough."""

    file: str | None = Field(None, description="Optuna's SQLite database (.db), or a .csv file, beside the study file")
    study: str | None = Field(None, description="which study of a database that has several")
    trials: list[dict[str, bool | int | float | str | None]] = Field(
        default_factory=list,
        max_length=MOST_TRIALS,
        description="the trials themselves: fields by path, and the objective",
    )
    directions: list[Literal["minimize", "maximize"]] = Field(
        default_factory=list, description="of the objectives, as the database has them"
    )

    def __str__(self) -> str:
        return counted(len(self.trials), "trial") + (f" of {self.file}" if self.file else "")


def inline_trials(sampler: Any, folder: Path) -> Any:
    """Return the sampler's plain values with the file that `warm_start` names read in. Raises ValueError."""
    warm = sampler.get("warm_start") if isinstance(sampler, dict) else None
    given = {"file": warm} if isinstance(warm, str) else warm
    if not isinstance(given, dict) or not isinstance(given.get("file"), str) or "trials" in given:
        return sampler
    file = folder / given["file"]
    try:
        trials = _read(file, given.get("study"))
    except (OSError, ValueError, sqlite3.Error) as error:
        raise error_at(KEY, f"{file}: {error}") from None
    return {**sampler, "warm_start": {**given, "file": file.name, **trials}}


def _read(file: Path, study: str | None) -> dict[str, Any]:
    """Return trials, and directions where they are known."""
    suffix = file.suffix.lower()
    if suffix == ".csv":
        return {"trials": _read_csv(read_limited(file, LARGEST_CSV, "CSV file of trials").decode("utf-8-sig"))}
    if suffix not in DATABASES:
        raise ValueError(f"the name must end in .csv, or as a database of Optuna's in {', '.join(DATABASES)}")
    read_limited(file, LARGEST_DATABASE, "database of trials")
    return _read_database(file, study)


def _read_csv(text: str) -> list[dict[str, str]]:
    """Return the rows of completed trials: all, unless a column says their state."""
    rows = list(csv.reader(StringIO(text), strict=True))
    head = rows[0] if rows else []
    if twice := next((name for name in head if head.count(name) > 1), None):
        raise ValueError(f"two columns are called {twice!r}")
    trials = []
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(head):
            raise ValueError(f"row {number} has {len(row)} cells, the first row {len(head)}")
        trial = dict(zip(head, row, strict=True))
        if trial.get("state", "COMPLETE") == "COMPLETE":
            trials.append(trial)
    return _few(trials)


def _few(trials: list[Any]) -> list[Any]:
    if len(trials) > MOST_TRIALS:
        raise ValueError(f"has {len(trials):,} trials, a search begins with at most {MOST_TRIALS:,}")
    return trials


def _read_database(file: Path, name: str | None) -> dict[str, Any]:
    """Return a study's completed trials and its directions. The file is copied, as Optuna may write into it."""
    import optuna
    from optuna.trial import TrialState

    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as source:
            tables = dict(source.execute("SELECT name, type FROM sqlite_master WHERE type != 'index'"))
            if "trials" not in tables or {*tables.values()} != {"table"}:
                raise ValueError("no database of Optuna's")
            _few([None] * source.execute("SELECT COUNT(*) FROM trials WHERE state = 'COMPLETE'").fetchone()[0])
            with closing(sqlite3.connect(copy)) as target:
                source.backup(target)
        try:
            storage = optuna.storages.RDBStorage(f"sqlite:///{copy}")
            names = [study.study_name for study in storage.get_all_studies()]
            study = optuna.load_study(study_name=_one(names, name), storage=storage)
            trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
            storage.remove_session()
            storage.engine.dispose()
        except ValueError:
            raise
        except Exception as error:  # of a database of another version, or a damaged one
            line = str(error).partition("\n")[0]
            raise ValueError(f"Optuna cannot read it ({line:.200})") from None
    rows = []
    for trial in trials:
        params = {f"params_{path}": _plain(value) for path, value in trial.params.items()}
        rows.append(params | {f"values_{i}": value for i, value in enumerate(trial.values)})
    return {"trials": rows, "directions": [direction.name.lower() for direction in study.directions]}


def _one(names: Sequence[str], name: str | None) -> str:
    """Return the name of the study that is meant. Raises ValueError."""
    if name is None and len(names) == 1:
        return names[0]
    if name not in names:
        some = ", ".join(map(repr, names[:10])) or "none"
        raise ValueError(f"has no study {name!r}, it has {some}" if name else f"name one of its studies: {some}")
    return str(name)


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


# ---- as points of a space


def known_trials(warm: WarmStart, space: Space, directions: Mapping[str, str]) -> list[Known]:
    """Return the trials as numbers of a space and values of objectives, by their names with Optuna's directions.

    Raises ValueError at the key for columns that mean nothing, and for trials that are no points of the space.
    """
    if not warm.trials:
        raise error_at(KEY, "has no completed trial")
    if warm.directions and warm.directions != [*directions.values()]:
        theirs, ours = ", ".join(warm.directions), ", ".join(f"{name} ({way})" for name, way in directions.items())
        raise error_at(KEY, f"its objectives are to {theirs}, the study's are {ours}")
    fields, objectives = _columns(warm, space, list(directions))
    known = []
    for number, trial in enumerate(warm.trials, start=1):
        try:
            known.append((_numbers(trial, space, fields), [_value(trial, name) for name in objectives]))
        except ValueError as error:
            raise error_at(KEY, f"trial {number}: {error}") from None
    return known


def _columns(warm: WarmStart, space: Space, objectives: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the column of each field that has one, and of each objective, in order. Raises ValueError."""
    names = list(dict.fromkeys(name for trial in warm.trials for name in trial))
    spelt = [[name, f"values_{name}", f"values_{i}"] for i, name in enumerate(objectives)]
    if len(objectives) == 1:
        spelt[0].append("value")
    fields: dict[str, str] = {}
    for name in names:
        if any(name in spellings for spellings in spelt) or BOOKKEEPING.fullmatch(name):
            continue
        own = name.removeprefix("params_")
        paths = [path for path in space if own in (path, path.partition(".")[2])]
        if len(paths) != 1:
            raise error_at(KEY, f"column {name!r} is no field of the space; {did_you_mean(own, space)}")
        if paths[0] in fields:
            raise error_at(KEY, f"columns {fields[paths[0]]!r} and {name!r} are both {paths[0]}")
        fields[paths[0]] = name
    columns = []
    for objective, spellings in zip(objectives, spelt, strict=True):
        found = [name for name in spellings if name in names]
        if len(found) != 1:
            raise error_at(KEY, f"{objective}: needs one column of {', '.join(spellings)}, has {len(found)}")
        columns += found
    return fields, columns


def _numbers(trial: Mapping[str, Any], space: Space, fields: Mapping[str, str]) -> Numbers:
    """Return a trial's numbers. Raises ValueError."""

    def number_at(path: str, field: Distribution) -> Any:
        cell = trial.get(fields.get(path, ""))
        number = _number(cell, field)
        if number is _NONE:
            said = f"has no {path}" if cell in MISSING else f"{path} is {shown(cell)}"
            raise ValueError(f"{said}; it is {describe(field)}")
        return number

    numbers = numbers_by(space, number_at)
    for path in fields.keys() - numbers.keys():
        if trial.get(fields[path]) not in MISSING:
            raise ValueError(f"{path} is {shown(trial[fields[path]])}; it is {describe(space[path])}")
    return numbers


_NONE = object()


def _number(cell: Any, field: Distribution) -> Any:
    """Return a field's number that a cell stands for; _NONE if it stands for none."""
    if field.is_choice:
        return next((stored(value) for value in field.values() if _is_meant(stored(value), cell)), _NONE)
    try:
        number = float(cell) if not isinstance(cell, bool) else math.nan
    except (TypeError, ValueError):
        return _NONE
    if field.int_ and number.is_integer():
        number = int(number)
    if not math.isfinite(number):
        return _NONE
    value = field.decoded(number)
    return value if field.has(value) and math.isclose(value, number, rel_tol=1e-9, abs_tol=1e-12) else _NONE


def _is_meant(value: Any, cell: Any) -> bool:
    """True if a choice is what a cell says, which in a CSV file is text."""
    if value is None:
        return cell in (*MISSING, "None", "null")
    if isinstance(value, bool):
        return cell is value or (isinstance(cell, str) and cell.lower() in (str(value).lower(), shown(value)))
    if isinstance(value, str):
        return bool(cell == value)
    try:
        return not isinstance(cell, bool) and float(cell) == value
    except (TypeError, ValueError):
        return False


def _value(trial: Mapping[str, Any], name: str) -> float:
    """Return a trial's value of an objective. Raises ValueError."""
    try:
        value = float(trial.get(name, ""))
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} is {trial.get(name)!r:.40}, no number")
    return value
