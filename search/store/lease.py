"""Leases: one driver per study while it is run or deleted, one driver per seed while it is trained.

A lease names the driver that has a study or a seed, and the time when it ends by the database's clock. The driver
renews it. A lease that nobody renews ends by itself, and at once if its process was on this machine and is gone.
"""

import contextlib
import hashlib
import logging
import os
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple, Self

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from search.errors import AlreadyExists, Failure
from search.store.database import ROWS, STUDIES, Database, retry_while_unavailable
from trainer import Outcome

STOPPED, TAKEN = "stopped", "another driver took the study over"
LEASE_S = 120.0
"""Seconds after its renewal in which a lease is its driver's."""
RENEW_S = 5.0
"""Seconds between two renewals."""
FRESH_S = LEASE_S / 2
"""Seconds after a renewal in which nobody else can have the study, whatever their clocks say."""

log = logging.getLogger(__name__)


class Superseded(Failure):
    """Another driver has the study now: this one may write nothing more of it."""


class Clocks(NamedTuple):
    """Seconds by two clocks: one that counts while the machine sleeps, and one that others may set."""

    boot: float
    wall: float

    @classmethod
    def now(cls) -> Self:
        return cls(time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)), time.time())

    def since(self, other: Self) -> float:
        """Return the seconds since an earlier moment, by the clock that says more.

        One that others have set back says too little, and one that stood still while the machine slept does too.
        """
        return max(a - b for a, b in zip(self, other, strict=True))


class StudyLease:
    """The lease of one study by one driver, `owner`, who has it within a `with` block.

    Entering raises AlreadyExists if another driver has the study. A thread renews the lease until the block
    ends. Raises Failure if the database stays away for longer than `database.patience_s`.
    """

    def __init__(self, database: Database, study: str, owner: str):
        self.database = database
        self.study = study
        self.owner = owner
        self.why: str | None = None
        """The reason to let the study go, if there is one: asked to stop, or taken over."""
        self.is_entered = self.is_lost = False
        self.renewed = Clocks(float("-inf"), float("-inf"))
        """Time of the last renewal."""
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._keep_renewing, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self.acquire()
        self.is_entered = True
        self.thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Give the study back. What failed because another driver has it raises Superseded instead."""
        self.ended.set()
        self.thread.join()
        self.database.patience_s = 0.0  # if the database is away, the lease ends by itself
        with contextlib.suppress(Failure):
            self.release()
        self.is_entered = False
        if self.is_lost and isinstance(error, Exception):
            raise self._superseded() from error

    def verify(self) -> None:
        """Raise Superseded if another driver may have the study: also once this one has given it back.

        Costs nothing while the lease is renewed in time.

        After any gap in this process's own clocks the database is asked: a driver may have been paused, or its
        machine asleep, for longer than its lease.
        """
        self._check_held()
        is_stale = Clocks.now().since(self.renewed) > FRESH_S
        if self.is_entered and (self.is_lost or is_stale):
            self._confirm()

    def _check_held(self) -> None:
        """Raise Superseded if this driver has given the study back."""
        if self.ended.is_set():  # a thread may be left that waits for a server
            raise Superseded(f"study {self.study}: this driver has given it back, and writes nothing more")

    @retry_while_unavailable
    def _confirm(self) -> None:
        self.why = self.renew() or self.why
        if self.is_lost:
            raise self._superseded()

    def fence(self, db: sa.Connection) -> None:
        """Renew the lease as a part of a transaction, which is written only if the driver has it. Raises Superseded."""
        self._check_held()
        if not self.is_entered:
            return
        renewal = sa.update(STUDIES).where(self.is_owned)
        until = self.database.now(db) + LEASE_S
        if db.execute(renewal.values(lease_until=until)).rowcount == 0:
            self.is_lost = True
            raise self._superseded()

    def _superseded(self) -> Superseded:
        return Superseded(f"study {self.study}: {TAKEN}, while this one was paused; it has written nothing since")

    @property
    def is_owned(self) -> sa.ColumnElement[bool]:
        """SQL that is true of the study's row while `owner` has it."""
        return sa.and_(STUDIES.c.study == self.study, STUDIES.c.owner == self.owner)

    @retry_while_unavailable
    def acquire(self) -> None:
        """Make `owner` the one driver of the study, until `release`. Raises AlreadyExists if another one is."""
        study = self.study
        self.renewed = Clocks.now()  # before the database's time: the lease ends no sooner than this process counts
        with self.database.undamaged("a lease"), self.database.begin() as db:
            now = self.database.now(db)
            values = {"stop": False, "owner": self.owner, "lease_until": now + LEASE_S}
            row = db.execute(sa.select(STUDIES).filter_by(study=study)).mappings().first()
            if row is None:
                try:
                    db.execute(sa.insert(STUDIES).values(study=study, **values))
                except IntegrityError:
                    raise AlreadyExists(f"study {study} was just begun by another driver") from None
                return

            if row["owner"] != self.owner and is_live(row, now):
                raise AlreadyExists(
                    f"study {study} is already being run by {row['owner']} (host/process); stop it with "
                    f"adder-search stop {study} (if that process is gone, the study is free again in "
                    f"{row['lease_until'] - now:.0f} s)"
                )

            # The row is changed only if it is as it was read: another driver may have taken it since.
            as_read = (STUDIES.c[n].is_not_distinct_from(row[n]) for n in ("owner", "lease_until"))
            change = sa.update(STUDIES).where(STUDIES.c.study == study, *as_read).values(**values)
            if db.execute(change).rowcount != 1:
                raise AlreadyExists(f"study {study} was just taken by another driver")

    @retry_while_unavailable
    def release(self) -> None:
        """Give the study back. Does nothing to one that another driver has."""
        with self.database.begin() as db:
            update = sa.update(STUDIES).where(self.is_owned)
            freed = db.execute(update.values(owner=None, lease_until=None, stop=False)).rowcount
            self.is_lost = self.is_lost or not freed

    def renew(self) -> str | None:
        """Extend the leases of the study and of the owner's running seeds.

        Returns the reason for the driver to end, if there is one: it was asked to stop, or another one has the study.
        Does not wait for a database that is away.
        """
        running = sa.and_(ROWS.c.owner == self.owner, ROWS.c.outcome == Outcome.RUNNING)
        begun = Clocks.now()  # before the wait for the database
        with self.database.begin() as db:
            until = self.database.now(db) + LEASE_S
            renewal = sa.update(STUDIES).where(self.is_owned).values(lease_until=until)
            if db.execute(renewal).rowcount == 0:
                self.is_lost = True
                return TAKEN

            self.renewed = begun
            db.execute(sa.update(ROWS).where(running).values(lease_until=until))
            return STOPPED if db.scalar(sa.select(STUDIES.c.stop).where(self.is_owned)) else None

    def _keep_renewing(self) -> None:
        """Renew every RENEW_S seconds, and after any error try again: the lease has not ended yet."""
        logged = None
        while not self.ended.wait(RENEW_S):
            try:
                self.why = self.renew() or self.why
            except Failure:
                pass  # the database is away; the other threads say so
            except Exception as error:
                if repr(error) != logged:  # once: it may come again every RENEW_S seconds
                    log.warning("study %s: its hold could not be renewed: %r", self.study, error)
                logged = repr(error)


def driver_name() -> str:
    """Name this driver for its leases: machine, process, a number."""
    return f"{_machine()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"


def is_live(row: Any, now: float) -> bool:
    """True if the driver in a row (`owner`, `lease_until`) can still be there."""
    if row["owner"] is None or row["lease_until"] is None or row["lease_until"] < now:
        return False
    machine, pid, _ = row["owner"].split("/")
    return machine != _machine() or _is_alive(int(pid))


def _machine() -> str:
    """Name this start of this machine: no other machine, copy or container has this name.

    Beside the host's name it has a digest of the kernel's boot id (without one the network card's number), the
    machine's id, and the space of its process numbers: each container has one of its own.
    """
    boot = _text("/proc/sys/kernel/random/boot_id") or f"{uuid.getnode():x}"
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:  # no Linux
        space = 0
    ids = f"{boot} {_text('/etc/machine-id')} {space}"
    return f"{socket.gethostname()}.{hashlib.sha256(ids.encode()).hexdigest()[:12]}"


def _text(path: str) -> str:
    """Return a file's text, or nothing if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    """True if this machine has a process of this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        pass
    return True
