"""An MLflow store: connecting to it, the names in it, where its artifacts may be, and a fence before it."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from urllib.request import getproxies, proxy_bypass

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Experiment, Run, ViewType
from mlflow.exceptions import MlflowException
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from search.errors import Failure, UserError, masked, one_line
from search.store.home import FOREIGN, TRACKING, Home, missing, sqlite_url
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from trainer.files import durable

KEY_TAG, SEED_TAG, PARENT_TAG = "adder.configuration", "adder.seed", "mlflow.parentRunId"
OUTCOME_TAG = "adder.outcome"  # of a seed's run: what became of the seed, or that it trains
STUDY_TAG, BEST_TAG, SHOWN_TAG = "adder.study", "adder.best_seed", "adder.shown"
"""The first is a tag of the study's run, and of its experiment, which has the study's name there. The last says how
much of the ledger a run shows (tracking/projection.py)."""
LEDGER_TAG = "adder.ledger"  # of an experiment: the ledger whose study it shows; earlier versions gave none
ADDERBOARD = "adderboard"  # a child run's metric: right answers of AdderBoard's 10,010
RIGHT = "right"  # the same of another task: of the problems that verify it
BEST, CHECKPOINT = "best", "checkpoint"
CURVES_PNG, STUDY_JSON = "curves.png", "study.json"
RUNNING, FINISHED, KILLED, ACTIVE = "RUNNING", "FINISHED", "KILLED", "active"
LOCK_WAIT_S = 20.0
PORTS, ANSWER_S = {"http": 80, "https": 443}, 4.0
PLACES = (
    ("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"),
    ("model_versions", "storage_location"),
)  # fmt: skip
"""Tables and columns of MLflow's store with absolute paths of artifacts."""

log = logging.getLogger(__name__)

WRITING = ("create_", "log_", "set_", "update_", "delete_", "restore_", "finalize_")
"""How the names of MlflowClient's methods begin that change something."""


def is_local(uri: str) -> bool:
    """True if a store is a file and no server."""
    return uri.startswith("sqlite")


@contextmanager
def legible(uri: str) -> Iterator[None]:
    """Raise UserError where a block cannot read an address. An error's own words may have a part of a password."""
    try:
        yield
    except (ValueError, ArgumentError):
        raise UserError(f"{TRACKING}: {masked(uri)} is no address of an MLflow store") from None


def file_of(uri: str) -> Path | None:
    """Return the file of a store that is no server. Raises UserError for what is no address."""
    with legible(uri):
        name = make_url(uri).database if is_local(uri) else None
    return Path(name).resolve() if name else None


def connect(home: Home, uri: str = "", creates: bool = False) -> MlflowClient:
    """Return a client of a store, the home's own if none is named, that has been answered once.

    creates: make the home's store if it has none. Raises Failure if the store is missing, locked or away, and UserError
    for what is no address.
    """
    uri = uri or home.tracking_uri
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # it raises what it logs
    logging.getLogger("alembic").setLevel(logging.ERROR)
    _require_listener(uri)
    file = file_of(uri)
    is_own = file == home.mlflow_db.resolve()
    with answered(uri):
        if is_own and creates:
            _create_store(home)
        if file and not (file.exists() or creates):
            raise Failure(missing(file))
        if file and is_own:
            _relocate_artifacts(home, file)
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)
    return client


def _require_listener(uri: str) -> None:
    """Raise Failure if nobody listens at a server's address: MLflow's own tries take half a minute.

    Raises UserError for what is no address.
    """
    with legible(uri):
        place = urlparse(uri)
        port = PORTS.get(place.scheme) and (place.port or PORTS[place.scheme])
        if not port or not place.hostname:
            return
        if getproxies().keys() - {"no"} and not proxy_bypass(place.hostname):
            return  # a proxy is asked
        try:
            socket.create_connection((place.hostname, port), ANSWER_S).close()
        except OSError as error:
            why = error.strerror or str(error) or "no answer"
            raise Failure(f"MLflow store {masked(uri)}: is away ({why})") from None


def _create_store(home: Home) -> None:
    """Create the home's store, whole or not at all.

    MLflow does it by migrations, and SQLite cannot roll one back: a store that was cut off would stay broken.
    """
    if home.mlflow_db.exists():
        return
    with FileLock(home.path / "mlflow.lock"):
        if home.mlflow_db.exists():  # made meanwhile
            return
        for half in home.path.glob("mlflow-*.new"):
            half.unlink()
        fresh = home.path / f"mlflow-{uuid.uuid4().hex}.new"  # MLflow knows a store by its name for ever
        MlflowClient(tracking_uri=sqlite_url(fresh)).search_experiments(max_results=1)
        durable.move_in(fresh, home.mlflow_db)


def _relocate_artifacts(home: Home, file: Path) -> None:
    """Point MLflow to a home's artifacts where the home is now: it keeps absolute paths.

    file: the store. Raises Failure while a study is run: its driver has the home at another place, as
    a container may.
    """
    here = home.artifacts.as_uri()
    with closing(sqlite3.connect(file, timeout=LOCK_WAIT_S)) as db, db:
        if thing := db.execute(FOREIGN).fetchone():
            raise Failure(f"{home.mlflow_db}: has {thing[0]!r:.80}, which is no table: no store of MLflow's")
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'experiments'").fetchone():
            return
        tag = "(SELECT value FROM experiment_tags t WHERE t.experiment_id = e.experiment_id AND key = '{}')"
        columns = f"coalesce({tag.format(STUDY_TAG)}, name), artifact_location, {tag.format(LEDGER_TAG)}"
        rows = db.execute(f"SELECT {columns} FROM experiments e WHERE artifact_location LIKE 'file:%'").fetchall()
        places = {(place, whose) for name, place, whose in rows if place.endswith(f"/artifacts/{name}")}
        for old, whose in {(place.rpartition("/")[0], whose) for place, whose in places}:
            if old == here:
                continue
            ledger = Ledger(home) if home.exists() else None
            if ledger and whose not in (None, ledger.database.identity):
                continue  # another home's, which are where that one is
            if ledger and (running := ledger.list_running_studies()):
                where = unquote(urlparse(old).path.removesuffix("/artifacts"))
                raise Failure(f"{home.path}: {', '.join(running)} is being run, with this home as {where}")
            for table, column in PLACES:
                if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
                    continue  # of a later MLflow
                there = f"substr({column}, 1, {len(old) + 1}) = ?"
                moved = f"UPDATE {table} SET {column} = ? || substr({column}, {len(old) + 1}) WHERE {there}"
                db.execute(moved, (here, f"{old}/"))


@contextmanager
def answered(uri: str) -> Iterator[None]:
    """Re-raise whatever the store at `uri` raises as a Failure of one line, with no password in it."""
    try:
        yield
    except (Failure, UserError):
        raise
    except Exception as error:
        raise Failure(f"MLflow store {masked(uri)}: {one_line(error)}") from None


def find_experiment(
    client: MlflowClient | FencedClient, study: str, records: StudyRecords | None = None
) -> Experiment | None:
    """Return a study's experiment, whatever it is called by now, a deleted one too; None if the store has none.

    records: the study's. Another ledger's experiment is none of theirs. Without records any is the study's.
    Raises Failure where another study's has the name.
    """
    found = [*client.search_experiments(ViewType.ALL, filter_string=f"tags.`{STUDY_TAG}` = '{study}'")]
    named = None if found else client.get_experiment_by_name(study)
    if named:
        found = [named]
        if other := named.tags.get(STUDY_TAG):
            raise Failure(
                f"MLflow's experiment {study} is that of study {other}, renamed: give it its name back, or run this "
                "study with --fresh"
            )
    if records and records.database.identity:
        found = [each for each in found if _is_own(client, each, records)]
    # Of those that are as good, one that the ledger has named: others may be those of an earlier version.
    return min(
        found,
        key=lambda e: (LEDGER_TAG not in e.tags, e.lifecycle_stage != ACTIVE, e.name != study),
        default=None,
    )


def _is_own(client: MlflowClient | FencedClient, experiment: Experiment, records: StudyRecords) -> bool:
    """True if an experiment lies in the records' home, names their ledger, or names none and shows their runs."""
    if experiment.artifact_location == (records.home.artifacts / records.study).as_uri():
        return True  # be it of a ledger that was lost
    if ledger := experiment.tags.get(LEDGER_TAG):
        return bool(ledger == records.database.identity)

    def shows(run: str) -> bool:
        with suppress(MlflowException):  # not there: of another store, where experiments have the same numbers
            return bool(client.get_run(run).info.experiment_id == experiment.experiment_id)
        return False

    return any(number == experiment.experiment_id and shows(run) for number, run in records.list_runs().values())


def open_experiment(
    client: MlflowClient | FencedClient,
    home: Home,
    study: str,
    records: StudyRecords | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Return the id of a study's experiment: the one that it has, restored if it was deleted, or a new one.

    records: as for `find_experiment`. tags: of a new one, which says whose it is where the name is taken.
    """
    ledger = records.database.identity if records else ""
    own = {STUDY_TAG: study} | ({LEDGER_TAG: ledger} if ledger else {})
    existing = find_experiment(client, study, records)
    if existing and _take_over(client, study, existing, own):
        return str(existing.experiment_id)
    name = study
    if client.get_experiment_by_name(study):
        name += f" ({socket.gethostname()} {ledger[:6]})"
        log.warning("study %s: MLflow shows another ledger's study by this name, and this one as %s", study, name)
    location = (home.artifacts / study).as_uri() if is_local(client.tracking_uri) else None
    return str(client.create_experiment(name, location, {**own, **(tags or {})}))


def _take_over(client: MlflowClient | FencedClient, study: str, existing: Experiment, tags: Mapping[str, str]) -> bool:
    """Restore a study's experiment, if it was deleted, and give it its tags. False where this user may only read it."""
    try:
        if existing.lifecycle_stage != ACTIVE:
            client.restore_experiment(existing.experiment_id)
            log.warning("study %s: its experiment was deleted in MLflow, and is restored", study)
        for tag, text in tags.items():
            if existing.tags.get(tag) != text:
                client.set_experiment_tag(existing.experiment_id, tag, text)
    except MlflowException as error:
        if error.error_code != "PERMISSION_DENIED":
            raise
        return False
    return True


ELSEWHERE = ("", "file", "http", "https", "ftp", "sftp")
"""URL schemes that a server may not name as its place of artifacts: on this machine, or at a stranger's."""


def check_place(client: MlflowClient, home: Home, run: Run) -> None:
    """Raise Failure for a run whose artifacts are not where its store has them: a local one in the home, a
    server with itself or in an object store. MLflow would read, write and send passwords anywhere else too.
    """
    try:
        check_uri(client, home, run.info.artifact_uri)
    except Failure as error:
        raise Failure(f"run {run.info.run_id} {error}") from None


def check_uri(client: MlflowClient, home: Home, location: str) -> None:
    """Raise Failure for a place of artifacts that is none of the store's."""
    uri, place = client.tracking_uri, urlparse(location)
    if is_local(uri):
        path = Path(unquote(place.path)).resolve()
        is_right = place.scheme == "file" and path.is_relative_to(home.artifacts.resolve())
    elif uri.startswith("http"):
        is_right = place.scheme not in ELSEWHERE
        if place.scheme == "mlflow-artifacts":
            is_right = place.netloc in ("", urlparse(uri).netloc.rpartition("@")[2])
    else:
        return  # a database of the user's own
    if not is_right:
        raise Failure("has its artifacts " + masked(f"in {location:.200}, which is no place of {uri}"))


WRITING_ARTIFACTS = ("log_artifact", "log_artifacts", "log_dict", "log_model_artifacts")


class FencedClient:
    """An MlflowClient that calls `verify` before each call that changes something: MLflow has no fence of its own.

    Artifacts are on disk when a call returns, if the store is a file: else a power cut could take them and leave the
    tag by which the next driver takes them to be there.
    """

    def __init__(self, client: MlflowClient, verify: Callable[[], object]):
        self._client, self._verify = client, verify

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        if not name.startswith(WRITING):
            return call

        @wraps(call)
        def fenced(*args: Any, **options: Any) -> Any:
            self._verify()
            done = call(*args, **options)
            if name in WRITING_ARTIFACTS and is_local(self._client.tracking_uri):
                durable.sync(self._folder(name, args[0]), above=4)  # MLflow may have made four folders
            return done

        return fenced

    def _folder(self, call: str, written: str) -> Path:
        """Return where the artifacts are that a call has written. written: the id of their run, or of their model."""
        if call == "log_model_artifacts":
            location = self._client.get_logged_model(written).artifact_location
        else:
            location = self._client.get_run(written).info.artifact_uri
        return Path(unquote(urlparse(location).path))
