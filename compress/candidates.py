"""Tie candidates: the sets of ties that a descent has tried, and those of a study in SQL beside the ledger.

A descent reads and writes them through `CandidateStore`. Those of a folder are in a file (compress/journal.py).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from search.analysis.lineage import Step
from search.stats.counting import pareto
from search.store.database import SETS, STARTS, retry_while_unavailable
from search.store.study_records import StudyRecords, Values
from search.study.start import ANY, InitialTheta
from search.study.trial import Configuration

FACTS = ("number", "round", "configuration", "parent", "reached", "wrong", "loss")
JUDGED = ("reached", "wrong", "loss", "kept")
"""The columns that are known once a candidate is judged."""


@dataclass(frozen=True)
class TieCandidate:
    """A set of ties of a base's entries.

    round: 0 for a start of the descent. parent: number of the candidate from whose θ it was trained. reached:
    its best exact match, None until it is judged. wrong: errors among the problems of acceptance, where they
    were counted. start: its θ [P of the base], if it was accepted. Only descents in a folder have companions
    (θ of the other starts on the same ties), data_seed, recipe, and is_finished (curvature took it there).
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
    companions: tuple[tuple[float, ...], ...] = ()
    data_seed: int | None = None
    recipe: Mapping[str, Any] | None = None
    is_finished: bool = False

    @property
    def numbers(self) -> int:
        """Number of different numbers that are left."""
        return max(map(abs, self.ties), default=0)

    @property
    def digest(self) -> str:
        """Name of the subspace that the ties reach."""
        return digest(self.ties)

    @property
    def thetas(self) -> tuple[tuple[float, ...], ...]:
        """θ [P of the base] of every start; none unless accepted."""
        return (self.start.thetas[ANY], *self.companions) if self.start else ()


@dataclass
class RoundCounters:
    """Counters of a descent's rounds.

    rounds: rounds that have ended. last_gain: the round in which the smallest accepted candidate last lost a
    number. batch_size: constraints to impose at once. expansions: rounds that went on from an accepted
    candidate, by its number. exhausted: candidates from which nothing is left to propose. tried: the exact
    match that a set reached, by its digest.
    """

    rounds: int = 0
    last_gain: int = 0
    batch_size: int = 8
    expansions: Counter[int] = field(default_factory=Counter)
    exhausted: set[int] = field(default_factory=set)
    tried: dict[str, float] = field(default_factory=dict)

    def note(self, digest: str, exact: float) -> None:
        """Keep the best exact match of a set."""
        self.tried[digest] = max(exact, self.tried.get(digest, 0.0))


class CandidateStore:
    """Where a descent keeps its candidates. By itself a store writes nothing and counts anew."""

    def read(self) -> list[TieCandidate]:
        """Return the candidates in the order in which they were proposed."""
        raise NotImplementedError

    def progress(self) -> RoundCounters:
        """Return the counters of the rounds that cannot be counted again from what `read` returns."""
        return RoundCounters()

    def propose(self, candidates: Sequence[TieCandidate], configurations: Sequence[Configuration] = ()) -> None:
        """Write a round before anything of it is trained, all of it or none."""

    def judge(self, candidate: TieCandidate) -> None:
        """Write what a candidate reached, and its θ if it was accepted."""

    def end_round(self, candidates: Sequence[TieCandidate], progress: RoundCounters) -> None:
        """Write what only a whole round has."""


class DatabaseCandidates(CandidateStore):
    """A study's candidates in SQL. Each is there as soon as it is proposed, so every round can be counted."""

    def __init__(self, records: StudyRecords):
        self.records, self.database, self.study = records, records.database, records.study

    @retry_while_unavailable
    def read(self) -> list[TieCandidate]:
        """Return the candidates in order. Raises Failure for a database that is damaged."""
        rows = self.database.read(sa.select(SETS).filter_by(study=self.study).order_by(SETS.c.number))
        columns = sa.select(STARTS.c.digest, STARTS.c.start).filter_by(study=self.study)
        starts = {r["digest"]: r["start"] for r in self.database.read(columns)} if rows else {}
        with self.database.undamaged("a set"):
            return [_candidate(row, starts) for row in rows]

    @retry_while_unavailable
    def propose(self, candidates: Sequence[TieCandidate], configurations: Sequence[Configuration] = ()) -> None:
        # in place of the same ones: the answer to a first attempt may have been lost
        again = SETS.c.number.in_([c.number for c in candidates])
        with self.records.writing() as db:
            self.records.insert_configurations(db, configurations)
            self.records.insert_starts(db, [c.start for c in candidates if c.start])
            db.execute(sa.delete(SETS).where(SETS.c.study == self.study, again))
            db.execute(sa.insert(SETS), [self._row(candidate) for candidate in candidates])

    @retry_while_unavailable
    def judge(self, candidate: TieCandidate) -> None:
        place = sa.and_(SETS.c.study == self.study, SETS.c.number == candidate.number)
        row = self._row(candidate)
        with self.records.writing() as db:
            self.records.insert_starts(db, [candidate.start] if candidate.start else [])
            db.execute(sa.update(SETS).where(place).values(**{name: row[name] for name in JUDGED}))

    def _row(self, candidate: TieCandidate) -> Values:
        return {name: getattr(candidate, name) for name in FACTS} | {
            "study": self.study,
            "ties": {"entries": list(candidate.ties)},
            "kept": candidate.start and candidate.start.digest,
        }


def _candidate(row: Values, starts: dict[str, Values]) -> TieCandidate:
    facts = {name: row[name] for name in FACTS}
    candidate = TieCandidate(**facts, ties=tuple(map(int, row["ties"]["entries"])))
    return replace(candidate, start=InitialTheta.of(starts[row["kept"]])) if row["kept"] else candidate


def digest(ties: tuple[int, ...]) -> str:
    """Return the name of a set of ties; sets that reach the same subspace are one."""
    return hashlib.sha256(json.dumps(ties).encode()).hexdigest()[:16]


def lineage_of(candidates: Sequence[TieCandidate], number: int) -> list[TieCandidate]:
    """Return a candidate's ancestors and itself, the oldest first."""
    line = [candidates[number]]
    while (parent := line[0].parent) is not None:
        line.insert(0, candidates[parent])
    return line


def lineages(candidates: Sequence[TieCandidate]) -> list[list[Step]]:
    """Return the recorded steps that led to the best accepted candidate of each size, the largest first."""
    best: dict[int, TieCandidate] = {}
    for candidate in sorted((c for c in candidates if c.start), key=lambda c: c.loss or 0.0):
        best.setdefault(candidate.numbers, candidate)
    return [_steps_of(candidates, candidate) for _, candidate in sorted(best.items(), reverse=True)]


def _steps_of(candidates: Sequence[TieCandidate], candidate: TieCandidate) -> list[Step]:
    """Return the steps to an accepted candidate, each with the number of candidates tried from it."""
    assert candidate.start
    steps = [dict(step) for step in candidate.start.lineage]
    line = lineage_of(candidates, candidate.number)
    last = steps[len(steps) - len(line) :] if len(line) <= len(steps) else []
    for step, ancestor in zip(last, line, strict=False):
        step["tried"] = sum(c.parent == ancestor.number and c.reached is not None for c in candidates)
    return steps


def smallest(candidates: Sequence[TieCandidate]) -> TieCandidate | None:
    """Return the accepted candidate with the fewest numbers, and among those with the lowest loss."""
    accepted = (c for c in candidates if c.start)
    return min(accepted, key=lambda c: (c.numbers, c.loss or 0.0), default=None)


def front(candidates: Sequence[TieCandidate]) -> list[TieCandidate]:
    """Return the Pareto front of what was judged, smallest first: numbers against exact match."""
    judged = sorted((c for c in candidates if c.reached is not None), key=lambda c: c.numbers)
    members = pareto([c.numbers for c in judged], [c.reached or 0.0 for c in judged])
    return [c for c, is_member in zip(judged, members, strict=True) if is_member]
