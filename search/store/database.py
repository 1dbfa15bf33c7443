"""The database under the ledger: a file of the home, or a server that several machines share.

Transactions that say in one line what is wrong, and wait for a server that is away; the schema; the clock.
"""

import functools
import logging
import os
import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    NoSuchTableError,
    OperationalError,
    TimeoutError,
)
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from search.errors import Failure, reraise_as
from search.stats.record import COLUMNS, Column
from search.store.home import FOREIGN, IDENTIFIER, VERSION_TABLE, Home, other_version
from trainer import Outcome

SCHEMA = 7
"""Version of these tables. A column that is added to ROWS needs no new one (`_add_columns`), nor did IDENTITY."""
LOCK_WAIT_S = 10.0
"""Seconds that SQLite waits for another connection's transaction to end."""
RETRY_S = 1.0
"""Seconds between two tries."""
CLOCKS = {
    "sqlite": "SELECT (julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "SELECT extract(epoch FROM clock_timestamp())",
}
"""SQL for the seconds since 1970, by dialect. PostgreSQL's `now()` would stand still within a transaction."""

# The ledger's tables

KEY_COLUMNS = ("study", "configuration", "init_seed", "data_seed")
SQL_TYPES: Mapping[type, type[sa.types.TypeEngine[Any]]] = {
    bool: sa.Boolean, int: sa.BigInteger, float: sa.Float, str: sa.Text, dict: sa.JSON,
}  # fmt: skip
"""SQL's types, by the types of a record's columns."""
metadata = sa.MetaData()
VERSION = sa.Table(VERSION_TABLE, metadata, sa.Column("schema", sa.Integer, primary_key=True))
IDENTITY = sa.Table(
    "ledger_identity",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),  # 1: of two drivers that begin a ledger one names it
    sa.Column("identity", sa.String(32), nullable=False),
)
"""The ledger's own name, one row: by it mirrors that several ledgers share know whose study they show."""


NAMES: Mapping[str, Any] = {
    "study": sa.String(64), "configuration": sa.String(12), "init_seed": sa.BigInteger, "data_seed": sa.BigInteger,
    "number": sa.Integer, "digest": sa.String(12),
}  # fmt: skip
"""Types of the columns by which rows are named."""


def _table(
    name: str, keys: Sequence[str], *more: sa.Column[Any], optional: Sequence[str] = (), **kinds: Any
) -> sa.Table:
    """Declare a table of all studies. keys: columns that name a row of a study. kinds: types of the others."""
    named = [sa.Column(key, NAMES[key], primary_key=True) for key in ("study", *keys)]
    others = [sa.Column(other, kind, nullable=other in optional) for other, kind in kinds.items()]
    return sa.Table(name, metadata, *named, *others, *more)


def sql_column(column: Column) -> sa.Column[Any]:
    """Return a column of a seed's record as a column of SQL."""
    kind = SQL_TYPES[column.kind]
    if column.is_optional:
        return sa.Column(column.name, kind)

    # The database needs the default too: drivers that do not know a new column insert rows without it.
    default = sa.literal(column.default, kind)
    return sa.Column(column.name, kind, nullable=False, default=column.default, server_default=default)


FACTS = [column for column in COLUMNS.values() if column.stored and column.name not in KEY_COLUMNS]
"""What is stored of a seed beside its key."""
OF_A_SEED = KEY_COLUMNS[1:]
ROWS = _table("ledger", OF_A_SEED, *map(sql_column, FACTS))
STUDIES = _table(
    "ledger_studies",
    (),
    optional=("definition", "owner", "lease_until"),
    definition=sa.JSON,  # the study as it was last run
    owner=sa.String(128),
    lease_until=sa.Float,
    stop=sa.Boolean,  # its driver is asked to end
)
CONFIGURATIONS = _table(
    "ledger_configurations",
    ("configuration",),
    optional=("experiment", "run"),
    number=sa.Integer,  # in the order in which they came
    spec=sa.JSON,
    recipe=sa.JSON,
    experiment=sa.String(64),  # where MLflow shows it, for links alone
    run=sa.String(64),
)
PROPOSALS = _table(
    "ledger_proposals",
    ("number",),
    optional=("configuration",),
    configuration=sa.String(12),  # NULL: the numbers make none
    numbers=sa.JSON,  # as drawn, by key path
)
PARENTS = _table("ledger_parents", ("number",), start=sa.JSON)
"""θ that studies start from, numbered as a file asks for them, and what led to it (search/study/start.py)."""
STARTS = _table("ledger_starts", ("digest",), start=sa.JSON)
STARTED = _table("ledger_started", ("configuration",), digest=sa.String(12))
SETS = _table(
    "ledger_sets",
    ("number",),  # in the order in which they were proposed
    optional=("configuration", "parent", "reached", "wrong", "loss", "kept"),
    round=sa.Integer,
    configuration=sa.String(12),  # NULL: a θ that the descent begins at
    parent=sa.Integer,  # the number of the set from whose θ it was trained
    ties=sa.JSON,
    reached=sa.Float,  # its best exact match; NULL: not judged yet
    wrong=sa.Integer,  # of our own problems, where they were looked at
    loss=sa.Float,
    kept=sa.String(12),  # the digest of its θ among the starts, where it was accepted
)
PROOFS = _table("ledger_proofs", OF_A_SEED, proof=sa.JSON)
"""Verdicts on all pairs (model/verdict.py)."""
RESULTS = _table(
    "ledger_results",
    OF_A_SEED,
    theta=sa.LargeBinary,  # its best θ, and its curve (search/store/recorded_seed.py)
    curve=sa.LargeBinary,
    evaluations=sa.Integer,
    crc=sa.BigInteger,  # of both
)
STATES = _table("ledger_states", OF_A_SEED, state=sa.LargeBinary)
"""What a bank goes on from, until its seed has ended."""
PLANNED = (CONFIGURATIONS, PROPOSALS, PARENTS, STARTS, STARTED, SETS)
"""What a plan writes before a seed trains."""
OF_A_STUDY = (ROWS, RESULTS, STATES, PROOFS, STUDIES, *PLANNED)

NONE = type(None)
KINDS: dict[type, tuple[type, ...]] = {
    int: (int, NONE), float: (int, float, NONE), str: (str, NONE), bool: (bool, NONE), object: (dict, NONE),
    bytes: (bytes, NONE),
}  # fmt: skip
"""Types that a column's values may have, by the type that SQLAlchemy gives it."""
FORMS = dict.fromkeys(
    ("study", "configuration", "trial", "experiment", "run", "digest", "kept", "identity"), IDENTIFIER
) | {
    "outcome": re.compile("|".join(Outcome)),
    # machine, process and a number: `is_live` takes it apart
    "owner": re.compile(r"[^/\s]{1,100}/[0-9]{1,9}/[0-9a-f]+"),
}
"""Patterns of texts that become paths, are looked up or taken apart."""

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)


class DatabaseUnavailable(Failure):
    """The database does not answer, is locked or has no room: it may come back."""


class Database:
    """One home's database, with the ledger's tables in it.

    `patience_s`: seconds that a transaction waits for a database that is away. Raises Failure where it cannot be
    read, UserError for the schema of another version.
    """

    def __init__(self, home: Home):
        self.home = home
        self.name = home.database_name
        self.patience_s = 0.0
        if home.has_own_database:
            home.check_paths()
            if home.earlier_ledger.exists() and not home.ledger_db.exists():
                # or an empty ledger would be begun beside it, and all its seeds trained again
                raise other_version(str(home.earlier_ledger), "an earlier")
            options: dict[str, Any] = {"connect_args": {"timeout": LOCK_WAIT_S}}
        else:
            options = {"pool_pre_ping": True}  # a server that restarted has closed the pool's connections
        self.engine = sa.create_engine(home.ledger_url, **options)
        self.lacking = set[str]()
        """Columns of seeds that a file lacks which cannot be written: they are read as their defaults."""

        # Of two drivers that begin an empty database at once, one finds it half made: it tries once more.
        try:
            self._prepare()
        except (Failure, IntegrityError):
            time.sleep(RETRY_S)
            self._prepare()

    def _prepare(self) -> None:
        """Make the tables where there are none. Raises UserError, with nothing made, for those of another version."""
        with self.begin() as db:
            if db.dialect.name == "sqlite" and (name := db.scalar(sa.text(FOREIGN))):
                raise Failure(f"{self.name}: has {name!r:.80}, which is no table: no ledger of adder-search")

            has_tables = sa.inspect(db).has_table(VERSION.name)
            schema = db.scalar(sa.select(VERSION.c.schema)) if has_tables else None
            if schema not in (None, SCHEMA):
                is_newer = isinstance(schema, int) and schema > SCHEMA  # a stranger's file may have a text there
                raise other_version(self.name, "a newer" if is_newer else "an earlier")

            is_fixed = self.home.has_own_database and has_tables and not _is_writable(self.home.ledger_db)
            if is_fixed:
                with self.undamaged("it lacks a table"):
                    self.lacking = {column.name for column in _lacking(db)}
            else:
                metadata.create_all(db)
                if _lacking(db):
                    _add_columns(db)
                if not db.scalar(sa.select(IDENTITY.c.identity)):
                    db.execute(sa.insert(IDENTITY).values(number=1, identity=uuid.uuid4().hex))
            if schema is None:
                db.execute(sa.insert(VERSION).values(schema=SCHEMA))

    @functools.cached_property
    def identity(self) -> str:
        """The ledger's own name. Empty where it has none: in an earlier version's file that cannot be written."""
        with self.begin() as db:
            has_name = sa.inspect(db).has_table(IDENTITY.name)
        rows = self.read(sa.select(IDENTITY.c.identity)) if has_name else []
        return str(rows[0]["identity"]) if rows else ""

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """Open a transaction, committed at the end of the block. Raises DatabaseUnavailable or Failure."""
        try:
            with self.engine.begin() as db:
                yield db
        except IntegrityError:  # a DatabaseError too, but the caller's affair: another driver has that key
            raise
        except (DatabaseError, InterfaceError, TimeoutError) as error:
            cause = str(getattr(error, "orig", None) or error)  # without SQLAlchemy's lines on the statement
            hint = "; another program holds it, try again when it is done" if "locked" in cause else ""
            is_away = isinstance(error, OperationalError | InterfaceError | TimeoutError)
            kind = DatabaseUnavailable if is_away else Failure
            raise kind(f"{self.name}: {' '.join(cause.split())}{hint}") from None

    def read(self, query: sa.Select[Any]) -> list[dict[str, Any]]:
        """Return the rows of a query, in a transaction of its own.

        Raises Failure for a value that its column cannot have: SQLite keeps any, and the file may come from
        elsewhere.
        """
        with self.begin() as db:
            try:
                result = db.execute(query)
                rows = [dict(row) for row in result.mappings()]
            except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
                raise Failure(f"{self.name}: damaged ({type(error).__name__})") from None
        for column in query.selected_columns:
            self._check(column, [row[column.name] for row in rows])
        return rows

    def undamaged(self, kind: str) -> AbstractContextManager[None]:
        """Re-raise errors of a block as Failure: it reads a stored value, and `kind` says of what."""
        errors = (TypeError, ValueError, LookupError, zlib.error, NoSuchTableError)
        return reraise_as(f"{self.name}: damaged, {kind}", errors, Failure)

    def _check(self, column: sa.ColumnElement[Any], values: list[Any]) -> None:
        """Raise Failure for values that a column cannot have."""
        kinds = KINDS[column.type.python_type]
        by_type = {type(value): value for value in values}  # one of each: a column may have 100,000 values
        bad = [value for value in by_type.values() if not isinstance(value, kinds)]

        form = FORMS.get(column.name)
        if form and not bad:
            bad = [value for value in set(values) if value and not form.fullmatch(value)]
        if bad:
            raise Failure(f"{self.name}: damaged, {column.name} is {bad[0]!r:.80}")

    def now(self, db: sa.Connection) -> float:
        """Return the database's time in seconds since 1970: the machines that share it need not agree on theirs."""
        return float(db.scalar(sa.text(CLOCKS[self.engine.dialect.name])))


def _is_writable(path: Path) -> bool:
    """True if SQLite can write the file at `path`, and a journal beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _lacking(db: sa.Connection) -> list[sa.Column[Any]]:
    """Return the columns that the ledger lacks because an earlier version has made it."""
    present = {column["name"] for column in sa.inspect(db).get_columns(ROWS.name)}
    return [column for column in ROWS.columns if column.name not in present]


def _add_columns(db: sa.Connection) -> None:
    """Add the columns that the ledger lacks, with their defaults, all in this transaction.

    Drivers that know fewer columns go on.
    """
    if db.dialect.name == "sqlite":  # else each change of a table is committed by itself
        db.exec_driver_sql("BEGIN IMMEDIATE")
    db.execute(sa.select(VERSION).with_for_update())

    # Of two drivers that add columns at once, one has waited above: it has to look again, and lacks nothing now.
    for column in _lacking(db):
        declared = sa.schema.CreateColumn(column).compile(dialect=db.dialect)
        db.exec_driver_sql(f"ALTER TABLE {ROWS.name} ADD COLUMN {declared}")


def retry_while_unavailable(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Decorate a method that is one transaction of `self.database`: try again while the database is away.

    Logs once that it waits, and once that this is over. Raises the last error.
    """

    @functools.wraps(method)
    def retried(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        patience_s = self.database.patience_s

        def log_first(state: RetryCallState) -> None:
            if state.attempt_number == 1 and state.outcome:
                log.warning("%s; waiting for it, for up to %.0f s", state.outcome.exception(), patience_s)

        attempts = Retrying(
            retry=retry_if_exception_type(DatabaseUnavailable),
            stop=stop_after_delay(patience_s),
            wait=wait_fixed(RETRY_S),
            before_sleep=log_first,
            reraise=True,
        )
        result = attempts(method, self, *args, **kwargs)
        if attempts.statistics["attempt_number"] > 1:
            log.warning("what was waited for is back")
        return result

    return retried
