"""Databases with values no column can have, pipes, names that are paths, text that is code: refused in one line."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from model import PRESETS
from search.cli import ui
from search.store.home import Home
from search.store.ledger import Ledger
from search.tracking.tracking import connect
from tests.commands import call, fails_with_one
from tests.homes import two_studies
from trainer.checkpoints.checkpoint import JSON_FILE, Checkpoint

pytestmark = pytest.mark.usefixtures("here")
EVIL = "../../x"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET steps = 'many'",
        "UPDATE ledger SET outcome = char(27) || '[31m'",
        "UPDATE ledger SET trial = '../../x'",
        f"UPDATE ledger_configurations SET spec = '{'[' * 100_000}'",
        "UPDATE ledger_studies SET definition = '[]'",
    ],
    ids=lambda statement: statement[:60],
)
def test_what_no_column_can_have(statement):
    with closing(sqlite3.connect(f"{two_studies()}/ledger.db")) as db, db:
        db.execute(statement)
    line = fails_with_one(1, "report", "sweep", "-o", "x.html", "--home", "runs")
    assert "ledger.db: " in line and line.isprintable() and len(line) < 2_000
    assert not Path("x.html").exists()


@pytest.mark.timeout(60)  # a reader of a pipe waits for ever
@pytest.mark.parametrize(
    "words", [["run", "pipe"], ["verify", "pipe"], ["rerun", "folder"], ["verify", "/dev/zero"]]
)
def test_pipes_and_devices(words):
    Path("folder").mkdir()
    for name in ("pipe", f"folder/{JSON_FILE}"):
        os.mkfifo(name)
    result = call(*words)
    assert result.exit_code in (1, 2) and result.stderr.startswith("error: "), result.output


@pytest.mark.parametrize("command", ["run", "stop", "pull", "delete"])
def test_a_study_that_is_a_path_is_refused(command):
    home = Home("home")
    home.create()
    Ledger(home)
    assert EVIL in fails_with_one(2, command, EVIL, "--home", "home")


@pytest.mark.parametrize("name", [EVIL, "<script>", "\x1b[31m"])
def test_an_experiment_that_is_no_study_is_not_listed(name, home, capsys):
    """Any program can make one in MLflow's store, by any name."""
    client = connect(home, f"sqlite:///{home.mlflow_db}")
    for each in (name, "honest"):
        client.create_experiment(each)
    ui.show_studies(client, "http://127.0.0.1:5000/")
    assert [line.strip() for line in capsys.readouterr().out.splitlines() if "http" not in line] == ["honest"]


@pytest.mark.parametrize("change", [{"code": ["\x1b[31m"]}, {"spec": {"family": "\x1b[31m"}}], ids=str)
def test_what_a_checkpoint_says_reaches_the_terminal_as_text(change):
    spec = PRESETS["57p"]
    Checkpoint(spec, spec.initial(3)).save(Path("hostile"))
    file = Path("hostile", JSON_FILE)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert fails_with_one(2, "verify", "hostile").isprintable()
