"""Joining the records of several homes.

All is compared before anything is written. Rows come first, unpublished; they are published when MLflow has
their θ, curves and summaries. So a merge that died is completed by the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from optuna.trial import FrozenTrial

from search import worker
from search.carrying import carry, missing_of, newest, to_carry
from search.errors import Failure, UserError
from search.evidence import log_evidence
from search.hold import Hold, held
from search.holdings import (
    FolderHome,
    Holding,
    Place,
    checked_trial,
    difference,
    key_of,
    name_of_home,
    named,
    readable,
    source_store,
    store_of,
    studies_in,
)
from search.home import Home
from search.ledger import Key, Ledger, Row, is_final
from search.study import Study
from search.tracking import FINISHED, Tracker, is_local
from search.worker import Part
from trainer import Seed

OTHERWISE = "nothing was written. Merge into another home with --home, or leave one of the two out"
LATER = "KILLED"
"""The status of a run whose configuration has seeds that never ended."""


@dataclass(frozen=True)
class Source:
    """A home that is read, and its ledger."""

    home: Home
    ledger: Ledger


@dataclass(frozen=True)
class Piece:
    """What is taken of one configuration's part of a trial."""

    holding: Holding
    place: Place
    trial: str
    """Its name in the target, that of the artifact's folder and in the rows."""
    keys: tuple[Key, ...]

    def part(self) -> Part:
        whole = self.holding.part(self.place.folder)
        seeds = {Seed(*key[1:]) for key in self.keys}
        work = tuple((c, s) for c, s in whole.trial.work if s in seeds)
        mine = [r for r in whole.results if r.pair.seed in seeds]
        return Part(replace(whole.trial, work=work), mine, whole.about)


@dataclass
class Merged:
    """What a study gets, or got, from the homes."""

    study: Study
    target: Holding
    taken: dict[Key, Holding] = field(default_factory=dict)
    """Pairs that the target has not got, and whose they are."""
    same: dict[Key, int] = field(default_factory=dict)
    """Pairs that were there, and the most calls of `verify` that a source counted."""
    left: int = 0
    """Pairs of the sources that never ended."""
    proposals: list[FrozenTrial] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    @property
    def calls(self) -> dict[Key, int]:
        """How often `verify` was called at least for pairs that MLflow will have, where that is news."""
        found = {
            key: max(h.rows[key]["verify_calls"], self.same.get(key, 0)) for key, h in self.taken.items()
        }
        for key, calls in self.same.items():
            there = self.target.rows.get(key)
            if there and there["published"] and calls > there["verify_calls"]:
                found[key] = calls
        return found

    def rows(self) -> list[Row]:
        """The ledger's rows of what is taken."""
        return [p.holding.rows[k] | {"trial": p.trial} for p in self.pieces for k in p.keys]


def merge(sources: Sequence[Source], target: Home, only: Collection[str], scratch: Path) -> Iterator[Merged]:
    """Join the records of homes into the target, a study at a time. `only`: these studies; empty: all.

    Raises UserError before anything is written: for a pair with two results, for studies that cannot be one,
    and for a study that runs.
    """
    ledger = Ledger(target) if target.exists() else None
    with ExitStack() as open_:
        found, holds = [], {}
        for n, name in enumerate(_names(sources, only)):
            own = scratch / str(n)
            own.mkdir()
            if ledger and (kept := ledger.study(name)):  # nobody adds to it between this look and the writing
                hold = held(ledger, name, kept["definition"], kept["tracking_uri"])
                holds[name] = open_.enter_context(hold)
            found.append(_planned(name, _holdings(name, sources, own), target, ledger, own))
        if not found:
            return
        target.create()
        ledger = ledger or Ledger(target)
        for merged in found:
            if merged.taken or merged.proposals or merged.calls:
                name = merged.study.name
                _write(merged, ledger, holds.get(name) or open_.enter_context(_held(merged, ledger)))
            yield merged


def _names(sources: Sequence[Source], only: Collection[str]) -> list[str]:
    known: set[str] = set()
    for source in sources:
        with readable(source.home):
            known.update(studies_in(source.ledger))
    if unknown := sorted(set(only) - known):
        homes = ", ".join(name_of_home(s.home) for s in sources)
        raise UserError(f"study {unknown[0]!r} has no records in {homes}")
    return sorted(known.intersection(only) if only else known)


def _holdings(name: str, sources: Sequence[Source], scratch: Path) -> list[Holding]:
    """What each source has of a study. Raises UserError where it runs."""
    found = []
    for n, source in enumerate(sources):
        own = scratch / str(n)
        own.mkdir()
        with readable(source.home):
            if not source.ledger.rows(name):
                continue
            found.append(_holding(name, source, own))
            runner = found[-1].runner(source.ledger)
        if runner:
            home = name_of_home(source.home)
            raise UserError(
                f"study {name} is being run by {runner} in {home}; nothing was written. "
                f"Stop it with adder-search stop {name} --home {home}, or merge the others (--study)"
            )
    return found


def _holding(name: str, source: Source, scratch: Path) -> Holding:
    kept, home = source.ledger.study(name), source.home
    own = kept["tracking_uri"] if kept else None
    uri = source_store(home, own, name) if isinstance(home, FolderHome) else store_of(home, own)
    return Holding(home, source.ledger, name, scratch, uri)


def _planned(
    name: str, holdings: list[Holding], target: Home, ledger: Ledger | None, scratch: Path
) -> Merged:
    """What a study gets. Raises UserError for what cannot be joined."""
    kept = ledger.study(name) if ledger else None
    rows = ledger.rows(name) if ledger else []
    first = holdings[0].definition
    own = kept["tracking_uri"] if kept else first.tracking_uri
    there = Holding(target, ledger, name, scratch, store_of(target, own))
    merged = Merged(there.definition if kept or rows else first, there)
    if target.mlflow_db.exists() or not is_local(there.uri):
        experiment = there.client.get_experiment_by_name(name)
        if experiment and experiment.lifecycle_stage != "active":
            raise Failure(f"experiment {name} was deleted in MLflow: restore or rename it")
    _check_one_study(merged, holdings)
    for holding in holdings:
        _compare(merged, holding)
    if merged.study.space:
        _plan_proposals(merged, holdings)
    merged.pieces = _pieces(merged)
    return merged


def _check_one_study(merged: Merged, holdings: list[Holding]) -> None:
    """Raise UserError if a list is to be joined to a search, or confirmations to what was chosen by."""
    name = merged.study.name
    used: dict[bool, set[Seed]] = {False: set(), True: set()}
    for holding in [merged.target, *holdings]:
        for row in holding.rows.values():
            used[row["confirmation"]].add(Seed(row["init_seed"], row["data_seed"]))
    for holding in holdings:
        if bool(holding.definition.space) != bool(merged.study.space):
            kinds = ("a list of configurations", "a search")
            kind = kinds[bool(holding.definition.space)]
            raise UserError(f"study {name} is {kind} in {holding.name} and not in the others; {OTHERWISE}")
    if both := used[False] & used[True]:
        what = "confirmed in one home and was chosen by in another"
        raise UserError(f"study {name}: seed {min(both)} {what}; {OTHERWISE}")


def _compare(merged: Merged, holding: Holding) -> None:
    """Take what the target has not got. Raises UserError for a pair that is there with another result."""
    merged.left += len(holding.open)
    for key, row in holding.rows.items():
        there = merged.target if merged.target.has(key) else merged.taken.get(key)
        if there is None:
            holding.result(key)  # it is there, and can be read
            if half := merged.target.rows.get(key):
                _same_rows(merged, holding, row, half)
            merged.taken[key] = holding
            continue
        if row["confirmation"] != there.rows[key]["confirmation"]:
            _refuse(merged, key, "confirms in one of {0} and {1}, and not in the other", there, holding)
        if (found := difference(there.result(key), holding.result(key))) is not None:
            _refuse(merged, key, found, there, holding)
        merged.same[key] = max(merged.same.get(key, 0), row["verify_calls"])


def _same_rows(merged: Merged, holding: Holding, row: Row, half: Row) -> None:
    """Compare with a row of an earlier merge that has no θ yet."""
    for fact in worker.FACTS:
        if row[fact] != half[fact]:
            said = f"{fact} is {half[fact]} in {{0}} and {row[fact]} in {{1}}"
            _refuse(merged, key_of(row), said, merged.target, holding)


def _refuse(merged: Merged, key: Key, said: str, one: Holding, other: Holding) -> None:
    name = merged.study.name
    raise UserError(
        f"study {name}: {named(key)}: {said.format(one.name, other.name)}; {OTHERWISE}, or delete the study "
        f"in one of them (adder-search delete {name} --home HOME)"
    )


def _plan_proposals(merged: Merged, holdings: list[Holding]) -> None:
    study, target = merged.study, merged.target
    mine = newest(target.home, study.name) if target.home.exists() else None
    for holding in holdings:
        if (found := newest(holding.home, study.name)) is not None:
            there = [*(mine.get_trials(deepcopy=False) if mine else []), *merged.proposals]
            merged.proposals += missing_of(to_carry(study, holding.home, found, mine), there)


def _pieces(merged: Merged) -> list[Piece]:
    """What is taken, by the trials' parts that it is in."""
    groups: dict[tuple[str, Path, str | None], list[Key]] = {}
    for key, holding in merged.taken.items():
        begun = merged.target.rows.get(key)
        group = (holding.name, holding.places[key].folder, begun["trial"] if begun else None)
        groups.setdefault(group, []).append(key)
    used = {(k[0], r["trial"]) for k, r in merged.target.rows.items() if merged.target.has(k)}
    pieces = []
    for (_, _, half), keys in groups.items():
        holding = merged.taken[keys[0]]
        name = checked_trial(half or holding.rows[keys[0]]["trial"])
        piece = Piece(holding, holding.places[keys[0]], name, tuple(keys))
        if (keys[0][0], name) in used and not _is_there(merged, piece):  # other seeds of it are there
            piece = replace(piece, trial=piece.part().trial.key)
        used.add((keys[0][0], piece.trial))
        pieces.append(piece)
    return pieces


def _is_there(merged: Merged, piece: Piece) -> bool:
    """Whether both homes have their records on one server, which has the piece already."""
    return piece.place.in_mlflow and piece.holding.uri == merged.target.uri


def _held(merged: Merged, ledger: Ledger) -> AbstractContextManager[Hold]:
    """Be the driver of the target's study. Raises UserError if another one is."""
    study, kept = merged.study, merged.target.kept
    own = None if isinstance(merged.target.home, FolderHome) else study.tracking_uri
    definition = study.model_dump(mode="json", by_alias=True)
    return held(ledger, study.name, definition, kept["tracking_uri"] if kept else own)


def _write(merged: Merged, ledger: Ledger, hold: Hold) -> None:
    """Write what a study gets."""
    study, home = merged.study, merged.target.home
    ledger.adopt(study.name, merged.rows())
    if merged.proposals:
        carry(study, home, merged.proposals)
    if merged.taken:
        tracker = Tracker(merged.target.client, home, study)
        tracker.asked()
        by_configuration: dict[str, list[Piece]] = {}
        for piece in merged.pieces:
            by_configuration.setdefault(piece.keys[0][0], []).append(piece)
        for pieces in by_configuration.values():
            hold.check()
            _publish(merged, pieces, tracker, ledger)
        log_evidence(tracker, sum(map(is_final, ledger.rows(study.name))))
    ledger.settle(study.name, merged.calls)


def _publish(merged: Merged, pieces: list[Piece], tracker: Tracker, ledger: Ledger) -> None:
    """Write what a configuration gets to MLflow, and sum it up anew."""
    name = merged.study.name
    parts = [piece.part() for piece in pieces]
    configuration = parts[0].configuration
    rows = ledger.rows(name, configuration.key)
    tracker.counts(configuration, rows)
    for piece, part in zip(pieces, parts, strict=True):
        if not _is_there(merged, piece):
            tracker.trial(piece.trial, part)
    ledger.record_decoded(name, configuration.key, tracker.summary(configuration, rows))
    tracker.end(configuration, FINISHED if all(map(is_final, rows)) else LATER)
