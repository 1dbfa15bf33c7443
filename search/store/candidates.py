"""The sets of ties that a study has tried, in SQL beside the ledger: what was proposed from what, what it
reached, and the θ of those that were kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from search.errors import Failure, reraise_as
from search.stats.counting import Row
from search.store.database import SETS, STARTS, retry_while_unavailable
from search.store.ledger import Ledger
from search.study.start import InitialTheta
from search.study.trial import Configuration


@dataclass(frozen=True)
class TieCandidate:
    """A set of ties of a base's entries. `parent`: the number of the set that it was trained from.
    `reached`: its best exact match, None until all of its seeds have ended. `start`: its θ [P of the
    base], if it was kept.
    """

    number: int
    round: int
    ties: tuple[int, ...]
    configuration: str | None = None
    parent: int | None = None
    reached: float | None = None
    wrong: int | None = None
    loss: float | None = None
    start: InitialTheta | None = None

    @property
    def numbers(self) -> int:
        """How many numbers are left."""
        return max(map(abs, self.ties), default=0)


class CandidateStore:
    """A study's sets, in the order in which they were proposed."""

    def __init__(self, ledger: Ledger, study: str):
        self.ledger, self.database, self.study = ledger, ledger.database, study

    @retry_while_unavailable
    def read(self) -> list[TieCandidate]:
        """All of them. Raises Failure for a database that is damaged."""
        rows = self.database.read(sa.select(SETS).where(SETS.c.study == self.study).order_by(SETS.c.number))
        wanted = sa.select(STARTS.c.digest, STARTS.c.start).where(STARTS.c.study == self.study)
        starts = {r["digest"]: r["start"] for r in self.database.read(wanted)} if rows else {}
        with reraise_as(
            f"{self.database.name}: damaged, a set", (TypeError, ValueError, LookupError), Failure
        ):
            return [_tried(row, starts) for row in rows]

    @retry_while_unavailable
    def propose(self, sets: Sequence[tuple[TieCandidate, Configuration | None]]) -> None:
        """Write a round before anything of it is trained, all of it or none."""
        configurations = [c for _, c in sets if c]
        starts = [t.start for t, _ in sets if t.start]
        with self.database.begin() as db:
            self.ledger.insert_configurations(db, self.study, configurations)
            self.ledger.insert_starts(db, self.study, starts)
            db.execute(sa.insert(SETS), [self._row(tried) for tried, _ in sets])

    @retry_while_unavailable
    def judge(self, tried: TieCandidate) -> None:
        """Write what a set reached, and its θ if it is kept."""
        place = sa.and_(SETS.c.study == self.study, SETS.c.number == tried.number)
        row = self._row(tried)
        with self.database.begin() as db:
            self.ledger.insert_starts(db, self.study, [tried.start] if tried.start else [])
            values = {name: row[name] for name in ("reached", "wrong", "loss", "kept")}
            db.execute(sa.update(SETS).where(place).values(**values))

    def _row(self, tried: TieCandidate) -> Row:
        return {
            "study": self.study,
            "number": tried.number,
            "round": tried.round,
            "configuration": tried.configuration,
            "parent": tried.parent,
            "ties": {"entries": list(tried.ties)},
            "reached": tried.reached,
            "wrong": tried.wrong,
            "loss": tried.loss,
            "kept": tried.start and tried.start.digest,
        }


def _tried(row: Row, starts: dict[str, Row]) -> TieCandidate:
    names = ("number", "round", "configuration", "parent", "reached", "wrong", "loss")
    tried = TieCandidate(**{name: row[name] for name in names}, ties=tuple(map(int, row["ties"]["entries"])))
    return replace(tried, start=InitialTheta.of(starts[row["kept"]])) if row["kept"] else tried


def lineage_of(sets: Sequence[TieCandidate], number: int) -> list[TieCandidate]:
    """A set's ancestors and itself, the oldest first."""
    line = [sets[number]]
    while (parent := line[0].parent) is not None:
        line.insert(0, sets[parent])
    return line


def smallest(sets: Sequence[TieCandidate]) -> TieCandidate | None:
    """The kept set with the fewest numbers, and among those the lowest loss."""
    return min((t for t in sets if t.start), key=lambda t: (t.numbers, t.loss or 0.0), default=None)


def front(sets: Sequence[TieCandidate]) -> list[TieCandidate]:
    """The sets of which no smaller or equally small one reached as much: numbers against exact match."""
    judged = sorted((t for t in sets if t.reached is not None), key=lambda t: (t.numbers, -(t.reached or 0)))
    found: list[TieCandidate] = []
    for tried in judged:
        if not found or (tried.reached or 0) > (found[-1].reached or 0):
            found.append(tried)
    return found
