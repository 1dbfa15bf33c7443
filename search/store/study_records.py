"""The records of one study in the ledger: its file, configurations, proposals, and one row per seed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from model import make_spec
from model.fields import did_you_mean
from model.trust import Untrusted
from model.verdict import read_verdict
from search.errors import AlreadyExists, NotFound, reraise_as
from search.stats.record import ENOUGH, SeedKey, SeedRecord
from search.store.database import (
    CONFIGURATIONS,
    KEY_COLUMNS,
    OF_A_STUDY,
    PARENTS,
    PLANNED,
    PROOFS,
    PROPOSALS,
    RESULTS,
    ROWS,
    STARTED,
    STARTS,
    STATES,
    STUDIES,
    retry_while_unavailable,
)
from search.store.ended_seed import EndedSeed, TrainedBy
from search.store.home import Home
from search.store.lease import LEASE_S, StudyLease, is_live
from search.store.ledger import Ledger, open_ledger
from search.store.recorded_seed import RecordedSeed, from_blobs
from search.store.verdicts import Verdict, own, sealed
from search.study.file import recorded_study
from search.study.start import InitialTheta
from search.study.trial import Configuration
from trainer import Outcome, Recipe, Seed
from trainer.recipe.passed import passed

if TYPE_CHECKING:
    from search.study.schema import Study
    from trainer import Result

DIED = "its driver died"
AT_ONCE = 500
"""Seeds that are read together."""
FREE = {"owner": None, "lease_until": None}
"""Columns of a seed that no driver has."""
DONE = {"reason": None, **FREE}
"""Columns of a seed that has ended by itself: no reason is left of an earlier end from outside."""
BOUND: dict[str, Any] = {name: sa.bindparam(f"key_{name}") for name in KEY_COLUMNS}
"""Names a seed's row in a statement that is executed for many seeds."""
T = TypeVar("T")
Values = dict[str, Any]
"""Columns and their values, of a table other than that of seeds, or to be written."""


class StudyRecords:
    """A ledger's records of one study. Errors, durability and threads are as `Ledger` says.

    Names. `create_`, `get_` (one, or None), `list_` (several), `update_` and `delete_`. A seed's row is claimed by
    `claim`, then ended by `record` or `censor`.

    Isolation. Each write is one transaction, whole or not at all; a read may be several. Of two drivers that want
    the same seed, study or proposal at once, one gets AlreadyExists: keys are unique, and a row is changed only if it
    still is as it was read.

    Ownership. A study that is run and a seed that is RUNNING belong to the ledger's `owner` until their leases
    end (search/store/lease.py); only rows of its own are censored. A final row is never overwritten.
    """

    def __init__(self, ledger: Ledger, study: str):
        self.ledger = ledger
        self.study = study
        self.home = ledger.home
        self.database = ledger.database

    @cached_property
    def lease(self) -> StudyLease:
        return StudyLease(self.database, self.study, self.ledger.owner)

    @property
    def owner(self) -> str:
        """Name of this driver in its leases."""
        return self.lease.owner

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Open a transaction of this driver. Raises Superseded, with nothing written, if it has lost the study."""
        with self.database.begin() as db:
            self.lease.fence(db)
            yield db

    # The study as a whole

    @retry_while_unavailable
    def get_study(self) -> Values | None:
        """Return the study's own row: definition, owner (None: nobody runs it)."""
        rows = self.database.read(sa.select(STUDIES).filter_by(study=self.study))
        with self.database.begin() as db:
            now = self.database.now(db)
        if not rows:
            return None

        # A driver that died has left its name in the row, and perhaps a request to stop that nobody answers now.
        row = rows[0]
        return row if is_live(row, now) else row | {"owner": None, "stop": False}

    def get_definition(self) -> Values | None:
        """Return the study's file as plain values, as it was when it last ran; None if it never got so far."""
        return (self.get_study() or {}).get("definition")

    def get_recorded_study(self) -> Study | None:
        """Return the study as its file was when it last ran; None if it never got so far. Raises UserError."""
        definition = self.get_definition()
        if definition is None:
            return None
        return recorded_study(json.dumps(definition), f"study {self.study} as it was recorded")

    def get_driver(self) -> str | None:
        """Return the name of the driver that runs the study: `host/process/number`."""
        return (self.get_study() or {}).get("owner")

    def require_study(self) -> None:
        """Raise NotFound, with the nearest names, if the study was never begun here."""
        names = self.ledger.list_studies()
        if self.study in names:
            return

        nearby = did_you_mean(self.study, names) if names else "no study was begun here"
        raise NotFound(f"study {self.study!r} has no records in {self.home.path}; {nearby}")

    @retry_while_unavailable
    def update_study(self, definition: Values) -> None:
        """Keep this owner's study as its file is now."""
        with self.writing() as db:
            db.execute(sa.update(STUDIES).where(self.lease.is_owned).values(definition=definition))

    @retry_while_unavailable
    def request_stop(self) -> None:
        """Ask the study's driver to end, wherever it runs."""
        with self.database.begin() as db:
            db.execute(sa.update(STUDIES).filter_by(study=self.study).values(stop=True))

    @retry_while_unavailable
    def forget_plan(self) -> None:
        """Delete the plan of a run that ended before its file was recorded, so that the next one plans anew.

        Else a file that was refused, or its θ to start from, would decide what a corrected one trains.
        """
        begun = sa.select(STUDIES.c.study).where(STUDIES.c.study == self.study, STUDIES.c.definition.is_not(None))
        trained = sa.select(ROWS.c.study).filter_by(study=self.study)
        with self.writing() as db:
            if db.scalar(begun.union(trained).limit(1)) is None:
                for table in PLANNED:
                    db.execute(sa.delete(table).filter_by(study=self.study))

    @retry_while_unavailable
    def delete_study(self) -> None:
        with self.writing() as db:
            for table in OF_A_STUDY:
                db.execute(sa.delete(table).filter_by(study=self.study))

    # Configurations, and what they start from

    @retry_while_unavailable
    def create_configurations(self, configurations: Iterable[Configuration]) -> None:
        """Write configurations before any of their seeds is trained. Those that are there stay as they are."""
        with self.writing() as db:
            self.insert_configurations(db, configurations)

    def insert_configurations(self, db: sa.Connection, configurations: Iterable[Configuration]) -> None:
        """Write configurations that are not there yet, as a part of a transaction."""
        recorded = sa.select(CONFIGURATIONS.c.configuration).filter_by(study=self.study)
        keys = set(db.scalars(recorded))
        new = {c.key: c for c in configurations if c.key not in keys}
        rows = [
            {
                "study": self.study, "configuration": key, "number": number,
                "spec": c.spec.as_dict(), "recipe": c.recipe.as_dict(),
            }
            for number, (key, c) in enumerate(new.items(), start=len(keys))
        ]  # fmt: skip
        if rows:
            db.execute(sa.insert(CONFIGURATIONS), rows)

        # Many configurations of a study may start from one θ, so θ has a table of its own.
        starts = {key: c.start for key, c in new.items() if c.start}
        if starts:
            self.insert_starts(db, starts.values())
            links = [{"study": self.study, "configuration": key, "digest": s.digest} for key, s in starts.items()]
            db.execute(sa.insert(STARTED), links)

    def insert_starts(self, db: sa.Connection, starts: Iterable[InitialTheta]) -> None:
        """Write θ that are not there yet, as a part of a transaction."""
        recorded = sa.select(STARTS.c.digest).filter_by(study=self.study)
        digests = set(db.scalars(recorded))
        new = {start.digest: start for start in starts if start.digest not in digests}
        rows = [
            {"study": self.study, "digest": digest, "start": start.as_dict()}
            for digest, start in new.items()
        ]  # fmt: skip
        if rows:
            db.execute(sa.insert(STARTS), rows)

    @retry_while_unavailable
    def list_configurations(self, *keys: str) -> dict[str, Configuration]:
        """Return configurations by key, in the order in which they came. keys: which; without any, all of the study."""
        wanted = {"configuration": keys} if keys else {}
        rows = self._select(CONFIGURATIONS, "configuration", "spec", "recipe", **wanted)
        started = self._select(STARTED, **wanted)
        digests = {row["configuration"]: row["digest"] for row in started}

        with self.database.undamaged("a configuration"), reraise_as(f"study {self.study}", Untrusted):
            starts = self._select(STARTS, digest=set(digests.values())) if digests else []
            start_of = {row["digest"]: InitialTheta.of(row["start"]) for row in starts}

            configurations = {}
            for row in rows:
                key = row["configuration"]
                spec = make_spec(**row["spec"])
                recipe = Recipe.from_record(row["recipe"])
                start = start_of[digests[key]] if key in digests else None
                configurations[key] = Configuration(spec, recipe, start)
            return configurations

    @retry_while_unavailable
    def list_runs(self) -> dict[str, tuple[str, str]]:
        """Return where MLflow shows a study's configurations: ids of experiment and run, by key."""
        rows = self._select(CONFIGURATIONS, "configuration", "experiment", "run")
        return {row["configuration"]: (row["experiment"] or "", row["run"] or "") for row in rows}

    @retry_while_unavailable
    def update_run(self, configuration: str, experiment: str, run: str) -> None:
        """Keep where MLflow shows a configuration."""
        update = sa.update(CONFIGURATIONS).filter_by(study=self.study, configuration=configuration)
        with self.writing() as db:
            db.execute(update.values(experiment=experiment, run=run))

    @retry_while_unavailable
    def create_parents(self, parents: Iterable[InitialTheta]) -> None:
        """Write the θ that a study starts from, in place of earlier ones."""
        rows = [{"study": self.study, "number": p.number, "start": p.as_dict()} for p in parents]
        with self.writing() as db:
            # The database may have written them already, and its answer was lost: then this is the second try.
            db.execute(sa.delete(PARENTS).filter_by(study=self.study))
            db.execute(sa.insert(PARENTS), rows)

    @retry_while_unavailable
    def list_parents(self) -> list[InitialTheta]:
        """List the θ that a study starts from, chosen when it first ran."""
        rows = self._select(PARENTS)
        with self.database.undamaged("a start"):
            return [InitialTheta.of(r["start"]) for r in rows]

    # Proposals of a search

    @retry_while_unavailable
    def create_proposal(self, number: int, configuration: Configuration | None, numbers: Values) -> None:
        """Write a proposal of a search before any of its seeds is trained. The same may be written again.

        Raises AlreadyExists if another driver has drawn with that number.
        """
        key = configuration and configuration.key
        named = {"study": self.study, "number": number}
        recorded = sa.select(PROPOSALS.c.configuration, PROPOSALS.c.numbers).filter_by(**named)
        with self.writing() as db:
            if configuration is not None:
                self.insert_configurations(db, [configuration])

            row = db.execute(recorded).first()
            if row is None:
                db.execute(sa.insert(PROPOSALS).values(**named, configuration=key, numbers=numbers))
            elif tuple(row) != (key, numbers):
                raise self._taken(f"proposal {number}")

    @retry_while_unavailable
    def list_proposals(self) -> list[Values]:
        """List the proposals of a search in order: number, configuration (None: none) and numbers."""
        return self._select(PROPOSALS, "number", "configuration", "numbers")

    # Seeds

    @retry_while_unavailable
    def list_seeds(self, configuration: str | None = None, environment: bool = False) -> list[SeedRecord]:
        """List the study's seeds, or those of one configuration, ordered by configuration and seed.

        environment: read also what each seed was trained in, which is most of the text.
        """
        left_out = self.database.lacking | (set() if environment else {"environment"})
        columns = [c for c in ROWS.columns if c.name not in left_out]
        with_proofs = ROWS.outerjoin(PROOFS, _same_seed(PROOFS))
        query = sa.select(*columns, PROOFS.c.proof).select_from(with_proofs).where(ROWS.c.study == self.study)
        if configuration is not None:
            query = query.where(ROWS.c.configuration == configuration)
        rows = self.database.read(query.order_by(*ROWS.primary_key))

        # A ledger may be a stranger's: what it says of proofs and stages is checked before it counts as a record.
        for row in rows:
            row["proof"] = self._verdict(row)
            if row.get("stages") is not None:
                with self.database.undamaged(f"stages of seed {row['init_seed']} of study {self.study}"):
                    passed(row["stages"])
        return [SeedRecord(**row) for row in rows]

    @retry_while_unavailable
    def claim(self, work: Sequence[tuple[Configuration, Seed, bool]]) -> dict[SeedKey, bytes]:
        """Make seeds RUNNING and this owner's, and return the saved states of those that have one.

        work: configurations and seeds, with True for a seed of a confirmation. Raises AlreadyExists if a seed is
        final, or another driver has it.
        """
        keys = {(c.key, s.init_seed, s.data_seed): confirmation for c, s, confirmation in work}
        with self.database.undamaged("a lease"), self.writing() as db:
            now = self.database.now(db)
            rows = self._rows_of(db, ROWS, keys)

            claimed = {
                "outcome": Outcome.RUNNING, "reason": None, "owner": self.owner, "lease_until": now + LEASE_S,
            }  # fmt: skip
            values = {key: claimed | {"confirmation": confirmation} for key, confirmation in keys.items()}
            for key, row in rows.items():
                self._reclaim(db, SeedRecord.of(row), values.pop(key), now)

            try:
                self._insert(db, ROWS, values)
                self.insert_configurations(db, (c for c, _, _ in work))
            except IntegrityError:  # another driver has inserted a row of this key since we read
                raise self._taken("a seed") from None

            states = self._rows_of(db, STATES, keys) if rows else {}
        return {key: row["state"] for key, row in states.items()}

    def _rows_of(self, db: sa.Connection, table: sa.Table, keys: Collection[SeedKey]) -> dict[SeedKey, Values]:
        """Read a table's rows of seeds, by their keys."""
        rest = iter(keys)
        rows: dict[SeedKey, Values] = {}
        while some := list(islice(rest, AT_ONCE)):  # a query has so many values at most
            query = sa.select(table).where(self._covers(table, some))
            found = map(dict, db.execute(query).mappings())
            rows |= {_key_of(row): row for row in found}
        return among(keys, rows)

    def _covers(self, table: sa.Table, keys: Iterable[SeedKey]) -> sa.ColumnElement[bool]:
        """SQL that is true of the rows that a table has of seeds, and of some other rows.

        Exact keys would be a clause per seed. With the configurations alone, all their seeds would be read.
        """
        configurations = {configuration for configuration, _, _ in keys}
        init_seeds = {init_seed for _, init_seed, _ in keys}
        return sa.and_(
            table.c.study == self.study,
            table.c.configuration.in_(configurations),
            table.c.init_seed.in_(init_seeds),
        )

    def _reclaim(self, db: sa.Connection, row: SeedRecord, claimed: Values, now: float) -> None:
        if row.is_final:
            raise AlreadyExists(f"study {self.study}: seed {row.seed} has run already ({row.outcome})")
        if row.owner != self.owner and is_live(row, now):
            raise AlreadyExists(f"study {self.study}: seed {row.seed} is held by {row.owner}")

        # The row is changed only if it is as it was read: another driver may have taken it since.
        as_read = (ROWS.c[n].is_not_distinct_from(row[n]) for n in ("outcome", "owner", "lease_until"))
        change = sa.update(ROWS).filter_by(**self._named(row.key)).where(*as_read)
        if db.execute(change.values(**claimed)).rowcount != 1:
            raise self._taken(f"seed {row.seed}")

    @retry_while_unavailable
    def record(
        self,
        results: Mapping[SeedKey, EndedSeed],
        bank: TrainedBy,
        cut: Mapping[SeedKey, int] | None = None,
        states: Mapping[SeedKey, bytes] | None = None,
    ) -> None:
        """Write one report of a worker, all at once. Final rows stay as they are, with their θ.

        results: of seeds that have ended; bank: the one that trained them. cut: steps of seeds that were ended because
        there is enough; of a seed that had not begun nothing is kept. states: saved states of seeds that train on.
        """
        cut, states = cut or {}, states or {}
        with self.writing() as db:
            rows = self._rows_of(db, ROWS, {*results, *cut, *states})
            open_ = {key for key, row in rows.items() if not SeedRecord.of(row).is_final}

            ended = among(open_, results)
            self._update(db, {key: bank.columns(seed) | DONE for key, seed in ended.items()})
            self._insert(db, RESULTS, {key: seed.blobs() for key, seed in ended.items()})

            saved = among(open_, states)
            self._delete(db, STATES, [*ended, *saved])
            self._insert(db, STATES, {key: {"state": state} for key, state in saved.items()})

            # Seeds that are cut keep their saved states: when more seeds are asked for, they train on from there.
            cut = among(open_, cut)
            self._censor(db, cut, ENOUGH)
            self._delete(db, ROWS, [key for key, steps in cut.items() if not steps])

    def _update(self, db: sa.Connection, values: Mapping[SeedKey, Values]) -> None:
        """Change rows of seeds that are not final."""
        is_open = sa.or_(ROWS.c.outcome == Outcome.RUNNING, ROWS.c.outcome == Outcome.CENSORED)
        rows = [columns | self._bound(key) for key, columns in values.items()]
        if rows:
            db.execute(sa.update(ROWS).filter_by(**BOUND).where(is_open), rows)

    def _insert(self, db: sa.Connection, table: sa.Table, values: Mapping[SeedKey, Values]) -> None:
        if rows := [self._named(key) | columns for key, columns in values.items()]:
            db.execute(sa.insert(table), rows)

    def _delete(self, db: sa.Connection, table: sa.Table, keys: Sequence[SeedKey]) -> None:
        """Delete a table's rows of seeds."""
        if rows := [self._bound(key) for key in keys]:
            db.execute(sa.delete(table).filter_by(**BOUND), rows)

    def _censor(self, db: sa.Connection, steps: Mapping[SeedKey, int], reason: str) -> None:
        ended = censored(reason)
        self._update(db, {key: ended | {"steps": reached} for key, reached in steps.items()})

    def _censor_running(self, db: sa.Connection, of: sa.ColumnElement[bool], reason: str) -> None:
        running = sa.update(ROWS).filter_by(study=self.study, outcome=Outcome.RUNNING)
        db.execute(running.where(of).values(**censored(reason)))

    @retry_while_unavailable
    def censor(self, steps: Mapping[SeedKey, int], reason: str) -> None:
        """Write that seeds were ended from outside, and after how many steps."""
        with self.writing() as db:
            self._censor(db, steps, reason)

    @retry_while_unavailable
    def censor_running(self, reason: str, steps: Mapping[SeedKey, int]) -> None:
        """Write that all seeds that this owner still trains were ended from outside. steps: where they are known."""
        with self.writing() as db:
            self._censor(db, steps, reason)
            self._censor_running(db, ROWS.c.owner == self.owner, reason)

    @retry_while_unavailable
    def censor_orphaned(self) -> None:
        """Write that running seeds of other owners were ended. The caller has the study's lease."""
        with self.writing() as db:
            self._censor_running(db, ROWS.c.owner != self.owner, DIED)

    @retry_while_unavailable
    def count_states(self) -> int:
        """Return how many seeds have a saved state."""
        query = sa.select(sa.func.count()).select_from(STATES).filter_by(study=self.study)
        with self.database.begin() as db:
            return db.scalar(query) or 0

    # θ and curves

    def seed(self, row: SeedRecord) -> RecordedSeed:
        """Return a seed that has ended with its θ and curve. Raises Failure as `seeds` does."""
        (seed,) = self.seeds([row])
        return seed

    def seeds(self, rows: Iterable[SeedRecord]) -> Iterator[RecordedSeed]:
        """Yield seeds that have ended with their θ and curves, in the order of their rows.

        Raises Failure for one whose θ or curve is lost or damaged.
        """
        rest = iter(rows)
        while some := list(islice(rest, AT_ONCE)):  # not all at once: a study may have 100,000
            blobs = {_key_of(blob): blob for blob in self._blobs(some)}
            configurations = self.list_configurations(*{row.configuration for row in some})
            for row in some:
                # A blob that is lost is a KeyError, which is damage too.
                with self.database.undamaged(f"θ of seed {row.seed} of study {self.study}"):
                    yield from_blobs(configurations[row.configuration], row, blobs[row.key])

    @retry_while_unavailable
    def results_so_far(self, configuration: Configuration, seeds: Collection[Seed]) -> dict[Seed, Result]:
        """Return what is known so far of seeds that train, or were cut off, from their saved states.

        Seeds of which nothing is saved are left out, and so are those whose state is one of stages.
        """
        from trainer.bank.saved import result_of  # with it comes torch

        asked = {(configuration.key, seed.init_seed, seed.data_seed): seed for seed in seeds}
        so_far = {}
        for row in self.database.read(sa.select(STATES).where(self._covers(STATES, asked))):
            if seed := asked.get(_key_of(row)):
                result = result_of(configuration.pair(seed), configuration.trained, row["state"])
                if result is not None:
                    so_far[seed] = result
        return so_far

    @retry_while_unavailable
    def _blobs(self, rows: Sequence[SeedRecord]) -> list[Values]:
        """Read θ and curves of seeds as bytes, and their environments; of some other seeds too."""
        joined = RESULTS.join(ROWS, _same_seed(RESULTS))
        query = sa.select(RESULTS, ROWS.c.environment).select_from(joined)
        return self.database.read(query.where(self._covers(RESULTS, [row.key for row in rows])))

    @retry_while_unavailable
    def record_verification(self, key: SeedKey, correct: int) -> bool:
        """Count a call of `verify` for a seed and keep its result. False if the ledger has no such seed."""
        seed = sa.update(ROWS).filter_by(**self._named(key))
        # The database adds, so that of two calls at once both are counted.
        counted = seed.values(verify_calls=ROWS.c.verify_calls + 1, verified=correct)
        with self.database.begin() as db:
            return db.execute(counted).rowcount > 0

    @retry_while_unavailable
    def record_proof(self, key: SeedKey, proof: Values) -> None:
        """Keep the verdict on all pairs of a seed's θ, decided here, in place of an earlier one."""
        named, proof = self._named(key), sealed(dict(proof), self.study, *key)
        with self.database.begin() as db:
            db.execute(sa.delete(PROOFS).filter_by(**named))
            db.execute(sa.insert(PROOFS).values(**named, proof=proof))

    def _verdict(self, row: Values) -> Verdict | None:
        """Return the verdict in a seed's row. A file may be a stranger's ledger; a server was named by the user."""
        if self.home.has_own_database:
            return own(row["proof"], self.study, *_key_of(row))
        return read_verdict(row["proof"])

    def _bound(self, key: SeedKey) -> Values:
        """Return the values of BOUND for a seed."""
        return {f"key_{name}": value for name, value in self._named(key).items()}

    def _named(self, key: SeedKey) -> Values:
        """Return the columns that name a seed's row."""
        return dict(zip(KEY_COLUMNS, (self.study, *key), strict=True))

    def _taken(self, thing: str) -> AlreadyExists:
        return AlreadyExists(f"study {self.study}: {thing} was just taken by another driver")

    def _select(self, table: sa.Table, *names: str, **among: Iterable[str]) -> list[Values]:
        """Read the study's rows of a table, ordered by number where they have one.

        names: columns to read; all if there is none. among: values of columns; rows with others are left out.
        """
        columns = [table.c[name] for name in names] or [*table.c]
        query = sa.select(*columns).filter_by(study=self.study)
        for name, values in among.items():
            query = query.where(table.c[name].in_(values))
        if "number" in table.c:
            query = query.order_by(table.c.number)
        return self.database.read(query)


def open_records(home: Home, study: str) -> StudyRecords:
    """Open a study's records. Raises UserError if nothing has run in the home, NotFound for an unknown study."""
    return open_several(home, [study])[0]


def open_several(home: Home, studies: Iterable[str] = ()) -> list[StudyRecords]:
    """Open the records of studies, or of all that a home has. Raises as `open_records` does."""
    ledger = open_ledger(home)
    opened = [StudyRecords(ledger, name) for name in studies]
    for records in opened:
        records.require_study()
    return opened or [StudyRecords(ledger, name) for name in ledger.list_studies()]


def censored(reason: str) -> Values:
    """Return the columns of a seed that was ended from outside."""
    return {"outcome": Outcome.CENSORED, "reason": reason, **FREE}


def among(keys: Collection[SeedKey], values: Mapping[SeedKey, T]) -> dict[SeedKey, T]:
    """Return the values of some seeds."""
    return {key: value for key, value in values.items() if key in keys}


def _same_seed(table: sa.Table) -> sa.ColumnElement[bool]:
    """SQL that is true of a seed's row in ROWS and its row in another table."""
    return sa.and_(*(table.c[name] == ROWS.c[name] for name in KEY_COLUMNS))


def _key_of(row: Values) -> SeedKey:
    """Return the key in a row of any table of seeds."""
    return row["configuration"], row["init_seed"], row["data_seed"]
