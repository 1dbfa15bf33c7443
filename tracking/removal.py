"""What MLflow has of a study, and its removal.

Erased is only what is in the home. In a store elsewhere the experiment is renamed and deleted; in another home's it
stays.

This is the one file that uses private functions of MLflow. Its client can only mark an experiment as deleted,
which leaves its name taken. `mlflow gc` would erase it, but by these same functions, after it has deleted the
artifacts at whatever place each run names.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Experiment, ViewType
from mlflow.tracking._tracking_service.utils import _get_store
from rich.filesize import decimal

from search.store.home import Home
from search.store.study_records import StudyRecords
from tracking.store import STUDY_TAG, answered, connect, file_of, find_experiment
from trainer.files import durable

PAGE = 1_000


@dataclass(frozen=True)
class Contents:
    """All that MLflow has of a study."""

    records: StudyRecords
    uri: str
    experiment: Experiment | None
    runs: list[str]

    @property
    def artifacts(self) -> Path:
        """Folder of the study's artifacts, where they are in the home."""
        return self.records.home.artifacts / self.records.study

    @property
    def file(self) -> Path | None:
        """MLflow's store, where it is no server."""
        return file_of(self.uri)

    @property
    def is_in_home(self) -> bool:
        """True if the store is the home's."""
        return self.file == self.records.home.mlflow_db.resolve()

    @property
    def is_in_another_home(self) -> bool:
        """True if the store is another home's: there is a ledger beside it."""
        return self.file is not None and not self.is_in_home and Home(self.file.parent).ledger_db.exists()

    @property
    def lines(self) -> list[str]:
        """What a deletion would remove, in words."""
        where = "" if self.is_in_home else f" in {self.file}" if self.file else ", its artifacts on the server"
        where += ", another home's, where they stay" if self.is_in_another_home else ""
        lines = [f"  MLflow     {len(self.runs)} runs{where}"]
        if self.is_in_home:
            lines.append(f"  artifacts  {_size(self.artifacts)}")
        return lines

    def delete(self) -> str:
        """Delete it. Returns what remains to be done elsewhere, if anything."""
        remark = ""
        if self.experiment is not None:
            with answered(self.uri):
                if not self.is_in_another_home:
                    _delete_versions(self)
                remark = _erase(self, self.experiment) if self.is_in_home else _rename(self, self.experiment)
        if self.is_in_home:
            durable.remove_folder(self.artifacts)
        return remark


def contents(records: StudyRecords) -> Contents:
    home, study = records.home, records.study
    uri = home.tracking_uri
    file = file_of(uri)
    client = connect(home, uri) if file is None or file.exists() else None
    with answered(uri):
        experiment = find_experiment(client, study, records) if client else None
        runs = _runs(client, experiment) if client and experiment else []
    return Contents(records, uri, experiment, runs)


def _runs(client: MlflowClient, experiment: Experiment) -> list[str]:
    """List the ids of an experiment's runs, with child runs and deleted ones."""
    ids, token = [], None
    while True:
        page = client.search_runs([experiment.experiment_id], "", ViewType.ALL, PAGE, page_token=token)
        ids += [run.info.run_id for run in page]
        if not (token := page.token):
            return ids


def _size(folder: Path) -> str:
    return decimal(sum(f.lstat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink()))


def _delete_versions(found: Contents) -> None:
    """Delete the study's versions of the registered model of its name, and that model with the last of them."""
    client, name = connect(found.records.home, found.uri), found.records.study
    versions = client.search_model_versions(f"name = '{name}'")
    own = [v for v in versions if v.run_id in found.runs]
    for version in own:
        client.delete_model_version(name, version.version)
    if own and len(own) == len(versions):
        client.delete_registered_model(name)


def _erase(found: Contents, experiment: Experiment) -> str:
    """Remove the experiment from the home's store, so that its name is free."""
    store = _get_store(found.uri)
    while models := store.search_logged_models([experiment.experiment_id]):
        for model in models:
            store._hard_delete_logged_model(model.model_id)
    if experiment.lifecycle_stage == "active":
        store.delete_experiment(experiment.experiment_id)
    for run in found.runs:
        store._hard_delete_run(run)
    store._hard_delete_experiment(experiment.experiment_id)
    return ""


def _rename(found: Contents, experiment: Experiment) -> str:
    """Rename the experiment and delete it: clients can do no more. Another home's stays as it is."""
    if found.is_in_another_home:
        return f"its runs are in {found.file}, another home's, and stay there"
    client, number = connect(found.records.home, found.uri), experiment.experiment_id
    if experiment.lifecycle_stage != "active":
        client.restore_experiment(number)
    name = f"{found.records.study} (deleted {time.strftime('%Y-%m-%d %H:%M:%S')}, {number})"
    client.rename_experiment(number, name)
    client.set_experiment_tag(number, STUDY_TAG, "")  # the next study of that name is another one
    client.delete_experiment(number)
    where = f"in {found.file}" if found.file else "on the MLflow server"
    return f"{where} it is now {name!r}, deleted; mlflow gc there frees its artifacts"
