"""The ledger: what has run and what came of it. One row a (study, configuration, seed), in SQL.

MLflow has no unique keys, so it cannot decide what is still to be trained; this table does. A row is
claimed by a driver with a lease while a trial holds it, and `published` says that MLflow has it too.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from search.errors import Failure, UserError
from search.home import Home
from search.plan import Configuration, Trial
from trainer import Outcome, Result, Seed

SCHEMA = 3
ADD_CONFIRMATION = "ALTER TABLE ledger ADD COLUMN confirmation BOOLEAN NOT NULL DEFAULT FALSE"
LEASE_S = 120.0  # a lease that has not been renewed for so long belongs to nobody
LOCK_WAIT_S = 10.0

metadata = sa.MetaData()
ROWS = sa.Table(
    "ledger",
    metadata,
    sa.Column("study", sa.String(64), primary_key=True),
    sa.Column("configuration", sa.String(12), primary_key=True),
    sa.Column("init_seed", sa.BigInteger, primary_key=True),
    sa.Column("data_seed", sa.BigInteger, primary_key=True),
    sa.Column("trial", sa.String(12), nullable=False, index=True),
    sa.Column("confirmation", sa.Boolean, nullable=False, default=False),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("steps", sa.BigInteger, nullable=False, default=0),
    sa.Column("grok_step", sa.BigInteger),
    sa.Column("held", sa.Boolean),
    sa.Column("hopeless_step", sa.BigInteger),
    sa.Column("best_step", sa.BigInteger),
    sa.Column("best_exact", sa.Float),
    sa.Column("best_token", sa.Float),
    sa.Column("seed_steps_per_s", sa.Float),
    sa.Column("environment", sa.JSON),
    sa.Column("owner", sa.String(128)),
    sa.Column("lease_until", sa.Float),
    sa.Column("published", sa.Boolean, nullable=False, default=False),
    sa.Column("verify_calls", sa.Integer, nullable=False, default=0),
    sa.Column("verified", sa.Integer),  # right of AdderBoard's 10,010 at the last call
)
STUDIES = sa.Table(
    "ledger_studies",
    metadata,
    sa.Column("study", sa.String(64), primary_key=True),
    sa.Column("tracking_uri", sa.Text),
)
VERSION = sa.Table("ledger_version", metadata, sa.Column("schema", sa.Integer, primary_key=True))

Row = dict[str, Any]
Key = tuple[str, int, int]
"""Configuration key, init_seed, data_seed."""


def is_final(row: Row) -> bool:
    """Whether a row needs no more training. Censored seeds go on when the study does."""
    return row["outcome"] not in (Outcome.QUEUED, Outcome.RUNNING, Outcome.CENSORED)


class Ledger:
    """The table of one home. Every method is one transaction. Raises Failure if it stays locked."""

    def __init__(self, home: Home):
        self.path = home.records_db
        self.owner = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self.engine = sa.create_engine(home.records_url, connect_args={"timeout": LOCK_WAIT_S})
        with self._begin() as db:
            metadata.create_all(db)
            found = db.scalar(sa.select(VERSION.c.schema))
            if found is None:
                db.execute(sa.insert(VERSION).values(schema=SCHEMA))
            elif found == 2:  # one column more, nothing else
                db.execute(sa.text(ADD_CONFIRMATION))
                db.execute(sa.update(VERSION).values(schema=SCHEMA))
            elif found != SCHEMA:
                raise UserError(f"{self.path}: written by another version (schema {found}, this is {SCHEMA})")

    def rows(self, study: str | None = None, configuration: str | None = None) -> list[Row]:
        """All rows, or a study's, or a configuration's in it, ordered by configuration and seed."""
        query = sa.select(ROWS).order_by(ROWS.c.study, ROWS.c.configuration, ROWS.c.init_seed)
        if study is not None:
            query = query.where(ROWS.c.study == study)
        if configuration is not None:
            query = query.where(ROWS.c.configuration == configuration)
        with self._begin() as db:
            return [dict(row) for row in db.execute(query).mappings()]

    def others(self, study: str) -> list[str]:
        """Owners of live leases in a study that are not this driver."""
        live = {r["owner"] for r in self.rows(study) if r["outcome"] == Outcome.RUNNING and _is_live(r)}
        return sorted(live - {self.owner})

    def claim(self, trial: Trial) -> None:
        """Note that a trial trains these pairs now. Raises UserError if another driver holds one."""
        with self._begin() as db:
            for configuration, seed in trial.work:
                self._take(db, trial, configuration, seed)

    def _take(self, db: sa.Connection, trial: Trial, configuration: Configuration, seed: Seed) -> None:
        """Make a pair this driver's, unless it is final or held, or changed hands since it was read."""
        key = _key(trial.study, configuration, seed)
        where, mine = _is(key), self._running(trial)
        row = db.execute(sa.select(ROWS).where(where)).mappings().first()
        if row is None:
            try:
                taken = db.execute(sa.insert(ROWS).values(**key, **mine)).rowcount
            except IntegrityError:
                taken = 0
        elif is_final(dict(row)):
            raise UserError(f"study {trial.study}: seed {seed} has run already ({row['outcome']})")
        elif _is_live(dict(row)) and row["owner"] != self.owner:
            raise UserError(f"study {trial.study}: seed {seed} is held by {row['owner']}")
        else:
            as_read = (ROWS.c[n].is_not_distinct_from(row[n]) for n in ("outcome", "owner", "lease_until"))
            taken = db.execute(sa.update(ROWS).where(where, *as_read).values(**mine)).rowcount
        if taken != 1:
            raise UserError(f"study {trial.study}: seed {seed} was just taken by another driver")

    def renew(self) -> None:
        """Extend this driver's leases."""
        mine = sa.and_(ROWS.c.owner == self.owner, ROWS.c.outcome == Outcome.RUNNING)
        with self._begin() as db:
            db.execute(sa.update(ROWS).where(mine).values(lease_until=time.time() + LEASE_S))

    def record(self, trial: Trial, results: Iterable[Result], rate: float, environment: Row) -> None:
        """Write what became of a trial's pairs; a final row is never overwritten."""
        with self._begin() as db:
            for result in results:
                configuration = Configuration(trial.spec, result.pair.recipe)
                values = {
                    "outcome": result.outcome.value,
                    "reason": None,
                    "steps": result.steps,
                    "grok_step": result.grok_step,
                    "held": result.held,
                    "hopeless_step": result.hopeless_step,
                    "best_step": result.best_step,
                    "best_exact": result.best_exact,
                    "best_token": result.best_token,
                    "seed_steps_per_s": rate,
                    "environment": environment,
                    "owner": None,
                    "lease_until": None,
                }
                open_row = ROWS.c.outcome.in_([Outcome.RUNNING, Outcome.CENSORED])
                where = sa.and_(_is(_key(trial.study, configuration, result.pair.seed)), open_row)
                db.execute(sa.update(ROWS).where(where).values(**values))

    def censor(self, trials: Iterable[Trial], reason: str, steps: Mapping[Key, int] | None = None) -> None:
        """Note that running pairs were ended from outside, and after how many steps where that is known."""
        values = {"outcome": Outcome.CENSORED, "reason": reason, "owner": None, "lease_until": None}
        with self._begin() as db:
            for trial in trials:
                mine = sa.and_(ROWS.c.study == trial.study, ROWS.c.trial == trial.key)
                running = sa.and_(mine, ROWS.c.outcome == Outcome.RUNNING)
                db.execute(sa.update(ROWS).where(running).values(**values))
                for configuration, seed in trial.work:
                    key = (configuration.key, seed.init_seed, seed.data_seed)
                    if reached := (steps or {}).get(key):
                        censored = sa.and_(_is(_named(trial.study, key)), mine)
                        still = sa.and_(censored, ROWS.c.outcome == Outcome.CENSORED)
                        db.execute(sa.update(ROWS).where(still).values(steps=reached))

    def publish(self, trial: Trial) -> None:
        """Note that MLflow has a trial's results."""
        with self._begin() as db:
            mine = sa.and_(ROWS.c.study == trial.study, ROWS.c.trial == trial.key)
            db.execute(sa.update(ROWS).where(mine).values(published=True))

    def begin(self, study: str, tracking_uri: str | None) -> None:
        """Remember where a study's own file has it tracked."""
        with self._begin() as db:
            db.execute(sa.delete(STUDIES).where(STUDIES.c.study == study))
            db.execute(sa.insert(STUDIES).values(study=study, tracking_uri=tracking_uri))

    def tracking_uri(self, study: str) -> str | None:
        """What `begin` was told of a study."""
        with self._begin() as db:
            return db.scalar(sa.select(STUDIES.c.tracking_uri).where(STUDIES.c.study == study))

    def record_verification(self, study: str, key: Key, correct: int) -> bool:
        """Count a call of `verify` for a seed and keep its result. False if the ledger has no such seed."""
        values = {"verify_calls": ROWS.c.verify_calls + 1, "verified": correct}
        with self._begin() as db:
            found = db.execute(sa.update(ROWS).where(_is(_named(study, key))).values(**values))
            return found.rowcount > 0

    def _running(self, trial: Trial) -> Row:
        lease = {"owner": self.owner, "lease_until": time.time() + LEASE_S}
        return {
            "trial": trial.key,
            "confirmation": trial.confirmation,
            "outcome": Outcome.RUNNING,
            "reason": None,
            "published": False,
            **lease,
        }

    def _begin(self) -> Any:
        return _Transaction(self.engine, self.path)


class _Transaction:
    """`engine.begin()` that says in one line what is wrong with the database."""

    def __init__(self, engine: sa.Engine, path: Any):
        self.context, self.path = engine.begin(), path

    def __enter__(self) -> sa.Connection:
        try:
            return self.context.__enter__()
        except (OperationalError, sa.exc.DatabaseError) as error:
            raise self._failure(error) from None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.context.__exit__(kind, error, trace)
        if isinstance(error, sa.exc.DatabaseError) and not isinstance(error, IntegrityError):
            raise self._failure(error) from None

    def _failure(self, error: sa.exc.DatabaseError) -> Failure:
        hint = "; another program holds it, try again when it is done" if "locked" in str(error) else ""
        return Failure(f"{self.path}: {error.orig}{hint}")


def _named(study: str, key: Key) -> Row:
    """The columns that name a row."""
    return dict(zip(("study", "configuration", "init_seed", "data_seed"), (study, *key), strict=True))


def _key(study: str, configuration: Configuration, seed: Seed) -> Row:
    return _named(study, (configuration.key, seed.init_seed, seed.data_seed))


def _is(named: Row) -> sa.ColumnElement[bool]:
    return sa.and_(*(ROWS.c[name] == value for name, value in named.items()))


def _is_live(row: Row) -> bool:
    """Whether the row's lease is held by a driver that can still be there."""
    if row["owner"] is None or row["lease_until"] is None or row["lease_until"] < time.time():
        return False
    host, pid, _ = row["owner"].split("/")
    return host != socket.gethostname() or _is_alive(int(pid))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
