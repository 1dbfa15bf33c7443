"""The ledger: what has run and what came of it. One row a (study, configuration, seed), in SQL.

MLflow has no unique keys, so it cannot decide what is still to be trained; this table does. A row is
claimed by a driver with a lease while a trial holds it, and `published` says that MLflow has it too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from search.store.database import Database, is_live, metadata, own_name, patient
from search.errors import UserError
from search.store.home import Home
from search.study.trial import Configuration, Trial
from trainer import Outcome, Result, Seed

STOPPED = "stopped"
LEASE_S = 120.0  # a lease that has not been renewed for so long belongs to nobody

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
    sa.Column("definition", sa.JSON),  # the study as it was last run
    sa.Column("owner", sa.String(128)),
    sa.Column("lease_until", sa.Float),
    sa.Column("stop", sa.Boolean, nullable=False, default=False),  # its driver is asked to end
)

KEY_COLUMNS = ("study", "configuration", "init_seed", "data_seed")
Row = dict[str, Any]
Key = tuple[str, int, int]
"""Configuration key, init_seed, data_seed."""


def is_final(row: Row) -> bool:
    """Whether a row needs no more training. Censored seeds go on when the study does."""
    return row["outcome"] not in (Outcome.QUEUED, Outcome.RUNNING, Outcome.CENSORED)


class Ledger:
    """The table of one home. What is marked `patient` is done again while the database is away.

    Raises Failure if it stays away for longer than `database.patience_s`, at first 0.
    """

    def __init__(self, home: Home):
        self.database = Database(home)
        self.owner = own_name()

    @patient
    def rows(
        self, study: str | None = None, configuration: str | None = None, trial: str | None = None
    ) -> list[Row]:
        """All rows, or a study's, a configuration's or a trial's in it, ordered by configuration and seed."""
        query = sa.select(ROWS).order_by(
            ROWS.c.study, ROWS.c.configuration, ROWS.c.init_seed, ROWS.c.data_seed
        )
        wanted = {"study": study, "configuration": configuration, "trial": trial}
        query = query.where(*(ROWS.c[name] == value for name, value in wanted.items() if value is not None))
        with self._begin() as db:
            return [dict(row) for row in db.execute(query).mappings()]

    @patient
    def hold(self, study: str, definition: Row | None, tracking_uri: str | None) -> None:
        """Be the one driver of a study, until `release`. Raises UserError if another one is.

        Keeps the study as its file is now, and where the file has it tracked.
        """
        mine = {"owner": self.owner, "lease_until": time.time() + LEASE_S, "stop": False}
        values = mine | {"definition": definition, "tracking_uri": tracking_uri}
        with self._begin() as db:
            row = db.execute(sa.select(STUDIES).where(STUDIES.c.study == study)).mappings().first()
            if row is None:
                try:
                    db.execute(sa.insert(STUDIES).values(study=study, **values))
                except IntegrityError:
                    raise UserError(f"study {study} was just begun by another driver") from None
                return
            if row["owner"] != self.owner and is_live(row["owner"], row["lease_until"]):
                left = row["lease_until"] - time.time()
                raise UserError(
                    f"study {study} is already being run by {row['owner']} (host/process); stop it with "
                    f"adder-search stop {study} (if it died without a word, its hold ends in {left:.0f} s)"
                )
            as_read = (STUDIES.c[n].is_not_distinct_from(row[n]) for n in ("owner", "lease_until"))
            held = sa.update(STUDIES).where(STUDIES.c.study == study, *as_read).values(**values)
            if db.execute(held).rowcount != 1:
                raise UserError(f"study {study} was just taken by another driver")

    @patient
    def release(self, study: str) -> None:
        """Be a study's driver no more."""
        mine = sa.and_(STUDIES.c.study == study, STUDIES.c.owner == self.owner)
        with self._begin() as db:
            db.execute(sa.update(STUDIES).where(mine).values(owner=None, lease_until=None, stop=False))

    @patient
    def study(self, name: str) -> Row | None:
        """What is kept of a study as a whole: definition, tracking_uri, owner (None: nobody runs it)."""
        with self._begin() as db:
            row = db.execute(sa.select(STUDIES).where(STUDIES.c.study == name)).mappings().first()
        if row is None or is_live(row["owner"], row["lease_until"]):
            return None if row is None else dict(row)
        return dict(row) | {"owner": None, "stop": False}

    @patient
    def ask_to_stop(self, study: str) -> None:
        """Leave word for a study's driver, wherever it runs."""
        with self._begin() as db:
            db.execute(sa.update(STUDIES).where(STUDIES.c.study == study).values(stop=True))

    @patient
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
                db.execute(sa.insert(ROWS).values(**key, **mine))
                taken = 1
            except IntegrityError:
                taken = 0
        elif is_final(dict(row)):
            raise UserError(f"study {trial.study}: seed {seed} has run already ({row['outcome']})")
        elif row["owner"] != self.owner and is_live(row["owner"], row["lease_until"]):
            raise UserError(f"study {trial.study}: seed {seed} is held by {row['owner']}")
        else:
            as_read = (ROWS.c[n].is_not_distinct_from(row[n]) for n in ("outcome", "owner", "lease_until"))
            taken = db.execute(sa.update(ROWS).where(where, *as_read).values(**mine)).rowcount
        if taken != 1:
            raise UserError(f"study {trial.study}: seed {seed} was just taken by another driver")

    def renew(self, study: str) -> str | None:
        """Extend this driver's leases. Returns why it is to end, if it is: asked to, or its hold was lost.

        Does not wait for a database that is away.
        """
        mine = sa.and_(ROWS.c.owner == self.owner, ROWS.c.outcome == Outcome.RUNNING)
        held = sa.and_(STUDIES.c.study == study, STUDIES.c.owner == self.owner)
        until = time.time() + LEASE_S
        with self._begin() as db:
            db.execute(sa.update(ROWS).where(mine).values(lease_until=until))
            if db.execute(sa.update(STUDIES).where(held).values(lease_until=until)).rowcount == 0:
                return "another driver took the study over"
            return STOPPED if db.scalar(sa.select(STUDIES.c.stop).where(held)) else None

    @patient
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

    @patient
    def censor(self, trials: Iterable[Trial], reason: str, steps: Mapping[Key, int] | None = None) -> None:
        """Note that running pairs were ended from outside, and after how many steps where that is known."""
        values = {"outcome": Outcome.CENSORED, "reason": reason, "owner": None, "lease_until": None}
        with self._begin() as db:
            for trial in trials:
                mine = sa.and_(ROWS.c.study == trial.study, ROWS.c.trial == trial.key)
                running = sa.and_(mine, ROWS.c.outcome == Outcome.RUNNING, ROWS.c.owner == self.owner)
                db.execute(sa.update(ROWS).where(running).values(**values))
                for configuration, seed in trial.work:
                    key = (configuration.key, seed.init_seed, seed.data_seed)
                    if reached := (steps or {}).get(key):
                        censored = sa.and_(_is(_named(trial.study, key)), mine)
                        still = sa.and_(censored, ROWS.c.outcome == Outcome.CENSORED)
                        db.execute(sa.update(ROWS).where(still).values(steps=reached))

    @patient
    def close_orphans(self, study: str) -> None:
        """Note of a study that is held that rows which still count as running have nobody any more."""
        values = {
            "outcome": Outcome.CENSORED,
            "reason": "its driver died",
            "owner": None,
            "lease_until": None,
        }
        running = sa.and_(ROWS.c.study == study, ROWS.c.outcome == Outcome.RUNNING)
        with self._begin() as db:
            db.execute(sa.update(ROWS).where(running, ROWS.c.owner != self.owner).values(**values))

    @patient
    def define(self, study: str, definition: Row, tracking_uri: str | None) -> None:
        """Keep a held study as its file is now, and where the file has it tracked."""
        mine = sa.and_(STUDIES.c.study == study, STUDIES.c.owner == self.owner)
        with self._begin() as db:
            values = {"definition": definition, "tracking_uri": tracking_uri}
            db.execute(sa.update(STUDIES).where(mine).values(**values))

    @patient
    def publish(self, trial: Trial) -> None:
        """Note that MLflow has a trial's results."""
        with self._begin() as db:
            mine = sa.and_(ROWS.c.study == trial.study, ROWS.c.trial == trial.key)
            db.execute(sa.update(ROWS).where(mine).values(published=True))

    @patient
    def adopt(self, study: str, rows: Iterable[Row]) -> None:
        """Take in rows of another home, all of them final. A pair that is here already is left as it is."""
        with self._begin() as db:
            for row in rows:
                key = {name: row[name] for name in KEY_COLUMNS} | {"study": study}
                found = db.execute(sa.select(ROWS.c.outcome).where(_is(key))).mappings().first()
                values = {c.name: row.get(c.name) for c in ROWS.columns} | {"study": study}
                values |= {"owner": None, "lease_until": None, "published": False}
                if found is None:
                    db.execute(sa.insert(ROWS).values(**values))
                elif not is_final(dict(found)):
                    db.execute(sa.update(ROWS).where(_is(key)).values(**values))

    @patient
    def settle(self, study: str, verify_calls: Mapping[Key, int]) -> None:
        """Note that MLflow has these pairs, and how often `verify` was called for each at least."""
        with self._begin() as db:
            for key, least in verify_calls.items():
                calls = sa.case((ROWS.c.verify_calls < least, least), else_=ROWS.c.verify_calls)
                mine = sa.update(ROWS).where(_is(_named(study, key)))
                db.execute(mine.values(published=True, verify_calls=calls))

    @patient
    def forget(self, study: str) -> None:
        """Delete a study's rows."""
        with self._begin() as db:
            for table in (ROWS, STUDIES):
                db.execute(sa.delete(table).where(table.c.study == study))

    @patient
    def record_verification(self, study: str, key: Key, correct: int) -> bool:
        """Count a call of `verify` for a seed and keep its result. False if the ledger has no such seed."""
        values = {"verify_calls": ROWS.c.verify_calls + 1, "verified": correct}
        with self._begin() as db:
            found = db.execute(sa.update(ROWS).where(_is(_named(study, key))).values(**values))
            return found.rowcount > 0

    def record_decoded(self, study: str, configuration: str, correct: Mapping[Seed, int]) -> None:
        """Count the calls of `verify` that a conclusion made: of seeds that the ledger has no result of."""
        for row in self.rows(study, configuration):
            first, data = row["init_seed"], row["data_seed"]
            if row["verified"] is None and (right := correct.get(Seed(first, data))) is not None:
                self.record_verification(study, (configuration, first, data), right)

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
        return self.database.begin()


def _named(study: str, key: Key) -> Row:
    """The columns that name a row."""
    return dict(zip(KEY_COLUMNS, (study, *key), strict=True))


def _key(study: str, configuration: Configuration, seed: Seed) -> Row:
    return _named(study, (configuration.key, seed.init_seed, seed.data_seed))


def _is(named: Row) -> sa.ColumnElement[bool]:
    return sa.and_(*(ROWS.c[name] == value for name, value in named.items()))
