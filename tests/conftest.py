"""Fixtures that several files of tests use."""

import sqlite3
from types import SimpleNamespace

import pytest
import torch
from mlflow.store.db import utils

from search.store.home import Home
from tests.commands import adder_search
from trainer import programs


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tests state what one thread computes; more threads may add in another order."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def tables_are_copied():
    """MLflow makes a database by all its migrations since 2019, which takes two seconds: in a process of
    tests once, then by a copy. Commands in processes of their own make theirs as ever.
    """
    made, template = utils._initialize_tables, sqlite3.connect(":memory:", check_same_thread=False)

    def initialize(engine):
        if engine.url.get_backend_name() != "sqlite":
            made(engine)
            return
        is_first = not template.execute("select count(*) from sqlite_master").fetchone()[0]
        if is_first:
            made(engine)
        with engine.connect() as connection:
            mine = connection.connection.driver_connection
            given, taken = (mine, template) if is_first else (template, mine)
            given.backup(taken)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_initialize_tables", initialize)
        yield
    template.close()


@pytest.fixture(scope="module")
def few_selection_problems():
    """Evaluations of eager banks in no time."""
    whole = programs.selection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "selection", lambda: whole(200))
        yield


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current directory and no settings from outside."""
    for name in ("ADDER_SEARCH_HOME", "ADDER_SEARCH_DATABASE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def home(tmp_path):
    """An empty home."""
    home = Home(tmp_path)
    home.create()
    return home


@pytest.fixture(scope="session")
def smoke(tmp_path_factory):
    """`adder-search run smoke` to its end, from a folder of things that must not be taken for ours.

    A namespace: folder, home, what the command said, and the file that a decoy makes when it is imported.
    """
    folder = tmp_path_factory.mktemp("smoke")
    marker = folder / "a-decoy-was-imported"
    decoy = f"open({str(marker)!r}, 'w').close()\nprint('decoy')\nraise RuntimeError('decoy')\n"
    for name in ("model/__init__.py", "search.py", "trainer/__init__.py", "studies/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(decoy)
    said = adder_search("run", "smoke", cwd=folder)
    return SimpleNamespace(folder=folder, home=folder / "adder-runs", said=said, marker=marker)
