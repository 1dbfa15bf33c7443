"""Drivers that have died, and drivers that want the same thing at one time."""

import contextlib
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from search.errors import AlreadyExists
from search.store import lease
from search.store.study_records import StudyRecords


def dead_owner() -> str:
    """Return an owner's name on this machine whose process has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return f"{lease._machine()}/{process.pid}/00000000"


def at_once(drivers: list[StudyRecords], take: Callable[[StudyRecords], object]) -> list[str]:
    """Call `take` with the records of all drivers at one time. Returns the owners that were not refused."""
    together = threading.Barrier(len(drivers))

    def run(records: StudyRecords) -> str | None:
        together.wait()
        with contextlib.suppress(AlreadyExists):
            take(records)
            return records.owner
        return None

    with ThreadPoolExecutor(len(drivers)) as threads:
        return list(filter(None, threads.map(run, drivers)))
