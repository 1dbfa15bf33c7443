"""The ledger: what was asked, what has run and what came of it, in SQL.

One row a (study, configuration, seed). MLflow has no unique keys, so it cannot decide what is still to be
trained; this table does. A row is claimed by a driver with a lease while a trial holds it, and `published`
says that MLflow has it too. Beside it stand the configurations with spec and recipe, and what a search has
proposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from model import make_spec
from model.fields import did_you_mean
from search.errors import Failure, UserError, reraise_as
from search.stats.counting import Row
from search.store.database import (
    CONFIGURATIONS,
    OF_A_STUDY,
    PARENTS,
    PROPOSALS,
    ROWS,
    STARTED,
    STARTS,
    STUDIES,
    Database,
    retry_while_unavailable,
)
from search.store.home import Home
from search.store.lease import LEASE_S, StudyLeases, is_live, own_name
from search.study.schema import is_name
from search.study.start import InitialTheta
from search.study.trial import Configuration, Trial
from trainer import Outcome, Recipe, Seed

if TYPE_CHECKING:
    from search.store.results import ConfigurationResults
    from search.study.sampler import Share

DIED = "its driver died"
FREE = {"owner": None, "lease_until": None}
KEY_COLUMNS = ("study", "configuration", "init_seed", "data_seed")
Key = tuple[str, int, int]
"""Configuration key, init_seed, data_seed."""


def is_final(row: Row) -> bool:
    """Whether a row needs no more training. Censored seeds go on when the study does."""
    return row["outcome"] not in (Outcome.QUEUED, Outcome.RUNNING, Outcome.CENSORED)


class Ledger(StudyLeases):
    """The tables of one home. What is marked `patient` is done again while the database is away.

    Raises Failure if it stays away for longer than `database.patience_s`, at first 0.
    """

    def __init__(self, home: Home):
        self.home, self.database = home, Database(home)
        self.owner = own_name()

    @retry_while_unavailable
    def rows(
        self,
        study: str | None = None,
        configuration: str | None = None,
        trial: str | None = None,
        environment: bool = False,
    ) -> list[Row]:
        """All rows, or a study's, a configuration's or a trial's in it, ordered by configuration and seed.

        environment: with what each seed was trained in, which is most of the text.
        """
        columns = [c for c in ROWS.columns if environment or c is not ROWS.c.environment]
        order = (ROWS.c.study, ROWS.c.configuration, ROWS.c.init_seed, ROWS.c.data_seed)
        wanted = {"study": study, "configuration": configuration, "trial": trial}
        query = sa.select(*columns)
        query = query.where(*(ROWS.c[name] == value for name, value in wanted.items() if value is not None))
        if trial is None:
            return self.database.read(query.order_by(*order))
        found = self.database.read(query)  # asked for an order SQLite would go through all of a study's rows
        return sorted(found, key=lambda row: [row[column.name] for column in order])

    @retry_while_unavailable
    def configurations(self, study: str) -> dict[str, Configuration]:
        """A study's configurations by key, in the order in which they came."""
        rows = self._described(study, "spec", "recipe")
        started = {r["configuration"]: r["digest"] for r in self._of(STARTED, study)}
        with reraise_as(
            f"{self.database.name}: damaged, a configuration", (TypeError, ValueError, LookupError), Failure
        ):
            starts = (
                {r["digest"]: InitialTheta.of(r["start"]) for r in self._of(STARTS, study)} if started else {}
            )
            return {
                key: _configuration(row, starts[started[key]] if key in started else None)
                for row in rows
                for key in [row["configuration"]]
            }

    @retry_while_unavailable
    def parents(self, study: str) -> list[InitialTheta]:
        """The θ that a study starts from, as they were chosen when it first ran."""
        rows = sorted(self._of(PARENTS, study), key=lambda r: r["number"])
        with reraise_as(
            f"{self.database.name}: damaged, a start", (TypeError, ValueError, LookupError), Failure
        ):
            return [InitialTheta.of(r["start"]) for r in rows]

    @retry_while_unavailable
    def record_parents(self, study: str, parents: Iterable[InitialTheta]) -> None:
        """Keep what a study starts from."""
        rows = [{"study": study, "number": p.number, "start": p.as_dict()} for p in parents]
        with self._begin() as db:
            db.execute(sa.insert(PARENTS), rows)

    @retry_while_unavailable
    def describe(self, study: str, configurations: Iterable[Configuration]) -> None:
        """Keep configurations before anything of them is trained."""
        with self._begin() as db:
            self.describe_in(db, study, configurations)

    def describe_in(self, db: sa.Connection, study: str, configurations: Iterable[Configuration]) -> None:
        """`describe` as a part of a transaction."""
        _describe(db, study, configurations)

    @retry_while_unavailable
    def pages(self, study: str) -> dict[str, tuple[str, str]]:
        """Where MLflow has a study's configurations: ids of experiment and run, by key."""
        rows = self._described(study, "experiment", "run")
        return {r["configuration"]: (r["experiment"] or "", r["run"] or "") for r in rows}

    def _described(self, study: str, *names: str) -> list[Row]:
        columns = [CONFIGURATIONS.c[name] for name in ("configuration", *names)]
        mine = sa.select(*columns).where(CONFIGURATIONS.c.study == study)
        return self.database.read(mine.order_by(CONFIGURATIONS.c.number))

    def _of(self, table: sa.Table, study: str) -> list[Row]:
        return self.database.read(sa.select(table).where(table.c.study == study))

    @retry_while_unavailable
    def proposals(self, study: str) -> list[Row]:
        """What a search has drawn, in order: number, configuration (None: none) and numbers."""
        columns = (PROPOSALS.c.number, PROPOSALS.c.configuration, PROPOSALS.c.numbers)
        query = sa.select(*columns).where(PROPOSALS.c.study == study).order_by(PROPOSALS.c.number)
        return self.database.read(query)

    @retry_while_unavailable
    def propose(self, study: str, number: int, configuration: Configuration | None, numbers: Row) -> None:
        """Note what a search has drawn, before anything of it is trained. The same may be noted again.

        Raises UserError if another driver has drawn with that number.
        """
        key = configuration and configuration.key
        drawn = (PROPOSALS.c.configuration, PROPOSALS.c.numbers)
        its = sa.select(*drawn).where(PROPOSALS.c.study == study, PROPOSALS.c.number == number)
        values = {"study": study, "number": number, "configuration": key, "numbers": numbers}
        with self._begin() as db:
            if configuration is not None:
                _describe(db, study, [configuration])
            found = db.execute(its).first()
            if found is None:
                db.execute(sa.insert(PROPOSALS).values(**values))
            elif tuple(found) != (key, numbers):
                raise _taken(study, f"proposal {number}")

    @retry_while_unavailable
    def studies(self) -> list[str]:
        """The names of all studies that were begun here."""
        with self._begin() as db:
            found = set(db.scalars(sa.select(ROWS.c.study).distinct()))
            found |= set(db.scalars(sa.select(STUDIES.c.study)))
        return sorted(filter(is_name, found))  # a name becomes a path

    def require(self, study: str) -> None:
        """Raise UserError, with the nearest names, for a study that was never begun here."""
        if study not in (known := self.studies()):
            raise UserError(
                f"study {study!r} has no records in {self.home.path}; {did_you_mean(study, known or ['none yet'])}"
            )

    @retry_while_unavailable
    def claim(self, trial: Trial) -> None:
        """Note that a trial trains these pairs now. Raises UserError if another driver holds one.

        A pair is taken unless it is final or held, or changed hands since it was read.
        """
        keys = [c.key for c in trial.configurations]
        seeds = {s.init_seed for _, s in trial.work}  # a configuration may have many more
        theirs = (ROWS.c.study == trial.study, ROWS.c.configuration.in_(keys), ROWS.c.init_seed.in_(seeds))
        with self._begin() as db:
            mine = self._running(trial, now := self.database.now(db))
            known = {_key_of(r): dict(r) for r in db.execute(sa.select(ROWS).where(*theirs)).mappings()}
            work = [((c.key, s.init_seed, s.data_seed), s) for c, s in trial.work]
            for key, seed in work:
                if key in known:
                    self._take(db, trial, seed, known[key], mine, now)
            try:
                if new := [_named(trial.study, key) | mine for key, _ in work if key not in known]:
                    db.execute(sa.insert(ROWS), new)
                _describe(db, trial.study, trial.configurations)
            except IntegrityError:
                raise _taken(trial.study, "a seed") from None

    def _take(self, db: sa.Connection, trial: Trial, seed: Seed, row: Row, mine: Row, now: float) -> None:
        """Make a pair that is known this driver's."""
        if is_final(row):
            raise UserError(f"study {trial.study}: seed {seed} has run already ({row['outcome']})")
        if row["owner"] != self.owner and is_live(row, now):
            raise UserError(f"study {trial.study}: seed {seed} is held by {row['owner']}")
        as_read = (ROWS.c[n].is_not_distinct_from(row[n]) for n in ("outcome", "owner", "lease_until"))
        where = _is(_named(trial.study, _key_of(row)))
        if db.execute(sa.update(ROWS).where(where, *as_read).values(**mine)).rowcount != 1:
            raise _taken(trial.study, f"seed {seed}")

    @retry_while_unavailable
    def record(self, *parts: ConfigurationResults, share: Share | None = None) -> None:
        """Write what became of the pairs of a trial's parts, in one statement; a final row is never
        overwritten. share: what a search's objective wants to know of each.
        """
        key: Row = {name: sa.bindparam(f"its_{name}") for name in KEY_COLUMNS}
        open_row = sa.or_(ROWS.c.outcome == Outcome.RUNNING, ROWS.c.outcome == Outcome.CENSORED)
        values = [facts for part in parts for facts in _facts(part, share)]
        if values:
            with self._begin() as db:
                db.execute(sa.update(ROWS).where(_is(key), open_row), values)

    @retry_while_unavailable
    def censor(self, trials: Iterable[Trial], reason: str, steps: Mapping[Key, int] | None = None) -> None:
        """Note that running pairs were ended from outside, and after how many steps where that is known."""
        values = {"outcome": Outcome.CENSORED, "reason": reason, **FREE}
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
                        db.execute(sa.update(ROWS).where(still).values(steps=reached, reason=reason))

    @retry_while_unavailable
    def delete_unstarted(self, trial: Trial) -> None:
        """Forget those of a trial's censored pairs of which nothing was trained."""
        mine = sa.and_(ROWS.c.study == trial.study, ROWS.c.trial == trial.key, ROWS.c.steps == 0)
        with self._begin() as db:
            db.execute(sa.delete(ROWS).where(mine, ROWS.c.outcome == Outcome.CENSORED))

    @retry_while_unavailable
    def censor_orphaned(self, study: str) -> None:
        """Note of a study that is held that rows which still count as running have nobody any more."""
        values = {"outcome": Outcome.CENSORED, "reason": DIED, **FREE}
        running = sa.and_(ROWS.c.study == study, ROWS.c.outcome == Outcome.RUNNING)
        with self._begin() as db:
            db.execute(sa.update(ROWS).where(running, ROWS.c.owner != self.owner).values(**values))

    @retry_while_unavailable
    def reopen(self, study: str, trial: str, reason: str) -> None:
        """Have a trial's seeds trained again that MLflow has not got: their results are lost."""
        measured = ("grok_step", "held", "hopeless_step", "screen", "best_step", "best_exact", "best_token")
        values: Row = dict.fromkeys(measured)
        values |= {"outcome": Outcome.CENSORED, "reason": reason, "steps": 0, **FREE}
        lost = (ROWS.c.study == study, ROWS.c.trial == trial, sa.not_(ROWS.c.published))
        with self._begin() as db:
            db.execute(sa.update(ROWS).where(*lost).values(**values))

    @retry_while_unavailable
    def publish(self, trial: Trial, configuration: Configuration, experiment: str, run: str) -> None:
        """Note that MLflow has what a trial's seeds of a configuration have become, and where."""
        its = {"study": trial.study, "configuration": configuration.key}
        place = sa.update(CONFIGURATIONS).where(*(CONFIGURATIONS.c[k] == v for k, v in its.items()))
        mine = (*(ROWS.c[k] == v for k, v in its.items()), ROWS.c.trial == trial.key)
        with self._begin() as db:
            db.execute(place.values(experiment=experiment, run=run))
            db.execute(sa.update(ROWS).where(*mine).values(published=True))

    @retry_while_unavailable
    def forget(self, study: str) -> None:
        """Delete all of a study."""
        with self._begin() as db:
            for table in OF_A_STUDY:
                db.execute(sa.delete(table).where(table.c.study == study))

    @retry_while_unavailable
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

    def _running(self, trial: Trial, now: float) -> Row:
        return {
            "trial": trial.key,
            "confirmation": trial.confirmation,
            "outcome": Outcome.RUNNING,
            "reason": None,
            "published": False,
            "owner": self.owner,
            "lease_until": now + LEASE_S,
        }

    def _begin(self) -> Any:
        return self.database.begin()


def open_ledger(home: Home, *studies: str) -> Ledger:
    """A home's ledger. Raises UserError where nothing has run, or where one of these studies is unknown."""
    if not home.exists():
        raise UserError(f"nothing has run yet in {home.path}")
    ledger = Ledger(home)
    for study in studies:
        ledger.require(study)
    return ledger


def _named(study: str, key: Key) -> Row:
    """The columns that name a row."""
    return dict(zip(KEY_COLUMNS, (study, *key), strict=True))


def _core_s(part: ConfigurationResults, steps: int) -> float | None:
    """What a seed cost; unit: core-seconds. None on a GPU, and where it is not known."""
    rate, where = part.about["seed_steps_per_s"], part.about["environment"]
    known = rate and where.get("engine") == "native"
    return steps / rate * where.get("threads", 1) if known else None


def _key_of(row: Mapping[Any, Any]) -> Key:
    return row["configuration"], row["init_seed"], row["data_seed"]


def _taken(study: str, what: str) -> UserError:
    return UserError(f"study {study}: {what} was just taken by another driver")


MEASURED = (
    "steps", "grok_step", "held", "hopeless_step", "screen", "best_step", "best_exact", "best_token",
)  # fmt: skip


def _facts(part: ConfigurationResults, share: Share | None) -> list[Row]:
    """Of each pair: what names its row, and what became of it."""
    shared = {"seed_steps_per_s": part.about["seed_steps_per_s"], "reason": None, **FREE}
    shared |= {"environment": part.about["environment"]}
    shared |= {"its_study": part.trial.study, "its_configuration": part.configuration.key}
    return [
        {
            **{name: getattr(r, name) for name in MEASURED},
            "outcome": r.outcome.value,
            "core_s": _core_s(part, r.steps),
            "reached": share and {str(share): part.reaches(r, share)},
            "its_init_seed": r.pair.seed.init_seed,
            "its_data_seed": r.pair.seed.data_seed,
            **shared,
        }
        for r in part.results
    ]


def _configuration(row: Row, start: InitialTheta | None) -> Configuration:
    return Configuration(make_spec(**row["spec"]), Recipe(**row["recipe"]), start)


def _describe(db: sa.Connection, study: str, configurations: Iterable[Configuration]) -> None:
    """Keep spec, recipe and start of those that are not there yet."""
    mine = CONFIGURATIONS.c.study == study
    known = set(db.scalars(sa.select(CONFIGURATIONS.c.configuration).where(mine)))
    new = [c for c in configurations if c.key not in known]
    rows = [
        {
            "study": study, "configuration": c.key, "number": number,
            "spec": c.spec.as_dict(), "recipe": c.recipe.as_dict(),
        }
        for number, c in enumerate(new, start=len(known))
    ]  # fmt: skip
    if rows:
        db.execute(sa.insert(CONFIGURATIONS), rows)
    started = [(c.key, c.start) for c in new if c.start]
    if started:
        kept = set(db.scalars(sa.select(STARTS.c.digest).where(STARTS.c.study == study)))
        starts = {s.digest: s for _, s in started if s.digest not in kept}
        if starts:
            rows = [{"study": study, "digest": d, "start": s.as_dict()} for d, s in starts.items()]
            db.execute(sa.insert(STARTS), rows)
        links = [{"study": study, "configuration": key, "digest": s.digest} for key, s in started]
        db.execute(sa.insert(STARTED), links)


def _is(named: Mapping[str, Any]) -> sa.ColumnElement[bool]:
    return sa.and_(*(ROWS.c[name] == value for name, value in named.items()))
