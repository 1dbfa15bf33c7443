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
from model.verdict import read_verdict
from search.errors import AlreadyExists, NotFound, reraise_as
from search.stats.record import ENOUGH, SeedKey, SeedRecord
from search.store.database import (
    CONFIGURATIONS,
    KEY_COLUMNS,
    OF_A_STUDY,
    PARENTS,
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
from trainer.files.trusted import Untrusted
from trainer.recipe.passed import passed

if TYPE_CHECKING:
    from search.study.schema import Study
    from trainer import Result

DIED = "its driver died"
AT_ONCE = 500
"""Seeds whose θ and curves are read together."""
FREE = {"owner": None, "lease_until": None}
DONE = {"reason": None, **FREE}
BOUND: dict[str, Any] = {name: sa.bindparam(f"key_{name}") for name in KEY_COLUMNS}
"""A seed's row in a statement that is executed for many."""
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
        self.ledger, self.study = ledger, study
        self.home, self.database = ledger.home, ledger.database
        self._configurations: dict[str, Configuration] = {}
        """Configurations whose seeds were read, by key: a configuration never changes."""

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
        for row in rows:
            return row if is_live(row, now) else row | {"owner": None, "stop": False}
        return None

    def get_definition(self) -> Values | None:
        """Return the study's file as plain values, as it was when it last ran; None if it never got so far."""
        return (self.get_study() or {}).get("definition")

    def get_recorded_study(self) -> Study | None:
        """Return the study as its file was when it last ran; None if it never got so far. Raises UserError."""
        definition, source = self.get_definition(), f"study {self.study} as it was recorded"
        return None if definition is None else recorded_study(json.dumps(definition), source)

    def get_driver(self) -> str | None:
        """Return the name of the driver that runs the study: `host/process/number`."""
        return (self.get_study() or {}).get("owner")

    def require_study(self) -> None:
        """Raise NotFound, with the nearest names, if the study was never begun here."""
        if self.study not in (names := self.ledger.list_studies()):
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
    def delete_study(self) -> None:
        with self.writing() as db:
            for table in OF_A_STUDY:
                db.execute(sa.delete(table).filter_by(study=self.study))

    # Configurations, and what they start from

    @retry_while_unavailable
    def create_configurations(self, configurations: Iterable[Configuration]) -> None:
        """Write configurations before anything of them is trained. Those that are there stay as they are."""
        with self.writing() as db:
            self.insert_configurations(db, configurations)

    def insert_configurations(self, db: sa.Connection, configurations: Iterable[Configuration]) -> None:
        """Write configurations as a part of a transaction."""
        keys = set(db.scalars(sa.select(CONFIGURATIONS.c.configuration).filter_by(study=self.study)))
        new = [c for c in configurations if c.key not in keys]
        rows = [
            {
                "study": self.study, "configuration": c.key, "number": number,
                "spec": c.spec.as_dict(), "recipe": c.recipe.as_dict(),
            }
            for number, c in enumerate(new, start=len(keys))
        ]  # fmt: skip
        if rows:
            db.execute(sa.insert(CONFIGURATIONS), rows)
        if started := [(c.key, c.start) for c in new if c.start]:
            self.insert_starts(db, [start for _, start in started])
            links = [{"study": self.study, "configuration": key, "digest": s.digest} for key, s in started]
            db.execute(sa.insert(STARTED), links)

    def insert_starts(self, db: sa.Connection, starts: Iterable[InitialTheta]) -> None:
        """Write θ that are not there yet, as a part of a transaction."""
        digests = set(db.scalars(sa.select(STARTS.c.digest).filter_by(study=self.study)))
        new = {s.digest: s for s in starts if s.digest not in digests}
        if new:
            rows = [{"study": self.study, "digest": d, "start": s.as_dict()} for d, s in new.items()]
            db.execute(sa.insert(STARTS), rows)

    @retry_while_unavailable
    def list_configurations(self, *keys: str) -> dict[str, Configuration]:
        """Return a study's configurations by key, or those of these keys, in the order in which they came."""
        wanted = {"configuration": keys} if keys else {}
        rows = self._select(CONFIGURATIONS, "configuration", "spec", "recipe", **wanted)
        digests = {r["configuration"]: r["digest"] for r in self._select(STARTED, **wanted)}
        with self.database.undamaged("a configuration"), reraise_as(f"study {self.study}", Untrusted):
            starts = self._select(STARTS, digest=digests.values()) if digests else []
            start_of = {r["digest"]: InitialTheta.of(r["start"]) for r in starts}
            configurations = {}
            for row in rows:
                key = row["configuration"]
                start = start_of[digests[key]] if key in digests else None
                spec, recipe = make_spec(**row["spec"]), Recipe.from_record(row["recipe"])
                configurations[key] = Configuration(spec, recipe, start)
            return configurations

    @retry_while_unavailable
    def list_runs(self) -> dict[str, tuple[str, str]]:
        """Return where MLflow shows a study's configurations: ids of experiment and run, by key."""
        rows = self._select(CONFIGURATIONS, "configuration", "experiment", "run")
        return {r["configuration"]: (r["experiment"] or "", r["run"] or "") for r in rows}

    @retry_while_unavailable
    def update_run(self, configuration: str, experiment: str, run: str) -> None:
        """Keep where MLflow shows a configuration."""
        shown = sa.update(CONFIGURATIONS).filter_by(study=self.study, configuration=configuration)
        with self.writing() as db:
            db.execute(shown.values(experiment=experiment, run=run))

    @retry_while_unavailable
    def create_parents(self, parents: Iterable[InitialTheta]) -> None:
        """Write the θ that a study starts from, in place of earlier ones, so that a lost answer does no harm."""
        rows = [{"study": self.study, "number": p.number, "start": p.as_dict()} for p in parents]
        with self.writing() as db:
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
        """Write a proposal of a search before anything of it is trained. The same may be written again.

        Raises AlreadyExists if another driver has drawn with that number.
        """
        key, named = configuration and configuration.key, {"study": self.study, "number": number}
        drawn = sa.select(PROPOSALS.c.configuration, PROPOSALS.c.numbers).filter_by(**named)
        with self.writing() as db:
            if configuration is not None:
                self.insert_configurations(db, [configuration])
            row = db.execute(drawn).first()
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
        """List the study's seeds, or a configuration's in it, by configuration and seed.

        environment: with what each seed was trained in, which is most of the text.
        """
        columns = [c for c in ROWS.columns if environment or c is not ROWS.c.environment]
        key = [ROWS.c[name] for name in KEY_COLUMNS]
        with_proofs = ROWS.outerjoin(PROOFS, sa.and_(*(PROOFS.c[column.name] == column for column in key)))
        query = sa.select(*columns, PROOFS.c.proof).select_from(with_proofs).where(ROWS.c.study == self.study)
        if configuration is not None:
            query = query.where(ROWS.c.configuration == configuration)
        rows = self.database.read(query.order_by(*key))
        for row in rows:
            row["proof"] = self._verdict(row)
            if row["stages"] is not None:
                with self.database.undamaged(f"stages of seed {row['init_seed']} of study {self.study}"):
                    passed(row["stages"])
        return [SeedRecord(**row) for row in rows]

    @retry_while_unavailable
    def claim(self, work: Sequence[tuple[Configuration, Seed, bool]]) -> dict[SeedKey, bytes]:
        """Make seeds RUNNING and this owner's, and return the saved states of those that have one.

        work: configurations and seeds, with True for a confirmation's. A seed can be claimed unless it is final, is
        held, or changed hands since it was read. Raises AlreadyExists if another driver has one.
        """
        configurations = {c.key: c for c, _, _ in work}
        keys = {(c.key, s.init_seed, s.data_seed): confirmation for c, s, confirmation in work}
        with self.database.undamaged("a lease"), self.writing() as db:
            now = self.database.now(db)
            rows = self._rows_of(db, ROWS, keys)
            claimed = {
                "outcome": Outcome.RUNNING, "reason": None, "owner": self.owner, "lease_until": now + LEASE_S,
            }  # fmt: skip
            new = []
            for key, confirmation in keys.items():
                values = claimed | {"confirmation": confirmation}
                if key in rows:
                    self._reclaim(db, SeedRecord.of(rows[key]), values, now)
                else:
                    new.append(self._named(key) | values)
            try:
                if new:
                    db.execute(sa.insert(ROWS), new)
                self.insert_configurations(db, configurations.values())
            except IntegrityError:
                raise self._taken("a seed") from None
            states = self._rows_of(db, STATES, keys) if rows else {}
        return {key: row["state"] for key, row in states.items()}

    def _rows_of(self, db: sa.Connection, table: sa.Table, keys: Collection[SeedKey]) -> dict[SeedKey, Values]:
        """Read a table's rows of seeds, by their keys."""
        of_configurations = table.c.configuration.in_({key for key, _, _ in keys})
        of_seeds = table.c.init_seed.in_({init for _, init, _ in keys})  # a configuration may have many more
        query = sa.select(table).where(table.c.study == self.study, of_configurations, of_seeds)
        rows = map(dict, db.execute(query).mappings())
        return {key: row for row in rows if (key := _key_of(row)) in keys}

    def _reclaim(self, db: sa.Connection, row: SeedRecord, claimed: Values, now: float) -> None:
        if row.is_final:
            raise AlreadyExists(f"study {self.study}: seed {row.seed} has run already ({row.outcome})")
        if row.owner != self.owner and is_live(row, now):
            raise AlreadyExists(f"study {self.study}: seed {row.seed} is held by {row.owner}")
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
        with self.writing() as db:
            rows = self._rows_of(db, ROWS, {*results, *(cut or ()), *(states or ())})
            open_ = {key for key, row in rows.items() if not SeedRecord.of(row).is_final}
            ended, cut, states = among(open_, results), among(open_, cut), among(open_, states)
            self._update(db, {key: bank.columns(seed) | DONE for key, seed in ended.items()})
            self._insert(db, RESULTS, {key: seed.blobs() for key, seed in ended.items()})
            self._delete(db, STATES, [*ended, *states])
            self._insert(db, STATES, {key: {"state": state} for key, state in states.items()})
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
        while some := list(islice(rest, AT_ONCE)):
            blobs = {_key_of(blob): blob for blob in self._blobs(some)}
            for row in some:
                if row.configuration not in self._configurations:
                    self._configurations |= self.list_configurations(row.configuration)
                configuration = self._configurations[row.configuration]
                with self.database.undamaged(f"θ of seed {row.seed} of study {self.study}"):
                    yield from_blobs(configuration, row, blobs[row.key])

    @retry_while_unavailable
    def results_so_far(self, configuration: Configuration, seeds: Collection[Seed]) -> dict[Seed, Result]:
        """Return seeds of a configuration that train, or were cut off, as far as their saved states have them.

        Left out are those without a state that can be read here: nothing is saved, or it is one of stages.
        """
        from trainer.bank.saved import result_of

        numbers = {seed.init_seed for seed in seeds}
        query = sa.select(STATES).filter_by(study=self.study, configuration=configuration.key)
        rows = self.database.read(query.where(STATES.c.init_seed.in_(numbers)))
        states = {Seed(row["init_seed"], row["data_seed"]): row["state"] for row in rows}
        read = {
            seed: result_of(configuration.pair(seed), configuration.trained, states[seed])
            for seed in seeds
            if seed in states
        }
        return {seed: result for seed, result in read.items() if result is not None}

    @retry_while_unavailable
    def _blobs(self, rows: Sequence[SeedRecord]) -> list[Values]:
        """Read θ and curves of seeds as bytes, and their environments; of some other seeds too."""
        same = sa.and_(*(RESULTS.c[name] == ROWS.c[name] for name in KEY_COLUMNS))
        query = sa.select(RESULTS, ROWS.c.environment).select_from(RESULTS.join(ROWS, same))
        wanted = {name: {row[name] for row in rows} for name in ("configuration", "init_seed")}
        among = (RESULTS.c[name].in_(values) for name, values in wanted.items())
        return self.database.read(query.where(RESULTS.c.study == self.study, *among))

    @retry_while_unavailable
    def record_verification(self, key: SeedKey, correct: int) -> bool:
        """Count a call of `verify` for a seed and keep its result. False if the ledger has no such seed."""
        values = {"verify_calls": ROWS.c.verify_calls + 1, "verified": correct}
        with self.database.begin() as db:
            return db.execute(sa.update(ROWS).filter_by(**self._named(key)).values(**values)).rowcount > 0

    @retry_while_unavailable
    def record_proof(self, key: SeedKey, proof: Values) -> None:
        """Keep the verdict on all pairs of a seed's θ, decided here, in place of an earlier one."""
        named, proof = self._named(key), sealed(dict(proof), self.study, *key)
        with self.database.begin() as db:
            db.execute(sa.delete(PROOFS).filter_by(**named))
            db.execute(sa.insert(PROOFS).values(**named, proof=proof))

    def _verdict(self, row: Values) -> Verdict | None:
        """Return the verdict in a seed's row. A file may be a stranger's ledger; a server was named by the user."""
        if row["proof"] is not None and self.home.has_own_database:
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
        """Read the study's rows of a table, or some of their columns, by number where they have one.

        among: values of columns; rows with others are left out.
        """
        query = sa.select(*(table.c[name] for name in names or table.c.keys())).filter_by(study=self.study)
        query = query.where(*(table.c[name].in_(values) for name, values in among.items()))
        return self.database.read(query.order_by(table.c.number) if "number" in table.c else query)


def open_records(home: Home, study: str) -> StudyRecords:
    """Open a study's records. Raises UserError if nothing has run in the home, NotFound for an unknown study."""
    (records,) = open_several(home, [study])
    return records


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


def among(keys: Collection[SeedKey], values: Mapping[SeedKey, T] | None) -> dict[SeedKey, T]:
    """Return the values of some seeds."""
    return {key: value for key, value in (values or {}).items() if key in keys}


def _key_of(row: Values) -> SeedKey:
    """Return the key in a row of any table of seeds."""
    return row["configuration"], row["init_seed"], row["data_seed"]
