"""Which MLflow store is told what: passwords go where the user said, artifacts where the store has them."""

import base64
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from model import PRESETS
from search.cli import render
from search.errors import Failure, UserError
from search.run.driver import Ended
from search.store.home import Home, below
from search.study.file import load_study
from search.study.trial import Configuration
from tests import needs_plugins
from tests.commands import call, fails_with_one
from tests.homes import study_of, two_studies
from tests.processes import free_port, listening
from tests.unit.test_counting import GROKKED, rows
from tracking.projection import describe_study
from tracking.store import check_place, connect
from tracking.tracker import Tracker
from trainer.checkpoints.checkpoint import Checkpoint

SECRET = "dont-tell"


@pytest.fixture
def server():
    """An MLflow server that refuses everything and remembers who asked: `uri`, `asked` (headers)."""
    asked = []

    def refuse(request):
        asked.append(request.headers.get("Authorization", "nobody"))
        return 403

    with listening(refuse) as uri:
        yield SimpleNamespace(uri=uri, asked=asked)


@pytest.fixture(autouse=True)
def password(monkeypatch, here):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)


ME = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()


@pytest.mark.parametrize(
    ("words", "proxies"),
    [
        (("run", "smoke"), {}),
        (("run", "smoke"), {"no_proxy": "another"}),
        (("run", "smoke"), {"http_proxy": "http://proxy:1", "no_proxy": "127.0.0.1"}),
        pytest.param(("register", "c"), {}, marks=needs_plugins),
    ],
)
def test_a_server_that_is_not_there_is_said_at_once(words, proxies, monkeypatch):
    """Also one that no proxy is asked for."""
    uri = f"http://127.0.0.1:{free_port()}"
    for name, value in {"MLFLOW_TRACKING_URI": uri, **proxies}.items():
        monkeypatch.setenv(name, value)
    Checkpoint(PRESETS["57p"], PRESETS["57p"].initial(1)).save(Path("c"))
    start = time.monotonic()
    assert fails_with_one(1, *words) == f"MLflow store {uri}: is away (Connection refused)"
    assert time.monotonic() - start < 5 and not Path("adder-runs/mlflow.db").exists()
    assert "nothing has run yet" in call("status").stdout


# ---- which store is told the password


def test_the_environments_store_gets_it(server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri + "/")
    line = fails_with_one(1, "run", "smoke")
    assert f"MLflow store {server.uri}" in line and SECRET not in line and not list(Path().rglob("records.db"))
    assert set(server.asked) == {ME}


# ---- a token in an address is a password


@pytest.mark.parametrize(
    "uri", ["me:dont-tell@host", "host/?token=dont-tell", "me:p@dont-tell@host", "host/#dont-tell"]
)
def test_one_of_the_environment_is_neither_printed_nor_kept(uri, server, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://" + uri.replace("host", server.uri.removeprefix("http://")))
    for words in (["run", "smoke"], ["ui", "--no-browser"]):
        said = call(*words, "--home", "home")
        assert said.exit_code and SECRET not in said.output, said.output
    kept = [f for f in Path().rglob("*") if f.is_file() and SECRET.encode() in f.read_bytes()]
    assert kept == []


@pytest.mark.parametrize(
    ("uri", "shown"),
    {
        "http://host:5000O": "http://host:5000O", "http://host:99999": "http://host:99999",
        "http://a..b": "http://a..b", "sqlite:mlflow.db": "sqlite:mlflow.db", "http://me:abc/def@host": "http://host",
    }.items(),
)  # fmt: skip
def test_what_is_no_address_is_a_line_without_a_part_of_its_password(uri, shown, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert fails_with_one(2, "run", "smoke") == f"MLFLOW_TRACKING_URI: {shown} is no address of an MLflow store"


# ---- names that become paths


@pytest.mark.parametrize("name", ["..", "/etc", "a/b", "", "\x00", "a\n", "~", "x" * 200, None])
def test_a_name_that_is_a_path_is_none(name, tmp_path):
    with pytest.raises(UserError, match="no name"):
        below(tmp_path, "trials", name)


SERVER, FILE = "https://mlflow.example/base", "sqlite:////somewhere/mlflow.db"
HOME = "file://HOME/artifacts"


@pytest.mark.parametrize(
    ("store", "place", "told"),
    [
        (SERVER, "file:///home/me/.ssh", False), (SERVER, "/home/me/.ssh", False), (SERVER, "../x", False),
        (SERVER, "http://stranger/x", False), (SERVER, "mlflow-artifacts://stranger/x", False),
        (SERVER, "ftp://stranger/x", False), (SERVER, "mlflow-artifacts://mlflow.example/x", True),
        (SERVER, "mlflow-artifacts:/x", True), (SERVER, "s3://bucket/x", True),
        (FILE, "file:///home/me/.ssh", False), (FILE, f"{HOME}/../../.ssh", False),
        (FILE, "http://stranger/x", False), (FILE, "/x", False), (FILE, f"{HOME}/x/0a1b", True),
    ],
)  # fmt: skip
def test_a_store_names_no_place_but_its_own(store, place, told):
    """MLflow would read and write there, and send its password to whoever is named.

    A server has artifacts with itself or in an object store, a file in its home.
    """
    place = place.replace("file://HOME/artifacts", Home("home").artifacts.as_uri())
    run = SimpleNamespace(info=SimpleNamespace(run_id="0a1b", artifact_uri=place))
    client = SimpleNamespace(tracking_uri=store)
    if told:
        check_place(client, Home("home"), run)
    else:
        with pytest.raises(Failure, match=r"run 0a1b .* is no place of"):
            check_place(client, Home("home"), run)


def test_a_home_from_elsewhere_has_nothing_written_beside_it(tmp_path):
    """Its MLflow database says where artifacts go."""
    home, study = Home(two_studies()), study_of()
    with closing(sqlite3.connect(home.mlflow_db)) as db, db:
        db.execute("UPDATE runs SET artifact_uri = ?", ((tmp_path / "outside").as_uri(),))
    tracker = Tracker(connect(home, creates=True), home, study)
    configuration = Configuration(*study.listed[0])
    for write in (lambda: describe_study(tracker), lambda: tracker.run_of(configuration)):
        with pytest.raises(Failure, match="no place of"):
            write()
    assert not (tmp_path / "outside").exists()


NAMED = "http://host:5000"


@pytest.mark.parametrize(
    ("named", "prefix"),
    [("", ""), (NAMED, f"MLFLOW_TRACKING_URI={NAMED} "), (f"http://me:{SECRET}@host", ""),
     ("sqlite:///a b?x=1&y", "")],
)  # fmt: skip
def test_printed_commands_ask_the_store_that_the_run_has_written(named, prefix, home, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", named)

    def said(**more):
        records = SimpleNamespace(home=home, list_configurations=dict, list_proposals=list)
        return render.summary(load_study("57p"), "57p", records, Ended(rows=rows(GROKKED), **more))

    lines = said().splitlines()
    (pulled,), (shown,) = ([line for line in lines if f"adder-search {word}" in line] for word in ("pull", "ui"))
    assert pulled.startswith("  adder-search pull 57p ") and shown.startswith(f"  {prefix}adder-search ui")
    assert SECRET not in "".join(lines)
    assert f"  {prefix}adder-search run 57p" in said(unwritten=True, interrupted=True)
    assert f": {prefix}adder-search sync 57p" in said(unwritten=True)
