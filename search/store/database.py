"""The database under ledger and Optuna: a file of the home, or a server that several machines share.

Transactions that say in one line what is wrong, and wait for a server that is away; the schema and its
migrations; who holds a lease.
"""

from __future__ import annotations

import functools
import os
import socket
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from filelock import FileLock
from sqlalchemy.exc import DatabaseError, IntegrityError, InterfaceError, OperationalError

from search.errors import Failure, UserError
from search.store.home import Home

SCHEMA = 4
MIGRATIONS = {
    2: ["ALTER TABLE ledger ADD COLUMN confirmation BOOLEAN NOT NULL DEFAULT FALSE"],
    3: [
        "ALTER TABLE ledger_studies ADD COLUMN definition JSON",
        "ALTER TABLE ledger_studies ADD COLUMN owner VARCHAR(128)",
        "ALTER TABLE ledger_studies ADD COLUMN lease_until FLOAT",
        "ALTER TABLE ledger_studies ADD COLUMN stop BOOLEAN NOT NULL DEFAULT FALSE",
    ],
}
"""What takes a schema to the next one."""
LOCK_WAIT_S = 10.0
RETRY_S = 1.0

metadata = sa.MetaData()
VERSION = sa.Table("ledger_version", metadata, sa.Column("schema", sa.Integer, primary_key=True))

P = ParamSpec("P")
R = TypeVar("R")


class Away(Failure):
    """The database does not answer, is locked or has no room: it may come back."""


class Database:
    """One home's database, with the ledger's tables in it.

    `patience_s`: how long a transaction waits for a database that is away. Raises Failure where it cannot be
    read, UserError for the schema of another version.
    """

    def __init__(self, home: Home):
        self.name, self.patience_s = home.database_name, 0.0
        if home.has_own_database:
            _migrate_file(home.records_db)
            self.engine = sa.create_engine(home.records_url, connect_args={"timeout": LOCK_WAIT_S})
        else:
            self.engine = sa.create_engine(home.records_url, pool_pre_ping=True)
        for last in (False, True):  # of two that begin an empty database at once, one finds it half made
            try:
                self._prepare()
                break
            except (Failure, IntegrityError):
                if last:
                    raise
                time.sleep(RETRY_S)

    def _prepare(self) -> None:
        """Make the tables, or bring them to this schema."""
        with self.begin() as db:
            metadata.create_all(db)
            found = db.scalar(sa.select(VERSION.c.schema))
            if found is None:
                db.execute(sa.insert(VERSION).values(schema=SCHEMA))
            elif found != SCHEMA:
                _migrate(db, found, self.name)

    def begin(self) -> Any:
        """A transaction. Raises Away or Failure."""
        return _Transaction(self.engine, self.name)


def patient(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A method that is one transaction of `self.database`: done again while the database is away."""

    @functools.wraps(method)
    def tried(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return wait_for(lambda: method(self, *args, **kwargs), self.database.patience_s)

    return tried


def wait_for(call: Callable[[], R], patience_s: float, errors: tuple[type[Exception], ...] = (Away,)) -> R:
    """What `call` returns, called again while it raises one of the errors, for so long."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return call()
        except errors:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


class _Transaction:
    """`engine.begin()` that says in one line what is wrong with the database."""

    def __init__(self, engine: sa.Engine, name: str):
        self.context, self.name = engine.begin(), name

    def __enter__(self) -> sa.Connection:
        try:
            return self.context.__enter__()
        except (DatabaseError, InterfaceError) as error:
            raise self._failure(error) from None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.context.__exit__(kind, error, trace)
        except (OperationalError, InterfaceError) as at_end:
            raise self._failure(at_end) from None
        if isinstance(error, DatabaseError | InterfaceError) and not isinstance(error, IntegrityError):
            raise self._failure(error) from None

    def _failure(self, error: DatabaseError | InterfaceError) -> Failure:
        kind = Away if isinstance(error, OperationalError | InterfaceError) else Failure
        return kind(_problem(self.name, error.orig))


def _problem(name: str, error: BaseException | None) -> str:
    """One line."""
    hint = "; another program holds it, try again when it is done" if "locked" in str(error) else ""
    return f"{name}: {' '.join(str(error).split())}{hint}"


def _migrate(db: sa.Connection, found: int, name: str) -> None:
    """Take a server's tables to this schema, in one transaction: whole or not at all."""
    for step in _steps(found, name):
        db.execute(sa.text(step))
    db.execute(sa.update(VERSION).values(schema=SCHEMA))


def _migrate_file(path: Path) -> None:
    """Take a file of an older schema to this one, on a copy; the old one stays beside it."""
    if not path.exists():
        return
    try:
        found = _schema_of(path)
        if found is not None and found != SCHEMA:
            _steps(found, str(path))  # or nothing is touched
            with FileLock(path.with_name(path.name + ".migrating")):
                _migrate_locked(path)
    except sqlite3.Error as error:
        raise Failure(_problem(str(path), error)) from None


def _schema_of(path: Path) -> int | None:
    """The schema of a file's ledger, None if it has none."""
    with closing(sqlite3.connect(path, timeout=LOCK_WAIT_S)) as db:
        known = db.execute("SELECT name FROM sqlite_master WHERE name = 'ledger_version'").fetchone()
        row = db.execute("SELECT schema FROM ledger_version").fetchone() if known else None
    return row[0] if row else None


def _migrate_locked(path: Path) -> None:
    found = _schema_of(path)
    if found is None or found == SCHEMA:  # another process has done it meanwhile
        return
    steps = _steps(found, str(path))
    copy, kept = path.with_name(path.name + ".new"), path.with_name(f"{path.name}.schema-{found}")
    with closing(sqlite3.connect(path, timeout=LOCK_WAIT_S)) as old:
        _refuse_live(old, path)
        for target in (kept, copy):
            target.unlink(missing_ok=True)
            with closing(sqlite3.connect(target)) as new:
                old.backup(new)
    with closing(sqlite3.connect(copy)) as new:
        for step in [*steps, f"UPDATE ledger_version SET schema = {SCHEMA}"]:
            new.execute(step)
        new.commit()
    copy.replace(path)


def _steps(found: int, name: str) -> list[str]:
    """The statements from a schema to this one. Raises UserError with the way out if there are none."""
    if found > SCHEMA:
        raise UserError(
            f"{name}: written by a newer version (schema {found}, this is {SCHEMA}); "
            "upgrade adder-search, or choose another home with --home"
        )
    if found not in MIGRATIONS:
        raise UserError(
            f"{name}: written by a version that is too old to migrate (schema {found}, this is {SCHEMA}); "
            "read it with that version, and run its studies anew in another home (--home)"
        )
    return [step for version in range(found, SCHEMA) for step in MIGRATIONS[version]]


def _refuse_live(db: sqlite3.Connection, path: Path) -> None:
    """An older version's driver that still runs would write into the file that is left behind."""
    rows = db.execute("SELECT DISTINCT owner, lease_until FROM ledger WHERE owner IS NOT NULL")
    for owner, until in rows:
        if is_live(owner, until):
            raise UserError(f"{path}: {owner} runs an older version on it; stop it first")


def own_name() -> str:
    """Who this driver is, for its leases: host and its process numbers' space, process, a number."""
    return f"{_host()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"


def is_live(owner: str | None, until: float | None) -> bool:
    """Whether a lease is held by a driver that can still be there."""
    if owner is None or until is None or until < time.time():
        return False
    host, pid, _ = owner.split("/")
    return host != _host() or _is_alive(int(pid))


def _host() -> str:
    """The machine, and on Linux the namespace of its process numbers: containers have their own."""
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()}.{space}"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
