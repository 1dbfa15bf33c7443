"""A home that real runs left, and what the commands say of it (data/recorded-home.*).

Ray and the program of 2026-11-28 made it (commit 8879b922; converted once to schema 7): six studies that ended, and
three that were interrupted or killed. Later programs read that home and cannot make it again: they would write their
own. `python -m tests.golden.recorded_home` records anew what is said of it, after a change that is meant to be seen.
"""

import hashlib
import json
import os
import shutil
import tarfile
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import optuna
import pandas as pd
import pyarrow.parquet as pq
import pytest

from search.store import verdicts
from tests import homes
from tests.commands import done
from tests.golden.make_golden import DATA, plain, text_of
from tests.in_process import without_ray
from trainer import Seed
from trainer.checkpoints.checkpoint import Checkpoint

ARCHIVE = DATA / "recorded-home.txz"
ANSWERS = DATA / "recorded-home.json"

ENDED = ("sweep", "adders", "search", "rope", "child", "descent")
UNFINISHED = ("cut", "killed", "cut-search")
NAMES = (*ENDED, *UNFINISHED)

# ---- what is said of it


@contextmanager
def by_its_user():
    """Be the user who made the home, whose own verdicts on all pairs are no mere claims."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verdicts, "_key", lambda is_made: b"the recorded home's, no secret!!")
        yield


def unpacked(folder):
    """Unpack the home into a folder and return its path there."""
    home = folder / "moved"
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(home, filter="data")
    homes.forget_places()
    return home


class Asked:
    """Commands about a home, called from a folder in which they may write."""

    def __init__(self, home, folder):
        self.home, self.folder = home, folder

    def said(self, *words):
        """Return the JSON that a command prints, without names of runs and paths."""
        answer = json.loads(done(*words, "--home", self.home))
        answer.pop("home", None) if isinstance(answer, dict) else None
        return plain(json.loads(json.dumps(answer).replace(str(self.home), "HOME")))

    def file(self, name, *words):
        """Return the file or folder that a command wrote."""
        done(*words, "-o", self.folder / name, "--home", self.home)
        return self.folder / name

    def rows(self, study, of):
        """Return a study's records as a JSON file has them."""
        return json.loads(self.file("rows.json", "records", study, "--of", of).read_text())

    def columns(self, study, of):
        """Return the columns of a study's records and their types in a Parquet file; a CSV file has the same."""
        schema = pq.read_schema(self.file("rows.parquet", "records", study, "--of", of))
        header = self.file("rows.csv", "records", study, "--of", of).read_text().partition("\n")[0]
        assert header.split(",") == schema.names
        return {column.name: str(column.type) for column in schema}

    def curves(self, study):
        """Return how many evaluations each seed of a study has, and a digest of all its measures and probes."""
        frame = pd.read_parquet(self.file("curves.parquet", "records", study, "--of", "curves"))
        seeds = frame.groupby(["configuration", "init_seed", "data_seed"]) if len(frame) else {}
        return {
            " ".join(map(str, seed)): [len(curve), digest(as_bits(curve.iloc[:, SEED_COLUMNS:]))]
            for seed, curve in seeds
        }

    def theta(self, row):
        """Return a digest of a recorded seed's θ, by the checkpoint that `pull` writes."""
        seed = str(Seed(row["init_seed"], row["data_seed"]))
        words = ("pull", row["study"], "--seed", seed, "--configuration", row["configuration"])
        folder = self.file("pulled", *words)
        bits = Checkpoint.load(folder).theta_P.numpy().tobytes()
        shutil.rmtree(folder)
        return digest(bits)

    def best(self, study):
        """Return what `pull --best` writes: JSON as it is, of other files a digest."""
        folder = self.file("best", "pull", study, "--best")
        files = {
            path.name: json.loads(path.read_text()) if path.suffix == ".json" else digest(path.read_bytes())
            for path in sorted(folder.iterdir())
        }
        shutil.rmtree(folder)
        return files


KEY = ("configuration", "init_seed", "data_seed")
SEED_COLUMNS = 4
"""Columns of a curve's frame that say whose it is."""
BY_MLFLOW = ("experiment_id", "run_id")
BY_MACHINE = ("trial", "core_s", "environment")
"""What a machine gives a seed, or how its run was cut up: not pinned of seeds that train on."""


def digest(bits):
    return hashlib.sha256(bits).hexdigest()[:16]


def as_bits(frame):
    return frame.to_numpy("float64").tobytes()


def name_of(row):
    return " ".join(str(row[name]) for name in ("configuration", "init_seed", "data_seed"))


def without(row, *names):
    return {name: value for name, value in row.items() if name not in names}


LATER = ("model.task", "recipe.grok_at", "recipe.stages")
"""Fields that there were not when the home was recorded."""


def configuration(row):
    """Return a configuration's row. All fields of its spec and recipe are one digest."""
    fields = {name: row[name] for name in row if name.startswith(("model.", "recipe."))}
    then = {name: value for name, value in fields.items() if name not in LATER}
    text = json.dumps(then, sort_keys=True)
    return without(row, *fields, *BY_MLFLOW) | {"fields": digest(text.encode())}


def searched(file):
    """Return the trials of a search as Optuna reads them."""
    storage = f"sqlite:///{file}"
    (name,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=name, storage=storage).trials
    return [{"params": t.params, "values": t.values, "state": t.state.name} for t in trials]


def thetas(asked, rows):
    return {name_of(row): asked.theta(row) for row in rows}


def the_first(rows):
    return rows[:1]


def about_study(asked, study, of=list):
    """Return what is recorded of a study. of: the seeds whose θ is pulled, of those that have a curve."""
    rows, curves = asked.rows(study, "seeds"), asked.curves(study)
    return {
        "status": without(asked.said("status", study, "--json"), "seeds", "running"),
        "configurations": [configuration(row) for row in asked.rows(study, "configurations")],
        "seeds": {name_of(row): without(row, "study", *KEY) for row in rows},
        "curves": curves,
        "thetas": thetas(asked, of([row for row in rows if name_of(row) in curves])),
    }


def about_home(asked):
    """Return what commands say of the home as a whole, and of what few studies have."""
    columns = {of: asked.columns("adders", of) for of in ("configurations", "seeds", "curves")}
    return {
        "status": asked.said("status", "--json"),
        "best": asked.said("best", "--json"),
        "best descent --lineage": asked.said("best", "descent", "--lineage", "--json"),
        "best child --lineage": asked.said("best", "child", "--lineage", "--json"),
        "table": asked.said("table", "--format", "json"),
        "columns": {of: [f"{name} {kind}" for name, kind in named.items()] for of, named in columns.items()},
        "searched": searched(asked.file("search.db", "records", "search")),
        **{f"pull {study} --best": asked.best(study) for study in ("adders", "descent", "search")},
    }


def go_on(asked):
    """Go on with the unfinished studies in this process, and return what has become of their seeds."""
    with without_ray(), homes.quickly():
        return {study: gone_on(asked, study) for study in UNFINISHED}


def gone_on(asked, study):
    """Go on with a study by its name. What a decoded seed would get is made up."""
    done("run", study, "--home", asked.home)
    rows = asked.rows(study, "seeds")
    return {
        "seeds": {name_of(row): without(row, "study", "verified", *KEY, *BY_MACHINE) for row in rows},
        "curves": asked.curves(study),
        "thetas": thetas(asked, rows),
    }


def answers():
    """Return all that is compared with the stored answers."""
    with TemporaryDirectory() as folder, by_its_user():
        asked = Asked(unpacked(Path(folder)), Path(folder))
        studies = {study: about_study(asked, study) for study in NAMES}
        said = {"home": about_home(asked), **studies}
        return said | {f"{study}, gone on with": was for study, was in go_on(asked).items()}


if __name__ == "__main__":
    os.environ["MKL_CBWR"] = "COMPATIBLE"  # as tests/conftest.py has it
    ANSWERS.write_text(text_of(answers()), "utf-8")
