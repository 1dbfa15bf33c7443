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
from search.study.reading import Data, Plain
from search.study.space import Distribution, Numbers, Space, Strict, error_at, errors_at, numbers_by, stored
from trainer.files.paths import expanded

KEY = "sampler.warm_start"
DATABASES = (".db", ".sqlite", ".sqlite3")
MOST_TRIALS = 1_000
LARGEST_CSV = 1 << 20  # bytes
LARGEST_DATABASE = 50_000_000
BOOKKEEPING = re.compile(r"|number|state|duration|datetime_\w+|(user|system)_attrs_.*|Unnamed: 0")
"""Columns of Optuna's own table that say nothing of a trial's point and values."""
MISSING = (None, "")
Trial = Plain
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
        trials = counted(len(self.trials), "trial")
        return f"{trials} of {self.file}" if self.file else trials


def inline_trials(sampler: Data, folder: Path, are_read: bool) -> Data:
    """Return the sampler's plain values with the file that `warm_start` names read in, or with its path from anywhere.

    Raises ValueError.
    """
    warm = sampler.get("warm_start")
    given = {"file": warm} if isinstance(warm, str) else warm
    # With trials it is a recorded study, which needs its file no more.
    if not isinstance(given, dict) or not isinstance(given.get("file"), str) or "trials" in given:
        return sampler

    with errors_at(KEY):
        file = folder / expanded(given["file"])
    if not are_read:
        return {**sampler, "warm_start": {**given, "file": str(file.absolute())}}
    try:
        trials = _read(file, given.get("study"))
    except (OSError, ValueError, sqlite3.Error) as error:
        raise error_at(KEY, f"{file}: {error}") from None
    return {**sampler, "warm_start": {**given, "file": file.name, **trials}}


def _read(file: Path, study: str | None) -> Data:
    """Return trials, and directions where they are known."""
    suffix = file.suffix.lower()
    if suffix == ".csv":
        if study is not None:
            raise ValueError(f"a CSV file has no studies, and {study!r:.80} is asked for")
        data = read_limited(file, LARGEST_CSV, "CSV file of trials")
        return {"trials": _read_csv(data.decode("utf-8-sig"))}
    if suffix not in DATABASES:
        raise ValueError(f"the name must end in .csv, or as a database of Optuna's in {', '.join(DATABASES)}")
    read_limited(file, LARGEST_DATABASE, "database of trials")  # only for the limit
    return _read_database(file, study)


def _read_csv(text: str) -> list[dict[str, str]]:
    """Return the rows of completed trials: all, unless a column says their state."""
    rows = list(csv.reader(StringIO(text), strict=True))
    head = rows[0] if rows else []
    twice = next((name for name in head if name and head.count(name) > 1), None)
    if twice:
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


def _read_database(file: Path, name: str | None) -> Data:
    """Return a study's completed trials and its directions. The file is copied, as Optuna may write into it."""
    import optuna
    from optuna.trial import TrialState

    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as source:
            # Tables alone: a stranger's view may be without end.
            types = dict(source.execute("SELECT name, type FROM sqlite_master WHERE type != 'index'"))
            if "trials" not in types or {*types.values()} != {"table"}:
                raise ValueError("no database of Optuna's")
            (completed,) = source.execute("SELECT COUNT(*) FROM trials WHERE state = 'COMPLETE'").fetchone()
            _few([None] * completed)
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
        params = {
            f"params_{path}": json.dumps(value) if isinstance(value, list | tuple | dict) else value
            for path, value in trial.params.items()
        }
        rows.append(params | {f"values_{n}": value for n, value in enumerate(trial.values)})
    directions = [direction.name.lower() for direction in study.directions]
    return {"trials": rows, "directions": directions}


def _one(names: Sequence[str], name: str | None) -> str:
    """Return the name of the study that is meant. Raises ValueError."""
    if name is None and len(names) == 1:
        return names[0]
    if name in names:
        return str(name)
    some = ", ".join(map(repr, names[:10])) or "none"
    raise ValueError(f"has no study {name!r}, it has {some}" if name else f"name one of its studies: {some}")


# ---- as points of a space


def known_trials(warm: WarmStart, space: Space, directions: Mapping[str, str]) -> list[Known]:
    """Return the trials as numbers of a space and values of objectives, by their names with Optuna's directions.

    Raises ValueError at the key for columns that mean nothing, and for trials that are no points of the space.
    """
    if not warm.trials:
        raise error_at(KEY, "has no completed trial" if warm.file else "has no completed trial, and names no file")
    if warm.directions and warm.directions != [*directions.values()]:
        theirs = ", ".join(warm.directions)
        ours = ", ".join(f"{name} ({direction})" for name, direction in directions.items())
        raise error_at(KEY, f"its objectives are to {theirs}, the study's are {ours}")

    fields, objectives = _columns(warm, space, list(directions))
    known = []
    for number, trial in enumerate(warm.trials, start=1):
        try:
            numbers = _numbers(trial, space, fields)
            values = [_value(trial, name) for name in objectives]
        except ValueError as error:
            raise error_at(KEY, f"trial {number}: {error}") from None
        known.append((numbers, values))
    return known


def _columns(warm: WarmStart, space: Space, objectives: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the column of each field that has one, and of each objective, in order. Raises ValueError."""
    names = list(dict.fromkeys(name for trial in warm.trials for name in trial))
    spellings = [[name, f"values_{name}", f"values_{n}"] for n, name in enumerate(objectives)]
    if len(objectives) == 1:
        spellings[0].append("value")  # as Optuna calls the only one

    fields: dict[str, str] = {}
    for name in names:
        if any(name in of_objective for of_objective in spellings) or BOOKKEEPING.fullmatch(name):
            continue
        own = name.removeprefix("params_")
        # With its part or without: recipe.lr, or lr where no other part of the space has an lr.
        paths = [path for path in space if own in (path, path.partition(".")[2])]
        if len(paths) != 1:
            raise error_at(KEY, f"column {name!r} is no field of the space; {did_you_mean(own, space)}")
        (path,) = paths
        if path in fields:
            raise error_at(KEY, f"columns {fields[path]!r} and {name!r} are both {path}")
        fields[path] = name

    columns = []
    for objective, of_objective in zip(objectives, spellings, strict=True):
        present = [name for name in of_objective if name in names]
        if len(present) != 1:
            raise error_at(KEY, f"{objective}: needs one column of {', '.join(of_objective)}, has {len(present)}")
        columns += present
    return fields, columns


def _numbers(trial: Trial, space: Space, fields: Mapping[str, str]) -> Numbers:
    """Return a trial's numbers. Raises ValueError for one that is missing, meaningless or not asked for."""

    def number_at(path: str, field: Distribution) -> Any:
        cell = trial.get(fields.get(path, ""))
        try:
            return _number(cell, field)
        except (TypeError, ValueError, OverflowError):
            problem = f"has no {path}" if cell in MISSING else f"{path} is {shown(cell)}"
            raise ValueError(f"{problem}; it is {describe(field)}") from None

    numbers = numbers_by(space, number_at)
    # A number where the field is not searched is of another space, even if it is in the bounds.
    for path in fields.keys() - numbers.keys():
        cell = trial.get(fields[path])
        if cell not in MISSING:
            raise ValueError(f"{path} is {shown(cell)}; it is {describe(space[path])}")
    return numbers


def _number(cell: Any, field: Distribution) -> Any:
    """Return a field's number that a cell stands for. Raises an error of Python's if it stands for none."""
    if field.is_choice:
        for choice in map(stored, field.values()):
            if _is_meant(choice, cell):
                return choice
        raise ValueError

    number = float(cell)
    if field.int_ and number.is_integer():
        number = int(number)
    # `decoded` takes the nearest step: a number between two of them is none, but for what CSV files round.
    value = field.decoded(number)
    is_near = math.isclose(value, number, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(cell, bool) or not is_near or not field.has(value):
        raise ValueError
    return value


def _is_meant(value: Any, cell: Any) -> bool:
    """True if a choice is what a cell says, which in a CSV file is text."""
    if value is None:
        return cell in (*MISSING, "None", "null")
    if isinstance(value, bool):
        if not isinstance(cell, str):
            return cell is value
        return cell.lower() in (str(value).lower(), shown(value))  # true or on
    if isinstance(value, str):
        return bool(cell == value)
    try:
        return not isinstance(cell, bool) and float(cell) == value
    except (TypeError, ValueError):
        return False


def _value(trial: Trial, name: str) -> float:
    """Return a trial's value of an objective. Raises ValueError."""
    try:
        value = float(trial.get(name, ""))  # a trial that lacks it has the error of an empty cell
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} is {trial.get(name)!r:.40}, no number")
    return value
