"""Taking a study out of a home: what it holds there, and its deletion.

The ledger's rows go last: a deletion that was cut off is completed by the same one. Erased is only what is in
the home. In a store elsewhere the experiment is set aside, and in another home's it stays as it is.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Experiment, ViewType
from mlflow.tracking._tracking_service.utils import _get_store

from search.stats.counting import seed_of
from search.store.home import Home
from search.store.lease import StudyLease, acquire_study_lease
from search.store.ledger import Ledger, Row
from search.store.results import STATE
from search.study.schema import is_name
from search.tracking.optuna_mirror import delete_mirror
from search.tracking.tracking import answered, connect, file_of, tracking_uri
from trainer import Outcome

PAGE = 1_000
NAMED = 20
"""Grokked seeds that are named one by one."""


@dataclass(frozen=True)
class Contents:
    """All that a home has of a study."""

    home: Home
    study: str
    rows: list[Row]
    uri: str
    experiment: Experiment | None
    runs: list[str]
    proposals: int
    artifact_bytes: int
    """Of the home; a server's are not counted."""
    states: int
    """Saved states of banks."""
    state_bytes: int

    @property
    def artifacts(self) -> Path:
        return self.home.artifacts / self.study

    @property
    def file(self) -> Path | None:
        """MLflow's store, where it is no server."""
        return file_of(self.uri)

    @property
    def is_own(self) -> bool:
        """Whether it is the home's."""
        return self.file == self.home.mlflow_db.resolve()

    @property
    def is_anothers(self) -> bool:
        """Whether it is another home's: there is a ledger beside it."""
        return self.file is not None and not self.is_own and Home(self.file.parent).ledger_db.exists()


def contents(home: Home, ledger: Ledger, study: str) -> Contents:
    """What is there of a study. Raises UserError for one that the home does not know."""
    ledger.require_study(study)
    kept, rows = ledger.get_study(study), ledger.list_seeds(study)
    uri = tracking_uri(home, kept["tracking_uri"] if kept else None)
    file = file_of(uri)
    client = connect(home, uri) if file is None or file.exists() else None
    with answered(uri):
        experiment = client.get_experiment_by_name(study) if client else None
        runs = _runs(client, experiment) if client and experiment else []
    folder = home.trial(study, "")
    return Contents(
        home, study, rows, uri, experiment, runs, len(ledger.list_proposals(study)),
        _bytes(home.artifacts / study), len(list(folder.glob(f"*/{STATE}"))), _bytes(folder),
    )  # fmt: skip


def _runs(client: MlflowClient, experiment: Experiment) -> list[str]:
    """The ids of an experiment's runs, child runs and deleted ones with them."""
    found, token = [], None
    while True:
        page = client.search_runs([experiment.experiment_id], "", ViewType.ALL, PAGE, page_token=token)
        found += [run.info.run_id for run in page]
        token = page.token
        if not token:
            return found


def _bytes(folder: Path) -> int:
    return sum(f.lstat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())


def shown(found: Contents) -> str:
    """What goes with a study, for its owner to decide by."""
    counts = Counter(r["outcome"] for r in found.rows)
    outcomes = ", ".join(f"{counts[o]} {o}" for o in Outcome if counts[o])
    lines = [f"{found.study} in {found.home.path}", f"  seeds      {len(found.rows)} ({outcomes or 'none'})"]
    grokked = sorted({seed_of(r) for r in found.rows if r["outcome"] == Outcome.GROKKED})
    if grokked:
        more = f" and {len(grokked) - NAMED} more" if len(grokked) > NAMED else ""
        lines.append(f"  grokked    {', '.join(map(str, grokked[:NAMED]))}{more}")
    where = "" if found.is_own else f" in {found.file}" if found.file else ", its artifacts on the server"
    where += ", another home's, where they stay" if found.is_anothers else ""
    lines.append(f"  MLflow     {len(found.runs)} runs{where}")
    if found.is_own:
        lines.append(f"  artifacts  {_size(found.artifact_bytes)}")
    lines.append(f"  banks      {found.states} saved states, {_size(found.state_bytes)}")
    if found.proposals:
        lines.append(f"  Optuna     {found.proposals} proposals")
    return "\n".join(lines)


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1_000:
            return f"{count:.3g} {unit}"
        count /= 1_000
    return f"{count:,.3g} GB"


def hold(ledger: Ledger, study: str) -> AbstractContextManager[StudyLease]:
    """Be a study's driver as it is. Raises UserError if another one is."""
    kept = ledger.get_study(study) or {"definition": None, "tracking_uri": None}
    return acquire_study_lease(ledger, study, kept["definition"], kept["tracking_uri"])


def delete(found: Contents, ledger: Ledger) -> str:
    """Delete a study that is held. Returns what is left to be done elsewhere, if anything."""
    home, study, said = found.home, found.study, ""
    assert is_name(study)
    for folder in (home.trial(study, ""), home.damaged(study, "")):
        shutil.rmtree(folder, ignore_errors=True)
    home.depot.remove(home.trial(study, ""))
    delete_mirror(home, study)
    if found.experiment is not None:
        with answered(found.uri):
            said = _forget(found) if found.is_own else _set_aside(found, found.experiment)
    if found.is_own:
        shutil.rmtree(found.artifacts, ignore_errors=True)
    ledger.delete_study(study)
    return said


def _forget(found: Contents) -> str:
    """Remove the experiment from the home's store, as `mlflow gc` does, so that its name is free."""
    assert found.experiment is not None
    number, store = found.experiment.experiment_id, _get_store(found.uri)
    if found.experiment.lifecycle_stage == "active":
        store.delete_experiment(number)
    for run in found.runs:
        store._hard_delete_run(run)
    store._hard_delete_experiment(number)
    return ""


def _set_aside(found: Contents, experiment: Experiment) -> str:
    """Rename the experiment and delete it: clients can do no more. Another home's stays as it is."""
    if found.is_anothers:
        return f"its runs are in {found.file}, another home's, and stay there"
    client, number = connect(found.home, found.uri), experiment.experiment_id
    if experiment.lifecycle_stage != "active":
        client.restore_experiment(number)
    name = f"{found.study} (deleted {time.strftime('%Y-%m-%d %H:%M:%S')}, {number})"
    client.rename_experiment(number, name)
    client.delete_experiment(number)
    where = f"in {found.file}" if found.file else "on the MLflow server"
    return f"{where} it is now {name!r}, deleted; mlflow gc there frees its artifacts"
