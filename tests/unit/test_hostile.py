"""Databases with values no column can have, pipes, names that are paths, text that is code: refused in one line."""

import json
import os
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch

from model import PRESETS, make_spec
from search.store.ledger import Ledger
from search.store.study_records import StudyRecords
from tests import needs_plugins
from tests.commands import call, fails_with_one
from tests.homes import STUDY, empty_home, two_studies
from tracking import ui
from tracking.store import STUDY_TAG, connect
from trainer.checkpoints.checkpoint import JSON_FILE, THETA_FILE, Checkpoint

pytestmark = pytest.mark.usefixtures("here")
EVIL = "../../x"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET steps = 'many'",
        "UPDATE ledger SET outcome = char(27) || '[31m'",
        f"UPDATE ledger_configurations SET spec = '{'[' * 100_000}'",
        "UPDATE ledger_studies SET definition = '[]'",
    ],
    ids=lambda statement: statement[:60],
)
def test_what_no_column_can_have(statement):
    with closing(sqlite3.connect(f"{two_studies()}/records.db")) as db, db:
        db.execute(statement)
    line = fails_with_one(1, "report", "sweep", "-o", "x.html", "--home", "runs")
    assert "records.db: " in line and line.isprintable() and len(line) < 2_000


VIEW, TRIGGER = "VIEW x AS SELECT 1", "TRIGGER x AFTER INSERT ON runs BEGIN SELECT 1; END"


@pytest.mark.parametrize(("name", "thing"), [("records.db", VIEW), ("mlflow.db", VIEW), ("mlflow.db", TRIGGER)])
def test_what_is_no_table(name, thing):
    """A view can be without end, and a trigger writes what it likes."""
    with closing(sqlite3.connect(f"{two_studies()}/{name}")) as db, db:
        db.execute(f"CREATE {thing}")
    assert f"{name}: has 'x', which is no table: no " in fails_with_one(1, "sync", "sweep", "--home", "runs")


def test_a_study_names_no_store():
    """It would be sent the environment's password."""
    for key in ("tracking_uri", "store", "database"):
        Path("study.yaml").write_text(f"{STUDY}{key}: http://127.0.0.1:9\n")
        assert f"{key}: unknown" in fails_with_one(2, "run", "study.yaml", "--dry-run")


@pytest.mark.timeout(60)  # a reader of a pipe waits for ever
@pytest.mark.parametrize("words", [["run", "pipe"], ["verify", "pipe"], ["rerun", "folder"], ["verify", "/dev/zero"]])
def test_pipes_and_devices(words):
    Path("folder").mkdir()
    for name in ("pipe", f"folder/{JSON_FILE}"):
        os.mkfifo(name)
    result = call(*words)
    assert result.exit_code in (1, 2) and result.stderr.startswith("error: "), result.output


@pytest.mark.parametrize("command", ["run", "stop", "pull", "delete"])
def test_a_study_that_is_a_path_is_refused(command):
    Ledger(empty_home("home"))
    assert EVIL in fails_with_one(2, command, EVIL, "--home", "home")


def test_an_experiment_that_is_no_study_is_not_listed(home, capsys):
    """Any program can make one in MLflow's store, by any name."""
    client = connect(home, f"sqlite:///{home.mlflow_db}", creates=True)
    for name in (EVIL, "<script>", "\x1b[31m", "honest"):
        client.create_experiment(name, tags={STUDY_TAG: name})
    client.create_experiment("a colleague's")
    ui.show_studies(client, "http://127.0.0.1:5000/")
    assert [line.strip() for line in capsys.readouterr().out.splitlines() if "http" not in line] == ["honest"]


@pytest.mark.parametrize("change", [{"code": ["\x1b[31m"]}, {"spec": {"family": "\x1b[31m"}}], ids=str)
def test_what_a_checkpoint_says_reaches_the_terminal_as_text(change):
    file = Path(checkpoint("hostile", PRESETS["57p"]), JSON_FILE)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert fails_with_one(2, "verify", "hostile").isprintable()


# Files that ask for much


def checkpoint(folder, spec, **about):
    theta_P = about.pop("theta", torch.randn(spec.params, generator=torch.Generator().manual_seed(0)))
    Checkpoint(spec, theta_P, **about).save(Path(folder))
    return folder


@needs_plugins
def test_a_large_model_that_gets_everything_wrong_is_folded_in_seconds():
    path, begun = checkpoint("wrong", make_spec(family="low_rank", width=8)), time.process_time()
    assert " 0 of 250 right, 0 answered differently" in call("fold", path, "-o", "small", code=0).output
    assert time.process_time() - begun < 10


def write_huge(part):
    """A checkpoint with a part of a terabyte without blocks, or one whose JSON is as long as it may be."""
    path = Path(checkpoint("huge", PRESETS["57p"])) / part
    if part == "keys":
        Path("huge", JSON_FILE).write_text(json.dumps(dict.fromkeys(map(str, range(1_000_000)))))
        return "huge"
    path.touch()
    os.truncate(path, 1 << 40)
    return path if part == "theirs.pt" else "huge"


@pytest.mark.parametrize("part", [JSON_FILE, THETA_FILE, "theirs.pt", "keys"])
def test_a_huge_checkpoint_is_refused_in_seconds(part):
    """By the one function with which every command reads a checkpoint."""
    path, begun = write_huge(part), time.process_time()
    assert re.search("larger than any|(not a|is no) checkpoint", fails_with_one(2, "verify", path))
    assert time.process_time() - begun < 10


STARTING = """
name: starting
model: 57p
start: {checkpoint: bad}
seeds: {first: 5, count: 2}
"""


@pytest.mark.parametrize("words", ["run s.yaml", "run s.yaml --dry-run", "resume s.yaml"])
@pytest.mark.parametrize("content", [None, "{}"])
def test_a_start_that_is_no_checkpoint_is_refused_before_anything_is_opened(words, content):
    Path("s.yaml").write_text(STARTING)
    if content:
        Path("bad").mkdir()
        Path("bad", JSON_FILE).write_text(content)
    assert fails_with_one(2, *words.split()).startswith("s.yaml: start.checkpoint: bad")


def test_a_fresh_start_takes_its_checkpoint_anew(monkeypatch):
    Ledger(empty_home("adder-runs"))
    monkeypatch.setattr(StudyRecords, "list_parents", lambda records: ["what it began with"])
    Path("s.yaml").write_text(STARTING)
    said = fails_with_one(2, "run", "s.yaml", "--fresh", "--dry-run")
    assert said == "s.yaml: start.checkpoint: bad: no such checkpoint"
