"""Mirrors: where a study is shown while it runs and afterwards, as in MLflow (tracking/). The ledger alone decides.

A run tells each mirror what has changed. It never waits for one, but for a while at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from search.plugins import MIRRORS, loaded
from search.stats.record import SeedRecord
from search.store.home import Home
from search.store.study_records import StudyRecords
from search.study.schema import Study
from search.study.trial import Configuration


class Shown(Protocol):
    """One study in a mirror, while its driver runs."""

    name: str
    """What messages call the mirror."""

    @property
    def pending(self) -> int:
        """Number of writes that are still to be done."""

    @property
    def away(self) -> bool:
        """True if the mirror does not answer."""

    def note_training(self, configuration: Configuration) -> None:
        """Show that a configuration trains."""

    def note_curves(self, training: Callable[[], Iterable[Configuration]]) -> None:
        """Show curves so far, if it is time. training: returns the configurations that train."""

    def note_counts(self, configuration: Configuration, rows: Collection[SeedRecord]) -> None:
        """Show counts of a configuration of which seeds have ended. rows: all of its seeds."""

    def note_configuration(self, configuration: Configuration, is_done: bool) -> None:
        """Show all of a configuration. is_done: no more of it is planned; else its run was stopped."""

    def note_study(self) -> None:
        """Show what the whole study came to."""

    def drain(self, longest_s: float, away_s: float, tick: Callable[[int], bool]) -> int:
        """Wait until all is written, at most so many seconds, and `away_s` while the mirror is away.

        tick: gets the number of pending writes, and ends the wait by True. Returns how many are left.
        """

    def close(self) -> None:
        """Write nothing more."""


class Held(Protocol):
    """What a mirror has of a study, for its owner to delete."""

    lines: Sequence[str]
    """What it is, in words."""

    def delete(self) -> str:
        """Delete it. Returns what remains to be done elsewhere, if anything. The caller has the study's lease."""


class Mirror(Protocol):
    """A place that shows studies. A package with an object `BOARD` of these methods in adder_board.py has:

    [project.entry-points."adder_search.mirrors"]
    board = "adder_board:BOARD"
    """

    def check(self, home: Home) -> None:
        """Raise Failure if it cannot be written, before anything is begun."""

    def create(self, home: Home) -> None:
        """Make what it needs in a home, or elsewhere. Raises Failure."""

    def has(self, home: Home, study: str) -> bool:
        """True if it shows a study of this name."""

    def show(self, study: Study, records: StudyRecords) -> AbstractContextManager[Shown]:
        """Show a study whose lease is held, and what of it is not shown yet."""

    def held(self, records: StudyRecords) -> Held:
        """Return what it has of a study."""


def mirrors() -> list[Mirror]:
    return list(loaded(MIRRORS).values())
