"""Drivers that have died, and drivers that want the same thing at one time."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable

from search.errors import AlreadyExists
from search.store import lease
from search.store.ledger import Ledger


def dead_owner() -> str:
    """Return an owner's name on this machine whose process has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return f"{lease._machine()}/{process.pid}/00000000"


def at_once(ledgers: list[Ledger], take: Callable[[Ledger], object]) -> list[str]:
    """Call `take` with all ledgers at one time. Returns the owners that were not refused."""
    together, owners = threading.Barrier(len(ledgers)), []

    def run(ledger: Ledger) -> None:
        together.wait()
        with contextlib.suppress(AlreadyExists):
            take(ledger)
            owners.append(ledger.owner)

    threads = [threading.Thread(target=run, args=(ledger,)) for ledger in ledgers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return owners
