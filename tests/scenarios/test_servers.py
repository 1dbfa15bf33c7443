"""Servers without Ray: a search whose records PostgreSQL has, strangers at its door.

MLflow's own server and Ray nodes: test_cluster.py.
"""

from pathlib import Path

import pytest

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


def test_a_run_without_the_password_is_one_line(database, here):
    file = write_study(Path(), SHORT)
    with environment(known(database) | {"PGPASSFILE": "nowhere"}):
        said = call("run", file, "--home", "home")
    assert said.exit_code == 1, said.output
    assert said.stderr.startswith("error: ") and said.stderr.count("\n") == 1
    assert "no password supplied" in said.stderr
    assert not list(Path().rglob("trial.json")), "something was begun"
