"""Servers without Ray: a search whose records PostgreSQL has, strangers at its door.

MLflow's own server and Ray nodes: test_cluster.py.
"""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from search.store.home import Home
from search.tracking.tracking import artifact
from tests.commands import call
from tests.reference import check_whole, environment, expected, write_study
from tests.scenarios.studies import GRID, SHORT
from tests.services import postgres

pytestmark = pytest.mark.usefixtures("few_selection_problems", "no_ray", "quick", "here")


@pytest.fixture(scope="module")
def database():
    with postgres() as server:
        yield server


def known(database):
    """The environment that a driver needs."""
    return database.environment() | {"ADDER_SEARCH_DATABASE": database.url("optuna")}


def test_a_search_on_postgresql_has_its_records_there(database, here):
    """And no password in any file."""
    home = here / "home"
    with environment(known(database)):
        said = call("run", write_study(here, GRID), "--home", home)
        assert said.exit_code == 0, said.output
        check_whole(home, GRID, here, expected(GRID))
    assert [f.name for f in home.rglob("*.db")] == ["mlflow.db"]
    texts = [said.output, *(f.read_bytes().decode("latin-1") for f in home.rglob("*") if f.is_file())]
    assert not [text for text in texts if database.password in text], "the password was kept"


# ---- strangers


@pytest.mark.parametrize(
    ("changes", "code", "word"),
    [
        ({"PGPASSFILE": "nowhere"}, 1, "no password supplied"),
        ({"ADDER_SEARCH_DATABASE": "postgresql+psycopg://adder:{secret}@127.0.0.1/optuna"}, 2, "PGPASSFILE"),
    ],
)
def test_a_run_without_the_password_is_one_line(changes, code, word, database, here):
    file, secret = write_study(Path(), SHORT), database.password
    with environment(known(database) | {k: v.format(secret=secret) for k, v in changes.items()}):
        said = call("run", file, "--home", "home")
    assert said.exit_code == code, said.output
    assert said.stderr.startswith("error: ") and said.stderr.count("\n") == 1 and word in said.stderr
    assert secret not in said.output
    assert not list(Path().rglob("trial.json")), "something was begun"


class Sending:
    """An MLflow client as far as artifacts go: each run's are copied to where the caller wants them."""

    tracking_uri = "http://server:5000"

    def get_run(self, run):
        return SimpleNamespace(info=SimpleNamespace(artifact_uri=f"mlflow-artifacts:/{run}"))

    def list_artifacts(self, run, folder):
        return [SimpleNamespace(path=f"{folder}/same")]

    def download_artifacts(self, run, name, target):
        return str(shutil.copytree(Path(run), Path(target) / name))


def test_the_parts_of_a_trial_are_kept_apart_when_a_server_sends_them(here):
    """They have the same path in the runs of two configurations."""
    for run in ("a", "b"):
        Path(run).mkdir()
        Path(run, "whose").write_text(run)
    Path("scratch").mkdir()
    found = [artifact(Sending(), run, "trials/same", Path("scratch"), Home("home")) for run in ("a", "b")]
    assert [(folder / "whose").read_text() for folder in found] == ["a", "b"]
