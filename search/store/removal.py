"""Taking a study out of a home: what it holds there, its deletion, and its archive, which is a home.

The ledger's rows go last: a deletion that was cut off is completed by the same one.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Experiment, ViewType
from mlflow.tracking._tracking_service.utils import _get_store

from model.fields import nearest
from search.carrying import delete_proposals, missing_of, newest, proposals_in
from search.errors import Failure, UserError
from search.store.hold import Hold, held
from search.holdings import FolderHome, Holding, difference, source_store, store_of
from search.store.home import Home
from search.store.ledger import Key, Ledger, Row, is_final
from search.merge import Merged, Source, merge
from search.study.schema import is_name
from search.store.tracking import answered, connect, is_local
from search.store.part import STATE
from trainer import Outcome, Seed

PAGE = 1_000
NAMED = 20
"""Grokked seeds that are named one by one."""
PACKED = (".tar.gz", ".tgz")


@dataclass(frozen=True)
class Contents:
    """All that a home has of a study."""

    home: Home
    study: str
    rows: list[Row]
    uri: str
    experiment: Experiment | None
    runs: list[str]
    optuna: dict[str, int]
    """Proposals of each of its Optuna studies."""
    artifact_bytes: int
    """Of the home; a server's are not counted."""
    states: int
    """Saved states of banks."""
    state_bytes: int

    @property
    def artifacts(self) -> Path:
        return self.home.artifacts / self.study

    @property
    def is_local(self) -> bool:
        return is_local(self.uri)


def contents(home: Home, ledger: Ledger, study: str) -> Contents:
    """What is there of a study. Raises UserError for one that the home does not know."""
    kept, rows = ledger.study(study), ledger.rows(study)
    uri = store_of(home, kept["tracking_uri"] if kept else None)
    client = connect(home, uri) if home.mlflow_db.exists() or not is_local(uri) else None
    with answered(uri):
        experiment = client.get_experiment_by_name(study) if client and is_name(study) else None
        if not is_name(study) or not (kept or rows or experiment):
            raise _unknown(home, ledger, client, study)
        runs = _runs(client, experiment) if client and experiment else []
    folder = home.trial(study, "")
    proposals = proposals_in(home, study)
    return Contents(
        home, study, rows, uri, experiment, runs, proposals,
        _bytes(home.artifacts / study), len(list(folder.glob(f"*/{STATE}"))), _bytes(folder),
    )  # fmt: skip


def _unknown(home: Home, ledger: Ledger, client: MlflowClient | None, study: str) -> UserError:
    known = {r["study"] for r in ledger.rows()}
    known |= {e.name for e in client.search_experiments() if e.name != "Default"} if client else set()
    hint = f"; {nearest(study, sorted(known))}" if known else ""
    return UserError(f"study {study!r} has no records in {home.path}{hint}")


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
    grokked = sorted({_seed(r) for r in found.rows if r["outcome"] == Outcome.GROKKED})
    if grokked:
        more = f" and {len(grokked) - NAMED} more" if len(grokked) > NAMED else ""
        lines.append(f"  grokked    {', '.join(map(str, grokked[:NAMED]))}{more}")
    where = "" if found.is_local else ", its artifacts on the server"
    lines.append(f"  MLflow     {len(found.runs)} runs{where}")
    if found.is_local:
        lines.append(f"  artifacts  {_size(found.artifact_bytes)}")
    lines.append(f"  banks      {found.states} saved states, {_size(found.state_bytes)}")
    if found.optuna:
        lines.append(f"  Optuna     {sum(found.optuna.values())} proposals")
    return "\n".join(lines)


def _seed(row: Row) -> Seed:
    return Seed(row["init_seed"], row["data_seed"])


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1_000:
            return f"{count:.3g} {unit}"
        count /= 1_000
    return f"{count:,.3g} GB"


def hold(ledger: Ledger, study: str) -> AbstractContextManager[Hold]:
    """Be a study's driver as it is. Raises UserError if another one is."""
    kept = ledger.study(study) or {"definition": None, "tracking_uri": None}
    return held(ledger, study, kept["definition"], kept["tracking_uri"])


def delete(found: Contents, ledger: Ledger) -> str:
    """Delete a study that is held. Returns what is left to be done elsewhere, if anything."""
    home, study, said = found.home, found.study, ""
    assert is_name(study)
    shutil.rmtree(home.trial(study, ""), ignore_errors=True)
    delete_proposals(home, study)
    if found.experiment is not None:
        with answered(found.uri):
            said = _forget(found) if found.is_local else _set_aside(found, found.experiment)
    if found.is_local:
        shutil.rmtree(found.artifacts, ignore_errors=True)
    ledger.forget(study)
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
    """Rename the experiment and delete it: a server's clients can do no more."""
    client, number = connect(found.home, found.uri), experiment.experiment_id
    if experiment.lifecycle_stage != "active":
        client.restore_experiment(number)
    name = f"{found.study} (deleted {time.strftime('%Y-%m-%d %H:%M:%S')}, {number})"
    client.rename_experiment(number, name)
    client.delete_experiment(number)
    return f"on the MLflow server it is now {name!r}, deleted; mlflow gc there frees its artifacts"


# ---- archives


def is_packed(path: Path) -> bool:
    return path.name.endswith(PACKED)


def archive(home: Home, ledger: Ledger, study: str, target: Path, scratch: Path) -> Merged:
    """Copy a study that is held into a home of its own, packed if the target's name says so.

    Whole or not at all. Raises UserError if something is there already, Failure if it reads back differently.
    """
    if target.exists() or target.is_symlink():
        raise UserError(f"{target}: exists; choose another name with -o")
    if not any(map(is_final, ledger.rows(study))):
        raise UserError(f"study {study} has no seed that ended: there is nothing to archive")
    target = target.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{target}: cannot write there ({error.strerror})") from None
    # Not elsewhere first: MLflow keeps absolute paths, and a folder's are to be its own.
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=".archive-")) if is_packed(target) else target
    inside = folder / study if is_packed(target) else folder
    fresh = target.with_name(target.name + ".new")
    try:
        (merged,) = merge([Source(home, ledger)], FolderHome(inside), [study], _new(scratch / "merge"))
        if is_packed(target):
            with tarfile.open(fresh, "w:gz") as packed:
                packed.add(inside, arcname=study)
        with opened(fresh if is_packed(target) else target) as read:
            _check(merged, home, ledger, FolderHome(read), scratch)
        if is_packed(target):
            fresh.replace(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        fresh.unlink(missing_ok=True)
        if is_packed(target):
            shutil.rmtree(folder, ignore_errors=True)
    return merged


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _check(merged: Merged, home: Home, ledger: Ledger, read: FolderHome, scratch: Path) -> None:
    """Compare an archive, read anew, with what it was made of."""
    study, its = merged.study.name, Ledger(read)
    kept = ledger.study(study)
    uri = store_of(home, kept["tracking_uri"] if kept else None)
    here = Holding(home, ledger, study, _new(scratch / "here"), uri)
    there = Holding(read, its, study, _new(scratch / "there"), source_store(read, None, study))
    same = here.rows.keys() == there.rows.keys() and all(is_final(r) for r in its.rows(study))
    same = same and all(_is_same(here, there, key) for key in here.rows)
    if merged.proposals:
        found = newest(read, study)
        same = same and not missing_of(merged.proposals, found.get_trials(deepcopy=False) if found else [])
    if not same:
        raise Failure(f"study {study}: the archive is not what is here; nothing was deleted")


def _is_same(here: Holding, there: Holding, key: Key) -> bool:
    """Whether an archive has a pair's result, and what the ledger says of it."""
    mine, its = here.rows[key], there.rows[key]
    as_said = its["published"] and its["confirmation"] == mine["confirmation"]
    as_often = its["verify_calls"] >= mine["verify_calls"]
    return bool(as_said and as_often and difference(here.result(key), there.result(key)) is None)


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """A home's folder, unpacked for a while if it is a packed one. Raises UserError if it is none."""
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise UserError(f"{path}: no such home")
    with tempfile.TemporaryDirectory(prefix="adder-search-") as scratch:
        try:
            with tarfile.open(path, "r:gz") as packed:
                need = sum(member.size for member in packed.getmembers())
                if need > shutil.disk_usage(scratch).free:
                    raise UserError(
                        f"{path}: unpacked it has {_size(need)}, more than {scratch} has room for"
                    )
                packed.extractall(scratch, filter="data")
        except (tarfile.TarError, EOFError, zlib.error) as error:
            line = re.sub(r"\s+", " ", str(error))
            raise UserError(f"{path}: is no home and no packed one ({line})") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be unpacked ({error.strerror or error})") from None
        folders = [Path(scratch), *(f for f in sorted(Path(scratch).iterdir()) if f.is_dir())]
        yield next((f for f in folders if FolderHome(f).records_db.is_file()), Path(scratch))
