"""Conversion of records of the schema before this one, which has θ and curves among MLflow's artifacts.

Only its command imports this; both can be deleted together once no such records are left.
"""

import hashlib
import json
import logging
import sqlite3
import time
from contextlib import closing
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from filelock import FileLock

from model.files import read_limited
from search.errors import Failure, UserError, one_line
from search.record import UNMEASURED
from search.store.database import CONFIGURATIONS, RESULTS, ROWS, SCHEMA, STATES, STUDIES, VERSION, add_columns
from search.store.ended_seed import as_blobs
from search.store.home import FOREIGN, Home, below, other_version, sqlite_url
from search.store.lease import is_live
from search.store.study_records import KEY_COLUMNS
from search.tracking.tracking import check_place, connect, is_local
from trainer import MEASURES, Outcome, Seed
from trainer.files import durable

BEFORE = SCHEMA - 1
TRIALS = "trials"
"""Folder of parts among a run's artifacts."""
LOST = "its results were lost before records were converted"
STATEMENTS = (
    "DROP INDEX ix_ledger_trial",
    "ALTER TABLE ledger DROP COLUMN trial",
    "ALTER TABLE ledger DROP COLUMN published",
    "ALTER TABLE ledger DROP COLUMN reached",
    "ALTER TABLE ledger_studies DROP COLUMN tracking_uri",
)
TRIAL: sa.ColumnElement[str] = sa.literal_column("ledger.trial")
PARTS, THETA, CURVES, FACTS = "results", "theta.safetensors", "curves.parquet", "results.json"
"""Names in a trial's folder, and in that of a part."""
WHO = ["configuration", "init_seed", "data_seed"]
GONE: dict[str, dict[str, Any]] = {
    "stop": {"group": 16},
    "start": {"model": None},
    "seeds": {"best_of": None, "by": None},
}
"""Keys that study files had in their sections, with their off values."""
OPEN = (Outcome.QUEUED, Outcome.RUNNING, Outcome.CENSORED)

log = logging.getLogger(__name__)


def convert(home: Home) -> tuple[int, int]:
    """Make records of this version: in a file beside the earlier one, which stays as it is, or on the server.

    A conversion that was cut off goes on. Returns the number of seeds that have their θ, and of those that have to be
    trained again. Raises UserError where there is nothing to convert, Failure while a study is run.
    """
    if not home.has_own_database:
        return _convert(home, sa.create_engine(home.ledger_url))
    old = home.earlier_ledger
    if home.ledger_db.exists():
        raise UserError(f"{home.ledger_db}: is there already; it is read in place of {old.name}")
    if not old.exists():
        raise UserError(home.nothing_run)
    with FileLock(home.path / "records.lock"):
        state = old.stat()
        draft = home.path / f"records-{state.st_mtime_ns:x}-{state.st_size:x}.new"  # of this state of the old one
        if not draft.exists():
            _copy(old, draft)
        engine = sa.create_engine(sqlite_url(draft))
        counts = _convert(home, engine)
        engine.dispose()
        durable.move_in(draft, home.ledger_db)
    return counts


def _copy(old: Path, draft: Path) -> None:
    half = draft.with_suffix(".half")
    half.unlink(missing_ok=True)
    with (
        closing(sqlite3.connect(f"{old.as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(half)) as copy,
    ):
        if thing := source.execute(FOREIGN).fetchone():
            raise Failure(f"{old}: has {thing[0]!r:.80}, which is no table: no ledger of adder-search")
        source.backup(copy)
    durable.move_in(half, draft)


def _convert(home: Home, engine: sa.Engine) -> tuple[int, int]:
    with engine.begin() as db:
        schema = db.scalar(sa.select(VERSION.c.schema)) if sa.inspect(db).has_table(VERSION.name) else None
        if schema != BEFORE:
            raise other_version(home.database_name, "another")
        for row in db.execute(sa.select(STUDIES.c.study, STUDIES.c.owner, STUDIES.c.lease_until)).mappings():
            if is_live(row, time.time()):
                raise Failure(f"{home.database_name}: study {row['study']} is being run; stop it first")
        for table in (RESULTS, STATES):
            table.create(db, checkfirst=True)
        add_columns(db)
    with TemporaryDirectory(prefix="adder-search-") as scratch:
        for study, configuration, trial, seeds in _lacking(engine):
            part = _part(home, engine, (study, configuration, trial), Path(scratch))
            _insert(engine, study, configuration, {seed: part[seed] for seed in seeds if seed in part})
    return _finish(engine)


def _lacking(engine: sa.Engine) -> list[tuple[str, str, str, list[Seed]]]:
    """Return the seeds that have ended and have no θ yet, by study, configuration and trial."""
    study, configuration, *numbers = (ROWS.c[name] for name in KEY_COLUMNS)
    columns = [study, configuration, TRIAL.label("trial"), *numbers]
    query = sa.select(*columns).where(ROWS.c.outcome.not_in(OPEN), ~_has_result()).order_by(*columns)
    with engine.connect() as db:
        rows = db.execute(query).all()
    by_trial = groupby(rows, lambda row: (row.study, row.configuration, row.trial))
    return [(*names, [Seed(row.init_seed, row.data_seed) for row in group]) for names, group in by_trial]


def _has_result() -> Any:
    same = (RESULTS.c[name] == ROWS.c[name] for name in KEY_COLUMNS)
    return sa.exists().where(*same)


def _part(home: Home, engine: sa.Engine, names: tuple[str, str, str], scratch: Path) -> dict[Seed, Any]:
    """Return the results of a trial's seeds of a configuration; nothing if they are lost or damaged."""
    study, configuration, trial = names
    try:
        if folder := _folder(home, engine, names, scratch):
            return _read(folder, configuration)
        why = "are not there"
    except Exception as error:  # damaged files of three formats raise anything
        why = f"cannot be read ({type(error).__name__}: {one_line(error)})"
    log.warning("study %s: results of trial %s %s; their seeds are trained again", study, trial, why)
    return {}


def _read(folder: Path, configuration: str) -> dict[Seed, Any]:
    """Return θ [P], curve [E, M] and probes [E, R] of each seed of a part."""
    import torch
    from safetensors.torch import load

    from search.analysis.frames import MOST_BYTES, read_parquet

    files = {name: read_limited(folder / name, MOST_BYTES, "part") for name in (FACTS, THETA, CURVES)}
    about = json.loads(files[FACTS])
    for name, digest in about["sha256"].items():
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise ValueError(f"{name} is not what was written")
    theta_SP, table = load(files[THETA])["theta"], read_parquet(folder / CURVES)
    probes = [name for name in table.columns if name not in (*WHO, "step", *MEASURES)]
    readings = torch.tensor(table[[*MEASURES, *probes]].to_numpy(), dtype=torch.float32)
    widths = [len(MEASURES), len(probes)]
    places = table.groupby(WHO, sort=False).indices
    results = {}
    for theta_P, seed in zip(theta_SP, about["seeds"], strict=True):
        if seed["configuration"] != configuration:
            raise ValueError(f"it is of configuration {seed['configuration']}")
        place = places[tuple(seed[name] for name in WHO)]
        curve_EM, probes_ER = readings[place].split(widths, dim=1)
        number = Seed(seed["init_seed"], seed["data_seed"])
        results[number] = tuple(tensor.numpy() for tensor in (theta_P, curve_EM, probes_ER))
    return results


def _folder(home: Home, engine: sa.Engine, names: tuple[str, str, str], scratch: Path) -> Path | None:
    """Return the folder with a part: where its worker left it, among the home's artifacts, or from a server."""
    study, configuration, trial = names
    left = below(home.path / "trials", study, trial) / PARTS
    if left.exists():
        return below(left, configuration)
    shown = sa.select(CONFIGURATIONS.c.run).filter_by(study=study, configuration=configuration)
    with engine.connect() as db:
        run = db.scalar(shown)
    if not run:
        return None
    if is_local(home.tracking_uri):
        folder = below(home.artifacts, study, run) / "artifacts" / TRIALS / trial
        return folder if folder.exists() else None
    client = connect(home)
    check_place(client, home, client.get_run(run))
    if f"{TRIALS}/{trial}" not in {item.path for item in client.list_artifacts(run, TRIALS)}:
        return None
    (target := below(scratch, run)).mkdir(exist_ok=True)
    return Path(client.download_artifacts(run, f"{TRIALS}/{trial}", str(target)))


def _insert(engine: sa.Engine, study: str, configuration: str, results: dict[Seed, Any]) -> None:
    rows = []
    for seed, result in results.items():
        key = (study, configuration, seed.init_seed, seed.data_seed)
        rows.append(dict(zip(KEY_COLUMNS, key, strict=True)) | as_blobs(*result))
    if rows:
        with engine.begin() as db:
            db.execute(sa.insert(RESULTS), rows)


def as_now(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a study's recorded file without the keys that are gone, where they are at their off values."""
    fields = _without(definition, stages=[], tracking_uri=None)
    fields |= {name: _without(fields[name], **off) for name, off in GONE.items() if name in fields}
    stop, space = fields.get("stop") or {}, fields.get("space") or {}
    if screen := stop.get("screen"):
        fields["stop"] = stop | {"screen": [{k: v for k, v in rung.items() if v is not None} for rung in screen]}
    if space:
        fields["space"] = {path: _without(distribution, when={}) for path, distribution in space.items()}
    return fields


def _without(values: Any, **off: Any) -> Any:
    if not isinstance(values, dict):  # a section in short
        return values
    return {name: value for name, value in values.items() if name not in off or value not in (None, off[name])}


def convert_definitions(db: sa.Connection) -> None:
    """Write the recorded files of all studies as this version has them."""
    for study, definition in db.execute(sa.select(STUDIES.c.study, STUDIES.c.definition)).all():
        if definition is not None:
            db.execute(sa.update(STUDIES).filter_by(study=study).values(definition=as_now(definition)))


def _finish(engine: sa.Engine) -> tuple[int, int]:
    """Open the seeds whose results are lost, and give the tables their new form, at once."""
    opened = UNMEASURED | {"outcome": Outcome.CENSORED, "reason": LOST}
    with engine.begin() as db:
        if db.dialect.name == "sqlite":  # which would commit each change of a table by itself
            db.exec_driver_sql("BEGIN IMMEDIATE")
        is_lost = sa.and_(ROWS.c.outcome.not_in(OPEN), ~_has_result())
        lost = db.execute(sa.update(ROWS).where(is_lost).values(**opened)).rowcount
        for statement in STATEMENTS:
            db.exec_driver_sql(statement)
        convert_definitions(db)
        db.execute(sa.update(VERSION).values(schema=SCHEMA))
        return db.scalar(sa.select(sa.func.count()).select_from(RESULTS)) or 0, lost
