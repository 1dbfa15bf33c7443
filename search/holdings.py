"""What a home has of one study: the ledger's rows, and the parts with θ and curves that belong to them.

Reading is all that is done here. MLflow keeps absolute paths of artifacts, and a home that was copied or
unpacked has other ones: what is in the home itself goes first.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import torch
from mlflow import MlflowClient
from safetensors import SafetensorError

from search import worker
from search.database import is_live
from search.errors import Failure, UserError
from search.home import Home
from search.ledger import Key, Ledger, Row, is_final
from search.plan import Trial
from search.records import runs_of
from search.study import Study, is_name
from search.study_file import recorded_study
from search.tracking import (
    STUDY_JSON,
    STUDY_TAG,
    TRIALS,
    answered,
    connect,
    is_local,
    tracking_uri,
    trial_folders,
)
from search.worker import Part
from trainer import Outcome, Result, Seed

TRIAL_KEY, RUN_ID = re.compile(r"[0-9a-f]{12}"), re.compile(r"[0-9a-f]{32}")
UNREADABLE = (OSError, ValueError, TypeError, LookupError, AssertionError, RuntimeError, SafetensorError)
PARTS_AT_ONCE = 16
"""Parts of a study that are kept in memory; unit: parts."""


class FolderHome(Home):
    """A home whose records are all in its folder, whatever the environment says of servers.

    `name`: what messages call it, if that is not its path.
    """

    def __init__(self, folder: Path, name: Path | None = None):
        super().__init__(folder)
        self.name = str(name or self.path)

    @property
    def has_own_database(self) -> bool:
        return True

    @property
    def records_url(self) -> str:
        return f"sqlite:///{self.records_db}"


def name_of_home(home: Home) -> str:
    return home.name if isinstance(home, FolderHome) else str(home.path)


def store_of(home: Home, own: str | None) -> str:
    """Where MLflow has a study of a home. `own`: the study's tracking_uri."""
    return f"sqlite:///{home.mlflow_db}" if isinstance(home, FolderHome) else tracking_uri(home, own)


@contextlib.contextmanager
def readable(home: Home) -> Iterator[None]:
    """Whatever a home of others has in place of records, the user gets one line."""
    try:
        yield
    except UNREADABLE as error:
        line = " ".join(str(error).split())[:200]
        raise UserError(f"{name_of_home(home)}: cannot be read ({line or type(error).__name__})") from None


def studies_in(ledger: Ledger) -> list[str]:
    """The studies of which a home has rows. Raises UserError for a name that is none."""
    names = sorted({r["study"] for r in ledger.rows()})
    for name in names:
        if not is_name(name):
            raise UserError(f"{ledger.database.name}: {name!r} is no name of a study")
    return names


@dataclass(frozen=True)
class Place:
    """Where a part is kept, and whether that is MLflow and not yet a trial's folder."""

    folder: Path
    in_mlflow: bool


class Holding:
    """What a home has of one study; without a ledger, nothing. `scratch`: for the artifacts of a server.

    Raises Failure if its store does not answer, UserError if it is not there at all.
    """

    def __init__(self, home: Home, ledger: Ledger | None, study: str, scratch: Path, uri: str):
        self.home, self.study, self.scratch, self.uri = home, study, scratch, uri
        self.kept = ledger.study(study) if ledger else None
        rows = ledger.rows(study) if ledger else []
        self.rows = {key_of(r): r for r in map(_checked, rows) if is_final(r)}
        self.open = [r for r in rows if not is_final(r)]
        self.part = lru_cache(maxsize=PARTS_AT_ONCE)(self._part)
        self.results = lru_cache(maxsize=PARTS_AT_ONCE)(self._results)

    @property
    def name(self) -> str:
        return name_of_home(self.home)

    def runner(self, ledger: Ledger) -> str | None:
        """Who runs the study just now, other than the holder of this ledger."""
        owners = [(r["owner"], r["lease_until"]) for r in self.open]
        owners += [(self.kept["owner"], self.kept["lease_until"])] if self.kept else []
        return next((o for o, until in owners if o != ledger.owner and is_live(o, until)), None)

    @cached_property
    def client(self) -> MlflowClient:
        return connect(self.home, self.uri)

    @cached_property
    def definition(self) -> Study:
        """The study as it was last run. Raises UserError if nobody kept it."""
        known = self.kept["definition"] if self.kept else None
        if known is None and (known := self._written()) is None:
            raise UserError(f"study {self.study}: {self.name} does not say what it asked; run it there again")
        study = recorded_study(json.dumps(known), f"study {self.study}: {self.name}: definition")
        if study.name != self.study:
            raise UserError(f"study {self.study}: {self.name}: its definition is that of {study.name!r}")
        return study

    def _written(self) -> Any:
        """The definition as MLflow has it, or None."""
        with answered(self.uri):
            if (found := self.client.get_experiment_by_name(self.study)) is None:
                return None
            runs = self.client.search_runs([found.experiment_id], f"tags.`{STUDY_TAG}` = 'yes'")
            paths = [p for r in runs for p in self._artifacts(r, STUDY_JSON)]
            return json.loads(paths[0].read_text()) if paths else None

    @cached_property
    def places(self) -> dict[Key, Place]:
        """The part of every pair that has one."""
        found = {}
        for folder, in_mlflow in [*self._unpublished(), *self._published()]:
            try:
                trial = Trial.read(folder)
                found.update({(c.key, *_numbers(s)): Place(folder, in_mlflow) for c, s in trial.work})
            except UNREADABLE:  # torn; whoever needs its pairs will miss them
                continue
        return found

    def _unpublished(self) -> Iterator[tuple[Path, bool]]:
        """Results that wait in a trial's folder until MLflow has them."""
        for trial in sorted({r["trial"] for r in self.rows.values() if not r["published"]}):
            folder = self.home.trial(self.study, checked_trial(trial))
            if worker.has_results(folder):
                yield from ((f, False) for f in sorted((folder / worker.PARTS).iterdir()))

    def _published(self) -> Iterator[tuple[Path, bool]]:
        with answered(self.uri):
            if self.client.get_experiment_by_name(self.study) is None:
                return
            for run in runs_of(self.client, self.study):
                for folder in self._trials(run):
                    yield folder, True

    def _trials(self, run: Any) -> list[Path]:
        """The artifacts of a run's trials."""
        if not is_local(self.uri):
            return trial_folders(self.client, run, self.scratch)
        folders = [f for top in reversed(self._artifacts(run, TRIALS)) for f in top.iterdir()]
        return [by_name for _, by_name in sorted({f.name: f for f in folders}.items())]

    def _artifacts(self, run: Any, name: str) -> list[Path]:
        """Where an artifact of a run is: in the home, and where MLflow says, if that is somewhere else."""
        if not is_local(self.uri):
            there = {item.path for item in self.client.list_artifacts(run.info.run_id)}
            own = self.scratch / "own"
            own.mkdir(exist_ok=True)
            get = self.client.download_artifacts
            return [Path(get(run.info.run_id, name, str(own)))] if name in there else []
        if not RUN_ID.fullmatch(run.info.run_id):
            raise UserError(f"{self.name}: {run.info.run_id!r} is no run's id")
        recorded = urlparse(run.info.artifact_uri)
        paths = [self.home.artifacts / self.study / run.info.run_id / "artifacts" / name]
        paths += [Path(unquote(recorded.path)) / name] if recorded.scheme == "file" else []
        return [p for p in dict.fromkeys(paths) if p.exists()]

    def has(self, key: Key) -> bool:
        """Whether a pair is recorded with its θ, or will be by the study's next run here."""
        if (row := self.rows.get(key)) is None:
            return False
        place = self.places.get(key)
        return bool(row["published"]) or (place is not None and not place.in_mlflow)

    def _part(self, folder: Path) -> Part:
        try:
            part = Part.read(folder)
            wrong = {tuple(r.theta_P.shape) for r in part.results} - {(part.configuration.spec.params,)}
        except UNREADABLE as error:
            line = " ".join(str(error).split())[:200]
            raise Failure(f"{folder}: cannot be read ({line or type(error).__name__})") from None
        if wrong:
            raise Failure(f"{folder}: its θ is not that of {part.configuration.title}")
        return part

    def _results(self, folder: Path) -> dict[Seed, Result]:
        return {r.pair.seed: r for r in self.part(folder).results}

    def result(self, key: Key) -> Result:
        """What became of a pair. Raises Failure if its θ is not there, or not that of the ledger's row."""
        place, row = self.places.get(key), self.rows[key]
        what = f"{self.name}: study {self.study}: {named(key)}"
        if place is None:
            raise Failure(
                f"{what}: the ledger has it, its θ and curve are not there; run the study there once more, "
                "or copy the home whole, with mlflow.db and artifacts/"
            )
        found = self.results(place.folder)[Seed(*key[1:])]
        if (found.outcome, found.steps) != (row["outcome"], row["steps"]):
            raise Failure(f"{what}: ledger and MLflow disagree, {row['outcome']} and {found.outcome.value}")
        return found


def difference(one: Result, other: Result) -> str | None:
    """What is not the same in two results of a pair, None if nothing is: `{0}` and `{1}` in it are the homes.

    Speed and environment may differ.
    """
    for fact in worker.FACTS:
        mine, its = getattr(one, fact), getattr(other, fact)
        if mine != its and not (mine is not None and its is not None and mine != mine and its != its):
            return f"{fact} is {_plain(mine)} in {{0}} and {_plain(its)} in {{1}}"
    if not _same_bits(one.theta_P, other.theta_P):
        far = (one.theta_P - other.theta_P).abs()
        how = f"{int((far != 0).sum())} of {len(far)} numbers, by up to {far.max():.3g}"
        return f"θ differs in {how}, in {{0}} and {{1}}"
    if not _same_bits(one.curve_EM, other.curve_EM):
        return "the curves differ in {0} and {1}"
    return None


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.numpy().tobytes() == other.numpy().tobytes()


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _numbers(seed: Seed) -> tuple[int, int]:
    return seed.init_seed, seed.data_seed


NUMBERS, TEXTS = ("init_seed", "data_seed", "steps", "verify_calls"), ("configuration", "trial")
TRUTHS = ("confirmation", "published")


def _checked(row: Row) -> Row:
    """A row that may have been written by others. Raises ValueError for what no ledger writes."""
    wrong = [n for n in NUMBERS if not isinstance(row[n], int) or row[n] < 0]
    wrong += [n for n in TEXTS if not isinstance(row[n], str)]
    wrong += [n for n in TRUTHS if not isinstance(row[n], bool)]
    wrong += ["outcome"] if row["outcome"] not in set(Outcome) else []
    if wrong:
        raise ValueError(f"{wrong[0]} is {row[wrong[0]]!r}")
    return row


def key_of(row: Row) -> Key:
    return row["configuration"], row["init_seed"], row["data_seed"]


def named(key: Key) -> str:
    """A pair as messages call it."""
    return f"configuration {key[0]}, seed {Seed(*key[1:])}"


def checked_trial(key: str) -> str:
    """A trial's key, which names folders. Raises UserError for what is none."""
    if not TRIAL_KEY.fullmatch(key):
        raise UserError(f"{key!r} is no trial's key")
    return key


def source_store(home: FolderHome, own: str | None, study: str) -> str:
    """Where MLflow has a study of another home: its own server, the home's file, or the environment's server.

    Raises UserError if it is nowhere.
    """
    if own:
        return own
    server, uri = os.environ.get("MLFLOW_TRACKING_URI"), f"sqlite:///{home.mlflow_db}"
    if home.mlflow_db.exists() and home.mlflow_db.stat().st_size:  # an empty one MLflow would fill
        with answered(uri):
            if server is None or connect(home, uri).get_experiment_by_name(study) is not None:
                return uri
    if server is None:
        raise UserError(f"{home.path}: has a ledger and no mlflow.db; copy the home whole")
    return server
