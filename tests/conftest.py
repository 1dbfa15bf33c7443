"""Fixtures that several files of tests use."""

import os
import signal
import sqlite3
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mlflow.store.db import utils

from model import trust
from search.run import worker
from tests.commands import done
from tests.homes import Trained, empty_home, made_up, quickly
from tests.in_process import without_ray
from tests.processes import short_folder
from trainer.engine import native, torch_backend
from trainer.files import trusted


def pytest_configure():
    """What the tests have compiled is kept for the next time, apart for each version of torch."""
    cache = Path.home() / ".cache" / "adder-search-tests" / f"torch-{version('torch')}"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache))
    os.environ["MKL_CBWR"] = "COMPATIBLE"  # the same bits from LAPACK on every CPU
    # A shell starts what runs in its background deaf to Ctrl-C, and so would be what tests start; so does nohup.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


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
    """Evaluations in no time."""
    whole = torch_backend.selection
    with pytest.MonkeyPatch.context() as patch:
        for module in (torch_backend, native):
            patch.setattr(module, "selection", lambda task: whole(task, 200))
        yield


@pytest.fixture
def quick():
    """Without pictures and decoded additions."""
    with quickly():
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
    return empty_home(tmp_path)


@pytest.fixture
def no_ray():
    """`run`, called in this process, trains here."""
    with without_ray():
        yield


@pytest.fixture
def nothing_trusted(tmp_path, monkeypatch):
    """A user who has let no code run yet. What he lets is kept apart from compiled programs, which all tests share."""
    trust.NAMED.clear()
    monkeypatch.setattr(trusted, "_here", set())
    for name in ("cache_folder", "check_cache"):
        monkeypatch.setattr(trusted, name, lambda: tmp_path)


@pytest.fixture
def trained(monkeypatch):
    """Workers train nothing. Returns what they did."""
    did = Trained()
    monkeypatch.setattr(worker, "work", lambda name, attempt, on_gpu: made_up(name, attempt, did))
    return did


@pytest.fixture(scope="session")
def smoke(tmp_path_factory):
    """A home with the shipped study `smoke`, run once for all who read it. A namespace: home."""
    home = tmp_path_factory.mktemp("smoke")
    with without_ray():
        done("run", "smoke", "--home", home)
    return SimpleNamespace(home=home)


@pytest.fixture
def temporary():
    """A folder for TMPDIR and RAY_TMPDIR, whose path is short enough for Ray's sockets."""
    with short_folder() as folder:
        yield folder
