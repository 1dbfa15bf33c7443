"""Leases: one driver a study while it is run or deleted, one driver a seed while it is trained.

A lease says who has a study or a seed, and until when by the database's clock. Its driver renews it. One that
nobody renews ends by itself, and at once if its process was on this machine and is gone.
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

from search.errors import AlreadyExists, Failure
from search.store.database import ROWS, STUDIES, Database, retry_while_unavailable
from trainer import Outcome

STOPPED = "stopped"
LEASE_S, RENEW_S = 120.0, 5.0
"""A lease that has not been renewed for so long belongs to nobody; how often it is renewed."""

log = logging.getLogger(__name__)


class StudyLeases:
    """The leases of one driver, `owner`; the table ledger_studies has those of studies.

    Raises Failure if the database stays away for longer than `database.patience_s`.
    """

    def __init__(self, database: Database, owner: str):
        self.database, self.owner = database, owner

    @retry_while_unavailable
    def acquire(self, study: str, definition: dict[str, Any] | None, tracking_uri: str | None) -> None:
        """Make `owner` the one driver of a study, until `release`. Raises AlreadyExists if another one is.

        Keeps the study as its file is now, and where the file has it tracked.
        """
        with self.database.begin() as db:
            now = self.database.now(db)
            values: dict[str, Any] = {
                "definition": definition, "tracking_uri": tracking_uri, "stop": False,
                "owner": self.owner, "lease_until": now + LEASE_S,
            }  # fmt: skip
            row = db.execute(sa.select(STUDIES).where(STUDIES.c.study == study)).mappings().first()
            if row is None:
                try:
                    db.execute(sa.insert(STUDIES).values(study=study, **values))
                except IntegrityError:
                    raise AlreadyExists(f"study {study} was just begun by another driver") from None
                return
            if row["owner"] != self.owner and is_live(row, now):
                raise AlreadyExists(
                    f"study {study} is already being run by {row['owner']} (host/process); stop it with "
                    f"adder-search stop {study} (if it died without a word, its hold ends in "
                    f"{row['lease_until'] - now:.0f} s)"
                )
            as_read = (STUDIES.c[n].is_not_distinct_from(row[n]) for n in ("owner", "lease_until"))
            change = sa.update(STUDIES).where(STUDIES.c.study == study, *as_read).values(**values)
            if db.execute(change).rowcount != 1:
                raise AlreadyExists(f"study {study} was just taken by another driver")

    @retry_while_unavailable
    def release(self, study: str) -> None:
        """Give a study back. Does nothing to one that another driver has."""
        with self.database.begin() as db:
            free = {"owner": None, "lease_until": None, "stop": False}
            db.execute(sa.update(STUDIES).where(self.is_owned(study)).values(**free))

    def renew(self, study: str) -> str | None:
        """Extend the leases of a study and of its running seeds.

        Returns why the driver is to end, if it is: it was asked to stop, or another one took the study over.
        Does not wait for a database that is away.
        """
        running = sa.and_(ROWS.c.owner == self.owner, ROWS.c.outcome == Outcome.RUNNING)
        with self.database.begin() as db:
            until = self.database.now(db) + LEASE_S
            db.execute(sa.update(ROWS).where(running).values(lease_until=until))
            renewal = sa.update(STUDIES).where(self.is_owned(study)).values(lease_until=until)
            if db.execute(renewal).rowcount == 0:
                return "another driver took the study over"
            return STOPPED if db.scalar(sa.select(STUDIES.c.stop).where(self.is_owned(study))) else None

    def is_owned(self, study: str) -> sa.ColumnElement[bool]:
        """SQL that is true of a study's row while `owner` has it."""
        return sa.and_(STUDIES.c.study == study, STUDIES.c.owner == self.owner)


class StudyLease:
    """A study's lease in a ledger, renewed by a thread of its own.

    `why`: the reason to let the study go, if there is one: asked to stop, or taken over.
    """

    def __init__(self, ledger: Any, study: str):
        self.ledger, self.study = ledger, study
        self.why: str | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self.thread.start()

    def check(self) -> None:
        """Raise Failure if somebody asked to stop, or took the study over."""
        if self.why:
            raise Failure(f"study {self.study}: {self.why}; the same command again completes what was begun")

    def end(self) -> None:
        """End the thread. The lease itself is left to `StudyLeases.release`."""
        self.ended.set()
        self.thread.join()

    def _renew(self) -> None:
        """Renew every RENEW_S seconds, and after any error try again: the lease has not ended yet."""
        logged = None
        while not self.ended.wait(RENEW_S):
            try:
                self.why = self.ledger.leases.renew(self.study) or self.why
            except Failure:
                pass  # the database is away; the other threads say so
            except Exception as error:
                if repr(error) != logged:
                    log.warning("study %s: its hold could not be renewed: %r", self.study, error)
                logged = repr(error)


@contextlib.contextmanager
def acquire_study_lease(
    ledger: Any, study: str, definition: dict[str, Any] | None, tracking_uri: str | None
) -> Iterator[StudyLease]:
    """Be a study's one driver in a Ledger, within a block. Raises AlreadyExists if another one is."""
    ledger.leases.acquire(study, definition, tracking_uri)
    lease = StudyLease(ledger, study)
    try:
        yield lease
    finally:
        lease.end()
        with contextlib.suppress(Failure):  # the lease ends by itself
            ledger.leases.release(study)


def driver_name() -> str:
    """Name this driver for its leases: machine, process, a number."""
    return f"{_machine()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"


def is_live(row: Any, now: float) -> bool:
    """True if the lease in a row (`owner`, `lease_until`) is of a driver that can still be there."""
    if row["owner"] is None or row["lease_until"] is None or row["lease_until"] < now:
        return False
    machine, pid, _ = row["owner"].split("/")
    return machine != _machine() or _is_alive(int(pid))


def _machine() -> str:
    """Name this start of this machine, as no other machine, copy or container is named.

    Beside the host's name it digests the kernel's boot id (without one the network card's number), the
    machine's id and the space of its process numbers, as containers have one of their own.
    """
    boot = _text("/proc/sys/kernel/random/boot_id") or f"{uuid.getnode():x}"
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        space = 0
    ids = f"{boot} {_text('/etc/machine-id')} {space}"
    return f"{socket.gethostname()}.{hashlib.sha256(ids.encode()).hexdigest()[:12]}"


def _text(path: str) -> str:
    """Return a file's text, or nothing if it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    """True if this machine has a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
