"""What holds of leases on every database: each check gets a home whose ledger is empty of its study."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from search.errors import UserError
from search.store import lease as hold
from search.store.database import STUDIES
from search.store.home import Home
from search.store.ledger import Ledger

ELSEWHERE = "elsewhere.0123456789ab/1/00000000"


def at_once(ledgers: list[Ledger], take: Callable[[Ledger], object]) -> list[str]:
    """Have them all do it at one time. Returns the owners of those that could."""
    together, won = threading.Barrier(len(ledgers)), []

    def run(ledger: Ledger) -> None:
        together.wait()
        with contextlib.suppress(UserError):
            take(ledger)
            won.append(ledger.owner)

    threads = [threading.Thread(target=run, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def left_over(home: Home, study: str, seconds: float) -> Ledger:
    """A lease of a driver on another machine that ended so many seconds ago."""
    other = Ledger(home)
    other.leases.owner = ELSEWHERE
    other.leases.acquire(study, {}, None)
    with other.database.begin() as db:
        values = {"lease_until": other.database.now(db) - seconds}
        db.execute(sa.update(STUDIES).where(STUDIES.c.study == study).values(**values))
    return other


def of_two_one_takes_over(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reads the lease that has ended, and then the first takes it."""
    left_over(home, "study", 1)
    first, second, look = Ledger(home), Ledger(home), hold.is_live

    def meanwhile(row: object, now: float) -> bool:
        monkeypatch.setattr(hold, "is_live", look)
        first.leases.acquire("study", {}, None)
        return look(row, now)

    monkeypatch.setattr(hold, "is_live", meanwhile)
    with pytest.raises(UserError, match="study study was just taken by another driver"):
        second.leases.acquire("study", {}, None)
    kept = second.get_study("study")
    assert kept and kept["owner"] == first.owner and first.leases.renew("study") is None


def of_many_one_takes_over(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    ledgers = [Ledger(home) for _ in range(6)]
    for n in range(5):
        other = left_over(home, f"study-{n}", 1)
        won = at_once(ledgers, lambda ledger, n=n: ledger.leases.acquire(f"study-{n}", {}, None))  # type: ignore[misc]
        kept = ledgers[0].get_study(f"study-{n}")
        assert kept and [kept["owner"]] == won
        assert other.leases.renew(f"study-{n}") == "another driver took the study over"


def time_is_the_databases(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is an hour ahead takes no live lease, and gives none that lasts an hour."""
    first, second, now = Ledger(home), Ledger(home), time.time
    first.leases.owner = ELSEWHERE
    first.leases.acquire("study", {}, None)
    monkeypatch.setattr(time, "time", lambda: now() + 3_600)
    with pytest.raises(UserError, match=r"already being run .* its hold ends in 1[12]\d s"):
        second.leases.acquire("study", {}, None)
    first.leases.renew("study")
    kept = second.get_study("study")
    assert kept and abs(kept["lease_until"] - now() - hold.LEASE_S) < 60


CHECKS = (of_two_one_takes_over, of_many_one_takes_over, time_is_the_databases)
