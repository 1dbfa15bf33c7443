"""Being a study's one driver while it is run or deleted.

A lease says who has a study or a pair, and until when by the database's clock. Its driver renews it; one that
nobody renews ends by itself, and at once where its process was of this machine and is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from search.errors import Failure, UserError
from search.stats.counting import Row
from search.store.database import ROWS, STUDIES, Database, retry_while_unavailable
from trainer import Outcome

STOPPED = "stopped"
LEASE_S, RENEW_S = 120.0, 5.0
"""A lease that has not been renewed for so long belongs to nobody; how often it is renewed."""

log = logging.getLogger(__name__)


class StudyLeases:
    """Who runs which study, and what it was asked. The ledger is one.

    Raises Failure if the database stays away for longer than `database.patience_s`.
    """

    database: Database
    owner: str

    @retry_while_unavailable
    def hold(self, study: str, definition: Row | None, tracking_uri: str | None) -> None:
        """Be the one driver of a study, until `release`. Raises UserError if another one is.

        Keeps the study as its file is now, and where the file has it tracked.
        """
        asked = {"definition": definition, "tracking_uri": tracking_uri, "stop": False}
        with self.database.begin() as db:
            now = self.database.now(db)
            values = asked | {"owner": self.owner, "lease_until": now + LEASE_S}
            row = db.execute(sa.select(STUDIES).where(STUDIES.c.study == study)).mappings().first()
            if row is None:
                try:
                    db.execute(sa.insert(STUDIES).values(study=study, **values))
                except IntegrityError:
                    raise UserError(f"study {study} was just begun by another driver") from None
                return
            if row["owner"] != self.owner and is_live(row, now):
                raise UserError(
                    f"study {study} is already being run by {row['owner']} (host/process); stop it with "
                    f"adder-search stop {study} (if it died without a word, its hold ends in "
                    f"{row['lease_until'] - now:.0f} s)"
                )
            as_read = (STUDIES.c[n].is_not_distinct_from(row[n]) for n in ("owner", "lease_until"))
            change = sa.update(STUDIES).where(STUDIES.c.study == study, *as_read).values(**values)
            if db.execute(change).rowcount != 1:
                raise UserError(f"study {study} was just taken by another driver")

    @retry_while_unavailable
    def release(self, study: str) -> None:
        """Be a study's driver no more."""
        with self.database.begin() as db:
            free = {"owner": None, "lease_until": None, "stop": False}
            db.execute(sa.update(STUDIES).where(self._mine(study)).values(**free))

    @retry_while_unavailable
    def define(self, study: str, definition: Row, tracking_uri: str | None) -> None:
        """Keep a held study as its file is now, and where the file has it tracked."""
        with self.database.begin() as db:
            values = {"definition": definition, "tracking_uri": tracking_uri}
            db.execute(sa.update(STUDIES).where(self._mine(study)).values(**values))

    @retry_while_unavailable
    def study(self, name: str) -> Row | None:
        """What is kept of a study as a whole: definition, tracking_uri, owner (None: nobody runs it)."""
        for row, is_run in self._studies(STUDIES.c.study == name):
            return row if is_run else row | {"owner": None, "stop": False}
        return None

    @retry_while_unavailable
    def running(self) -> list[str]:
        """The studies that somebody runs."""
        return [row["study"] for row, is_run in self._studies() if is_run]

    def _studies(self, *which: sa.ColumnElement[bool]) -> list[tuple[Row, bool]]:
        """What is kept of studies, and whether somebody runs them."""
        rows = self.database.read(sa.select(STUDIES).where(*which))
        with self.database.begin() as db:
            now = self.database.now(db)
        return [(row, is_live(row, now)) for row in rows]

    @retry_while_unavailable
    def ask_to_stop(self, study: str) -> None:
        """Leave word for a study's driver, wherever it runs."""
        with self.database.begin() as db:
            db.execute(sa.update(STUDIES).where(STUDIES.c.study == study).values(stop=True))

    def renew(self, study: str) -> str | None:
        """Extend this driver's leases. Returns why it is to end, if it is: asked to, or its hold was lost.

        Does not wait for a database that is away.
        """
        pairs = sa.and_(ROWS.c.owner == self.owner, ROWS.c.outcome == Outcome.RUNNING)
        with self.database.begin() as db:
            until = self.database.now(db) + LEASE_S
            db.execute(sa.update(ROWS).where(pairs).values(lease_until=until))
            held = sa.update(STUDIES).where(self._mine(study)).values(lease_until=until)
            if db.execute(held).rowcount == 0:
                return "another driver took the study over"
            return STOPPED if db.scalar(sa.select(STUDIES.c.stop).where(self._mine(study))) else None

    def _mine(self, study: str) -> sa.ColumnElement[bool]:
        return sa.and_(STUDIES.c.study == study, STUDIES.c.owner == self.owner)


class StudyLease:
    """A study that is held. A thread of its own renews the leases, whatever the others wait for.

    `why`: what the study is to be let go for, if it is: asked to stop, or taken over.
    """

    def __init__(self, ledger: StudyLeases, study: str):
        self.ledger: Any = ledger
        self.study = study
        self.why: str | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._renew, name="hold", daemon=True)
        self.thread.start()

    def check(self) -> None:
        """Raise Failure if somebody asked to stop, or took the study over."""
        if self.why:
            raise Failure(f"study {self.study}: {self.why}; the same command again completes what was begun")

    def end(self) -> None:
        self.ended.set()
        self.thread.join()

    def _renew(self) -> None:
        """Whatever goes wrong, try again: the lease has not ended yet."""
        said = None
        while not self.ended.wait(RENEW_S):
            try:
                self.why = self.ledger.renew(self.study) or self.why
            except Failure:
                pass  # the database is away, of which whoever needs it tells
            except Exception as error:
                if repr(error) != said:
                    log.warning("study %s: its hold could not be renewed: %r", self.study, error)
                said = repr(error)


@contextlib.contextmanager
def acquire_study_lease(
    ledger: StudyLeases, study: str, definition: Row | None, tracking_uri: str | None
) -> Iterator[StudyLease]:
    """Be a study's one driver. Raises UserError if another one is."""
    ledger.hold(study, definition, tracking_uri)
    hold = StudyLease(ledger, study)
    try:
        yield hold
    finally:
        hold.end()
        with contextlib.suppress(Failure):  # the hold ends by itself
            ledger.release(study)


def own_name() -> str:
    """Who this driver is, for its leases: machine, process, a number."""
    return f"{_machine()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"


def is_live(row: Any, now: float) -> bool:
    """Whether the lease in a row (`owner`, `lease_until`) is of a driver that can still be there."""
    if row["owner"] is None or row["lease_until"] is None or row["lease_until"] < now:
        return False
    machine, pid, _ = row["owner"].split("/")
    return machine != _machine() or _is_alive(int(pid))


def _machine() -> str:
    """The host's name, and what tells this start of it from all other machines and their copies: the kernel's
    boot id (without one the network card's number), the machine's id and the space of its process numbers,
    which containers have of their own.
    """
    boot = _text("/proc/sys/kernel/random/boot_id") or f"{uuid.getnode():x}"
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        space = 0
    told_apart = f"{boot} {_text('/etc/machine-id')} {space}"
    return f"{socket.gethostname()}.{hashlib.sha256(told_apart.encode()).hexdigest()[:12]}"


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
